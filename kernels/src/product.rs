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
/// Bytes of a pair of small blocks' scales.
const PAIR: usize = 2 * TILE;
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
                for block in start..blocks.min(start + SPAN) {
                    // SAFETY: as required of the caller; `block` and `lane` are within the tile
                    // and the rows.
                    unsafe {
                        let lines = lines_at(tile, block * Q::LINES);
                        if lane == 0 {
                            ahead(lines, Q::LINES);
                        }
                        let halves = tile.halves.as_ptr().add(block * halves + lane);
                        let scale = L::halves(halves);
                        let weights = Q::read::<L>(lines.add(lane * 4));
                        for (row, sums) in rows.iter().zip(&mut sums) {
                            let sums = sums.as_mut_ptr().add(lane);
                            let activations = row.quants.as_ptr().add(block * GROUP);
                            let sum = i32::from(*row.sums.get_unchecked(block));
                            let row_scale = *row.scales.get_unchecked(block);
                            let dot = if Q::SIGNED {
                                L::dot_signed(&weights, activations, sum)
                            } else {
                                L::dot::<Q, 8>(-OFFSET * sum, &weights, activations)
                            };
                            let scale = L::mul(scale, L::splat(row_scale));
                            let mut total = L::add(L::read(sums), L::mul(scale, L::floats(dot)));
                            if MINIMA {
                                let sum = L::splat(row_scale * sum as f32);
                                total = L::add(total, L::mul(L::halves(halves.add(TILE)), sum));
                            }
                            L::write(sums, total);
                        }
                    }
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
        let block_lines = HEADER + GROUPS * Q::LINES;
        let mut sums = [[0.0; TILE]; R];
        for block in 0..rows[0].scales.len() {
            // SAFETY: as required of the caller; all offsets are within a block of the tile and
            // of the rows.
            unsafe {
                let lines = lines_at(tile, block * block_lines);
                ahead(lines, HEADER);
                let small = widen_six(lines);
                let halves = tile.halves.as_ptr().add(block * 2 * TILE);
                for lane in (0..TILE).step_by(L::COUNT) {
                    let scales = small.as_ptr().cast::<i8>().add(lane * 2);
                    let quants = lines.add(HEADER * LINE + lane * 4);
                    let mut dots = [L::zero(); R];
                    for pair in 0..GROUPS / 2 {
                        let scales = L::pairs(scales.add(pair * PAIR));
                        let quants = quants.add(2 * pair * Q::LINES * LINE);
                        if lane == 0 {
                            ahead(quants, 2 * Q::LINES);
                        }
                        let place = block * SUPER + 2 * pair * GROUP;
                        let weights = Q::read::<L>(quants);
                        add_dots::<L, Q, 8, R>(&mut dots, L::first(scales), &weights, rows, place);
                        let weights = Q::read::<L>(quants.add(Q::LINES * LINE));
                        let place = place + GROUP;
                        add_dots::<L, Q, 8, R>(&mut dots, L::second(scales), &weights, rows, place);
                    }
                    let scale = L::halves(halves.add(lane));
                    let minimum = L::halves(halves.add(TILE + lane));
                    for r in 0..R {
                        let numbers = rows[r].sums.as_ptr().add(block * GROUPS);
                        let minima = pairs_by::<L>(scales.add(MINIMA), numbers, GROUPS / 2);
                        let dot = L::mul(scale, L::floats(dots[r]));
                        let part = L::sub(dot, L::mul(minimum, L::floats(minima)));
                        add_part::<L>(&mut sums[r], lane, part, &rows[r], block);
                    }
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
        let block_lines = HEADER + GROUPS * Six::LINES;
        let mut sums = [[0.0; TILE]; R];
        for block in 0..rows[0].scales.len() {
            // SAFETY: as required of the caller; all offsets are within a block of the tile and
            // of the rows.
            unsafe {
                let lines = lines_at(tile, block * block_lines);
                ahead(lines, HEADER);
                let halves = tile.halves.as_ptr().add(block * TILE);
                for lane in (0..TILE).step_by(L::COUNT) {
                    let scales = lines.cast::<i8>().add(lane * 2);
                    let quants = lines.add(HEADER * LINE + lane * 4);
                    let mut dots = [L::zero(); R];
                    for group in 0..GROUPS {
                        let scales = L::pairs(scales.add(group * PAIR));
                        let quants = quants.add(group * Six::LINES * LINE);
                        if lane == 0 {
                            ahead(quants, Six::LINES);
                        }
                        let weights = Six::read::<L>(quants);
                        let [a, b, c, d, e, f, g, h] = weights;
                        let place = block * SUPER + group * GROUP;
                        let (first, second) = (L::first(scales), L::second(scales));
                        add_dots::<L, Six, 4, R>(&mut dots, first, &[a, b, c, d], rows, place);
                        let place = place + GROUP / 2;
                        add_dots::<L, Six, 4, R>(&mut dots, second, &[e, f, g, h], rows, place);
                    }
                    let scale = L::halves(halves.add(lane));
                    for r in 0..R {
                        let numbers = rows[r].fine_sums.as_ptr().add(block * GROUPS * 2);
                        let offsets = pairs_by::<L>(scales, numbers, GROUPS);
                        let dot = L::floats(L::minus_32(dots[r], offsets));
                        add_part::<L>(&mut sums[r], lane, L::mul(scale, dot), &rows[r], block);
                    }
                }
            }
        }
        sums
    }
}

/// Adds a small block's part to the sums of a block, for each row: `dots += scale · Σ weight ·
/// activation`, over the columns from `place` on.
///
/// # Safety
/// As for [`Kernel::run`]; the columns are within the rows.
#[inline(always)]
unsafe fn add_dots<L: Lanes, Q: Quants, const N: usize, const R: usize>(
    dots: &mut [L::Ints; R],
    scales: L::Scales,
    weights: &[L::Bytes; N],
    rows: &[Row<'_>; R],
    place: usize,
) {
    let mut activations = [rows[0].quants.as_ptr(); R];
    // SAFETY: as required of the caller.
    unsafe {
        for (activations, row) in activations.iter_mut().zip(rows) {
            *activations = row.quants.as_ptr().add(place);
        }
        L::add_scaled_dots::<Q, N, R>(dots, scales, weights, &activations);
    }
}

/// The products of pairs of small scales or minima with pairs of numbers, added up.
///
/// # Safety
/// As for [`Kernel::run`]; there are so many pairs.
#[inline(always)]
unsafe fn pairs_by<L: Lanes>(small: *const i8, numbers: *const i16, count: usize) -> L::Ints {
    // SAFETY: as required of the caller.
    unsafe {
        let mut sum = L::zero();
        for pair in 0..count {
            let factors = L::pairs(small.add(pair * PAIR));
            sum = L::add_pairs(sum, factors, numbers.add(2 * pair));
        }
        sum
    }
}

/// Adds a block's part, times the scale of the row's block.
///
/// # Safety
/// As for [`Kernel::run`]; the row has the block.
#[inline(always)]
unsafe fn add_part<L: Lanes>(
    sums: &mut [f32; TILE],
    lane: usize,
    part: L::Floats,
    row: &Row<'_>,
    block: usize,
) {
    // SAFETY: as required of the caller.
    unsafe {
        let part = L::mul(part, L::splat(*row.scales.get_unchecked(block)));
        let sums = sums.as_mut_ptr().add(lane);
        L::write(sums, L::add(L::read(sums), part));
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
