//! The sequences of one stream, by the coordinator's numbers.
//!
//! Epochs order what a coordinator says of a sequence: what belongs to an older one is stale,
//! dropped and counted. Knows nothing of what a worker keeps for a sequence.

use crate::Fault;
use std::collections::HashMap;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The sequences of one stream. Dropping it cancels the work of all of them.
#[derive(Debug)]
pub struct Sequences<S> {
    live: HashMap<u64, Live<S>>,
    stale: u64,
}

/// A sequence that is open.
#[derive(Debug)]
pub struct Live<S> {
    /// What the worker keeps for it.
    pub state: S,
    epoch: u32,
    open: DropGuard,
}

impl<S> Live<S> {
    /// Cancelled when the sequence is closed: its work ends then.
    pub fn closed(&self) -> CancellationToken {
        self.open.token().clone()
    }
}

impl<S> Default for Sequences<S> {
    fn default() -> Self {
        Self {
            live: HashMap::new(),
            stale: 0,
        }
    }
}

impl<S> Sequences<S> {
    /// Whether `sequence` may be opened under `epoch`. A live one of an older epoch is closed for
    /// it; otherwise the message is stale.
    pub fn may_open(&mut self, sequence: u64, epoch: u32) -> bool {
        match self.live.get(&sequence) {
            Some(live) if live.epoch >= epoch => {
                self.count_stale(sequence, epoch);
                false
            }
            _ => {
                self.live.remove(&sequence);
                true
            }
        }
    }

    /// Adds an open sequence.
    pub fn insert(&mut self, sequence: u64, epoch: u32, state: S) -> &mut Live<S> {
        let live = Live {
            state,
            epoch,
            open: CancellationToken::new().drop_guard(),
        };
        self.live.entry(sequence).insert_entry(live).into_mut()
    }

    /// The sequence that a message of `epoch` speaks of, or `None` where the message is stale.
    ///
    /// # Errors
    /// A desync where the message is of an epoch that was never opened here; the sequence is
    /// closed.
    pub fn find(&mut self, sequence: u64, epoch: u32) -> Result<Option<&mut Live<S>>, Fault> {
        match self.live.get(&sequence).map(|live| live.epoch) {
            Some(own) if own == epoch => Ok(self.live.get_mut(&sequence)),
            Some(own) if own < epoch => {
                self.live.remove(&sequence);
                Err(Fault::desync(format!(
                    "epoch is {epoch}, the open one is {own}"
                )))
            }
            _ => {
                self.count_stale(sequence, epoch);
                Ok(None)
            }
        }
    }

    /// The sequence as work that was begun under `epoch` finds it: `None` once it is closed.
    pub fn get(&mut self, sequence: u64, epoch: u32) -> Option<&mut Live<S>> {
        self.live
            .get_mut(&sequence)
            .filter(|live| live.epoch == epoch)
    }

    /// Closes a sequence; returns its epoch where it was open.
    pub fn close(&mut self, sequence: u64) -> Option<u32> {
        self.live.remove(&sequence).map(|live| live.epoch)
    }

    /// Closes the sequence that `fault` ended, unless a newer epoch is open already.
    pub fn fail(&mut self, sequence: u64, epoch: u32, fault: &Fault) {
        let (reason, detail) = (fault.reason.as_str_name(), &fault.detail);
        tracing::info!(sequence, epoch, reason, detail, "sequence closed");
        if self.get(sequence, epoch).is_some() {
            self.live.remove(&sequence);
        }
    }

    /// Sequences that are open.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// True where no sequence is open.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    fn count_stale(&mut self, sequence: u64, epoch: u32) {
        self.stale += 1;
        tracing::debug!(sequence, epoch, stale = self.stale, "stale message dropped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::v1::CloseReason;

    #[test]
    fn a_higher_epoch_replaces_and_cancels_the_older() {
        let mut sequences = Sequences::default();
        assert!(sequences.may_open(7, 1));
        let first = sequences.insert(7, 1, "first").closed();
        assert!(!sequences.may_open(7, 1), "the same epoch again is stale");
        assert!(!sequences.may_open(7, 0), "an older epoch is stale");
        assert!(!first.is_cancelled());
        assert!(sequences.may_open(7, 2));
        assert!(first.is_cancelled());
        sequences.insert(7, 2, "second");
        let live = sequences.find(7, 2).expect("no fault").expect("open");
        assert_eq!(live.state, "second");
    }

    #[test]
    fn a_message_of_an_older_epoch_is_dropped_and_of_a_newer_one_closes() {
        let mut sequences = Sequences::default();
        sequences.insert(7, 2, ());
        assert!(sequences.find(7, 1).expect("no fault").is_none());
        assert!(sequences.find(8, 1).expect("no fault").is_none());
        let fault = sequences.find(7, 3).expect_err("a gap");
        assert_eq!(fault.reason, CloseReason::Desync);
        assert!(sequences.is_empty());
    }
}
