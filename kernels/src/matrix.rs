//! Matrices in tiles.

use crate::pack::{Line, block_lines, read_row, write_row};
use crate::product::{self, Rows, Tile};
use crate::{Format, Input, Isa, TILE};
use rayon::prelude::*;

/// A matrix of weights, laid out in tiles of [`TILE`] outputs. Takes the bytes that it
/// has in a file; the last tile is filled up with zeros.
pub struct Matrix {
    format: Format,
    outputs: usize,
    inputs: usize,
    /// Quants and small scales: `[tile][block][line]`.
    lines: Vec<Line>,
    /// Half-precision scales and minima: `[tile][block][1 or 2][TILE]`.
    halves: Vec<u16>,
}

/// Bytes that are not the matrix that they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The rows are no whole blocks.
    #[error("{inputs} columns are not whole blocks of {block}")]
    Columns {
        /// Columns of the matrix.
        inputs: usize,
        /// Columns of a block.
        block: usize,
    },
    /// There are more or fewer bytes than the matrix has.
    #[error("{bytes} bytes for {outputs} rows of {inputs} columns")]
    Bytes {
        /// Bytes given.
        bytes: usize,
        /// Rows of the matrix.
        outputs: usize,
        /// Columns of the matrix.
        inputs: usize,
    },
}

impl Matrix {
    /// Lays out a matrix of `outputs` rows and `inputs` columns, given row by row in the blocks
    /// of the format. Uses all threads of the current pool.
    ///
    /// # Errors
    /// [`SizeError`] where `bytes` are not such a matrix.
    pub fn new(
        format: Format,
        outputs: usize,
        inputs: usize,
        bytes: &[u8],
    ) -> Result<Self, SizeError> {
        let block = format.block_columns();
        if inputs == 0 || !inputs.is_multiple_of(block) {
            return Err(SizeError::Columns { inputs, block });
        }
        let blocks = inputs / block;
        let row_bytes = blocks.saturating_mul(format.block_bytes());
        if outputs == 0 || outputs.checked_mul(row_bytes) != Some(bytes.len()) {
            return Err(SizeError::Bytes {
                bytes: bytes.len(),
                outputs,
                inputs,
            });
        }
        let tiles = outputs.div_ceil(TILE);
        let tile_lines = blocks * block_lines(format);
        let tile_halves = blocks * format.halves() * TILE;
        let mut lines = vec![Line::ZERO; tiles * tile_lines];
        let mut halves = vec![0; tiles * tile_halves];
        let pack = |lines: &mut [Line], halves: &mut [u16], bytes: &[u8]| {
            for (output, row) in bytes.chunks_exact(row_bytes).enumerate() {
                write_row(format, output, row, lines, halves);
            }
        };
        let lines_of = lines.par_chunks_exact_mut(tile_lines);
        let rows_of = bytes.par_chunks(TILE * row_bytes);
        if tile_halves == 0 {
            let tiles = lines_of.zip(rows_of);
            tiles.for_each(|(lines, bytes)| pack(lines, &mut [], bytes));
        } else {
            let halves_of = halves.par_chunks_exact_mut(tile_halves);
            let tiles = lines_of.zip(halves_of).zip(rows_of);
            tiles.for_each(|((lines, halves), bytes)| pack(lines, halves, bytes));
        }
        Ok(Self {
            format,
            outputs,
            inputs,
            lines,
            halves,
        })
    }

    /// The format of the weights.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Rows of the matrix: numbers that a product has.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns of the matrix: numbers that a row of activations has.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Tiles of [`TILE`] outputs, of which the last may be a part.
    pub fn tiles(&self) -> usize {
        self.outputs.div_ceil(TILE)
    }

    /// Bytes that the weights take.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.lines) + size_of_val(&*self.halves)
    }

    /// One row of the matrix, as the numbers that it stands for.
    ///
    /// # Panics
    /// If there is no such row, or `out` is not of [`inputs`](Self::inputs) numbers.
    pub fn row(&self, index: usize, out: &mut [f32]) {
        assert!(index < self.outputs, "row {index} of {}", self.outputs);
        assert_eq!(out.len(), self.inputs, "numbers in a row");
        let tile = self.tile(index / TILE);
        read_row(self.format, index % TILE, tile.lines, tile.halves, out);
    }

    /// The products of some rows of `input`, from row `first` on and one for each entry of `out`,
    /// with the outputs of a tile. In the last tile, what is over is zero.
    ///
    /// # Panics
    /// If there is no such tile, if `input` has not so many rows or is not what the format takes,
    /// or if this processor has not the instructions.
    pub fn multiply(
        &self,
        isa: Isa,
        input: Input<'_>,
        first: usize,
        tile: usize,
        out: &mut [[f32; TILE]],
    ) {
        let end = first + out.len();
        match input {
            Input::Rounded(rows) => {
                assert!(
                    !self.format.is_float(),
                    "{:?} takes exact rows",
                    self.format
                );
                assert_eq!(rows.width(), self.inputs, "numbers in a row");
                assert!(end <= rows.rows(), "rows");
            }
            Input::Exact(rows) => {
                assert!(
                    self.format.is_float(),
                    "{:?} takes rounded rows",
                    self.format
                );
                assert!(end * self.inputs <= rows.len(), "rows");
            }
        }
        let rows = Rows {
            input,
            width: self.inputs,
            first,
        };
        product::multiply(isa, self.format, self.tile(tile), rows, out);
    }

    fn tile(&self, tile: usize) -> Tile<'_> {
        let part = |len: usize| tile * (len / self.tiles())..(tile + 1) * (len / self.tiles());
        Tile {
            lines: &self.lines[part(self.lines.len())],
            halves: &self.halves[part(self.halves.len())],
        }
    }
}
