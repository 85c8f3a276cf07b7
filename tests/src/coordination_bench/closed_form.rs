//! What the clock allows: rates in tokens per second from step times, the round trip, and how many
//! tokens a target step commits. Times in milliseconds.

/// The step times and the round trip to the draft worker.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Times {
    pub(crate) target_ms: f64,
    pub(crate) draft_ms: f64,
    pub(crate) rtt_ms: f64,
}

/// Tokens that a target step commits on average where each of `k` drafted tokens is accepted with
/// probability `alpha`: 1 + alpha + … + alpha^k.
pub(crate) fn expected(alpha: f64, k: u32) -> f64 {
    (0..=k).map(|power| alpha.powi(power as i32)).sum()
}

impl Times {
    /// Plain decoding.
    pub(crate) fn plain(&self) -> f64 {
        1e3 / self.target_ms
    }

    /// Draft `k` tokens, then verify them, and so on.
    pub(crate) fn synchronous(&self, tokens: f64, k: u32) -> f64 {
        1e3 * tokens / (self.rtt_ms + f64::from(k) * self.draft_ms + self.target_ms)
    }

    /// The most that drafting ahead can give: the target never waits where a draft of `k` tokens is
    /// there before its step ends, and else waits for the rest of it.
    pub(crate) fn hidden(&self, tokens: f64, k: u32) -> f64 {
        let draft = self.rtt_ms + f64::from(k) * self.draft_ms;
        1e3 * tokens / draft.max(self.target_ms)
    }

    /// The draft length that is best for `rate`, and its rate at acceptance `alpha`.
    pub(crate) fn best(
        &self,
        rate: impl Fn(&Self, f64, u32) -> f64,
        alpha: f64,
        longest: u32,
    ) -> (u32, f64) {
        let rates = (1..=longest).map(|k| (k, rate(self, expected(alpha, k), k)));
        let best = rates.max_by(|a, b| a.1.total_cmp(&b.1));
        best.unwrap_or_default()
    }
}
