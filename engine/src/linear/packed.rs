//! Products in the formats of `kernels`, spread over the threads.

use super::Rows;
use crate::parallel::{for_each_piece, from_pieces};
use candle_core::quantized::GgmlDType;
use candle_core::{Error, Result};
use kernels::{Activations, Format, Input, Isa, Matrix, TILE};
use std::sync::{Arc, OnceLock};

/// Rows for which the weights are read once. Their activations stay in a core's own cache.
const MAX_ROWS: usize = 64;

/// A matrix in tiles.
#[derive(Clone)]
pub(super) struct Packed {
    matrix: Arc<Matrix>,
    isa: Isa,
}

/// The input of some products, rounded to eight bits the first time that one of them asks for it.
pub(super) struct Rounded<'a> {
    rows: &'a Rows,
    rounded: OnceLock<Activations>,
}

/// The format of a matrix that there are kernels for.
pub(super) fn format(dtype: GgmlDType, inputs: usize) -> Option<Format> {
    format_of(dtype).filter(|format| inputs.is_multiple_of(format.block_columns()))
}

fn format_of(dtype: GgmlDType) -> Option<Format> {
    match dtype {
        GgmlDType::F32 => Some(Format::F32),
        GgmlDType::F16 => Some(Format::F16),
        GgmlDType::BF16 => Some(Format::BF16),
        GgmlDType::Q4_0 => Some(Format::Q4_0),
        GgmlDType::Q4_1 => Some(Format::Q4_1),
        GgmlDType::Q5_0 => Some(Format::Q5_0),
        GgmlDType::Q5_1 => Some(Format::Q5_1),
        GgmlDType::Q8_0 => Some(Format::Q8_0),
        GgmlDType::Q4K => Some(Format::Q4_K),
        GgmlDType::Q5K => Some(Format::Q5_K),
        GgmlDType::Q6K => Some(Format::Q6_K),
        _ => None,
    }
}

impl Packed {
    /// Lays out a matrix that is given in the blocks of its format.
    pub(super) fn new(
        format: Format,
        outputs: usize,
        inputs: usize,
        blocks: &[u8],
    ) -> Result<Self> {
        let matrix = Matrix::new(format, outputs, inputs, blocks).map_err(Error::wrap)?;
        Ok(Self {
            matrix: Arc::new(matrix),
            isa: Isa::best(),
        })
    }

    /// The product with each row.
    pub(super) fn product(&self, input: &Rounded<'_>) -> Vec<f32> {
        let rows = input.rows.count();
        let input = input.of(self.matrix.format());
        let multiply = |first, tile, out: &mut [[f32; TILE]]| {
            self.matrix.multiply(self.isa, input, first, tile, out);
        };
        from_pieces::<TILE, MAX_ROWS, _>(rows, self.matrix.outputs(), multiply)
    }

    /// A row of the matrix.
    pub(super) fn row(&self, index: usize, out: &mut [f32]) {
        self.matrix.row(index, out);
    }
}

impl<'a> Rounded<'a> {
    pub(super) fn new(rows: &'a Rows) -> Self {
        Self {
            rows,
            rounded: OnceLock::new(),
        }
    }

    /// As they were.
    pub(super) fn rows(&self) -> &'a Rows {
        self.rows
    }

    /// As products with a format take them.
    fn of(&self, format: Format) -> Input<'_> {
        if format.is_float() {
            return Input::Exact(self.rows.values());
        }
        Input::Rounded(self.rounded.get_or_init(|| round(self.rows)))
    }
}

fn round(rows: &Rows) -> Activations {
    let mut activations = Activations::zeros(rows.count(), rows.width);
    let mut places: Vec<_> = activations.rows_mut().collect();
    for_each_piece(&mut places, 1, |row, place| {
        place[0].set(rows.range(row..row + 1));
    });
    activations
}
