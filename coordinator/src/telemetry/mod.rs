//! What the coordinator tells of itself: metrics, traces and a log line for each request, health.
//!
//! The driver has one [`Observer`], which it tells what it hears and does; nothing is decided here.

mod admissions;
mod course;
mod health;
pub(crate) mod http;
mod metrics;
mod observer;
mod request;
mod request_id;

pub(crate) use course::Told;
pub(crate) use health::{Board, Peer, PeerState, Workers};
pub(crate) use metrics::Metrics;
pub(crate) use observer::Observer;
pub(crate) use request_id::{RequestId, with_request_id};
