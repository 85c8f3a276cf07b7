//! The instructions of processors, behind one set of operations.
//!
//! A product is written once over [`Lanes`], each lane an output; an implementation says how many
//! lanes there are and which instructions do what.

#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod portable;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_256;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_512;

use crate::TILE;
use crate::product::{Kernel, Rows, Tile, by_rows};
use crate::quants::Quants;
use std::sync::OnceLock;

/// A set of instructions that products are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// What any processor has.
    Portable,
    /// x86-64 with AVX2 and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The same with AVX-VNNI.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// x86-64 with AVX-512 BW and VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    /// 64-bit ARM.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// 64-bit ARM with dot products.
    #[cfg(target_arch = "aarch64")]
    NeonDot,
}

impl Isa {
    /// All that this processor has, the fastest last.
    pub fn available() -> &'static [Self] {
        static AVAILABLE: OnceLock<Vec<Isa>> = OnceLock::new();
        AVAILABLE.get_or_init(detect)
    }

    /// The fastest that this processor has.
    pub fn best() -> Self {
        Self::available().last().copied().unwrap_or(Self::Portable)
    }
}

fn detect() -> Vec<Isa> {
    let mut available = vec![Isa::Portable];
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx2") && has!("f16c") {
            available.push(Isa::Avx2);
            if has!("avxvnni") {
                available.push(Isa::AvxVnni);
            }
            if has!("avx512f") && has!("avx512bw") && has!("avx512vnni") {
                available.push(Isa::Avx512Vnni);
            }
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        available.push(Isa::Neon);
        if std::arch::is_aarch64_feature_detected!("dotprod") {
            available.push(Isa::NeonDot);
        }
    }
    available
}

/// Runs a kernel with the given instructions.
///
/// # Panics
/// If the processor does not have them.
pub(crate) fn enter<K: Kernel>(isa: Isa, tile: Tile<'_>, rows: Rows<'_>, out: &mut [[f32; TILE]]) {
    assert!(Isa::available().contains(&isa), "{isa:?} on this processor");
    // SAFETY: the processor has the instructions.
    unsafe {
        match isa {
            Isa::Portable => by_rows::<portable::Portable, K>(tile, rows, out),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => x86_256::avx2::<K>(tile, rows, out),
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => x86_256::avx_vnni::<K>(tile, rows, out),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => x86_512::avx512_vnni::<K>(tile, rows, out),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => by_rows::<neon::Neon<false>, K>(tile, rows, out),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDot => neon::dot::<K>(tile, rows, out),
        }
    }
}

/// Does what is written for no instructions in particular with registers as wide as there are.
#[inline(always)]
pub(crate) fn wide(work: impl FnOnce()) {
    #[cfg(target_arch = "x86_64")]
    if Isa::available().contains(&Isa::Avx2) {
        // SAFETY: the processor has the instructions.
        return unsafe { x86_256::wide(work) };
    }
    work();
}

/// Operations on some outputs side by side. Whole numbers must be exact and floats rounded to
/// nearest after each operation, so that all implementations agree to the bit.
///
/// # Safety
/// All functions require that the processor has the instructions, and that pointers are good for
/// what they are documented to read or write.
pub(crate) trait Lanes {
    /// Outputs side by side; divides [`TILE`].
    const COUNT: usize;
    /// Whether there are registers for eight rows at a time, rather than four.
    const WIDE: bool;
    /// Four bytes per output: quants of four columns.
    type Bytes: Copy;
    /// A 32-bit whole number per output.
    type Ints: Copy;
    /// A float per output.
    type Floats: Copy;

    /// Reads four bytes per output.
    unsafe fn load(bytes: *const u8) -> Self::Bytes;
    /// `(byte >> SHIFT) & MASK`, for each byte.
    unsafe fn bits<const SHIFT: i32, const MASK: u8>(bytes: Self::Bytes) -> Self::Bytes;
    /// `byte << SHIFT`, for bytes that lose no bits by it.
    unsafe fn left<const SHIFT: i32>(bytes: Self::Bytes) -> Self::Bytes;
    /// `a | b`.
    unsafe fn or(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;

    /// Widens a signed byte per output.
    unsafe fn widen(bytes: *const i8) -> Self::Ints;
    /// `Σ (weight − offset) · activation` over `4·N` columns for each of some rows, given the sums
    /// of their activations, which are from −127 to 127.
    unsafe fn dots<Q: Quants, const N: usize, const R: usize>(
        offset: i32,
        sums: &[i32; R],
        weights: &[Self::Bytes; N],
        activations: &[*const i8; R],
    ) -> [Self::Ints; R];

    /// The nearest floats.
    unsafe fn floats(ints: Self::Ints) -> Self::Floats;
    /// Widens half-precision numbers.
    unsafe fn halves(bits: *const u16) -> Self::Floats;
    /// Widens the upper halves of floats.
    unsafe fn upper_halves(bits: *const u16) -> Self::Floats;
    unsafe fn splat(value: f32) -> Self::Floats;
    unsafe fn read(values: *const f32) -> Self::Floats;
    unsafe fn write(values: *mut f32, floats: Self::Floats);
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    unsafe fn sub(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
}

/// Asks for a cache line that is going to be read, down to the second cache. Any address will do.
#[inline(always)]
pub(crate) fn prefetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of the baseline, and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(line.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction is part of the baseline, and never faults.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{}]", in(reg) line, options(nostack, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = line;
}
