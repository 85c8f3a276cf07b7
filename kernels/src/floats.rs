//! The products of a tile of floats with some rows.

use crate::TILE;
use crate::activations::Input;
use crate::format::FLOATS;
use crate::isa::Lanes;
use crate::product::{Kernel, Rows, Sums, Tile, ahead, lines_at};
use std::marker::PhantomData;

/// Columns that are summed before other lanes have their turn.
const SPAN: usize = 64;

/// Floats of some kind.
pub(crate) struct Floats<W>(PhantomData<W>);

/// A kind of floats.
pub(crate) trait Float {
    /// Bytes of one.
    const BYTES: usize;

    /// Reads one per lane.
    ///
    /// # Safety
    /// The processor has what `L` needs, and there are so many numbers.
    unsafe fn read<L: Lanes>(floats: *const u8) -> L::Floats;
}

/// Single precision.
pub(crate) struct Single;
/// Half precision.
pub(crate) struct Half;
/// The upper half of single precision.
pub(crate) struct Brain;

impl Float for Single {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn read<L: Lanes>(floats: *const u8) -> L::Floats {
        // SAFETY: as required of the caller.
        unsafe { L::read(floats.cast()) }
    }
}

impl Float for Half {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn read<L: Lanes>(floats: *const u8) -> L::Floats {
        // SAFETY: as required of the caller.
        unsafe { L::halves(floats.cast()) }
    }
}

impl Float for Brain {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn read<L: Lanes>(floats: *const u8) -> L::Floats {
        // SAFETY: as required of the caller.
        unsafe { L::upper_halves(floats.cast()) }
    }
}

impl<W: Float> Kernel for Floats<W> {
    type Row<'a> = &'a [f32];

    #[inline(always)]
    fn row(rows: Rows<'_>, index: usize) -> &[f32] {
        match rows.input {
            Input::Exact(values) => &values[(rows.first + index) * rows.width..][..rows.width],
            Input::Rounded(_) => unreachable!("checked by the matrix"),
        }
    }

    /// Even and odd columns have sums of their own, so that they need not wait for each other.
    #[inline(always)]
    unsafe fn run<L: Lanes, const R: usize>(tile: Tile<'_>, rows: &[&[f32]; R]) -> Sums<R> {
        let columns = rows[0].len();
        let mut sums = [[[0.0; TILE]; FLOATS]; R];
        for start in (0..columns).step_by(SPAN) {
            let end = columns.min(start + SPAN);
            for lane in (0..TILE).step_by(L::COUNT) {
                // SAFETY: as required of the caller; columns and lanes are within the tile and
                // the rows.
                unsafe {
                    let floats = lines_at(tile, 0).add(lane * W::BYTES);
                    let mut totals = [[L::splat(0.0); FLOATS]; R];
                    for (totals, sums) in totals.iter_mut().zip(&sums) {
                        for (total, sum) in totals.iter_mut().zip(sums) {
                            *total = L::read(sum.as_ptr().add(lane));
                        }
                    }
                    for column in (start..end).step_by(FLOATS) {
                        let floats = floats.add(column * TILE * W::BYTES);
                        if lane == 0 {
                            ahead(floats, TILE * W::BYTES * FLOATS / 64);
                        }
                        for i in 0..FLOATS {
                            let weights = W::read::<L>(floats.add(i * TILE * W::BYTES));
                            for (row, totals) in rows.iter().zip(&mut totals) {
                                let value = L::splat(*row.get_unchecked(column + i));
                                totals[i] = L::add(totals[i], L::mul(weights, value));
                            }
                        }
                    }
                    for (totals, sums) in totals.iter().zip(&mut sums) {
                        for (total, sum) in totals.iter().zip(sums) {
                            L::write(sum.as_mut_ptr().add(lane), *total);
                        }
                    }
                }
            }
        }
        let mut out = [[0.0; TILE]; R];
        for (out, [even, odd]) in out.iter_mut().zip(sums) {
            for (out, (even, odd)) in out.iter_mut().zip(even.into_iter().zip(odd)) {
                *out = even + odd;
            }
        }
        out
    }
}
