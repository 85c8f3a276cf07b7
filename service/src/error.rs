//! The closed set of error classes, and the one mapping from them to gRPC.

use std::time::Duration;

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
    /// Peers that must match do not.
    Mismatch,
    /// A defect of ours.
    Internal,
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
}

impl From<Error> for tonic::Status {
    fn from(error: Error) -> Self {
        let _ = error;
        todo!("helper: service")
    }
}
