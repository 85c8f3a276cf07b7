//! Who runs, who waits, and who is turned away: the books, without clocks or tasks.
//!
//! A request arrives, which must be cheap to refuse; it is checked; then it enters with what it
//! takes, and runs or waits. The first whose turn it is and that does not fit holds up those behind
//! it, or large requests would never run; one whose own key has too much is passed over.

use super::pace::Pace;
use super::turns::{Ticket, Turns};
use crate::access::{Identity, Limits};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much all have together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capacity {
    /// Choices that run.
    pub(crate) running: u32,
    /// Choices that wait to run.
    pub(crate) waiting: u32,
    /// Tokens, of prompts and of what may still be generated, of all that run.
    pub(crate) tokens: Option<u64>,
}

/// A key's name, and one of its tenants.
pub(super) type Owner = (Arc<str>, Arc<str>);

/// What a request takes.
#[derive(Debug, Clone)]
pub(super) struct Demand {
    /// Whose it is.
    pub(super) owner: Owner,
    /// What its key may have.
    pub(super) limits: Limits,
    /// Its choices.
    pub(super) choices: u32,
    /// Its prompt and the most that its choices may generate.
    pub(super) tokens: u64,
    /// Those of one choice.
    pub(super) choice_tokens: u64,
    /// The higher the sooner.
    pub(super) priority: i32,
}

/// Why a request is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// All places are taken, those to wait at as well.
    Full,
    /// The key has all that it may have.
    KeyFull,
    /// No place came free in time.
    Waited,
    /// No more are taken: the server ends.
    Draining,
    /// It has more choices than may ever run at once.
    TooManyChoices(u32),
    /// It has more tokens than may ever run at once.
    TooManyTokens(u64),
}

/// How many were turned away since the start, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    /// For [`Refusal::Full`].
    pub(crate) full: u64,
    /// For [`Refusal::KeyFull`].
    pub(crate) key_full: u64,
    /// For [`Refusal::Waited`].
    pub(crate) waited: u64,
    /// For [`Refusal::Draining`].
    pub(crate) draining: u64,
}

/// What somebody has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Choices that arrived and are not done with.
    pub(super) arrived: u32,
    /// Those of them that wait.
    pub(super) waiting: u32,
    /// Those of them that run.
    pub(super) running: u32,
    /// The tokens of what runs.
    pub(super) tokens: u64,
}

/// The books. `W` is how one that waits hears.
#[derive(Debug)]
pub(super) struct Book<W> {
    capacity: Capacity,
    all: Load,
    /// Of those that have anything here.
    keys: HashMap<Arc<str>, Load>,
    /// Choices that run, of those that have any.
    tenants: HashMap<Owner, u32>,
    turns: Turns<W>,
    closed: bool,
    pace: Pace,
    refused: Refused,
}

impl<W> Book<W> {
    /// Nobody is here.
    pub(super) fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            all: Load::default(),
            keys: HashMap::new(),
            tenants: HashMap::new(),
            turns: Turns::default(),
            closed: false,
            pace: Pace::default(),
            refused: Refused::default(),
        }
    }

    /// A request for so many choices comes in; it leaves by [`leave`](Self::leave), or enters.
    ///
    /// # Errors
    /// Where there is no place at which it could even wait.
    pub(super) fn arrive(&mut self, who: &Identity, choices: u32) -> Result<(), Refusal> {
        let Limits {
            running, waiting, ..
        } = who.limits;
        let most = running.map_or(self.capacity.running, |own| own.min(self.capacity.running));
        if choices > most {
            return Err(Refusal::TooManyChoices(most));
        }
        let own = self.load(&who.name).arrived;
        let own_most = running
            .zip(waiting)
            .map(|(run, wait)| run.saturating_add(wait));
        let all_most = self.capacity.running.saturating_add(self.capacity.waiting);
        let refusal = if self.closed {
            Refusal::Draining
        } else if own_most.is_some_and(|most| exceeds(own, choices, most)) {
            Refusal::KeyFull
        } else if exceeds(self.all.arrived, choices, all_most) {
            Refusal::Full
        } else {
            self.change(&who.name, |load| load.arrived += choices);
            return Ok(());
        };
        Err(self.refuse(refusal))
    }

    /// So many choices that arrived and have not entered are given up.
    pub(super) fn leave(&mut self, key: &Arc<str>, choices: u32) {
        self.change(key, |load| load.arrived -= choices);
    }

    /// What arrived is ready to run. It is among what [`let_in`](Self::let_in) says, at once or later.
    ///
    /// # Errors
    /// Where it can neither run nor wait; it has left then.
    pub(super) fn enter(
        &mut self,
        demand: &Demand,
        waiter: W,
        now: Instant,
    ) -> Result<(Ticket, Vec<(Demand, W)>), Refusal> {
        let refusal = match self.most_tokens(demand.limits) {
            Some(most) if demand.tokens > most => Some(Refusal::TooManyTokens(most)),
            _ if self.closed => Some(self.refuse(Refusal::Draining)),
            _ => None,
        };
        if let Some(refusal) = refusal {
            self.leave(&demand.owner.0, demand.choices);
            return Err(refusal);
        }
        let ticket = self.turns.push(demand.clone(), waiter);
        self.change(&demand.owner.0, |load| load.waiting += demand.choices);
        let let_in = self.let_in(now);
        let own = self.load(&demand.owner.0).waiting;
        let refusal = if demand.limits.waiting.is_some_and(|most| own > most) {
            Refusal::KeyFull
        } else if self.all.waiting > self.capacity.waiting {
            Refusal::Full
        } else {
            return Ok((ticket, let_in));
        };
        if self.withdraw(ticket, demand) {
            Err(self.refuse(refusal))
        } else {
            Ok((ticket, let_in))
        }
    }

    /// One that waits gives up. False where it had been let in before.
    pub(super) fn withdraw(&mut self, ticket: Ticket, demand: &Demand) -> bool {
        let was_waiting = self.turns.withdraw(ticket, demand).is_some();
        if was_waiting {
            self.change(&demand.owner.0, |load| {
                load.waiting -= demand.choices;
                load.arrived -= demand.choices;
            });
        }
        was_waiting
    }

    /// So many choices and tokens of what runs are done with.
    pub(super) fn release(&mut self, owner: &Owner, choices: u32, tokens: u64, now: Instant) {
        self.change(&owner.0, |load| {
            load.running -= choices;
            load.arrived -= choices;
            load.tokens -= tokens;
        });
        if let Some(running) = self.tenants.get_mut(owner) {
            *running -= choices;
            if *running == 0 {
                self.tenants.remove(owner);
            }
        }
        self.pace.freed(choices, self.all.running == 0, now);
    }

    /// Lets in whoever can run, in turn.
    pub(super) fn let_in(&mut self, now: Instant) -> Vec<(Demand, W)> {
        let mut let_in = Vec::new();
        while let Some((demand, waiter)) = self.take_next() {
            self.change(&demand.owner.0, |load| {
                load.waiting -= demand.choices;
                load.running += demand.choices;
                load.tokens += demand.tokens;
            });
            *self.tenants.entry(demand.owner.clone()).or_default() += demand.choices;
            self.pace.busy(now);
            let_in.push((demand, waiter));
        }
        let_in
    }

    fn take_next(&mut self) -> Option<(Demand, W)> {
        let Self {
            capacity,
            all,
            keys,
            tenants,
            turns,
            ..
        } = self;
        let capacity = Limits {
            running: Some(capacity.running),
            waiting: None,
            tokens: capacity.tokens,
        };
        let rank = |demand: &Demand| {
            let own = keys.get(&demand.owner.0).copied().unwrap_or_default();
            let tenant = tenants.get(&demand.owner).copied().unwrap_or_default();
            fits(&own, demand, demand.limits).then_some((own.running, tenant))
        };
        let taken = turns.take_next(rank, |demand| fits(all, demand, capacity))?;
        Some((taken.demand, taken.waiter))
    }

    /// Takes no more. Returns those that waited.
    pub(super) fn close(&mut self) -> Vec<W> {
        self.closed = true;
        let waiting: Vec<_> = self.turns.clear().collect();
        let waiters = waiting.into_iter().map(|waiting| {
            let Demand { owner, choices, .. } = waiting.demand;
            self.change(&owner.0, |load| {
                load.waiting -= choices;
                load.arrived -= choices;
            });
            self.refused.draining += 1;
            waiting.waiter
        });
        waiters.collect()
    }

    /// Counts a refusal.
    pub(super) fn refuse(&mut self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::Full => self.refused.full += 1,
            Refusal::KeyFull => self.refused.key_full += 1,
            Refusal::Waited => self.refused.waited += 1,
            Refusal::Draining => self.refused.draining += 1,
            // The request is wrong; nothing was short.
            Refusal::TooManyChoices(_) | Refusal::TooManyTokens(_) => {}
        }
        refusal
    }

    /// When one that is refused may find a place, as things go.
    pub(super) fn retry_after(&self, choices: u32, now: Instant) -> Duration {
        let ahead = self.all.waiting.saturating_add(choices);
        self.pace.wait_for(ahead, now)
    }

    /// What all have together.
    pub(super) fn all(&self) -> Load {
        self.all
    }

    /// How many were turned away.
    pub(super) fn refused(&self) -> Refused {
        self.refused
    }

    fn most_tokens(&self, own: Limits) -> Option<u64> {
        own.tokens.into_iter().chain(self.capacity.tokens).min()
    }

    fn load(&self, key: &Arc<str>) -> Load {
        self.keys.get(key).copied().unwrap_or_default()
    }

    /// Writes a change down for a key and for all; forgets a key that has nothing any more.
    fn change(&mut self, key: &Arc<str>, change: impl Fn(&mut Load)) {
        change(&mut self.all);
        let own = self.keys.entry(Arc::clone(key)).or_default();
        change(own);
        if *own == Load::default() {
            self.keys.remove(key);
        }
    }

    /// True where nothing is kept of anybody.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.all == Load::default()
            && self.keys.is_empty()
            && self.tenants.is_empty()
            && self.turns.is_empty()
    }
}

/// True where `demand` may run beside `load`.
fn fits(load: &Load, demand: &Demand, limits: Limits) -> bool {
    let choices = limits
        .running
        .is_none_or(|most| !exceeds(load.running, demand.choices, most));
    let tokens = limits
        .tokens
        .is_none_or(|most| load.tokens.saturating_add(demand.tokens) <= most);
    choices && tokens
}

fn exceeds(has: u32, more: u32, most: u32) -> bool {
    has.saturating_add(more) > most
}
