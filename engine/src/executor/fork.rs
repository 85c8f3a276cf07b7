//! Forks: sequences that begin as another one's first tokens.
//!
//! They are for what may turn out to be of no use. So a fork takes no place among the sequences, only
//! room in the cache that no sequence holds: it fails where there is none, and makes way for any
//! sequence. What it computes is found by no other. [`Sequence::promote`] ends all that.

use super::{Message, Sequence, SequenceState, Shared};
use crate::EngineError;
use std::sync::{Arc, atomic::Ordering};
use tokio::sync::mpsc::error::TrySendError;

/// The most forks of all of an engine's sequences.
pub const MAX_FORKS: usize = 1024;

/// A fork on its way to the thread.
#[derive(Debug)]
pub(super) struct Fork {
    pub(super) parent: Arc<SequenceState>,
    pub(super) keep: usize,
    pub(super) child: Arc<SequenceState>,
}

/// A place among the forks.
#[derive(Debug)]
pub(super) struct ForkPlace {
    shared: Arc<Shared>,
}

impl Sequence {
    /// A sequence of its own that begins as the first `keep` tokens of this one, which it holds
    /// already: both go on from the same blocks. What this one does later does not show in it.
    ///
    /// It counts as one sequence together with this one, and fails with
    /// [`EngineError::CacheFull`] where a sequence would make others give up their room.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] where less than `keep` or nothing is held,
    /// [`EngineError::Overloaded`] at [`MAX_FORKS`], [`EngineError::Stopped`]. Where the tokens had to
    /// make room meanwhile, or their constraint cannot be had twice, the fork's first call fails.
    pub fn fork(&self, keep: usize) -> Result<Self, EngineError> {
        let held = self.cached_len();
        if keep == 0 || keep > held {
            return Err(EngineError::Invalid(format!(
                "keep must be from 1 to the cached length, {held}, not {keep}"
            )));
        }
        let place = ForkPlace::take(&self.shared)?;
        let child = Arc::new(self.shared.state(None, keep));
        let fork = Fork {
            parent: Arc::clone(&self.state),
            keep,
            child: Arc::clone(&child),
        };
        let sent = self.shared.messages.try_send(Message::Fork(fork));
        sent.map_err(|error| match error {
            TrySendError::Full(_) => EngineError::Overloaded { max: MAX_FORKS },
            TrySendError::Closed(_) => EngineError::Stopped,
        })?;
        Ok(Self {
            shared: Arc::clone(&self.shared),
            state: child,
            sent: true,
            unanswered: None,
            place: Arc::clone(&self.place),
            fork: Some(place),
        })
    }

    /// Makes a fork a sequence like any other from its next call on. It keeps its place together with
    /// the one that it was forked from.
    pub fn promote(&mut self) {
        self.fork = None;
        self.state.is_fork.store(false, Ordering::Relaxed);
    }
}

impl ForkPlace {
    fn take(shared: &Arc<Shared>) -> Result<Self, EngineError> {
        let place = |forks| (forks < MAX_FORKS).then_some(forks + 1);
        let taken = shared
            .forks
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, place);
        taken.map_err(|max| EngineError::Overloaded { max })?;
        Ok(Self {
            shared: Arc::clone(shared),
        })
    }
}

impl Drop for ForkPlace {
    fn drop(&mut self) {
        self.shared.forks.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SequenceState {
    pub(super) fn is_fork(&self) -> bool {
        self.is_fork.load(Ordering::Relaxed)
    }
}
