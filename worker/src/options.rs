//! The options of a model that serves.

use clap::{ArgAction, Args, value_parser};
use engine::synthetic::Description;
use engine::{CacheType, Device, DeviceChoice, WeightType};
use models::{ModelRef, Role};
use service::config::ConfigError;
use std::num::NonZeroUsize;

/// Which model to serve, and with how much of the machine.
#[derive(Debug, Clone, Args)]
pub struct ModelOptions {
    /// The model: a GGUF file, a folder of safetensors with config.json and tokenizer.json, the name of a preset or
    /// of a known model, `hf:owner/repo[/file][@revision]` for a GGUF file, or `synthetic[:description]` for the
    /// built-in toy model, for example `synthetic:vocab=512,agreement=0.75,ranks=.4/.55/.7/.81,base_ms=2,row_ms=0.1`. A known model is fetched first where it is absent.
    #[arg(long, env = "SPECDEC_MODEL", value_name = "MODEL")]
    pub model: String,

    /// Threads that compute. Unset takes what RAYON_NUM_THREADS and CANDLE_NUM_THREADS state, or else all cores.
    #[arg(long, env = "SPECDEC_THREADS")]
    pub threads: Option<NonZeroUsize>,

    /// Sequences at once, of all coordinators; more are refused as overload.
    #[arg(long, env = "SPECDEC_MAX_SEQUENCES", default_value_t = 64, value_parser = value_parser!(u32).range(1..))]
    pub max_sequences: u32,

    /// Memory for keys and values of all sequences, in MiB. When it is used up, the sequence that was idle for
    /// longest gives its part up, and computes it again when it goes on. Unset takes 1024 on the cpu, and on a GPU what
    /// all sequences may need, up to nine tenths of what the weights and the largest step leave.
    #[arg(long, env = "SPECDEC_CACHE_MIB", value_parser = value_parser!(u32).range(1..))]
    pub cache_mib: Option<u32>,

    /// How keys and values are stored: `f32`, `f16` or `q8`, the last on the cpu only. The smaller ones hold 2 and 3½
    /// times as many tokens, and round: the text is then that of the model with such a cache. With `--dtype bf16`, `f16`
    /// stands for that.
    #[arg(long, env = "SPECDEC_CACHE_TYPE", default_value_t = CacheType::F32)]
    pub cache_type: CacheType,

    /// Computes what requests have in common at their beginning once. `--prefix-sharing=false` keeps them apart, where
    /// one client must not learn from the time to the first token what another has asked.
    #[arg(
        long,
        env = "SPECDEC_PREFIX_SHARING",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
    )]
    pub prefix_sharing: bool,

    /// Tokens per step. A longer prompt is prefilled in pieces, between the steps of other sequences: smaller
    /// values keep those responsive, larger ones prefill faster. Unset takes 128 on the cpu, where a step takes as long as
    /// its tokens are many, and 512 on a GPU and for the toy model.
    #[arg(long, env = "SPECDEC_MAX_STEP_TOKENS", value_parser = value_parser!(u32).range(1..))]
    pub max_step_tokens: Option<u32>,

    /// The most tokens that one proposal may hold.
    #[arg(long, env = "SPECDEC_MAX_DRAFT_TOKENS", default_value_t = 16, value_parser = value_parser!(u32).range(1..=1024))]
    pub max_draft_tokens: u32,

    /// Computes a token's logits the same to the bit whatever else is in the step, so that a text never depends on
    /// load or on drafts. Only the cpu can: there it is the default, and `--batch-invariant=false` lets faster kernels
    /// in that round differently.
    #[arg(
        long,
        env = "SPECDEC_BATCH_INVARIANT",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
    )]
    pub batch_invariant: Option<bool>,

    /// Where the model computes: `cpu`, `cuda[:N]`, `metal[:N]`, or `auto` for the first GPU that is there and else the
    /// cpu. GPUs need a program that was built with the feature of that name.
    #[arg(long, env = "SPECDEC_DEVICE", default_value_t = DeviceChoice::Cpu)]
    pub device: DeviceChoice,

    /// What a GPU holds the weights' matrices in: `auto` as the file stores them, quantised ones included, or `f32`,
    /// `f16` or `bf16` for all of them. The cpu takes them as they are stored.
    #[arg(long, env = "SPECDEC_DTYPE", default_value_t = WeightType::Stored)]
    pub dtype: WeightType,
}

impl ModelOptions {
    /// Checks that `--model` can name a model for `role`, and that the device can do what is asked. Looks into no file
    /// and at no device.
    ///
    /// # Errors
    /// Names the flag.
    pub fn validate(&self, role: Role) -> Result<(), ConfigError> {
        let wrong = |error: anyhow::Error| ConfigError(format!("--model: {error:#}"));
        if let ModelRef::Synthetic(description) = models::check(&self.model, role).map_err(wrong)? {
            let parsed = description.parse::<Description>();
            parsed.map_err(|error| wrong(error.into()))?;
            if !matches!(self.device, DeviceChoice::Cpu | DeviceChoice::Auto) {
                let device = self.device;
                return Err(ConfigError(format!(
                    "--device: the synthetic model computes on the cpu, not on {device}"
                )));
            }
        }
        match self.device {
            DeviceChoice::Cpu => self.fits(true),
            DeviceChoice::Cuda(_) | DeviceChoice::Metal(_) => self.fits(false),
            DeviceChoice::Auto => Ok(()),
        }
    }

    /// The most tokens of a step, on the cpu or elsewhere.
    pub(crate) fn step_tokens(&self, on_cpu: bool) -> usize {
        let default = if on_cpu { 128 } else { 512 };
        self.max_step_tokens.unwrap_or(default) as usize
    }

    /// Whether logits are to be the same whatever else is in the step, on `device`.
    ///
    /// # Errors
    /// Names the flag that asks for what `device` cannot do.
    pub fn batch_invariant_on(&self, device: &Device) -> Result<bool, ConfigError> {
        self.fits(device.is_cpu())?;
        Ok(self.batch_invariant.unwrap_or(device.is_cpu()))
    }

    /// Whether the device, the cpu or another, can do what is asked.
    fn fits(&self, on_cpu: bool) -> Result<(), ConfigError> {
        if self.batch_invariant == Some(true) && !on_cpu {
            return Err(ConfigError(
                "--batch-invariant: the libraries of a GPU choose their kernels by the number of rows, and these \
                 round differently: only --device cpu can compute that way"
                    .to_owned(),
            ));
        }
        if self.cache_type == CacheType::Q8 && !on_cpu {
            return Err(ConfigError(
                "--cache-type: q8 is known on the cpu only; a GPU takes f32 or f16".to_owned(),
            ));
        }
        if self.dtype != WeightType::Stored && on_cpu {
            let dtype = self.dtype;
            return Err(ConfigError(format!(
                "--dtype: the cpu takes weights as they are stored, not as {dtype}"
            )));
        }
        Ok(())
    }

    /// Hands `--threads` to the libraries that compute. They read the environment once, at first
    /// use: call this before any thread exists.
    #[expect(
        clippy::disallowed_methods,
        reason = "candle and rayon take their number of threads from the environment only"
    )]
    pub fn apply_threads(&self) {
        let Some(threads) = self.threads else { return };
        for name in ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"] {
            // SAFETY: no other thread exists yet that could read the environment meanwhile.
            unsafe { std::env::set_var(name, threads.to_string()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        model: ModelOptions,
    }

    fn options(flags: &[&str]) -> ModelOptions {
        let args = [&["program", "--model", "synthetic"], flags].concat();
        Program::try_parse_from(args).unwrap().model
    }

    #[test]
    fn the_cpu_is_batch_invariant_unless_told_otherwise_and_a_gpu_never() {
        let (cpu, gpu) = (Device::cpu(), Device::candle_cpu());
        let on = |flags: &[&str], device: &Device| options(flags).batch_invariant_on(device);
        assert!(on(&[], &cpu).unwrap());
        assert!(!on(&["--batch-invariant=false"], &cpu).unwrap());
        assert!(!on(&[], &gpu).unwrap());
        assert!(!on(&["--batch-invariant=false"], &gpu).unwrap());
        for flag in ["--batch-invariant", "--batch-invariant=true"] {
            assert!(on(&[flag], &cpu).unwrap());
            let refusal = on(&[flag], &gpu).unwrap_err().to_string();
            assert!(refusal.starts_with("--batch-invariant"), "{refusal}");
        }
    }

    #[test]
    fn what_a_device_cannot_hold_is_refused_by_flag() {
        let (cpu, gpu) = (Device::cpu(), Device::candle_cpu());
        let refusal = |flags: &[&str], device: &Device| {
            options(flags)
                .batch_invariant_on(device)
                .unwrap_err()
                .to_string()
        };
        assert!(refusal(&["--dtype", "f16"], &cpu).starts_with("--dtype"));
        assert!(
            options(&["--dtype", "f16"])
                .batch_invariant_on(&gpu)
                .is_ok()
        );
        assert!(refusal(&["--cache-type", "q8"], &gpu).starts_with("--cache-type"));
        assert!(
            options(&["--cache-type", "q8"])
                .batch_invariant_on(&cpu)
                .is_ok()
        );
        let early = options(&["--dtype", "bf16"])
            .validate(Role::Target)
            .unwrap_err();
        assert!(early.to_string().starts_with("--dtype"), "{early}");
    }
}
