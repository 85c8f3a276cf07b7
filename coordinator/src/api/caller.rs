//! What a call's headers say, and its body does not.

use crate::access::Identity;
use crate::telemetry::RequestId;
use axum::extract::MatchedPath;
use axum::http::{Extensions, HeaderMap};
use service::telemetry::traces;
use std::sync::Arc;
use std::time::{Duration, Instant as Time};
use tokio::time::Instant;

/// How much sooner than its deadline a call is ended, so that its client hears of it from us. The
/// transport keeps the same deadline, and says that the call was cancelled.
const AHEAD: Duration = Duration::from_millis(3);

/// Who asks, and on what terms.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Whose key came with the call.
    pub(crate) identity: Identity,
    /// When the client stops waiting.
    pub(crate) deadline: Option<Instant>,
    /// The W3C trace context that the call belongs to; empty where it is not traced.
    pub(crate) traceparent: String,
    /// What the call is named in logs, traces and its answer.
    pub(crate) request_id: RequestId,
    /// What is called: the path of the service or of the resource.
    pub(crate) call: Arc<str>,
    /// When the call arrived.
    pub(crate) arrived: Time,
}

impl Default for Caller {
    fn default() -> Self {
        Self {
            identity: Identity::default(),
            deadline: None,
            traceparent: String::new(),
            request_id: RequestId::default(),
            call: Arc::default(),
            arrived: Time::now(),
        }
    }
}

impl Caller {
    /// The caller of a call that came with these, over HTTP or gRPC.
    pub(crate) fn new(headers: &HeaderMap, extensions: &Extensions) -> Self {
        let path = extensions.get::<MatchedPath>();
        Self {
            identity: extensions.get().cloned().unwrap_or_default(),
            deadline: timeout(headers)
                .map(|timeout| Instant::now() + timeout.saturating_sub(AHEAD)),
            traceparent: traceparent(headers).unwrap_or_default(),
            request_id: extensions.get().cloned().unwrap_or_default(),
            call: path.map_or_else(Arc::default, |path| path.as_str().into()),
            arrived: Time::now(),
        }
    }
}

/// The trace context of a call: what is none is as good as absent.
fn traceparent(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("traceparent")?.to_str().ok()?;
    traces::is_traceparent(value).then(|| value.to_owned())
}

/// What the header `grpc-timeout` says: at most eight digits and a unit. One that says anything else
/// is as good as none, as the transport has it.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_digits_and_a_unit() {
        let timeout = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", value.parse().unwrap());
            timeout(&headers)
        };
        for (value, expected) in [
            ("2H", Duration::from_secs(7200)),
            ("3M", Duration::from_secs(180)),
            ("99999999S", Duration::from_secs(99_999_999)),
            ("250m", Duration::from_millis(250)),
            ("1u", Duration::from_micros(1)),
            ("7n", Duration::from_nanos(7)),
        ] {
            assert_eq!(timeout(value), Some(expected), "{value}");
        }
        for value in [
            "",
            "S",
            "5",
            "-1S",
            "+1S",
            "1 S",
            "123456789S",
            "1s",
            "1.5S",
        ] {
            assert_eq!(timeout(value), None, "{value}");
        }
    }
}
