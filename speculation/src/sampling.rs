//! Sampling parameters, checked once.

/// Sampling parameters as a user states them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingOptions {
    /// Divides the logits; 0 takes the most likely token. Finite, 0 to 100.
    pub temperature: f32,
    /// Keeps the k most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keeps the smallest set of most likely tokens whose probability reaches this. Over 0, at most 1.
    pub top_p: f32,
    /// Drops tokens whose probability is below this times that of the most likely one. 0 to 1.
    pub min_p: f32,
    /// Keeps the smallest set of tokens whose surprise is closest to the law's entropy and whose
    /// probability reaches this. Over 0, at most 1.
    pub typical_p: f32,
}

impl SamplingOptions {
    /// True where some ids may be left out whatever their logits.
    pub(crate) fn truncates(&self) -> bool {
        self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0 || self.typical_p < 1.0
    }
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
        }
    }
}

/// Sampling parameters that are known to be valid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling(SamplingOptions);

/// A sampling parameter out of its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field} must be {requirement}, not {value}")]
pub struct InvalidSampling {
    /// The parameter's name.
    pub field: &'static str,
    /// What it must be.
    pub requirement: &'static str,
    /// What it was.
    pub value: f32,
}

impl InvalidSampling {
    /// Refuses `value` unless it is `within` its range.
    pub(crate) fn unless(
        within: bool,
        field: &'static str,
        requirement: &'static str,
        value: f32,
    ) -> Result<(), Self> {
        within.then_some(()).ok_or(Self {
            field,
            requirement,
            value,
        })
    }
}

impl Sampling {
    /// Checks `options`.
    ///
    /// # Errors
    /// The first parameter out of its range.
    pub fn new(options: SamplingOptions) -> Result<Self, InvalidSampling> {
        let SamplingOptions {
            temperature,
            top_p,
            min_p,
            typical_p,
            ..
        } = options;
        InvalidSampling::unless(
            (0.0..=100.0).contains(&temperature),
            "temperature",
            "a number from 0 to 100",
            temperature,
        )?;
        for (field, value) in [("top_p", top_p), ("typical_p", typical_p)] {
            let within = value > 0.0 && value <= 1.0;
            InvalidSampling::unless(within, field, "over 0 and at most 1", value)?;
        }
        let within = (0.0..=1.0).contains(&min_p);
        InvalidSampling::unless(within, "min_p", "a number from 0 to 1", min_p)?;
        Ok(Self(options))
    }

    /// The checked parameters.
    pub fn options(&self) -> &SamplingOptions {
        &self.0
    }

    /// True where the most likely token is always taken.
    pub fn is_greedy(&self) -> bool {
        self.0.temperature == 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut SamplingOptions)) -> Result<Sampling, InvalidSampling> {
        let mut options = SamplingOptions::default();
        change(&mut options);
        Sampling::new(options)
    }

    fn refused(values: &[f32], field: &'static str, set: fn(&mut SamplingOptions, f32)) {
        let not_numbers = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX];
        for value in values.iter().chain(&not_numbers) {
            let error = with(|options| set(options, *value)).expect_err("out of range");
            assert_eq!(error.field, field);
            assert_eq!(error.value.to_bits(), value.to_bits());
            let message = format!("{field} must be {}, not {value}", error.requirement);
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn every_value_out_of_range_is_refused_by_name() {
        refused(&[-1.0, -1e-45, 100.001], "temperature", |options, value| {
            options.temperature = value;
        });
        refused(
            &[0.0, -0.0, -0.5, 1.000_000_1, 2.0],
            "top_p",
            |options, value| {
                options.top_p = value;
            },
        );
        refused(&[0.0, -0.5, 1.000_000_1], "typical_p", |options, value| {
            options.typical_p = value;
        });
        refused(&[-0.1, 1.000_000_1, 1.5], "min_p", |options, value| {
            options.min_p = value;
        });
    }

    #[test]
    fn the_ends_of_every_range_are_accepted() {
        for temperature in [0.0, -0.0, 1e-45, 100.0] {
            assert!(with(|options| options.temperature = temperature).is_ok());
        }
        for top_p in [1e-45, 1.0] {
            assert!(with(|options| options.top_p = top_p).is_ok());
        }
        for min_p in [0.0, 1.0] {
            assert!(with(|options| options.min_p = min_p).is_ok());
        }
        assert!(with(|options| options.top_k = u32::MAX).is_ok());
    }

    #[test]
    fn the_default_is_the_models_own_law() {
        let sampling = Sampling::new(SamplingOptions::default()).expect("valid");
        let expected = SamplingOptions {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
        };
        assert_eq!(*sampling.options(), expected);
        assert!(!sampling.is_greedy());
    }

    #[test]
    fn only_temperature_0_is_greedy() {
        for (temperature, greedy) in [(0.0, true), (-0.0, true), (1e-45, false)] {
            let sampling = with(|options| options.temperature = temperature).expect("valid");
            assert_eq!(sampling.is_greedy(), greedy);
        }
    }
}
