//! Turns queries and keys to their positions.

use crate::{Rope, RopePairs};

/// The rotation at one position: cosine and sine of each pair.
pub(super) struct Rotation {
    cosines: Vec<f32>,
    sines: Vec<f32>,
    pairs: RopePairs,
}

impl Rotation {
    pub(super) fn new(rope: &Rope, pairs: RopePairs, position: usize) -> Self {
        let angles = rope.frequencies.iter().map(|f| position as f32 * f);
        let (mut sines, mut cosines): (Vec<f32>, Vec<f32>) = angles.map(f32::sin_cos).unzip();
        if rope.magnitude != 1.0 {
            for value in cosines.iter_mut().chain(&mut sines) {
                *value *= rope.magnitude;
            }
        }
        Self {
            cosines,
            sines,
            pairs,
        }
    }

    /// Turns each head of a row.
    pub(super) fn apply(&self, row: &mut [f32]) {
        let half = self.cosines.len();
        for head in row.chunks_exact_mut(2 * half) {
            match self.pairs {
                RopePairs::Interleaved => {
                    let (pairs, _) = head.as_chunks_mut::<2>();
                    for (([x, y], cos), sin) in pairs.iter_mut().zip(&self.cosines).zip(&self.sines)
                    {
                        turn(x, y, *cos, *sin);
                    }
                }
                RopePairs::Halves => {
                    let (xs, ys) = head.split_at_mut(half);
                    let pairs = xs.iter_mut().zip(ys);
                    for (((x, y), cos), sin) in pairs.zip(&self.cosines).zip(&self.sines) {
                        turn(x, y, *cos, *sin);
                    }
                }
            }
        }
    }
}

fn turn(x: &mut f32, y: &mut f32, cos: f32, sin: f32) {
    (*x, *y) = (*x * cos - *y * sin, *x * sin + *y * cos);
}
