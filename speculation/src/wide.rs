//! Loops over whole rows, compiled twice: for any processor, and for those with 256-bit vectors.
//!
//! Both give the same bits: the loops are made of the same additions, products and comparisons, and
//! the compiler neither fuses nor reorders them.

/// Defines a function that runs in whichever form the processor has. What it calls must be
/// `#[inline(always)]`, or it is compiled for any processor only.
macro_rules! wide {
    ($(#[$attribute:meta])* $visible:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block) => {
        $(#[$attribute])*
        $visible fn $name($($argument: $type),*) -> $result {
            #[inline(always)]
            fn portable($($argument: $type),*) -> $result $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn with_avx2($($argument: $type),*) -> $result {
                    portable($($argument),*)
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has the instructions.
                    return unsafe { with_avx2($($argument),*) };
                }
            }
            portable($($argument),*)
        }
    };
}

pub(crate) use wide;
