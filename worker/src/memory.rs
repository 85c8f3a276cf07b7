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
                let room = (left as f64 * GPU_SHARE / (1.0 + footprint.gathered_share())) as u64;
                // More than all sequences could use would only be taken from others.
                footprint.cache_bytes(sizes.max_sequences).min(room)
            }
            (None, _) => CPU_CACHE,
        };
        let gathered = (cache as f64 * footprint.gathered_share()) as u64;
        Self {
            weights: footprint.weights,
            cache,
            step: step.saturating_add(gathered),
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

#[cfg(test)]
mod tests {
    use super::*;
    use engine::tiny::TinyModel;
    use engine::{CacheType, LoadOptions};

    const GIB: u64 = 1024 * MIB;
    const SIZES: Sizes = Sizes {
        cache_mib: None,
        max_step_tokens: 512,
        max_sequences: 64,
    };

    /// That of a tiny model of a context of 2^20 tokens, with a cache of 1 KiB per token.
    fn footprint(device: Device) -> Footprint {
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let tiny = TinyModel {
            context_length: 1 << 20,
            ..TinyModel::default()
        };
        tiny.write(&file).unwrap();
        let options = LoadOptions {
            device,
            ..LoadOptions::default()
        };
        let footprint = engine::footprint(&file, &options, CacheType::F32).unwrap();
        assert!(footprint.weights >= file.metadata().unwrap().len());
        assert_eq!(footprint.block_bytes(), 32 * 1024);
        footprint
    }

    fn plan(footprint: &Footprint, sizes: Sizes, free: u64, on_cpu: bool) -> (MemoryPlan, bool) {
        let plan = MemoryPlan::of(footprint, sizes, Some(free), on_cpu);
        let fits = plan.fits(footprint);
        (plan, fits)
    }

    #[test]
    fn the_cpu_takes_a_gibibyte_where_nothing_is_said() {
        let footprint = footprint(Device::cpu());
        let (stated, fits) = plan(&footprint, SIZES, 64 * GIB, true);
        assert!(fits && stated.cache == GIB, "{stated}");
        let (tight, fits) = plan(&footprint, SIZES, GIB, true);
        assert!(
            !fits && tight.cache == GIB,
            "nothing shrinks by itself: {tight}"
        );
    }

    #[test]
    fn a_gpu_takes_what_is_left_and_no_more_than_sequences_can_use() {
        let footprint = footprint(Device::candle_cpu());
        for free in [4 * GIB, 16 * GIB] {
            let (plan, fits) = plan(&footprint, SIZES, free, false);
            let planned = plan.weights + plan.cache + plan.step;
            assert!(fits && planned <= free && planned >= free / 2, "{plan}");
        }
        let one = Sizes {
            max_sequences: 1,
            ..SIZES
        };
        let (plan, fits) = plan(&footprint, one, 512 * GIB, false);
        assert!(
            fits && plan.cache == GIB,
            "a context of one sequence: {plan}"
        );
    }

    #[test]
    fn what_is_stated_is_taken_or_refused() {
        let footprint = footprint(Device::candle_cpu());
        let stated = |mib| Sizes {
            cache_mib: Some(mib),
            ..SIZES
        };
        let (small, fits) = plan(&footprint, stated(100), 4 * GIB, false);
        assert!(fits && small.cache == 100 * MIB, "{small}");
        let (large, fits) = plan(&footprint, stated(4096), 4 * GIB, false);
        assert!(!fits, "{large}");
        let (weights, fits) = plan(&footprint, SIZES, footprint.weights - 1, false);
        assert!(!fits, "{weights}");
        let unknown = MemoryPlan::of(&footprint, stated(4096), None, false);
        assert!(
            unknown.fits(&footprint),
            "where nothing is known nothing is refused"
        );
    }

    #[test]
    fn a_refusal_names_what_can_be_changed() {
        let footprint = footprint(Device::cpu());
        let sizes = Sizes {
            cache_mib: Some(u32::MAX),
            ..SIZES
        };
        let plan = MemoryPlan::of(&footprint, sizes, Some(GIB), true);
        let refusal = DoesNotFit {
            device: "cpu".to_owned(),
            plan,
        }
        .to_string();
        for part in [
            "--cache-mib",
            "--max-step-tokens",
            "--dtype",
            "cpu",
            "of 1024 MiB free",
        ] {
            assert!(refusal.contains(part), "{part}: {refusal}");
        }
    }
}
