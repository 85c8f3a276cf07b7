//! Products of matrices with rows of activations, `y = x·Wᵀ`, made for few rows: one row is as fast
//! as memory delivers the weights, and a few more rows cost little more.
//!
//! - [`Matrix`] holds weights of a [`Format`], in the bytes that they have in a file but laid out in
//!   tiles of [`TILE`] outputs, so that a processor's lanes run across outputs.
//! - [`Activations`] are rows rounded to eight bits for products with quantised weights, once for
//!   all matrices that they go through.
//! - [`Matrix::multiply`] gives one tile of outputs for all rows, with the instructions of an
//!   [`Isa`].
//!
//! Whole numbers are exact, and floats are combined in one order, each operation rounded on its
//! own. So every [`Isa`] gives the same bits, and what a row gives does not depend on the rows
//! beside it. Knows nothing of models, files and threads.

mod activations;
mod float;
mod floats;
mod format;
mod isa;
mod matrix;
mod pack;
mod product;
mod quants;

pub use activations::{Activations, Input, RowMut};
pub use format::Format;
pub use isa::Isa;
pub use matrix::{Matrix, SizeError};

/// Outputs in a tile.
pub const TILE: usize = 16;
