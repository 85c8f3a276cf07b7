//! Models on candle: loading, ragged batched forward, KV cache, and the executor that owns them.
//!
//! Knows nothing of gRPC and nothing of clients. A worker asks [`load`] for a model, hands it to
//! [`Engine::start`], and then feeds tokens to [`Sequence`]s.
//!
//! From a file to a token, in the order of the modules: [`gguf`] reads a file, [`vocabulary`] and
//! `config` make sense of its metadata, `decoder` computes logits over [`cache`] blocks with
//! `linear` products and `attention`, and [`executor`] batches what many sequences ask for.
//! [`synthetic`] and [`tiny`] stand in for models where none is at hand.

mod attention;
pub mod cache;
pub mod checkpoint;
mod config;
mod cpu;
mod decoder;
pub mod device;
mod error;
pub mod executor;
pub mod folder;
pub mod gguf;
mod kernels;
pub mod lean;
mod linear;
mod load;
mod mapped;
mod model;
mod parallel;
pub mod safetensors;
pub mod synthetic;
pub mod tiny;
pub mod vocabulary;

pub use cache::{BLOCK_TOKENS, BlockCopy, BlockId, CacheType, KvLayout, Lease, Pool, Usage};
pub use checkpoint::Checkpoint;
pub use config::{Activation, DecoderConfig, Family, LayerAttention, Rope, RopePairs, RopeScaling};
pub use device::{Device, DeviceChoice, Footprint, WeightType};
pub use error::{EngineError, LoadError};
pub use executor::{
    CacheState, Engine, EngineOptions, Hold, MAX_FORKS, Reader, Row, Sequence, StepTime, StepTotals,
};
pub use lean::Lean;
pub use load::{LoadOptions, Loaded, Source, footprint, load};
pub use model::{Input, Logits, Model, ModelShape};
pub use parallel::threads;
pub use synthetic::Synthetic;
pub use vocabulary::Vocabulary;
