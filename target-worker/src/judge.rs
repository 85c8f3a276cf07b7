//! Verifies one proposal from the target's logits, as the engine computes them.

use engine::{EngineError, Reader, Row};
use speculation::{
    LogprobRow, LogprobsOptions, Sampling, TokenId, TokenLogprobs, Verdict, Verifier,
};

/// A verifier that reads the engine's rows, and notes the log-probabilities of what may be committed.
#[derive(Debug)]
pub(crate) struct Judge {
    verifier: Verifier,
    sampling: Sampling,
    logprobs: Option<LogprobsOptions>,
    /// Those of the drafted tokens.
    drafted: Vec<TokenLogprobs>,
    /// Those of the token that ends the verdict, as it stands.
    next: Option<TokenLogprobs>,
}

impl Judge {
    pub(crate) fn new(
        verifier: Verifier,
        sampling: Sampling,
        logprobs: Option<LogprobsOptions>,
    ) -> Self {
        Self {
            verifier,
            sampling,
            logprobs,
            drafted: Vec::new(),
            next: None,
        }
    }

    /// The verdict, and the log-probabilities of the tokens that it commits where they are wanted;
    /// none where the engine gave too few rows.
    pub(crate) fn finish(self) -> Option<(Verdict, Vec<TokenLogprobs>)> {
        let verdict = self.verifier.verdict()?;
        let mut logprobs = self.drafted;
        logprobs.truncate(verdict.accepted);
        logprobs.extend(self.next);
        Some((verdict, logprobs))
    }
}

impl Reader for Judge {
    fn read(&mut self, mut row: Row<'_>) -> Result<Option<TokenId>, EngineError> {
        if self.verifier.is_settled() {
            return Ok(None);
        }
        let processed = row.processed()?;
        let drafted = self.verifier.drafted();
        let next = self.verifier.read(&processed);
        if let Some(options) = &self.logprobs {
            let row = LogprobRow::new(options, row.logits(), &processed, &self.sampling);
            self.drafted.extend(drafted.map(|token| row.of(token)));
            if let Some(next) = next {
                self.next = Some(row.of(next));
            }
        }
        Ok(None)
    }
}
