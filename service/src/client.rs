//! gRPC channels to peers.

use crate::Error;
use tonic::transport::Channel;

/// A channel to `endpoint` (`http://host:port`), with keepalive and without Nagle's delay. It
/// connects when first used, and again after a loss.
///
/// # Errors
/// [`crate::Class::Invalid`] where `endpoint` is not a valid address.
pub fn channel(endpoint: &str) -> Result<Channel, Error> {
    let _ = endpoint;
    todo!("helper: service")
}
