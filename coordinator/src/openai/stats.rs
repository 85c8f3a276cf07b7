//! What an answer took: tokens, speculation, time. Named as OpenAI, vLLM and llama.cpp have it.

use proto::v1::{Finished, SpeculationStats};
use serde::Serialize;
use utoipa::ToSchema;

/// Token counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Usage {
    /// Tokens of all prompts.
    prompt_tokens: u32,
    /// Tokens delivered, of all choices.
    completion_tokens: u32,
    /// Both.
    total_tokens: u32,
    /// Of the prompts.
    prompt_tokens_details: PromptDetails,
}

/// Of the tokens of the prompts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
struct PromptDetails {
    /// Those that were computed before, for an earlier request.
    cached_tokens: u32,
}

/// Measures beside OpenAI's.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Metrics {
    speculative_decoding: Speculation,
}

/// What speculation did for all choices, as vLLM has it. Counts committed tokens only.
#[derive(Debug, Serialize, ToSchema)]
struct Speculation {
    /// Tokens per round that verified a proposal, the target's own included. Null without any.
    mean_acceptance_length: Option<f64>,
    /// Accepted of all drafted tokens. Null without any.
    draft_acceptance_rate: Option<f64>,
    /// How many rounds accepted 0, 1, 2, … tokens.
    acceptance_histogram: Vec<u32>,
    /// Rounds that verified a proposal.
    num_spec_steps: u32,
    /// Drafted tokens that were verified.
    num_draft_tokens: u32,
    /// Those that were accepted.
    num_accepted_draft_tokens: u32,
}

/// How long it took, as llama.cpp has it: of several choices the longest time.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Timings {
    /// Milliseconds until the target was given the prompt.
    queue_ms: f64,
    /// Tokens of the prompts that were computed.
    prompt_n: u32,
    /// Milliseconds from then until the first token.
    prompt_ms: f64,
    /// Prompt tokens per second.
    prompt_per_second: f64,
    /// Tokens of the prompts that were in the cache.
    cache_n: u32,
    /// Tokens generated.
    predicted_n: u32,
    /// Milliseconds from the first token until the last.
    predicted_ms: f64,
    /// Generated tokens per second.
    predicted_per_second: f64,
    /// Drafted tokens.
    draft_n: u32,
    /// Those that were accepted.
    draft_n_accepted: u32,
}

/// The sums over the choices that ended.
#[derive(Debug, Default)]
pub(super) struct Tally {
    usage: Usage,
    speculation: SpeculationStats,
    timings: Option<proto::v1::Timings>,
}

impl Tally {
    /// Adds the end of a choice. The choices of a prompt share it: the `first` counts it.
    pub(super) fn add(&mut self, ended: &Finished, first: bool) {
        let usage = ended.usage.unwrap_or_default();
        if first {
            self.usage.prompt_tokens += usage.prompt_tokens;
            self.usage.prompt_tokens_details.cached_tokens += usage.cached_tokens;
        }
        self.usage.completion_tokens += usage.completion_tokens;
        self.usage.total_tokens = self.usage.prompt_tokens + self.usage.completion_tokens;
        if let Some(stats) = &ended.speculation {
            self.add_speculation(stats);
        }
        if let Some(timings) = ended.timings {
            let all = self.timings.get_or_insert_default();
            all.queue_ms = all.queue_ms.max(timings.queue_ms);
            all.prompt_ms = all.prompt_ms.max(timings.prompt_ms);
            all.predicted_ms = all.predicted_ms.max(timings.predicted_ms);
        }
    }

    fn add_speculation(&mut self, stats: &SpeculationStats) {
        let all = &mut self.speculation;
        all.draft_tokens += stats.draft_tokens;
        all.accepted_draft_tokens += stats.accepted_draft_tokens;
        let histogram = &mut all.acceptance_histogram;
        histogram.resize(histogram.len().max(stats.acceptance_histogram.len()), 0);
        for (all, rounds) in histogram.iter_mut().zip(&stats.acceptance_histogram) {
            *all += rounds;
        }
    }

    /// The counts of tokens.
    pub(super) fn usage(&self) -> Usage {
        self.usage
    }

    /// What speculation did.
    pub(super) fn metrics(&self) -> Metrics {
        let stats = &self.speculation;
        let steps: u32 = stats.acceptance_histogram.iter().sum();
        let (drafted, accepted) = (stats.draft_tokens, stats.accepted_draft_tokens);
        Metrics {
            speculative_decoding: Speculation {
                mean_acceptance_length: ratio(accepted + steps, steps),
                draft_acceptance_rate: ratio(accepted, drafted),
                acceptance_histogram: stats.acceptance_histogram.clone(),
                num_spec_steps: steps,
                num_draft_tokens: drafted,
                num_accepted_draft_tokens: accepted,
            },
        }
    }

    /// How long it took, where that was measured.
    pub(super) fn timings(&self) -> Option<Timings> {
        let timings = self.timings?;
        let cached = self.usage.prompt_tokens_details.cached_tokens;
        let computed = self.usage.prompt_tokens.saturating_sub(cached);
        let predicted = self.usage.completion_tokens;
        Some(Timings {
            queue_ms: timings.queue_ms,
            prompt_n: computed,
            prompt_ms: timings.prompt_ms,
            prompt_per_second: per_second(computed, timings.prompt_ms),
            cache_n: cached,
            predicted_n: predicted,
            predicted_ms: timings.predicted_ms,
            predicted_per_second: per_second(predicted, timings.predicted_ms),
            draft_n: self.speculation.draft_tokens,
            draft_n_accepted: self.speculation.accepted_draft_tokens,
        })
    }
}

fn ratio(part: u32, whole: u32) -> Option<f64> {
    (whole > 0).then(|| f64::from(part) / f64::from(whole))
}

/// 0 where it took no time that could be measured: JSON has no infinity.
fn per_second(tokens: u32, ms: f64) -> f64 {
    if ms > 0.0 {
        f64::from(tokens) / ms * 1000.0
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::v1;

    fn ended(completion_tokens: u32, histogram: &[u32]) -> Finished {
        Finished {
            usage: Some(v1::Usage {
                prompt_tokens: 10,
                completion_tokens,
                cached_tokens: 4,
            }),
            speculation: Some(SpeculationStats {
                draft_tokens: 6,
                accepted_draft_tokens: 3,
                acceptance_histogram: histogram.to_vec(),
                ..SpeculationStats::default()
            }),
            timings: Some(v1::Timings {
                queue_ms: 1.0,
                prompt_ms: 12.0,
                predicted_ms: 500.0,
            }),
            ..Finished::default()
        }
    }

    #[test]
    fn choices_add_up_and_share_their_prompt() {
        let mut tally = Tally::default();
        tally.add(&ended(5, &[1, 0, 0, 1]), true);
        tally.add(&ended(7, &[0, 1, 1]), false);
        let usage = tally.usage();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (10, 12));
        assert_eq!(usage.total_tokens, 22);
        let json = serde_json::to_value(tally.metrics()).unwrap();
        let told = &json["speculative_decoding"];
        assert_eq!(
            told["acceptance_histogram"],
            serde_json::json!([1, 1, 1, 1])
        );
        assert_eq!(told["mean_acceptance_length"], 2.5);
        assert_eq!(told["draft_acceptance_rate"], 0.5);
        let timings = tally.timings().unwrap();
        assert_eq!((timings.prompt_n, timings.cache_n), (6, 4));
        assert_eq!(timings.prompt_per_second, 500.0);
        assert_eq!(
            (timings.predicted_n, timings.predicted_per_second),
            (12, 24.0)
        );
    }

    #[test]
    fn what_was_not_measured_is_not_told() {
        let tally = Tally::default();
        assert!(tally.timings().is_none());
        let told = serde_json::to_value(tally.metrics()).unwrap();
        assert!(told["speculative_decoding"]["draft_acceptance_rate"].is_null());
    }
}
