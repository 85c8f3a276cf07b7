//! A mean that forgets.

/// An exponentially weighted mean. The first values count equally, so that it starts from what it
/// sees and not from an assumption.
#[derive(Debug, Clone)]
pub struct Ewma {
    memory: f64,
    count: f64,
    value: Option<f64>,
}

impl Ewma {
    /// A mean over about the last `memory` values, at least 1.
    pub fn new(memory: f64) -> Self {
        Self {
            memory: memory.max(1.0),
            count: 0.0,
            value: None,
        }
    }

    /// Takes in one value. What is not finite is no measurement, and left out.
    pub fn observe(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.count = (self.count + 1.0).min(self.memory);
        let old = self.value.unwrap_or(value);
        self.value = Some(old + (value - old) / self.count);
    }

    /// The mean; `None` before the first value.
    pub fn value(&self) -> Option<f64> {
        self.value
    }

    /// The mean, or `other` before the first value.
    pub fn value_or(&self, other: f64) -> f64 {
        self.value.unwrap_or(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_as_the_plain_mean_and_then_forgets() {
        let mut mean = Ewma::new(4.0);
        assert_eq!(mean.value(), None);
        assert_eq!(mean.value_or(3.0), 3.0);
        for value in [1.0, 2.0, 6.0] {
            mean.observe(value);
        }
        assert!((mean.value_or(0.0) - 3.0).abs() < 1e-12);
        for _ in 0..40 {
            mean.observe(10.0);
        }
        assert!((mean.value_or(0.0) - 10.0).abs() < 1e-3);
        mean.observe(f64::NAN);
        assert!(mean.value_or(0.0).is_finite());
    }
}
