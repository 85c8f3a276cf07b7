//! gRPC channels to peers. Knows nothing of what is called over them.

mod peers;

pub use peers::{Bearer, PeerChannel, Peers};

use crate::Error;
use std::time::Duration;
use tonic::Code;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// How long a connection may take to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How often a silent connection is probed, and how long the answer may take. A peer that vanished
/// without closing is noticed within their sum.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// A channel to `endpoint` (`http://host:port`), with keepalive and without Nagle's delay. It
/// connects when first used, and again after a loss; calls have no deadline but their own. Must be
/// called within a Tokio runtime.
///
/// Callers set [`crate::server::MAX_MESSAGE_BYTES`] on the clients that they build over it.
///
/// # Errors
/// [`crate::Class::Invalid`] where `endpoint` is not a valid address.
pub fn channel(endpoint: &str) -> Result<Channel, Error> {
    open(endpoint, None)
}

/// As [`channel`], with TLS for an `endpoint` that begins with `https://`: as `tls` says, and an
/// error where it says nothing. The name that the peer's certificate must bear follows a `#`, where
/// it is not the host.
fn open(endpoint: &str, tls: Option<&ClientTlsConfig>) -> Result<Channel, Error> {
    let parsed = Endpoint::from_shared(endpoint.to_owned())
        .map_err(|_| invalid(endpoint, "is not an address"))?;
    let parsed = match (parsed.uri().scheme_str(), tls) {
        (Some("http"), _) => parsed,
        (Some("https"), Some(tls)) => {
            let tls = match endpoint.split_once('#') {
                Some((_, name)) => tls.clone().domain_name(name),
                None => tls.clone(),
            };
            let secured = parsed.tls_config(tls);
            secured.map_err(|error| invalid(endpoint, &format!("cannot be secured: {error}")))?
        }
        (Some("https"), None) => {
            return Err(invalid(endpoint, "needs the authority of its certificate"));
        }
        _ => return Err(invalid(endpoint, "does not start with http:// or https://")),
    };
    Ok(parsed
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .connect_lazy())
}

/// Whether `service` says over `channel` that it serves: false where it says otherwise, or does not
/// answer within `deadline`. One that has no health to tell serves, since it answers.
pub async fn is_serving(channel: PeerChannel, service: &str, deadline: Duration) -> bool {
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let mut client = HealthClient::new(channel);
    match tokio::time::timeout(deadline, client.check(request)).await {
        Ok(Ok(answer)) => answer.get_ref().status() == ServingStatus::Serving,
        Ok(Err(status)) => status.code() == Code::Unimplemented,
        Err(_) => false,
    }
}

fn invalid(endpoint: &str, problem: &str) -> Error {
    Error::invalid("endpoint", format!("`{endpoint}` {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;

    #[tokio::test]
    async fn takes_a_name_or_an_address_with_a_port() {
        for endpoint in [
            "http://127.0.0.1:50051",
            "http://[::1]:1",
            "http://draft-0:50051",
        ] {
            assert!(channel(endpoint).is_ok(), "{endpoint}");
        }
    }

    #[tokio::test]
    async fn https_takes_an_authority_and_any_host_or_name() {
        let tls = ClientTlsConfig::new();
        for endpoint in [
            "https://127.0.0.1:50051",
            "https://draft-0:50051",
            "https://[::1]:50051#drafts.svc",
            "https://127.0.0.1:50051#drafts.svc",
        ] {
            let open = open(endpoint, Some(&tls));
            assert!(open.is_ok(), "{endpoint}: {open:?}");
        }
    }

    #[tokio::test]
    async fn refuses_what_is_not_an_http_address_and_names_the_field() {
        for endpoint in [
            "",
            "127.0.0.1:50051",
            "localhost:1",
            "https://host:1",
            "http://",
            "http://a b",
        ] {
            let error = channel(endpoint).expect_err(endpoint);
            assert_eq!(
                error.class,
                Class::Invalid {
                    field: "endpoint".into()
                },
                "{endpoint}"
            );
            assert!(error.message.contains(&format!("`{endpoint}`")), "{error}");
        }
    }
}
