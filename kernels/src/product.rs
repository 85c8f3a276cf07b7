//! The products of a tile with some rows, written once for all processors.

use crate::activations::{Input, Row};
use crate::floats::{Brain, Floats, Half, Single};
use crate::format::{GROUP, SUPER};
use crate::isa::{self, Isa, Lanes};
use crate::pack::{Line, MINIMA};
use crate::quants::{Eight, Five, Four, Quants, Six};
use crate::{Format, TILE};
use std::marker::PhantomData;

/// The weights of a tile.
#[derive(Clone, Copy)]
pub(crate) struct Tile<'a> {
    pub(crate) lines: &'a [Line],
    pub(crate) halves: &'a [u16],
}

/// Rows of activations from one on, of what the tile's format takes.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) input: Input<'a>,
    pub(crate) width: usize,
    pub(crate) first: usize,
}

/// How far ahead of their use weights are asked for, in bytes.
const AHEAD: usize = 8192;
/// Blocks that are summed before other lanes have their turn.
const SPAN: usize = 8;
/// Groups of a large block.
const GROUPS: usize = SUPER / GROUP;
const LINE: usize = size_of::<Line>();

/// A tile's products with `R` rows.
pub(crate) trait Kernel {
    /// A row of activations.
    type Row<'a>: Copy;

    /// A row, counted from the first.
    fn row(rows: Rows<'_>, index: usize) -> Self::Row<'_>;

    /// # Safety
    /// The processor has what `L` needs; `tile` and `rows` are of this format and fit each other.
    unsafe fn run<L: Lanes, const R: usize>(tile: Tile<'_>, rows: &[Self::Row<'_>; R]) -> Sums<R>;
}

pub(crate) type Sums<const R: usize> = [[f32; TILE]; R];

/// Small blocks: a scale, and an offset of the quants or a minimum.
struct Small<Q, const OFFSET: i32, const MINIMA: bool>(PhantomData<Q>);
/// Large blocks whose small blocks of 32 have a scale and a minimum.
struct WithMinima<Q>(PhantomData<Q>);
/// Large blocks of [`Six`] whose small blocks of 16 have a scale.
struct WithOffset;

/// The product of each row of `input` with each output of the tile.
pub(crate) fn multiply(
    isa: Isa,
    format: Format,
    tile: Tile<'_>,
    rows: Rows<'_>,
    out: &mut [[f32; TILE]],
) {
    match format {
        Format::F32 => isa::enter::<Floats<Single>>(isa, tile, rows, out),
        Format::F16 => isa::enter::<Floats<Half>>(isa, tile, rows, out),
        Format::BF16 => isa::enter::<Floats<Brain>>(isa, tile, rows, out),
        Format::Q4_0 => isa::enter::<Small<Four, 8, false>>(isa, tile, rows, out),
        Format::Q4_1 => isa::enter::<Small<Four, 0, true>>(isa, tile, rows, out),
        Format::Q5_0 => isa::enter::<Small<Five, 16, false>>(isa, tile, rows, out),
        Format::Q5_1 => isa::enter::<Small<Five, 0, true>>(isa, tile, rows, out),
        Format::Q8_0 => isa::enter::<Small<Eight, 0, false>>(isa, tile, rows, out),
        Format::Q4_K => isa::enter::<WithMinima<Four>>(isa, tile, rows, out),
        Format::Q5_K => isa::enter::<WithMinima<Five>>(isa, tile, rows, out),
        Format::Q6_K => isa::enter::<WithOffset>(isa, tile, rows, out),
    }
}

/// Cuts the rows into pieces that the registers are enough for. Where a piece is not full, its
/// last row fills it.
///
/// # Safety
/// As for [`Kernel::run`].
#[inline(always)]
pub(crate) unsafe fn by_rows<L: Lanes, K: Kernel>(
    tile: Tile<'_>,
    rows: Rows<'_>,
    out: &mut [[f32; TILE]],
) {
    let mut start = 0;
    while start < out.len() {
        let left = out.len() - start;
        // SAFETY: as required of the caller.
        start += unsafe {
            match left {
                1 => piece::<L, K, 1>(tile, rows, start, out),
                2 => piece::<L, K, 2>(tile, rows, start, out),
                5.. if L::WIDE => piece::<L, K, 8>(tile, rows, start, out),
                _ => piece::<L, K, 4>(tile, rows, start, out),
            }
        };
    }
}

#[inline(always)]
unsafe fn piece<L: Lanes, K: Kernel, const R: usize>(
    tile: Tile<'_>,
    rows: Rows<'_>,
    start: usize,
    out: &mut [[f32; TILE]],
) -> usize {
    let last = out.len() - 1;
    let mut piece = [K::row(rows, start); R];
    for (i, row) in piece.iter_mut().enumerate() {
        *row = K::row(rows, last.min(start + i));
    }
    // SAFETY: as required of the caller.
    let sums = unsafe { K::run::<L, R>(tile, &piece) };
    for (out, sums) in out[start..].iter_mut().zip(sums) {
        *out = sums;
    }
    R
}

impl<Q: Quants, const OFFSET: i32, const MINIMA: bool> Kernel for Small<Q, OFFSET, MINIMA> {
    type Row<'a> = Row<'a>;

    #[inline(always)]
    fn row(rows: Rows<'_>, index: usize) -> Row<'_> {
        rounded_row(rows, index)
    }

    #[inline(always)]
    unsafe fn run<L: Lanes, const R: usize>(tile: Tile<'_>, rows: &[Row<'_>; R]) -> Sums<R> {
        let halves = if MINIMA { 2 * TILE } else { TILE };
        let blocks = rows[0].scales.len();
        let mut sums = [[0.0; TILE]; R];
        for start in (0..blocks).step_by(SPAN) {
            for lane in (0..TILE).step_by(L::COUNT) {
                // SAFETY: as required of the caller; `block` and `lane` are within the tile and
                // the rows.
                unsafe {
                    let mut totals = read_sums::<L, R>(&sums, lane);
                    for block in start..blocks.min(start + SPAN) {
                        let lines = lines_at(tile, block * Q::LINES);
                        if lane == 0 {
                            ahead(lines, Q::LINES);
                        }
                        let halves = tile.halves.as_ptr().add(block * halves + lane);
                        let weights = Q::read::<L>(lines.add(lane * 4));
                        let scale = L::halves(halves);
                        add_whole::<L, Q, R>(&mut totals, OFFSET, scale, &weights, rows, block);
                        if MINIMA {
                            let minimum = L::halves(halves.add(TILE));
                            for (total, row) in totals.iter_mut().zip(rows) {
                                let sum = L::splat(*row.scaled_sums.get_unchecked(block));
                                *total = L::add(*total, L::mul(minimum, sum));
                            }
                        }
                    }
                    write_sums::<L, R>(&mut sums, lane, totals);
                }
            }
        }
        sums
    }
}

impl<Q: Quants> Kernel for WithMinima<Q> {
    type Row<'a> = Row<'a>;

    #[inline(always)]
    fn row(rows: Rows<'_>, index: usize) -> Row<'_> {
        rounded_row(rows, index)
    }

    #[inline(always)]
    unsafe fn run<L: Lanes, const R: usize>(tile: Tile<'_>, rows: &[Row<'_>; R]) -> Sums<R> {
        const HEADER: usize = 3;
        let mut sums = [[0.0; TILE]; R];
        for block in 0..rows[0].scales.len() / GROUPS {
            // SAFETY: as required of the caller; all offsets are within a block of the tile and
            // of the rows.
            unsafe {
                let lines = lines_at(tile, block * (HEADER + GROUPS * Q::LINES));
                ahead(lines, HEADER);
                let small = widen_six(lines);
                let halves = tile.halves.as_ptr().add(block * 2 * TILE);
                for lane in (0..TILE).step_by(L::COUNT) {
                    let mut totals = read_sums::<L, R>(&sums, lane);
                    let block_scale = L::halves(halves.add(lane));
                    let block_minimum = L::halves(halves.add(TILE + lane));
                    for group in 0..GROUPS {
                        let quants = lines.add((HEADER + group * Q::LINES) * LINE);
                        if lane == 0 {
                            ahead(quants, Q::LINES);
                        }
                        let small = small.as_ptr().cast::<i8>().add(group * TILE + lane);
                        let scale = L::mul(block_scale, L::floats(L::widen(small)));
                        let minimum = L::floats(L::widen(small.add(MINIMA)));
                        let minimum = L::mul(block_minimum, minimum);
                        let weights = Q::read::<L>(quants.add(lane * 4));
                        let place = block * GROUPS + group;
                        add_whole::<L, Q, R>(&mut totals, 0, scale, &weights, rows, place);
                        for (total, row) in totals.iter_mut().zip(rows) {
                            let sum = L::splat(*row.scaled_sums.get_unchecked(place));
                            *total = L::sub(*total, L::mul(minimum, sum));
                        }
                    }
                    write_sums::<L, R>(&mut sums, lane, totals);
                }
            }
        }
        sums
    }
}

impl Kernel for WithOffset {
    type Row<'a> = Row<'a>;

    #[inline(always)]
    fn row(rows: Rows<'_>, index: usize) -> Row<'_> {
        rounded_row(rows, index)
    }

    #[inline(always)]
    unsafe fn run<L: Lanes, const R: usize>(tile: Tile<'_>, rows: &[Row<'_>; R]) -> Sums<R> {
        const HEADER: usize = 4;
        const OFFSET: i32 = 32;
        let mut sums = [[0.0; TILE]; R];
        for block in 0..rows[0].scales.len() / GROUPS {
            // SAFETY: as required of the caller; all offsets are within a block of the tile and
            // of the rows.
            unsafe {
                let lines = lines_at(tile, block * (HEADER + GROUPS * Six::LINES));
                ahead(lines, HEADER);
                let halves = tile.halves.as_ptr().add(block * TILE);
                for lane in (0..TILE).step_by(L::COUNT) {
                    let mut totals = read_sums::<L, R>(&sums, lane);
                    let block_scale = L::halves(halves.add(lane));
                    for group in 0..GROUPS {
                        let quants = lines.add((HEADER + group * Six::LINES) * LINE);
                        if lane == 0 {
                            ahead(quants, Six::LINES);
                        }
                        let [a, b, c, d, e, f, g, h] = Six::read::<L>(quants.add(lane * 4));
                        for (i, weights) in [[a, b, c, d], [e, f, g, h]].iter().enumerate() {
                            let small = 2 * group + i;
                            let scale = L::widen(lines.cast::<i8>().add(small * TILE + lane));
                            let scale = L::mul(block_scale, L::floats(scale));
                            let place = 2 * GROUPS * block + small;
                            add_half::<L, R>(&mut totals, OFFSET, scale, weights, rows, place);
                        }
                    }
                    write_sums::<L, R>(&mut sums, lane, totals);
                }
            }
        }
        sums
    }
}

/// Adds the products of the `group`th 32 columns: `scale · Σ (weight − offset) · activation`.
///
/// # Safety
/// As for [`Kernel::run`]; the rows have the columns.
#[inline(always)]
unsafe fn add_whole<L: Lanes, Q: Quants, const R: usize>(
    totals: &mut [L::Floats; R],
    offset: i32,
    scale: L::Floats,
    weights: &[L::Bytes; 8],
    rows: &[Row<'_>; R],
    group: usize,
) {
    let mut activations = [rows[0].quants.as_ptr(); R];
    let mut sums = [0; R];
    // SAFETY: as required of the caller.
    unsafe {
        for r in 0..R {
            activations[r] = rows[r].quants.as_ptr().add(group * GROUP);
            sums[r] = i32::from(*rows[r].sums.get_unchecked(group));
        }
        let dots = L::dots::<Q, 8, R>(offset, &sums, weights, &activations);
        for r in 0..R {
            let scale = L::mul(scale, L::splat(*rows[r].scales.get_unchecked(group)));
            totals[r] = L::add(totals[r], L::mul(scale, L::floats(dots[r])));
        }
    }
}

/// Adds the products of the `half`th 16 columns, in the same way.
///
/// # Safety
/// As for [`Kernel::run`]; the rows have the columns.
#[inline(always)]
unsafe fn add_half<L: Lanes, const R: usize>(
    totals: &mut [L::Floats; R],
    offset: i32,
    scale: L::Floats,
    weights: &[L::Bytes; 4],
    rows: &[Row<'_>; R],
    half: usize,
) {
    let mut activations = [rows[0].quants.as_ptr(); R];
    let mut sums = [0; R];
    // SAFETY: as required of the caller.
    unsafe {
        for r in 0..R {
            activations[r] = rows[r].quants.as_ptr().add(half * GROUP / 2);
            sums[r] = i32::from(*rows[r].fine_sums.get_unchecked(half));
        }
        let dots = L::dots::<Six, 4, R>(offset, &sums, weights, &activations);
        for r in 0..R {
            let scale = L::mul(scale, L::splat(*rows[r].scales.get_unchecked(half / 2)));
            totals[r] = L::add(totals[r], L::mul(scale, L::floats(dots[r])));
        }
    }
}

/// # Safety
/// The processor has what `L` needs, and the lanes are within a tile.
#[inline(always)]
unsafe fn read_sums<L: Lanes, const R: usize>(sums: &Sums<R>, lane: usize) -> [L::Floats; R] {
    // SAFETY: as required of the caller.
    unsafe {
        let mut totals = [L::splat(0.0); R];
        for (total, sums) in totals.iter_mut().zip(sums) {
            *total = L::read(sums.as_ptr().add(lane));
        }
        totals
    }
}

/// # Safety
/// The processor has what `L` needs, and the lanes are within a tile.
#[inline(always)]
unsafe fn write_sums<L: Lanes, const R: usize>(
    sums: &mut Sums<R>,
    lane: usize,
    totals: [L::Floats; R],
) {
    for (total, sums) in totals.into_iter().zip(sums) {
        // SAFETY: as required of the caller.
        unsafe { L::write(sums.as_mut_ptr().add(lane), total) };
    }
}

fn rounded_row(rows: Rows<'_>, index: usize) -> Row<'_> {
    match rows.input {
        Input::Rounded(activations) => activations.row(rows.first + index),
        Input::Exact(_) => unreachable!("checked by the matrix"),
    }
}

/// Where a line of the tile begins.
///
/// # Safety
/// It lies within the tile.
#[inline(always)]
pub(crate) unsafe fn lines_at(tile: Tile<'_>, line: usize) -> *const u8 {
    // SAFETY: as required of the caller.
    unsafe { tile.lines.as_ptr().add(line).cast() }
}

/// Asks for what is read after the next lines: this tile's, or those of the tile behind it.
#[inline(always)]
pub(crate) fn ahead(lines: *const u8, count: usize) {
    for i in 0..count {
        isa::prefetch(lines.wrapping_add(AHEAD + i * LINE));
    }
}

/// The 256 numbers of six bits in a block's header.
///
/// # Safety
/// There are three lines.
#[inline(always)]
unsafe fn widen_six(header: *const u8) -> [u8; 4 * LINE] {
    // SAFETY: as required of the caller.
    let header = unsafe { &*header.cast::<[[u8; LINE]; 3]>() };
    let mut out = [0; 4 * LINE];
    for i in 0..LINE {
        let [a, b, c] = [header[0][i], header[1][i], header[2][i]];
        out[i] = a & 63;
        out[LINE + i] = b & 63;
        out[2 * LINE + i] = c & 63;
        out[3 * LINE + i] = a >> 6 | b >> 6 << 2 | c >> 6 << 4;
    }
    out
}
