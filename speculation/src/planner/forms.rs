//! Closed forms of one request's tokens per second where all requests do the same.

use super::{AheadChoice, System};
use crate::control::{Ahead, Overlap, Rates, Situation, StepCosts, Trust, WIDTHS, plan};

/// Plain decoding, one batch: 1 / (t_v(C) + r_t), with C requests, t_v(rows) the time of a
/// verification and r_t the round trip to the target.
pub fn plain_rate(system: &System) -> f64 {
    let requests = system.requests.max(1) as f64;
    1.0 / (system.verify.seconds(requests) + system.target_rtt)
}

/// Drafting `k` tokens, then verifying them, in one batch:
/// E(k) / (r_d + k·t_d(b) + t_v(C(k+1)) + r_t), with E(k) = 1 + Σ survival, the tokens of a round
/// (Leviathan et al. 2023, equation 1, with acceptance by position), r_d the round trip to a draft
/// worker, b = C / workers the sequences that one of them drafts for, and t_d(b) its step.
pub fn synchronous_rate(k: usize, system: &System) -> f64 {
    let requests = system.requests.max(1) as f64;
    let drafting = if k == 0 {
        0.0
    } else {
        system.draft_rtt + k as f64 * system.draft.seconds(batch(system) as f64)
    };
    let verifying = system.verify.seconds(requests * (k as f64 + 1.0)) + system.target_rtt;
    system.acceptance.expected(k) / (drafting + verifying)
}

/// Drafting ahead while a proposal is verified: after each of its outcomes that is followed,
/// `width` candidates at every position (1: the draft's own choice at its end), `ahead` tokens. On
/// a hit the round is E / max(t_v + r_t, r_d + ahead·t_d(rows)); on a miss a draft of `k` tokens is
/// waited for. Hits and misses follow a Markov chain of two states: design, verification 7, and
/// `control/rates.rs`. 0 for a width that is not one of [`WIDTHS`].
pub fn ahead_rate(k: usize, ahead: usize, width: usize, system: &System) -> f64 {
    let Some(width) = WIDTHS.iter().position(|other| *other == width) else {
        return 0.0;
    };
    let way = Ahead {
        want: k.min(crate::control::MAX_DRAFT),
        ahead_want: ahead.min(crate::control::MAX_DRAFT),
        width,
    };
    let costs = Measured::new(system);
    let situation = costs.situation(system, batch(system), crate::control::MAX_DRAFT);
    Rates::new(&situation).map_or(0.0, |rates| rates.ahead(way))
}

/// The best way to draft ahead with so many workers; none where drafting ahead is not the best.
pub(super) fn best_ahead(system: &System, workers: usize, most: usize) -> Option<AheadChoice> {
    let costs = Measured::new(system);
    let requests = system.requests.max(1);
    let situation = costs.situation(system, requests.div_ceil(workers), most);
    let plan = plan(&situation);
    (plan.ahead_want > 0 && plan.rate > 0.0).then(|| AheadChoice {
        draft_tokens: plan.want,
        ahead_tokens: plan.ahead_want,
        width: plan.ahead_width,
        tokens_per_second: plan.rate * requests as f64,
        seconds_per_token: 1.0 / plan.rate,
    })
}

/// The sequences that one draft worker drafts for.
fn batch(system: &System) -> usize {
    let workers = system.draft_workers.unwrap_or(1).max(1);
    system.requests.max(1).div_ceil(workers)
}

/// Stated times as if they had been measured.
struct Measured {
    verify: StepCosts,
    draft: StepCosts,
    trust: Trust,
}

impl Measured {
    fn new(system: &System) -> Self {
        Self {
            verify: system.verify.measured(),
            draft: system.draft.measured(),
            trust: Trust::new(),
        }
    }

    fn situation<'a>(&'a self, system: &'a System, drafting: usize, max: usize) -> Situation<'a> {
        Situation {
            acceptance: &system.acceptance,
            ranks: &system.ranks,
            verify: &self.verify,
            verify_ahead: &self.verify,
            draft: &self.draft,
            draft_rtt: Some(system.draft_rtt),
            target_rtt: system.target_rtt,
            sequences: system.requests.max(1),
            drafting,
            min: 0,
            max,
            overlap: Overlap::Ahead,
            trust: &self.trust,
        }
    }
}
