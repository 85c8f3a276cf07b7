//! gRPC channels to peers. Knows nothing of what is called over them.

use crate::Error;
use std::time::Duration;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
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
    let parsed = Endpoint::from_shared(endpoint.to_owned())
        .map_err(|_| invalid(endpoint, "is not an address"))?;
    if parsed.uri().scheme_str() != Some("http") {
        return Err(invalid(endpoint, "does not start with http://"));
    }
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
pub async fn is_serving(channel: Channel, service: &str, deadline: Duration) -> bool {
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
