//! Batches of proposals, and the verdicts on them. One batch is under way at a time, and holds all
//! sequences that were ready when it began.

use super::Scheduler;
use super::sequence::AtTarget;
use super::target::Batch;
use crate::commit::{NewToken, Origin};
use proto::v1::{
    TokenLogprobs, Verdict, VerdictBatch, VerifyBatch, VerifyItem, target_command::Command,
};
use std::collections::BTreeMap;
use std::time::Instant;

impl Scheduler {
    /// Starts a batch of all sequences that are ready, where the target is free.
    pub(super) fn verify_ready(&mut self, now: Instant) {
        let Some(limits) = self.target.limits else {
            return;
        };
        if self.target.batch.is_some() {
            return;
        }
        let mut items = BTreeMap::new();
        for (id, sequence) in self
            .sequences
            .iter_mut()
            .filter(|(_, sequence)| sequence.is_ready())
        {
            let mut drafted = std::mem::take(&mut sequence.proposal);
            drafted.truncate(sequence.draft_len().min(limits.max_draft_tokens));
            if let (Some(seat), false) = (&mut sequence.seat, drafted.ids.is_empty()) {
                seat.proposals += 1;
            }
            sequence.at_target = AtTarget::Verifying;
            let item = VerifyItem {
                sequence: *id,
                epoch: sequence.epoch,
                base_len: sequence.base_len(),
                draft_ids: drafted.ids,
                laws: drafted.laws,
            };
            items.insert(*id, item);
        }
        if items.is_empty() {
            return;
        }
        self.target.last_step += 1;
        let step = self.target.last_step;
        let due = now + self.patience.target + self.prefill_allowance();
        let batch = VerifyBatch {
            step,
            items: items.values().cloned().collect(),
        };
        self.target.batch = Some(Batch { step, items, due });
        self.send_target(Command::Verify(batch));
    }

    pub(super) fn verdicts(&mut self, verdicts: VerdictBatch, now: Instant) {
        let answered = self
            .target
            .batch
            .take_if(|batch| batch.step == verdicts.step);
        let Some(mut batch) = answered else {
            self.stale += 1;
            return;
        };
        self.target.answered();
        for verdict in verdicts.items {
            match batch.items.remove(&verdict.sequence) {
                Some(item) => self.verdict(item, verdict, now),
                None => self.stale += 1,
            }
        }
        // The target failed these, whether or not it has said so yet.
        for (id, item) in batch.items {
            let missed = self.sequences.get(&id).is_some_and(|sequence| {
                sequence.at_target == AtTarget::Verifying && sequence.epoch == item.epoch
            });
            if missed {
                self.misfit(id, "no verdict came", now);
            }
        }
    }

    fn verdict(&mut self, item: VerifyItem, verdict: Verdict, now: Instant) {
        let id = item.sequence;
        let sequence = self.sequences.get_mut(&id).filter(|sequence| {
            sequence.at_target == AtTarget::Verifying && sequence.epoch == item.epoch
        });
        // Gone or re-opened since.
        let Some(sequence) = sequence else {
            self.stale += 1;
            return;
        };
        let asked = sequence.choice.generation.logprobs.is_some();
        let Some(run) = run(&item, verdict, asked) else {
            self.misfit(id, "a verdict does not fit its proposal", now);
            return;
        };
        let delta = sequence.committed.commit(run);
        sequence.stats.record(item.draft_ids.len(), delta.drafted());
        sequence.losses = 0;
        sequence.at_target = AtTarget::Idle;
        self.deliver(id, delta, now);
    }
}

/// The tokens that `verdict` commits. `None` where it does not fit `item`.
fn run(item: &VerifyItem, verdict: Verdict, logprobs: bool) -> Option<Vec<NewToken>> {
    let accepted = item.draft_ids.get(..verdict.accepted as usize)?;
    if (verdict.epoch, verdict.base_len) != (item.epoch, item.base_len) {
        return None;
    }
    let mut logprobs = fitting(logprobs, verdict.logprobs, accepted.len() + 1)?.into_iter();
    let drafted = accepted.iter().map(|id| (*id, Origin::Draft));
    let run = drafted.chain([(verdict.next_token, Origin::Target)]);
    let run = run.map(|(id, origin)| NewToken {
        id,
        origin,
        logprobs: logprobs.next(),
    });
    Some(run.collect())
}

/// The target's log-probabilities of `len` tokens; none where they were not `asked` for. `None`
/// where they do not fit.
pub(super) fn fitting(
    asked: bool,
    logprobs: Vec<TokenLogprobs>,
    len: usize,
) -> Option<Vec<TokenLogprobs>> {
    if !asked {
        return Some(Vec::new());
    }
    let fit = |logprobs: &TokenLogprobs| logprobs.top_ids.len() == logprobs.top_logprobs.len();
    (logprobs.len() == len && logprobs.iter().all(fit)).then_some(logprobs)
}
