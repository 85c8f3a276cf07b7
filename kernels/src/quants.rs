//! Reads the quants of a group of 32 columns out of a tile's lines; `pack` says where they lie.

use crate::isa::Lanes;

/// How quants are stored.
pub(crate) trait Quants {
    /// Lines of a group.
    const LINES: usize;
    /// The largest magnitude of a quant.
    const LARGEST: usize;
    /// Whether quants have a sign.
    const SIGNED: bool;

    /// The quads of a group, of the lanes that begin `lines`.
    ///
    /// # Safety
    /// The processor has what `L` needs, and `lines` points into a group's first line such that
    /// the lanes fit.
    unsafe fn read<L: Lanes>(lines: *const u8) -> [L::Bytes; 8];
}

/// 4 bits.
pub(crate) struct Four;
/// 5 bits.
pub(crate) struct Five;
/// 6 bits.
pub(crate) struct Six;
/// 8 bits with a sign.
pub(crate) struct Eight;

const LINE: usize = 64;

#[inline(always)]
unsafe fn nibbles<L: Lanes>(lines: *const u8) -> [L::Bytes; 8] {
    // SAFETY: as required of the caller.
    unsafe {
        let a = L::load(lines);
        let b = L::load(lines.add(LINE));
        let c = L::load(lines.add(2 * LINE));
        let d = L::load(lines.add(3 * LINE));
        [
            L::bits::<0, 15>(a),
            L::bits::<0, 15>(b),
            L::bits::<0, 15>(c),
            L::bits::<0, 15>(d),
            L::bits::<4, 15>(a),
            L::bits::<4, 15>(b),
            L::bits::<4, 15>(c),
            L::bits::<4, 15>(d),
        ]
    }
}

impl Quants for Four {
    const LINES: usize = 4;
    const LARGEST: usize = 15;
    const SIGNED: bool = false;

    #[inline(always)]
    unsafe fn read<L: Lanes>(lines: *const u8) -> [L::Bytes; 8] {
        // SAFETY: as required of the caller.
        unsafe { nibbles::<L>(lines) }
    }
}

impl Quants for Five {
    const LINES: usize = 5;
    const LARGEST: usize = 31;
    const SIGNED: bool = false;

    #[inline(always)]
    unsafe fn read<L: Lanes>(lines: *const u8) -> [L::Bytes; 8] {
        // SAFETY: as required of the caller.
        unsafe {
            let low = nibbles::<L>(lines);
            let fifth = L::load(lines.add(4 * LINE));
            [
                L::or(low[0], L::left::<4>(L::bits::<0, 1>(fifth))),
                L::or(low[1], L::left::<4>(L::bits::<1, 1>(fifth))),
                L::or(low[2], L::left::<4>(L::bits::<2, 1>(fifth))),
                L::or(low[3], L::left::<4>(L::bits::<3, 1>(fifth))),
                L::or(low[4], L::bits::<0, 16>(fifth)),
                L::or(low[5], L::bits::<1, 16>(fifth)),
                L::or(low[6], L::bits::<2, 16>(fifth)),
                L::or(low[7], L::bits::<3, 16>(fifth)),
            ]
        }
    }
}

impl Quants for Six {
    const LINES: usize = 6;
    const LARGEST: usize = 63;
    const SIGNED: bool = false;

    #[inline(always)]
    unsafe fn read<L: Lanes>(lines: *const u8) -> [L::Bytes; 8] {
        // SAFETY: as required of the caller.
        unsafe {
            let low = nibbles::<L>(lines);
            let [a, b] = [L::load(lines.add(4 * LINE)), L::load(lines.add(5 * LINE))];
            [
                L::or(low[0], L::left::<4>(L::bits::<0, 3>(a))),
                L::or(low[1], L::left::<2>(L::bits::<0, 12>(a))),
                L::or(low[2], L::bits::<0, 48>(a)),
                L::or(low[3], L::bits::<2, 48>(a)),
                L::or(low[4], L::left::<4>(L::bits::<0, 3>(b))),
                L::or(low[5], L::left::<2>(L::bits::<0, 12>(b))),
                L::or(low[6], L::bits::<0, 48>(b)),
                L::or(low[7], L::bits::<2, 48>(b)),
            ]
        }
    }
}

impl Quants for Eight {
    const LINES: usize = 8;
    const LARGEST: usize = 128;
    const SIGNED: bool = true;

    #[inline(always)]
    unsafe fn read<L: Lanes>(lines: *const u8) -> [L::Bytes; 8] {
        // SAFETY: as required of the caller.
        unsafe {
            let mut quads = [L::load(lines); 8];
            for (i, quad) in quads.iter_mut().enumerate() {
                *quad = L::load(lines.add(i * LINE));
            }
            quads
        }
    }
}
