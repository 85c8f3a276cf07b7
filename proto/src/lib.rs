//! The `specdec.v1` protocol: messages, clients and servers, generated from the `.proto` files
//! beside this crate, and typed conversions.

mod convert;

pub use convert::{MAX_BIASED_TOKENS, MAX_TOP_LOGPROBS, Unspecified};

/// The generated code. `cargo xtask codegen` writes it; a test checks that it is current.
#[allow(
    clippy::all,
    clippy::allow_attributes,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    reason = "generated"
)]
#[rustfmt::skip]
#[path = "gen/specdec.v1.rs"]
pub mod v1;

/// The encoded descriptor set of `specdec.v1`, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/specdec.v1.bin");
