//! The closed set of error classes, and the one mapping between them and gRPC.
//!
//! An error says what failed; whether to retry, and what a user is told, its consumer decides from
//! the class. Diagnostics for operators belong in logs, not in [`Error::message`].

use std::time::Duration;
use tonic::{Code, Status, TimeoutExpired};
use tonic_types::{ErrorDetails, StatusExt as _};

/// The domain of the reasons below, as `google.rpc.ErrorInfo` names it.
pub const DOMAIN: &str = "specdec";

/// What kind of failure it is, as far as a caller must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    /// A field of the request is wrong.
    Invalid {
        /// Its path in the request, for example `sampling.top_p`.
        field: String,
    },
    /// What was asked for does not exist.
    NotFound,
    /// Too much is asked at the moment.
    Overloaded {
        /// When to try again.
        retry_after: Duration,
    },
    /// A peer that is needed cannot be reached.
    Unavailable,
    /// A deadline passed.
    Deadline,
    /// Whoever asks did not say who it is, or is not known.
    Unauthenticated,
    /// We gave up what was under way, for a reason that lies with whoever asked: it reads too slowly.
    Aborted,
    /// Peers that must match do not.
    Mismatch,
    /// A defect of ours.
    Internal,
}

impl Class {
    /// Its name for programs, as `google.rpc.ErrorInfo` carries it.
    pub fn reason(&self) -> &'static str {
        self.wire().1
    }

    /// The gRPC code, and the reason in `google.rpc.ErrorInfo` that never changes.
    fn wire(&self) -> (Code, &'static str) {
        match self {
            Self::Invalid { .. } => (Code::InvalidArgument, "INVALID"),
            Self::NotFound => (Code::NotFound, "NOT_FOUND"),
            Self::Overloaded { .. } => (Code::ResourceExhausted, "OVERLOADED"),
            Self::Unavailable => (Code::Unavailable, "UNAVAILABLE"),
            Self::Deadline => (Code::DeadlineExceeded, "DEADLINE"),
            Self::Unauthenticated => (Code::Unauthenticated, "UNAUTHENTICATED"),
            Self::Aborted => (Code::Aborted, "ABORTED"),
            Self::Mismatch => (Code::FailedPrecondition, "MISMATCH"),
            Self::Internal => (Code::Internal, "INTERNAL"),
        }
    }
}

/// A failure with a message that a caller may see.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What kind.
    pub class: Class,
    /// What failed: lowercase, no full stop.
    pub message: String,
}

impl Error {
    /// A failure of `class`.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
        }
    }

    /// A wrong field of a request.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(
            Class::Invalid {
                field: field.into(),
            },
            message,
        )
    }

    /// The failure that a peer or the transport reported as `status`. A lost or refused connection
    /// is [`Class::Unavailable`]; a status that no class stands for is [`Class::Internal`].
    pub fn from_status(status: &Status) -> Self {
        let details = status.get_error_details();
        let class = match status.code() {
            Code::InvalidArgument | Code::OutOfRange => Class::Invalid {
                field: violated_field(&details),
            },
            Code::NotFound => Class::NotFound,
            Code::ResourceExhausted => Class::Overloaded {
                retry_after: details
                    .retry_info()
                    .and_then(|info| info.retry_delay)
                    .unwrap_or_default(),
            },
            Code::Unavailable => Class::Unavailable,
            Code::DeadlineExceeded => Class::Deadline,
            Code::Unauthenticated => Class::Unauthenticated,
            Code::Aborted => Class::Aborted,
            Code::FailedPrecondition => Class::Mismatch,
            Code::Cancelled if is_timeout(status) => Class::Deadline,
            _ if is_transport_failure(status) => Class::Unavailable,
            _ => Class::Internal,
        };
        let message = match &class {
            Class::Invalid { field } => without_field(status.message(), field),
            _ => status.message(),
        };
        Self::new(class, message)
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let (code, reason) = error.class.wire();
        let mut details = ErrorDetails::with_error_info(reason, DOMAIN, []);
        let mut message = error.message;
        match error.class {
            Class::Invalid { field } => {
                details.add_bad_request_violation(&field, &message);
                // Many clients show the message and nothing else.
                message = with_field(&field, &message);
            }
            Class::Overloaded { retry_after } => {
                details.set_retry_info(Some(retry_after));
            }
            Class::NotFound
            | Class::Unavailable
            | Class::Deadline
            | Class::Unauthenticated
            | Class::Aborted
            | Class::Mismatch
            | Class::Internal => {}
        }
        Self::with_error_details(code, message, details)
    }
}

/// What is wrong with `field`, for those who see no details.
fn with_field(field: &str, message: &str) -> String {
    if field.is_empty() {
        message.to_owned()
    } else {
        format!("{field}: {message}")
    }
}

/// Undoes [`with_field`].
fn without_field<'a>(message: &'a str, field: &str) -> &'a str {
    let rest = message.strip_prefix(field);
    rest.and_then(|rest| rest.strip_prefix(": "))
        .unwrap_or(message)
}

/// The first field that `details` complain of; empty where they name none.
fn violated_field(details: &ErrorDetails) -> String {
    details
        .bad_request()
        .and_then(|request| request.field_violations.first())
        .map(|violation| violation.field.clone())
        .unwrap_or_default()
}

/// True where `status` never came over the wire: only a failure on this side has a source.
fn is_transport_failure(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

/// True where `status`, which says cancelled, stands for a deadline that passed. tonic reports one
/// so on either side: the server plainly, the client with a source that tells it from a lost
/// connection.
fn is_timeout(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    let is_plain = cause.is_none();
    while let Some(error) = cause {
        if error.is::<TimeoutExpired>() {
            return true;
        }
        cause = error.source();
    }
    is_plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_class() -> [(Class, Code); 9] {
        [
            (
                Class::Invalid {
                    field: "sampling.top_p".into(),
                },
                Code::InvalidArgument,
            ),
            (Class::NotFound, Code::NotFound),
            (
                Class::Overloaded {
                    retry_after: Duration::from_millis(1_250),
                },
                Code::ResourceExhausted,
            ),
            (Class::Unavailable, Code::Unavailable),
            (Class::Deadline, Code::DeadlineExceeded),
            (Class::Unauthenticated, Code::Unauthenticated),
            (Class::Aborted, Code::Aborted),
            (Class::Mismatch, Code::FailedPrecondition),
            (Class::Internal, Code::Internal),
        ]
    }

    #[test]
    fn every_class_survives_the_wire() {
        for (class, code) in every_class() {
            let error = Error::new(class, "the reason for people");
            let status = Status::from(error.clone());
            assert_eq!(status.code(), code);
            // What a peer reads: only headers cross, not this process's values.
            let response = status.into_http::<()>();
            let received = Status::from_header_map(response.headers()).expect("a status");
            assert_eq!(Error::from_status(&received), error);
        }
    }

    #[test]
    fn details_carry_a_stable_reason_and_the_field() {
        let status = Status::from(Error::invalid("prompt.text", "must not be empty"));
        assert_eq!(status.message(), "prompt.text: must not be empty");
        let details = status.get_error_details();
        let info = details.error_info().expect("error info");
        assert_eq!((&*info.reason, &*info.domain), ("INVALID", "specdec"));
        let violation = &details.bad_request().expect("bad request").field_violations[0];
        assert_eq!(violation.field, "prompt.text");
        assert_eq!(violation.description, "must not be empty");
    }

    #[test]
    fn a_foreign_status_without_details_gets_a_class() {
        for (status, class) in [
            (
                Status::invalid_argument("x"),
                Class::Invalid {
                    field: String::new(),
                },
            ),
            (
                Status::resource_exhausted("x"),
                Class::Overloaded {
                    retry_after: Duration::ZERO,
                },
            ),
            (Status::unimplemented("x"), Class::Internal),
            (Status::cancelled("Timeout expired"), Class::Deadline),
            (
                Status::from_error(Box::new(std::io::Error::other("connection reset"))),
                Class::Unavailable,
            ),
        ] {
            assert_eq!(
                Error::from_status(&status),
                Error::new(class, status.message())
            );
        }
    }
}
