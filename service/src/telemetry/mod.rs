//! What a program tells of itself: logs, metrics and traces. Knows nothing of what is told.

mod logs;
pub mod metrics;
pub mod traces;

pub use logs::{LogFormat, LogOptions, init};
