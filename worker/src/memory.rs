//! The memory plan: whether a model, its cache and its largest step fit where it computes, before
//! anything of it is loaded.

use engine::{Device, Footprint};
use std::fmt;

pub(crate) const MIB: u64 = 1024 * 1024;

/// What the cache takes on the processor where nothing is said: its memory is shared with others.
pub(crate) const CPU_CACHE: u64 = 1024 * MIB;

/// The share of what a GPU has left that the cache takes where nothing is said. The rest is for what
/// drivers and libraries take beside what is planned here.
const GPU_SHARE: f64 = 0.9;

/// What goes where, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    pub(crate) weights: u64,
    pub(crate) cache: u64,
    /// What the largest step takes beside them.
    pub(crate) step: u64,
    /// What there is; unknown on some systems.
    pub(crate) free: Option<u64>,
}

/// What does not fit, and what can be done about it.
#[derive(Debug, thiserror::Error)]
#[error(
    "the model does not fit into the memory of {device}: {plan}; lower --cache-mib, --max-step-tokens or \
     --max-sequences, or choose a smaller --model, another --device or a --dtype of fewer bits"
)]
pub(crate) struct DoesNotFit {
    device: String,
    plan: MemoryPlan,
}

/// The sizes that options set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// `--cache-mib`.
    pub(crate) cache_mib: Option<u32>,
    pub(crate) max_step_tokens: usize,
    pub(crate) max_sequences: usize,
}

impl MemoryPlan {
    /// The plan for a model of `footprint` on `device`.
    ///
    /// # Errors
    /// Where it does not fit.
    pub(crate) fn new(
        footprint: &Footprint,
        sizes: Sizes,
        device: &Device,
    ) -> Result<Self, DoesNotFit> {
        let free = device.free_bytes();
        let plan = Self::of(footprint, sizes, free, device.is_cpu());
        match plan.fits(footprint) {
            true => Ok(plan),
            false => Err(DoesNotFit {
                device: device.to_string(),
                plan,
            }),
        }
    }

    fn of(footprint: &Footprint, sizes: Sizes, free: Option<u64>, on_cpu: bool) -> Self {
        let step = footprint.step_bytes(sizes.max_step_tokens);
        let cache = match (sizes.cache_mib, free) {
            (Some(mib), _) => u64::from(mib) * MIB,
            (None, Some(free)) if !on_cpu => {
                let left = free.saturating_sub(footprint.weights).saturating_sub(step);
                // More than all sequences could use would only be taken from others.
                footprint
                    .cache_bytes(sizes.max_sequences)
                    .min((left as f64 * GPU_SHARE) as u64)
            }
            (None, _) => CPU_CACHE,
        };
        Self {
            weights: footprint.weights,
            cache,
            step,
            free,
        }
    }

    /// Whether it all has room, and the cache holds at least one block.
    fn fits(&self, footprint: &Footprint) -> bool {
        let needed = self
            .weights
            .saturating_add(self.cache)
            .saturating_add(self.step);
        self.cache >= footprint.block_bytes() && self.free.is_none_or(|free| needed <= free)
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes.div_ceil(MIB);
        write!(
            out,
            "{} MiB of weights, {} MiB of cache and {} MiB for the largest step, of ",
            mib(self.weights),
            mib(self.cache),
            mib(self.step)
        )?;
        match self.free {
            Some(free) => write!(out, "{} MiB free", free / MIB),
            None => out.write_str("an unknown number free"),
        }
    }
}
