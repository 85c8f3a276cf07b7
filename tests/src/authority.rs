//! A certificate authority for tests, whose files lie in a folder of the test's own.

use anyhow::{Context as _, Result};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::path::{Path, PathBuf};

/// An authority that has certified nobody else.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
    name: String,
    issuer: Issuer<'static, KeyPair>,
}

/// The PEM files of a certificate and its key.
#[derive(Debug, Clone)]
pub struct Certified {
    /// The certificate.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Authority {
    /// A new authority called `name`, with its files in `folder`.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn new(folder: &Path, name: &str) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new([])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key)?;
        let authority = Self {
            folder: folder.to_owned(),
            name: name.to_owned(),
            issuer: Issuer::new(params, key),
        };
        std::fs::write(authority.file(), certificate.pem()).context("write")?;
        Ok(authority)
    }

    /// The PEM file of its own certificate.
    pub fn file(&self) -> PathBuf {
        self.folder.join(format!("{}.pem", self.name))
    }

    /// Certifies `owner`, for servers at loopback addresses and for clients.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn certify(&self, owner: &str) -> Result<Certified> {
        let key = KeyPair::generate()?;
        let names = ["127.0.0.1", "::1", "localhost"].map(str::to_owned);
        let certificate = CertificateParams::new(names)?.signed_by(&key, &self.issuer)?;
        let at = |kind| self.folder.join(format!("{}-{owner}.{kind}", self.name));
        let certified = Certified {
            cert: at("crt"),
            key: at("key"),
        };
        std::fs::write(&certified.cert, certificate.pem()).context("write")?;
        std::fs::write(&certified.key, key.serialize_pem()).context("write")?;
        Ok(certified)
    }
}

impl Certified {
    /// Names the files as the flags `--{prefix}-cert` and `--{prefix}-key` take them.
    pub fn flags(&self, prefix: &str) -> Vec<String> {
        let flag = |kind: &str, path: &Path| format!("--{prefix}-{kind}={}", path.display());
        vec![flag("cert", &self.cert), flag("key", &self.key)]
    }
}
