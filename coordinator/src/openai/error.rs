//! Failures as OpenAI's error object, and the one mapping between them and our classes.

use super::fields::{Rename, in_body};
use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use service::{Class, Error};
use std::time::Duration;
use utoipa::ToSchema;

/// OpenAI's clients read the time to wait here first, in milliseconds.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// The kind of everything that is the client's own fault.
const INVALID: &str = "invalid_request_error";

/// A call that failed, ready to be told.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    body: ErrorBody,
    retry_after: Option<Duration>,
}

/// What a client reads of a failure.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ErrorBody {
    error: ErrorObject,
}

/// A failure.
#[derive(Debug, Serialize, ToSchema)]
struct ErrorObject {
    /// What failed, for people.
    message: String,
    /// The kind of failure.
    r#type: &'static str,
    /// The field of the body that is wrong.
    param: Option<String>,
    /// Tells failures of a kind apart.
    code: Option<&'static str>,
}

impl Failure {
    /// A failure of the request itself, whatever field it lies in.
    pub(super) fn request(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, INVALID, None, None, message.into())
    }

    /// A field of the body is wrong. Clients may show the message alone, so it names the field too.
    pub(super) fn invalid(param: impl Into<String>, message: impl AsRef<str>) -> Self {
        let param = param.into();
        let message = format!("{param}: {}", message.as_ref());
        Self::new(StatusCode::BAD_REQUEST, INVALID, Some(param), None, message)
    }

    /// What the service says of a request that calls its fields as `own` says.
    pub(super) fn of(error: Error, own: &[Rename]) -> Self {
        match error.class {
            Class::Invalid { field } if !field.is_empty() => {
                Self::invalid(in_body(&field, own), error.message)
            }
            class => Self::of_class(class, error.message),
        }
    }

    fn of_class(class: Class, message: String) -> Self {
        let (status, kind, code) = match class {
            Class::Invalid { .. } => (StatusCode::BAD_REQUEST, INVALID, None),
            Class::NotFound => (StatusCode::NOT_FOUND, INVALID, Some("model_not_found")),
            Class::Overloaded { .. } => (
                StatusCode::TOO_MANY_REQUESTS,
                "rate_limit_error",
                Some("rate_limit_exceeded"),
            ),
            Class::Unauthenticated => (
                StatusCode::UNAUTHORIZED,
                "authentication_error",
                Some("invalid_api_key"),
            ),
            Class::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "service_unavailable_error",
                Some("unavailable"),
            ),
            Class::Deadline => (
                StatusCode::GATEWAY_TIMEOUT,
                "timeout_error",
                Some("deadline_exceeded"),
            ),
            Class::Aborted => (StatusCode::CONFLICT, INVALID, Some("aborted")),
            Class::Mismatch | Class::Internal => {
                (StatusCode::INTERNAL_SERVER_ERROR, "server_error", None)
            }
        };
        let param = matches!(class, Class::NotFound).then(|| "model".to_owned());
        let mut failure = Self::new(status, kind, param, code, message);
        if let Class::Overloaded { retry_after } = class {
            failure.retry_after = Some(retry_after);
        }
        failure
    }

    fn new(
        status: StatusCode,
        kind: &'static str,
        param: Option<String>,
        code: Option<&'static str>,
        message: String,
    ) -> Self {
        let error = ErrorObject {
            message,
            r#type: kind,
            param,
            code,
        };
        Self {
            status,
            body: ErrorBody { error },
            retry_after: None,
        }
    }

    /// Says which of several prompts it is that `param` means.
    pub(super) fn of_prompt(mut self, index: usize) -> Self {
        let error = &mut self.body.error;
        if let Some(rest) = error
            .param
            .as_deref()
            .and_then(|it| it.strip_prefix("prompt"))
        {
            let param = format!("prompt[{index}]{rest}");
            error.message = error.message.replacen(&format!("prompt{rest}"), &param, 1);
            error.param = Some(param);
        }
        self
    }

    /// What a stream that has begun tells of it.
    pub(super) fn body(&self) -> &ErrorBody {
        &self.body
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::of(error, &[])
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, seconds.into());
            // A wait is far below 2^64 milliseconds.
            headers.insert(RETRY_AFTER_MS, (wait.as_millis() as u64).into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_turned_away_learns_when_to_come_back() {
        let class = Class::Overloaded {
            retry_after: Duration::from_millis(1_250),
        };
        let response = Failure::from(Error::new(class, "too many")).into_response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        assert_eq!(response.headers()[RETRY_AFTER_MS], "1250");
    }

    #[test]
    fn a_wrong_field_is_named_in_the_message_too() {
        let failure = Failure::from(Error::invalid("stop.strings[3]", "must not be empty"));
        assert_eq!(failure.status, StatusCode::BAD_REQUEST);
        let error = failure.body.error;
        assert_eq!(error.param.as_deref(), Some("stop[3]"));
        assert_eq!(error.message, "stop[3]: must not be empty");
    }

    #[test]
    fn of_several_prompts_the_wrong_one_is_named() {
        let failure = Failure::from(Error::invalid("prompt.token_ids.ids[7]", "is unknown"));
        let error = failure.of_prompt(2).body.error;
        assert_eq!(error.param.as_deref(), Some("prompt[2][7]"));
        assert_eq!(error.message, "prompt[2][7]: is unknown");
    }
}
