//! How peers prove who they are, and how we do.

use super::open;
use crate::Error;
use crate::config::ConfigError;
use crate::keyring::Tokens;
use crate::reload::Reloaded;
use std::fmt;
use std::path::Path;
use tonic::metadata::MetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};
use tonic::{Request, Status};

/// A channel whose calls carry our token, where there is one.
pub type PeerChannel = InterceptedService<Channel, Bearer>;

/// What channels to peers are made with.
#[derive(Clone, Default)]
pub struct Peers {
    tls: Option<ClientTlsConfig>,
    tokens: Option<Reloaded<Tokens>>,
}

/// Puts the token into a call's headers.
#[derive(Clone)]
pub struct Bearer(Option<Reloaded<Tokens>>);

impl Peers {
    /// Trusts peers with a certificate of an authority in the PEM file `ca`, and shows them `own`:
    /// the PEM files of a certificate and its key.
    ///
    /// # Errors
    /// Names the file.
    pub fn trusting(ca: &Path, own: Option<(&Path, &Path)>) -> Result<Self, ConfigError> {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?));
        if let Some((cert, key)) = own {
            tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
        }
        Ok(Self {
            tls: Some(tls),
            tokens: None,
        })
    }

    /// Sends the first of `tokens` with every call, as it is then.
    #[must_use]
    pub fn with_tokens(self, tokens: Reloaded<Tokens>) -> Self {
        Self {
            tokens: Some(tokens),
            ..self
        }
    }

    /// As [`channel`](super::channel), also for `https://host:port`. The name that the peer's
    /// certificate must bear follows a `#` where it is not the host.
    ///
    /// # Errors
    /// [`crate::Class::Invalid`] where `endpoint` is not a valid address, or begins with `https://`
    /// and no authority is trusted.
    pub fn channel(&self, endpoint: &str) -> Result<PeerChannel, Error> {
        let channel = open(endpoint, self.tls.as_ref())?;
        Ok(InterceptedService::new(
            channel,
            Bearer(self.tokens.clone()),
        ))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(tokens) = &self.0 {
            let value = format!("Bearer {}", tokens.borrow().first());
            let mut value = MetadataValue::try_from(value)
                .map_err(|_| Status::internal("the token cannot be sent"))?;
            // HTTP/2 then keeps it out of its tables, and `Debug` out of logs.
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}

impl fmt::Debug for Peers {
    /// Without keys: those that it holds would print theirs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers")
            .field("tls", &self.tls.is_some())
            .field("tokens", &self.tokens.is_some())
            .finish()
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bearer({})", self.0.is_some())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let cannot = |error| ConfigError(format!("{}: cannot read it: {error}", path.display()));
    std::fs::read(path).map_err(cannot)
}
