//! Matrices in tiles.

use crate::pack::{Block, Line, block_lines};
use crate::product::{self, Rows, Tile};
use crate::{Activations, Format, Grain, Isa, TILE};
use rayon::prelude::*;

/// A matrix of quantised weights, laid out in tiles of [`TILE`] outputs. Takes the bytes that it
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
        let row_bytes = blocks * format.block_bytes();
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
        lines
            .par_chunks_exact_mut(tile_lines)
            .zip(halves.par_chunks_exact_mut(tile_halves))
            .zip(bytes.par_chunks(TILE * row_bytes))
            .for_each(|((lines, halves), bytes)| {
                for (output, row) in bytes.chunks_exact(row_bytes).enumerate() {
                    let places = lines
                        .chunks_exact_mut(block_lines(format))
                        .zip(halves.chunks_exact_mut(format.halves() * TILE));
                    let blocks = row.chunks_exact(format.block_bytes());
                    for (block, (lines, halves)) in blocks.zip(places) {
                        Block::read(format, block).write(format, output, lines, halves);
                    }
                }
            });
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
        let blocks = tile.lines.chunks_exact(block_lines(self.format));
        let halves = tile.halves.chunks_exact(self.format.halves() * TILE);
        let out = out.chunks_exact_mut(self.format.block_columns());
        for ((lines, halves), out) in blocks.zip(halves).zip(out) {
            Block::gather(self.format, index % TILE, lines, halves).dequantise(self.format, out);
        }
    }

    /// The products of some rows of `input`, from row `first` on and one for each entry of `out`,
    /// with the outputs of a tile. In the last tile, what is over is zero.
    ///
    /// # Panics
    /// If there is no such tile, if `input` has not so many rows or is of another width or grain,
    /// or if this processor has not the instructions.
    pub fn multiply(
        &self,
        isa: Isa,
        input: &Activations,
        first: usize,
        tile: usize,
        out: &mut [[f32; TILE]],
    ) {
        assert_eq!(input.width(), self.inputs, "numbers in a row");
        assert_eq!(input.grain(), Grain::of(self.format), "columns of a scale");
        assert!(first + out.len() <= input.rows(), "rows");
        let rows = Rows { input, first };
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
