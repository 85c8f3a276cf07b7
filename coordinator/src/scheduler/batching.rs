//! When a batch goes to the target, and what is in it.
//!
//! The target never waits for a draft unless waiting brings more tokens per second than what is at
//! hand, and a sequence whose draft is late rides along with no proposal, to lose no step. With two
//! groups, one is verified while the other drafts: a batch is then half of the sequences, and the next one
//! is sent before its verdicts come.

use super::proposals::Drafted;
use super::sequence::AtTarget;
use super::target::Batch;
use super::{Scheduler, Sequence, SequenceId};
use crate::commit::Origin;
use proto::v1::{VerificationRule, VerifyBatch, VerifyItem, target_command::Command};
use speculation::control::{Arrival, Offer as Load, trim, wait_for};
use speculation::ngram::NgramDraft;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The shortest wait for a proposal: shorter than the clock's ticks makes no sense.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// How much longer than it should take a proposal is waited for each time that it did not come.
const OVERDUE: f64 = 0.1;

/// A proposal that is overdue is not expected sooner than the clock ticks, in seconds.
const TICK: f64 = 0.001;

/// What is expected of a draft worker of which nothing is known yet.
const UNKNOWN_SECONDS: f64 = 0.005;

/// An item of a batch that is being verified, and what is to be learnt of it.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) item: VerifyItem,
    /// Who proposed its tokens.
    pub(super) origin: Origin,
    pub(super) confidences: Vec<u8>,
    /// How many tokens the draft was asked for.
    pub(super) wanted: usize,
    /// How many it drafted: those that are not verified were cut off.
    pub(super) at_hand: usize,
}

impl Sent {
    /// Drafted tokens.
    pub(super) fn drafted(&self) -> usize {
        self.item.draft_ids.len()
    }
}

/// What a sequence could have verified now.
#[derive(Debug)]
struct Offer {
    id: SequenceId,
    /// Since when it could.
    since: Instant,
    origin: Origin,
    /// The probability that at least so many of the drafted tokens are accepted.
    survival: Vec<f64>,
}

impl Offer {
    /// Tokens to expect.
    fn tokens(&self) -> f64 {
        1.0 + self.survival.iter().sum::<f64>()
    }

    fn rows(&self) -> usize {
        1 + self.survival.len()
    }
}

impl Scheduler {
    /// Sends the batches whose time has come.
    pub(super) fn verify_ready(&mut self, now: Instant) {
        if let Some(verdicts) = self.target.unfollowed_verdicts.take() {
            let seconds = (now - verdicts).as_secs_f64();
            self.verifying.turnaround.observe(seconds);
        }
        self.target.wait_until = None;
        while let Some(offers) = self.compose(now) {
            self.send_batch(&offers, now);
        }
    }

    /// The next batch; none where the target has enough to do, or waiting is better.
    fn compose(&mut self, now: Instant) -> Option<Vec<Offer>> {
        let most = self.target.limits.as_ref()?.max_draft_tokens;
        let (groups, under_way) = (self.verifying.groups(), self.target.batches.len());
        if under_way >= groups {
            return None;
        }
        let decoding = |sequence: &&Sequence| sequence.is_decoding();
        self.verifying.sequences = self.sequences.values().filter(decoding).count();
        let mut offers = Vec::new();
        let mut arrivals = Vec::new();
        let idle = |sequence: &Sequence| sequence.at_target == AtTarget::Idle && !sequence.blocked;
        for (id, sequence) in self.sequences.iter().filter(|(_, sequence)| idle(sequence)) {
            let plain = self.verifying.look.is_on() && sequence.is_free();
            let offer = self.offer(*id, sequence, if plain { 0 } else { most });
            match self.awaited(sequence, now).filter(|_| !plain) {
                None => offers.push(offer),
                Some(awaited) => {
                    let rides = groups == 1 && self.may_ride(sequence);
                    let (tokens, rows) = if rides {
                        (offer.tokens(), offer.rows())
                    } else {
                        (0.0, 0)
                    };
                    arrivals.push(Arrival {
                        tokens: (awaited.tokens - tokens).max(0.0),
                        rows: awaited.rows.saturating_sub(rows),
                        ..awaited
                    });
                    if rides {
                        offers.push(offer);
                    }
                }
            }
        }
        if offers.is_empty() {
            return None;
        }
        if groups > 1 {
            let group = self.verifying.sequences.div_ceil(groups);
            if under_way > 0 && 2 * offers.len() < group {
                return None;
            }
            if under_way > 0 && offers.len() < group && !arrivals.is_empty() {
                // It would wait at the target. Those that come until then go with it: groups of unlike
                // size become two.
                let until = self.next_needed().filter(|until| *until > now);
                if until.is_some() {
                    self.target.wait_until = until;
                    return None;
                }
            }
            offers.sort_by_key(|offer| offer.since);
            offers.truncate(group);
        }
        if under_way == 0 && !arrivals.is_empty() {
            let at_hand = Load {
                sequences: offers.len(),
                other_seconds: self.verifying.beside(),
                tokens: offers.iter().map(Offer::tokens).sum(),
                rows: offers.iter().map(Offer::rows).sum(),
            };
            if let Some(seconds) = wait_for(&at_hand, &arrivals, &self.verifying.step) {
                let wait = Duration::from_secs_f64(seconds.clamp(0.0, 3600.0));
                self.target.wait_until = Some(now + wait.max(SHORTEST_WAIT));
                return None;
            }
        }
        Some(offers)
    }

    /// When the next batch has to be sent for the target to go on without a pause.
    fn next_needed(&self) -> Option<Instant> {
        let batch = self.target.batches.back()?;
        let step = Duration::from_secs_f64(self.verifying.step.seconds(batch.rows)?);
        (self.target.turn_of(batch) + step).checked_sub(SHORTEST_WAIT)
    }

    /// True where `sequence` can go on without the proposal that it waits for, at no loss: what comes late
    /// is still of use, and its draft is not slowed down.
    fn may_ride(&self, sequence: &Sequence) -> bool {
        let seat = sequence.seat.as_ref();
        sequence.is_free() && !seat.is_some_and(|seat| self.drafts[seat.worker].competes)
    }

    /// What `sequence` has at hand.
    fn offer(&self, id: SequenceId, sequence: &Sequence, most: usize) -> Offer {
        let (survival, origin) = self.survival(sequence);
        let mut offer = Offer {
            id,
            since: sequence.idle_since,
            origin,
            survival,
        };
        offer.survival.truncate(sequence.draft_len().min(most));
        offer
    }

    /// How far the best draft at hand is likely to be accepted, and whose it is.
    fn survival(&self, sequence: &Sequence) -> (Vec<f64>, Origin) {
        let model = self.model_survival(sequence);
        let ngram = sequence.ngram().map_or(&[][..], |draft| &draft.survival);
        let expected = |survival: &[f64]| survival.iter().sum::<f64>();
        // Under the rules that compare probabilities nothing may depend on the tokens that were drawn,
        // which of two drafts it is included.
        let chooses = sequence.is_coupled() || !sequence.choice.generation.sources.model;
        if chooses && expected(ngram) > expected(&model) {
            return (ngram.to_vec(), Origin::Ngram);
        }
        (model, Origin::Draft)
    }

    /// How far the draft model's best guess is likely to be accepted.
    fn model_survival(&self, sequence: &Sequence) -> Vec<f64> {
        let Some(guess) = sequence.guesses.best() else {
            return Vec::new();
        };
        let worker = sequence.seat.as_ref().map(|seat| seat.worker);
        let confidences = &guess.drafted.confidences;
        let len = guess.drafted.ids.len();
        let by_confidence = worker.filter(|_| sequence.is_coupled() && !confidences.is_empty());
        match (by_confidence, &sequence.control.acceptance) {
            (Some(worker), _) => self.drafts[worker]
                .measured
                .confidence
                .survival(confidences),
            (None, Some(own)) => (1..=len).map(|l| own.survival(l)).collect(),
            (None, None) => vec![1.0; len],
        }
    }

    /// When the proposal that `sequence` waits for should come, and what it should bring.
    fn awaited(&self, sequence: &Sequence, now: Instant) -> Option<Arrival> {
        let seat = sequence
            .seat
            .as_ref()
            .filter(|_| sequence.draft_len() > 0)?;
        let since = seat.waiting?;
        let drafts = &self.drafts[seat.worker];
        let measured = &drafts.measured;
        let step = measured.step.seconds(drafts.seats);
        let rtt = measured.rtt.seconds().unwrap_or(0.0);
        let expected = step.map_or(UNKNOWN_SECONDS, |step| rtt + step * seat.wanted as f64);
        let elapsed = (now - since).as_secs_f64();
        let left = expected - elapsed;
        let seconds = if left > 0.0 {
            left
        } else {
            (-left).max(OVERDUE * expected).max(TICK)
        };
        let acceptance = &sequence.control.acceptance;
        let acceptance = acceptance.as_ref().unwrap_or(&measured.acceptance);
        // Of what was drafted only that is left which follows the tokens committed meanwhile, if it
        // agrees with them.
        let behind = sequence.committed.len().saturating_sub(seat.sent);
        let behind = behind.min(seat.wanted);
        let agrees = acceptance.survival(behind);
        let left = (seat.wanted - behind) as f64;
        Some(Arrival {
            seconds,
            tokens: 1.0 + acceptance.expected(seat.wanted) - acceptance.expected(behind),
            rows: 1 + (agrees * left).round() as usize,
        })
    }

    fn send_batch(&mut self, offers: &[Offer], now: Instant) {
        let beside = self.verifying.beside();
        let survivals = offers.iter().map(|offer| offer.survival.clone());
        let pays = trim(&survivals.collect::<Vec<_>>(), &self.verifying.step, beside);
        let mut items = BTreeMap::new();
        for (offer, pays) in offers.iter().zip(pays) {
            if let Some(sequence) = self.sequences.get_mut(&offer.id) {
                // Whether or not it pays, where the client says so.
                let least = sequence.choice.generation.min_draft_tokens;
                let len = pays.max(least.min(offer.survival.len()));
                items.insert(offer.id, sequence.send(offer, len));
            }
        }
        self.target.last_step += 1;
        let step = self.target.last_step;
        let allowance = self.patience.target + self.prefill_allowance();
        let batch = VerifyBatch {
            step,
            items: items
                .values()
                .map(|sent: &Sent| sent.item.clone())
                .collect(),
        };
        self.target.batches.push_back(Batch {
            step,
            rows: items.values().map(|sent| 1 + sent.drafted()).sum(),
            items,
            sent: now,
            queued: !self.target.batches.is_empty(),
            disturbed: self.is_prefilling(),
            // A look is taken for what is measured without.
            ahead: self.drafts_ahead() && !self.verifying.look.is_on(),
            due: now + allowance,
        });
        self.send_target(Command::Verify(batch));
    }

    /// True where draft workers draft ahead for sequences that are being verified.
    fn drafts_ahead(&self) -> bool {
        let mut seats = self
            .sequences
            .values()
            .filter_map(|sequence| sequence.seat.as_ref());
        seats.any(|seat| seat.ahead_wanted > 0)
    }
}

impl Sequence {
    /// The first `len` tokens of what it offers, on their way to the target.
    fn send(&mut self, offer: &Offer, len: usize) -> Sent {
        let guess = self.guesses.best();
        let (mut drafted, wanted) = match (offer.origin, guess) {
            (Origin::Ngram, _) => (self.ngram().map(Drafted::certain).unwrap_or_default(), 0),
            (_, Some(guess)) => (guess.drafted.clone(), guess.wanted),
            (_, None) => (Drafted::default(), 0),
        };
        let at_hand = drafted.ids.len();
        drafted.truncate(len);
        if let (Some(seat), Origin::Draft, true) = (&mut self.seat, offer.origin, len > 0) {
            seat.proposals += 1;
        }
        self.at_target = AtTarget::Verifying;
        Sent {
            item: VerifyItem {
                sequence: offer.id,
                epoch: self.epoch,
                base_len: self.base_len(),
                draft_ids: drafted.ids,
                laws: drafted.laws,
            },
            origin: offer.origin,
            confidences: drafted.confidences,
            wanted,
            at_hand,
        }
    }

    /// What it could draft without a model.
    pub(super) fn ngram(&self) -> Option<&NgramDraft> {
        self.ngrams.as_ref()?.draft()
    }

    /// True where whether it drafts changes nothing but its speed, and its client leaves that open.
    fn is_free(&self) -> bool {
        self.is_coupled() && self.choice.generation.min_draft_tokens == 0
    }

    /// True where it is verified by the rule under which no draft changes the text.
    pub(super) fn is_coupled(&self) -> bool {
        self.rule() == VerificationRule::Coupled
    }
}
