//! What operators set of a server.

use crate::config::ConfigError;
use crate::tls::ServerFiles;
use rustls::ServerConfig;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const MAX_CONNECTIONS: u32 = 1000;
const HEADER_TIMEOUT_MS: u64 = 30_000;
const BODY_TIMEOUT_MS: u64 = 60_000;

/// TLS, and how much connections may take.
#[derive(Debug, Clone, clap::Args)]
pub struct ServerOptions {
    /// Speaks TLS, with the certificate in this PEM file, and those between it and its authority.
    /// Read again on SIGHUP
    #[arg(long, env = "SPECDEC_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// The private key of --tls-cert, a PEM file
    #[arg(long, env = "SPECDEC_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Takes connections only from clients with a certificate of an authority in this PEM file
    #[arg(long, env = "SPECDEC_TLS_CLIENT_CA", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,

    /// Serves other machines without what protects it: see --listen
    #[arg(long, env = "SPECDEC_INSECURE")]
    pub insecure: bool,

    /// Connections that are open at once; more are closed at once
    #[arg(long, env = "SPECDEC_MAX_CONNECTIONS", default_value_t = MAX_CONNECTIONS,
        value_name = "CONNECTIONS", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,

    /// Connections that one address may have open at once; of IPv6, one network of 64 bits. Unset
    /// sets no limit of its own: a proxy before the server is one address
    #[arg(long, env = "SPECDEC_MAX_CONNECTIONS_PER_PEER", value_name = "CONNECTIONS",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections_per_peer: Option<u32>,

    /// How long a client may take to begin a connection, to send a request's headers, and, over
    /// HTTP/1, to send the next request, in milliseconds
    #[arg(long, env = "SPECDEC_HEADER_TIMEOUT_MS", default_value_t = HEADER_TIMEOUT_MS,
        value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub header_timeout_ms: u64,

    /// How long a client may take to send a request's body, in milliseconds. Streams to workers have
    /// no such limit
    #[arg(long, env = "SPECDEC_BODY_TIMEOUT_MS", default_value_t = BODY_TIMEOUT_MS,
        value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub body_timeout_ms: u64,
}

impl Default for ServerOptions {
    /// As the flags' defaults: no TLS.
    fn default() -> Self {
        Self {
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            insecure: false,
            max_connections: MAX_CONNECTIONS,
            max_connections_per_peer: None,
            header_timeout_ms: HEADER_TIMEOUT_MS,
            body_timeout_ms: BODY_TIMEOUT_MS,
        }
    }
}

impl ServerOptions {
    /// How long a request's headers may take.
    pub fn header_timeout(&self) -> Duration {
        Duration::from_millis(self.header_timeout_ms)
    }

    /// How long a request's body may take.
    pub fn body_timeout(&self) -> Duration {
        Duration::from_millis(self.body_timeout_ms)
    }

    /// True where clients must show a certificate.
    pub fn knows_clients(&self) -> bool {
        self.tls_client_ca.is_some()
    }

    /// True where what is said is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls_cert.is_some()
    }

    /// Checks that the flags go together and that the files can be read.
    ///
    /// # Errors
    /// Names the flag.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.read_tls().map(drop)
    }

    /// Refuses to serve other machines unless `protected`, or where the operator insists.
    /// `remedy` says what to set.
    ///
    /// # Errors
    /// Says what to set.
    pub fn check_exposure(
        &self,
        listen: SocketAddr,
        protected: bool,
        remedy: &str,
    ) -> Result<(), ConfigError> {
        if protected || self.insecure || listen.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        Err(ConfigError(format!(
            "--listen: other machines could reach {listen} and nothing protects it: set {remedy}; or \
             accept that with --insecure"
        )))
    }

    /// What the TLS files say, where there are any.
    pub(super) fn read_tls(&self) -> Result<Option<ServerConfig>, ConfigError> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => {
                let client_ca = self.tls_client_ca.as_deref();
                ServerFiles {
                    cert,
                    key,
                    client_ca,
                }
                .read()
                .map(Some)
            }
            (Some(_), None) => Err(needs("--tls-cert", "--tls-key")),
            (None, Some(_)) => Err(needs("--tls-key", "--tls-cert")),
            (None, None) if self.tls_client_ca.is_some() => {
                Err(needs("--tls-client-ca", "--tls-cert"))
            }
            (None, None) => Ok(None),
        }
    }
}

fn needs(flag: &str, other: &str) -> ConfigError {
    ConfigError(format!("{flag}: needs {other} as well"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_need_each_other_are_named() {
        let set = |cert: bool, key: bool, ca: bool| ServerOptions {
            tls_cert: cert.then(|| "c".into()),
            tls_key: key.then(|| "k".into()),
            tls_client_ca: ca.then(|| "a".into()),
            ..ServerOptions::default()
        };
        set(false, false, false).validate().expect("no TLS");
        for (options, message) in [
            (set(true, false, false), "--tls-cert: needs --tls-key"),
            (set(false, true, true), "--tls-key: needs --tls-cert"),
            (set(false, false, true), "--tls-client-ca: needs --tls-cert"),
        ] {
            let error = options.validate().expect_err(message).0;
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn other_machines_are_served_only_with_protection_or_on_demand() {
        let check = |listen: &str, insecure, protected| {
            let options = ServerOptions {
                insecure,
                ..ServerOptions::default()
            };
            options.check_exposure(listen.parse().expect("address"), protected, "--x")
        };
        for loopback in [
            "127.0.0.1:1",
            "127.9.9.9:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            check(loopback, false, false).expect(loopback);
        }
        for open in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "192.0.2.1:1"] {
            let error = check(open, false, false).expect_err(open).0;
            for word in [open, "--listen", "--x", "--insecure"] {
                assert!(error.contains(word), "{word} in {error}");
            }
            check(open, true, false).expect("on demand");
            check(open, false, true).expect("protected");
        }
    }
}
