//! Devices: which there are, how much room they have, and decoders on those that are not the
//! processor.
//!
//! On a GPU each operation of a decoder is a few of candle's (`backend`): products (`matrix`),
//! attention (`attention`) over a cache of tensors (`storage`), and what a step reads and writes
//! there, worked out once for all layers (`step`). The same code runs on candle's CPU device, where
//! it is tested.
//!
//! Knows nothing of files, of sequences and of whose tokens it computes.

mod attention;
mod backend;
mod dtype;
#[cfg(feature = "flash-attn")]
mod flash;
mod footprint;
mod matrix;
mod memory;
mod place;
mod sight;
mod step;
mod storage;
#[cfg(test)]
mod tests;
mod writes;

pub(crate) use backend::Tensors;
pub use dtype::WeightType;
pub use footprint::Footprint;
pub use place::{Device, DeviceChoice};
