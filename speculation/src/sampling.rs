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
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
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

impl Sampling {
    /// Checks `options`.
    ///
    /// # Errors
    /// The first parameter out of its range.
    pub fn new(options: SamplingOptions) -> Result<Self, InvalidSampling> {
        let within = |field, requirement, value: f32, ok: bool| {
            if ok {
                Ok(())
            } else {
                Err(InvalidSampling {
                    field,
                    requirement,
                    value,
                })
            }
        };
        let SamplingOptions {
            temperature,
            top_p,
            min_p,
            ..
        } = options;
        within(
            "temperature",
            "a number from 0 to 100",
            temperature,
            (0.0..=100.0).contains(&temperature),
        )?;
        within(
            "top_p",
            "over 0 and at most 1",
            top_p,
            top_p > 0.0 && top_p <= 1.0,
        )?;
        within(
            "min_p",
            "a number from 0 to 1",
            min_p,
            (0.0..=1.0).contains(&min_p),
        )?;
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
