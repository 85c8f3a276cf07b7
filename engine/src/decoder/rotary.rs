//! Rotary position embedding, [Su et al. 2021](https://arxiv.org/abs/2104.09864), section 3.2.2.

use crate::Family;

/// The frequencies of a model, and which numbers of a head turn together.
pub(super) struct Rotary {
    frequencies: Vec<f32>,
    pairs: Pairs,
}

#[derive(Clone, Copy)]
enum Pairs {
    /// Neighbours.
    Interleaved,
    /// The same place in the first and in the second half.
    Halves,
}

/// The rotation at one position: cosine and sine of each pair.
pub(super) struct Rotation {
    cosines: Vec<f32>,
    sines: Vec<f32>,
    pairs: Pairs,
}

impl Rotary {
    pub(super) fn new(family: Family, head_dim: usize, base: f32) -> Self {
        let exponent = |pair: usize| (2 * pair) as f32 / head_dim as f32;
        Self {
            frequencies: (0..head_dim / 2)
                .map(|pair| 1.0 / base.powf(exponent(pair)))
                .collect(),
            pairs: match family {
                Family::Llama => Pairs::Interleaved,
                Family::Qwen2 => Pairs::Halves,
            },
        }
    }

    pub(super) fn at(&self, position: usize) -> Rotation {
        let angles = self.frequencies.iter().map(|f| position as f32 * f);
        let (sines, cosines) = angles.map(f32::sin_cos).unzip();
        Rotation {
            cosines,
            sines,
            pairs: self.pairs,
        }
    }
}

impl Rotation {
    /// Turns each head of a row.
    pub(super) fn apply(&self, row: &mut [f32]) {
        let half = self.cosines.len();
        for head in row.chunks_exact_mut(2 * half) {
            match self.pairs {
                Pairs::Interleaved => {
                    let (pairs, _) = head.as_chunks_mut::<2>();
                    for (([x, y], cos), sin) in pairs.iter_mut().zip(&self.cosines).zip(&self.sines)
                    {
                        turn(x, y, *cos, *sin);
                    }
                }
                Pairs::Halves => {
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
