//! What the three binaries share about being a service: configuration, logs, errors, tasks,
//! shutdown, gRPC servers and channels. Knows nothing of models and nothing of speculation.

pub mod client;
pub mod config;
pub mod error;
pub mod keyring;
pub mod program;
pub mod reload;
pub mod server;
pub mod tasks;
pub mod telemetry;
mod tls;

pub use error::{Class, Error};
pub use tasks::{Spawner, Tasks};
pub use tokio_util::sync::CancellationToken;
