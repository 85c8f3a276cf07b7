//! Certificates and keys, from PEM files. Knows nothing of what is said over TLS.

use crate::config::ConfigError;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::path::Path;
use std::sync::Arc;

/// What a server proves itself with, and whom it asks for a proof.
#[derive(Debug, Clone)]
pub(crate) struct ServerFiles<'a> {
    /// Its certificate and those between it and its authority.
    pub(crate) cert: &'a Path,
    /// The private key of its certificate.
    pub(crate) key: &'a Path,
    /// The authorities of clients' certificates. Where set, every client needs one.
    pub(crate) client_ca: Option<&'a Path>,
}

impl ServerFiles<'_> {
    /// Reads the files. HTTP/2 and HTTP/1.1 are offered.
    ///
    /// # Errors
    /// Names the flag and the file.
    pub(crate) fn read(&self) -> Result<ServerConfig, ConfigError> {
        let chain = certificates("--tls-cert", self.cert)?;
        let key = PrivateKeyDer::from_pem_file(self.key).map_err(|_| {
            // The parser's own words may hold some of the file.
            wrong("--tls-key", self.key, "holds no readable private key")
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| ConfigError(format!("TLS: {error}")))?;
        let builder = match self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates("--tls-client-ca", path)? {
                    roots
                        .add(certificate)
                        .map_err(|error| wrong("--tls-client-ca", path, error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                    .build()
                    .map_err(|error| wrong("--tls-client-ca", path, error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| wrong("--tls-cert", self.cert, error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The certificates in the file at `path`, which `flag` names.
fn certificates(flag: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let certificates: Vec<_> = read.map_err(|error| wrong(flag, path, error))?;
    if certificates.is_empty() {
        return Err(wrong(flag, path, "holds no certificate"));
    }
    Ok(certificates)
}

fn wrong(flag: &str, path: &Path, problem: impl std::fmt::Display) -> ConfigError {
    ConfigError(format!("{flag}: {}: {problem}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_file_is_refused_with_the_flag_and_never_with_a_key() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let at = |name: &str| folder.path().join(name);
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
        let other = rcgen::KeyPair::generate().expect("made");
        std::fs::write(at("cert"), made.cert.pem()).expect("write");
        std::fs::write(at("key"), made.signing_key.serialize_pem()).expect("write");
        std::fs::write(at("other-key"), other.serialize_pem()).expect("write");
        std::fs::write(at("text"), "-----BEGIN PRIVATE KEY-----\ncanary").expect("write");
        let read = |cert: &str, key: &str, client_ca: Option<&str>| {
            let (cert, key, client_ca) = (at(cert), at(key), client_ca.map(at));
            let files = ServerFiles {
                cert: &cert,
                key: &key,
                client_ca: client_ca.as_deref(),
            };
            files.read().map(drop).map_err(|error| error.0)
        };
        read("cert", "key", None).expect("valid");
        read("cert", "key", Some("cert")).expect("valid");
        for (cert, key, ca, flag) in [
            ("missing", "key", None, "--tls-cert"),
            ("text", "key", None, "--tls-cert"),
            ("cert", "missing", None, "--tls-key"),
            ("cert", "text", None, "--tls-key"),
            ("cert", "other-key", None, "--tls-cert"),
            ("cert", "key", Some("key"), "--tls-client-ca"),
        ] {
            let error = read(cert, key, ca).expect_err(flag);
            assert!(error.starts_with(flag), "{error}");
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
