//! Why a sequence cannot go on, and how the coordinator hears of it.

use engine::EngineError;
use proto::v1::{CloseReason, Closed};

/// A sequence cannot go on. It alone is closed; the stream and its other sequences stay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Fault {
    /// The kind, as the protocol has it.
    pub reason: CloseReason,
    /// For people: what exactly happened.
    pub detail: String,
    /// The field of the client's request that is to blame; empty where it is not the client's fault.
    pub field: &'static str,
}

impl Fault {
    /// A message is wrong; `detail` begins with the field.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self {
            reason: CloseReason::Invalid,
            detail: detail.into(),
            field: "",
        }
    }

    /// The client asked for what cannot be done; `field` is that of its request.
    pub fn refused(field: &'static str, detail: impl Into<String>) -> Self {
        Self {
            reason: CloseReason::Invalid,
            detail: detail.into(),
            field,
        }
    }

    /// The coordinator's view of the sequence is not this worker's.
    pub fn desync(detail: impl Into<String>) -> Self {
        Self {
            reason: CloseReason::Desync,
            detail: detail.into(),
            field: "",
        }
    }

    /// The worker takes no more at the moment.
    pub fn overloaded(detail: impl Into<String>) -> Self {
        Self {
            reason: CloseReason::Overloaded,
            detail: detail.into(),
            field: "",
        }
    }

    /// The coordinator asked for the end.
    pub fn requested() -> Self {
        Self {
            reason: CloseReason::Requested,
            detail: String::new(),
            field: "",
        }
    }

    /// The message that tells the coordinator.
    pub fn closed(self, sequence: u64, epoch: u32) -> Closed {
        Closed {
            sequence,
            epoch,
            reason: self.reason.into(),
            detail: self.detail,
            field: self.field.to_owned(),
        }
    }
}

impl From<EngineError> for Fault {
    fn from(error: EngineError) -> Self {
        let reason = match error {
            EngineError::Overloaded { .. } | EngineError::CacheFull { .. } => {
                CloseReason::Overloaded
            }
            EngineError::ContextExceeded { .. } | EngineError::Invalid(_) => CloseReason::Invalid,
            EngineError::Excluded(detail) => return Self::refused("sampling", detail),
            EngineError::Model(_) | EngineError::Stopped => CloseReason::Error,
        };
        Self {
            reason,
            detail: error.to_string(),
            field: "",
        }
    }
}
