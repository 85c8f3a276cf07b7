//! The verdicts on batches, and what they commit.

use super::batching::Sent;
use super::measured::Verifying;
use super::sequence::AtTarget;
use super::speculating::Speculating;
use super::target::Batch;
use super::{Scheduler, SequenceId};
use crate::commit::{NewToken, Origin};
use proto::v1::{TokenLogprobs, Verdict, VerdictBatch};
use speculation::control::Plan;
use std::time::{Duration, Instant};

impl Scheduler {
    pub(super) fn verdicts(&mut self, verdicts: VerdictBatch, now: Instant) {
        let batches = &mut self.target.batches;
        let answered = batches.iter().position(|batch| batch.step == verdicts.step);
        let Some(mut batch) = answered.and_then(|index| batches.remove(index)) else {
            self.stale += 1;
            return;
        };
        self.target.answered();
        self.observe_verification(
            &batch,
            Duration::from_micros(verdicts.compute_us.into()),
            now,
        );
        self.verifying.end_step();
        self.target.last_verdicts = Some(now);
        self.target.unfollowed_verdicts = Some(now);
        for verdict in verdicts.items {
            match batch.items.remove(&verdict.sequence) {
                Some(sent) => self.verdict(sent, verdict, now),
                None => self.stale += 1,
            }
        }
        // The target failed these, whether or not it has said so yet.
        for (id, sent) in batch.items {
            let missed = self.sequences.get(&id).is_some_and(|sequence| {
                sequence.at_target == AtTarget::Verifying && sequence.epoch == sent.item.epoch
            });
            if missed {
                self.misfit(id, "no verdict came", now);
            }
        }
    }

    /// Learns from what a batch took. Prompts that are prefilled meanwhile take their own time.
    fn observe_verification(&mut self, batch: &Batch, compute: Duration, now: Instant) {
        self.verifying.disturbed = batch.disturbed || self.is_prefilling();
        if self.verifying.disturbed {
            return;
        }
        let step = if batch.queued {
            now - self.target.turn_of(batch)
        } else {
            compute
        };
        self.verifying
            .observe(batch.ahead, batch.rows, step.as_secs_f64());
        if !batch.queued {
            let beside = (now - batch.sent).saturating_sub(compute);
            self.verifying.rtt.observe(beside.as_secs_f64());
        }
    }

    /// True while a prompt is prefilled where the target computes.
    pub(super) fn is_prefilling(&self) -> bool {
        self.sequences.values().any(|sequence| {
            let draft = sequence.seat.as_ref().filter(|seat| !seat.opened);
            matches!(sequence.at_target, AtTarget::Opening { .. })
                || draft.is_some_and(|seat| self.drafts[seat.worker].competes)
        })
    }

    fn verdict(&mut self, sent: Sent, verdict: Verdict, now: Instant) {
        let id = sent.item.sequence;
        let sequence = self.sequences.get_mut(&id).filter(|sequence| {
            sequence.at_target == AtTarget::Verifying && sequence.epoch == sent.item.epoch
        });
        // Gone or re-opened since.
        let Some(sequence) = sequence else {
            self.stale += 1;
            return;
        };
        let asked = sequence.choice.generation.logprobs.is_some();
        let Some(run) = run(&sent, verdict, asked) else {
            self.misfit(id, "a verdict does not fit its proposal", now);
            return;
        };
        sequence.losses = 0;
        sequence.at_target = AtTarget::Idle;
        let took = now - std::mem::replace(&mut sequence.idle_since, now);
        // One without a draft worker does not follow a plan.
        let control = sequence.seat.as_ref().map(|_| &sequence.control);
        let doing = control.and_then(Speculating::doing);
        self.verifying.vote(control.and_then(Speculating::groups));
        // Where the plans of most have it otherwise, this one is not followed.
        let followed = |plan: &Plan| plan.groups == self.verifying.groups();
        let tells = doing.filter(|(plan, _)| !self.verifying.disturbed && followed(plan));
        if let Some((plan, mode)) = tells {
            let Verifying {
                trust, sequences, ..
            } = &mut self.verifying;
            trust.observe(&plan, mode, run.len(), took.as_secs_f64(), *sequences);
        }
        self.commit(id, &sent, run, now);
    }

    /// Commits `run`, learns from it, and goes on.
    pub(super) fn commit(&mut self, id: SequenceId, sent: &Sent, run: Vec<NewToken>, now: Instant) {
        let Some(sequence) = self.sequences.get_mut(&id) else {
            return;
        };
        let ids: Vec<_> = run.iter().map(|token| token.id).collect();
        let delta = sequence.committed.commit(run);
        sequence.stats.record(sent, delta.drafted());
        self.counters
            .record(sent.origin, sent.drafted(), delta.drafted());
        self.learn(id, sent, &ids, &delta);
        self.deliver(id, delta, now);
    }
}

/// The tokens that `verdict` commits. `None` where it does not fit what was sent.
fn run(sent: &Sent, verdict: Verdict, logprobs: bool) -> Option<Vec<NewToken>> {
    let item = &sent.item;
    let accepted = item.draft_ids.get(..verdict.accepted as usize)?;
    if (verdict.epoch, verdict.base_len) != (item.epoch, item.base_len) {
        return None;
    }
    let mut logprobs = fitting(logprobs, verdict.logprobs, accepted.len() + 1)?.into_iter();
    let drafted = accepted.iter().map(|id| (*id, sent.origin));
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
