//! What the two workers share: the options of a model that serves, loading it, saying what it is,
//! and the bookkeeping of a stream's sequences.
//!
//! Knows nothing of proposals and nothing of verdicts: those are the workers' own.

mod access;
mod description;
mod fault;
mod load;
mod memory;
mod metrics;
mod open;
mod options;
mod processors;
mod sequences;
mod serve;
mod structured;

pub use access::AccessOptions;
pub use description::{TokenizerStream, tokenizer_chunks};
pub use fault::Fault;
pub use load::{Limits, Served, load_engine};
pub use open::Opening;
pub use options::ModelOptions;
pub use sequences::{Live, Sequences};
pub use serve::{Pulse, serve};
