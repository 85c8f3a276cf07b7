//! Whose turn it is among those that wait.
//!
//! A higher priority goes first. Among equals, the key that has the least running does, then that
//! key's tenant with the least, then whoever was let in longest ago, then first come. What is kept
//! of an owner goes with the last of its requests that waits.

use super::book::{Demand, Owner};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// Tells those that wait apart; later ones have higher numbers.
pub(super) type Ticket = u64;

/// Those that wait. `W` is how one hears that it is its turn.
#[derive(Debug)]
pub(super) struct Turns<W> {
    levels: BTreeMap<Reverse<i32>, BTreeMap<Owner, Queue<W>>>,
    next: Ticket,
    /// Counts those that were let in.
    let_in: u64,
}

/// One owner's requests of one priority, first come first.
#[derive(Debug)]
struct Queue<W> {
    waiting: VecDeque<Waiting<W>>,
    /// When the last of them was let in, as [`Turns::let_in`] counts.
    last: u64,
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiting<W> {
    /// Its number.
    pub(super) ticket: Ticket,
    /// What it takes.
    pub(super) demand: Demand,
    /// How it hears.
    pub(super) waiter: W,
}

impl<W> Default for Turns<W> {
    fn default() -> Self {
        Self {
            levels: BTreeMap::new(),
            next: 1,
            let_in: 0,
        }
    }
}

impl<W> Turns<W> {
    /// Puts a request behind its owner's others of the same priority.
    pub(super) fn push(&mut self, demand: Demand, waiter: W) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        let level = self.levels.entry(Reverse(demand.priority)).or_default();
        let queue = level.entry(demand.owner.clone()).or_insert_with(|| Queue {
            waiting: VecDeque::new(),
            last: 0,
        });
        queue.waiting.push_back(Waiting {
            ticket,
            demand,
            waiter,
        });
        ticket
    }

    /// Takes out the one whose turn it is, where it `fits`. `rank` says how much of what runs is its
    /// key's and its tenant's; none for one that is passed over, whatever its turn.
    pub(super) fn take_next(
        &mut self,
        rank: impl Fn(&Demand) -> Option<(u32, u32)>,
        fits: impl FnOnce(&Demand) -> bool,
    ) -> Option<Waiting<W>> {
        let (priority, owner) = self.next_owner(rank)?;
        let level = self.levels.get_mut(&priority)?;
        let queue = level.get_mut(&owner)?;
        if !fits(&queue.waiting.front()?.demand) {
            return None;
        }
        self.let_in += 1;
        queue.last = self.let_in;
        let taken = queue.waiting.pop_front();
        self.forget_empty(priority, &owner);
        taken
    }

    fn next_owner(
        &self,
        rank: impl Fn(&Demand) -> Option<(u32, u32)>,
    ) -> Option<(Reverse<i32>, Owner)> {
        self.levels.iter().find_map(|(priority, level)| {
            let ranked = level.iter().filter_map(|(owner, queue)| {
                let first = queue.waiting.front()?;
                Some(((rank(&first.demand)?, queue.last, first.ticket), owner))
            });
            let (_, owner) = ranked.min_by_key(|(rank, _)| *rank)?;
            Some((*priority, owner.clone()))
        })
    }

    /// Takes out the one with `ticket`, wherever it is; none where it was let in.
    pub(super) fn withdraw(&mut self, ticket: Ticket, demand: &Demand) -> Option<Waiting<W>> {
        let priority = Reverse(demand.priority);
        let queue = self.levels.get_mut(&priority)?.get_mut(&demand.owner)?;
        let place = queue
            .waiting
            .binary_search_by_key(&ticket, |waiting| waiting.ticket);
        let taken = queue.waiting.remove(place.ok()?);
        self.forget_empty(priority, &demand.owner);
        taken
    }

    /// Takes all out.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Waiting<W>> {
        let levels = std::mem::take(&mut self.levels).into_values();
        levels
            .flat_map(BTreeMap::into_values)
            .flat_map(|queue| queue.waiting)
    }

    fn forget_empty(&mut self, priority: Reverse<i32>, owner: &Owner) {
        if let Some(level) = self.levels.get_mut(&priority) {
            if level
                .get(owner)
                .is_some_and(|queue| queue.waiting.is_empty())
            {
                level.remove(owner);
            }
            if level.is_empty() {
                self.levels.remove(&priority);
            }
        }
    }

    /// True where nothing is kept.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }
}
