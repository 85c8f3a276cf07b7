//! The clients of running requests, and which sequences are whose.
//!
//! A request's choices are sequences with numbers in a row. They stand and fall together: a client
//! that is slow holds all of them up, one that leaves frees all, and where one fails the others are
//! given up.

#[cfg(test)]
mod tests;

use super::client::{Admission, Client, Unsent};
use crate::commit::Delta;
use crate::request::Choice;
use crate::scheduler::{SequenceId, Summary};
use crate::telemetry::Told;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use service::{Class, Error};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A client: the number of its first choice's sequence.
pub(super) type ClientId = SequenceId;

/// What a client did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientEvent {
    /// It left.
    Gone(ClientId),
    /// Its full queue has room again.
    Room(ClientId),
    /// Its stream is to be ended.
    Cut(ClientId, Cut),
    /// It has got everything.
    Served,
}

/// Why a stream is ended before its text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// The client's deadline has passed.
    Deadline,
    /// The client takes nothing.
    Slow,
}

/// All clients.
#[derive(Debug)]
pub(super) struct Clients {
    clients: HashMap<ClientId, Entry>,
    /// Whose the sequences that run are.
    owners: BTreeMap<SequenceId, ClientId>,
    watches: FuturesUnordered<BoxFuture<'static, ClientEvent>>,
    /// How long one may take nothing.
    slow: Duration,
}

#[derive(Debug)]
struct Entry {
    client: Client,
    /// Its sequences have numbers from its own up to this, exclusive.
    end: SequenceId,
    /// True while the queue is watched for room.
    full: bool,
    /// Dropped with the client, which ends the watch for its leaving.
    _served: oneshot::Sender<()>,
}

impl Clients {
    /// No clients. One that takes nothing for as long as `slow` is to be cut off.
    pub(super) fn new(slow: Duration) -> Self {
        Self {
            clients: HashMap::new(),
            owners: BTreeMap::new(),
            watches: FuturesUnordered::new(),
            slow,
        }
    }

    /// Takes a client in, whose sequences have the numbers from `first` on. Returns its choices.
    pub(super) fn add(
        &mut self,
        first: SequenceId,
        admission: Admission,
    ) -> Vec<(SequenceId, Choice)> {
        let Admission {
            request,
            output,
            caller,
            pass,
        } = admission;
        let (served, done) = oneshot::channel();
        let deadline = caller.deadline;
        let watched = output.clone();
        self.watches.push(Box::pin(async move {
            tokio::select! {
                () = watched.closed() => ClientEvent::Gone(first),
                _ = done => ClientEvent::Served,
                () = passed(deadline) => ClientEvent::Cut(first, Cut::Deadline),
            }
        }));
        let end = first + SequenceId::from(request.n());
        self.owners.extend((first..end).map(|id| (id, first)));
        let entry = Entry {
            client: Client::new(output, pass, &request),
            end,
            full: false,
            _served: served,
        };
        self.clients.insert(first, entry);
        (first..).zip(request.choices()).collect()
    }

    /// Forgets a client. Returns its sequences that run.
    pub(super) fn remove(&mut self, id: ClientId) -> Vec<SequenceId> {
        let running = self.running(id);
        for sequence in &running {
            self.owners.remove(sequence);
        }
        self.clients.remove(&id);
        running
    }

    /// Ends a client's stream with an error, and forgets it. Returns its sequences that run.
    pub(super) fn cut(&mut self, id: ClientId, cut: Cut) -> Vec<SequenceId> {
        let error = match cut {
            Cut::Deadline => Error::new(
                Class::Deadline,
                "the deadline passed while the text was generated",
            ),
            Cut::Slow => {
                let message = format!("the client took nothing for {:?}", self.slow);
                Error::new(Class::Aborted, message)
            }
        };
        let running = self.running(id);
        for sequence in &running {
            self.owners.remove(sequence);
        }
        if let Some(entry) = self.clients.remove(&id) {
            tracing::info!(client = id, %error, "stream ended early");
            entry.client.cut(error);
        }
        running
    }

    /// True where there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// What a client does next; `None` where there are none.
    pub(super) async fn next(&mut self) -> Option<ClientEvent> {
        self.watches.next().await
    }

    /// Hands committed tokens to a client. Returns the sequences that are to be held up, because it
    /// does not take what it has: that is kept, and [`ClientEvent::Room`] will follow.
    pub(super) fn deliver(&mut self, id: SequenceId, delta: Delta) -> Vec<SequenceId> {
        self.tell(id, |client, choice| client.keep(choice, delta))
    }

    /// Ends a choice. Returns the sequences that are to be held up.
    pub(super) fn finish(
        &mut self,
        id: SequenceId,
        summary: Summary,
        told: Told,
    ) -> Vec<SequenceId> {
        tracing::debug!(sequence = id, ?summary, "request finished");
        let held = self.tell(id, |client, choice| client.finish(choice, summary, told));
        self.owners.remove(&id);
        held.into_iter().filter(|held| *held != id).collect()
    }

    /// Ends a client's answer with an error. Returns its other sequences, which are to be given up.
    pub(super) fn fail(&mut self, id: SequenceId, error: Error) -> Vec<SequenceId> {
        tracing::warn!(sequence = id, %error, "request failed");
        let Some(owner) = self.owners.get(&id).copied() else {
            return Vec::new();
        };
        let mut others = self.running(owner);
        self.tell(id, |client, _| client.fail(error));
        for sequence in &others {
            self.owners.remove(sequence);
        }
        others.retain(|other| *other != id);
        others
    }

    /// The queue of a client had room. Returns the sequences that may go on.
    pub(super) fn room(&mut self, id: ClientId) -> Vec<SequenceId> {
        if let Some(entry) = self.clients.get_mut(&id) {
            entry.full = false;
        }
        if self.flush(id) {
            self.running(id)
        } else {
            Vec::new()
        }
    }

    /// Has a sequence's client take something. Returns its sequences where it is full.
    fn tell(&mut self, id: SequenceId, what: impl FnOnce(&mut Client, u32)) -> Vec<SequenceId> {
        // A sequence that was given up with another may still say something.
        let Some(owner) = self.owners.get(&id).copied() else {
            return Vec::new();
        };
        if let Some(entry) = self.clients.get_mut(&owner) {
            // A request has at most 64 choices.
            what(&mut entry.client, (id - owner) as u32);
        }
        if self.flush(owner) {
            Vec::new()
        } else {
            self.running(owner)
        }
    }

    /// A client's sequences that run.
    fn running(&self, id: ClientId) -> Vec<SequenceId> {
        let end = self.clients.get(&id).map_or(id, |entry| entry.end);
        self.owners.range(id..end).map(|(id, _)| *id).collect()
    }

    /// Sends what waits. True where nothing does any more.
    fn flush(&mut self, id: ClientId) -> bool {
        let Some(entry) = self.clients.get_mut(&id) else {
            return true;
        };
        if entry.full {
            return false;
        }
        match entry.client.send() {
            // That the client left is seen elsewhere.
            Ok(()) | Err(Unsent::Gone) => {
                if entry.client.is_served() {
                    self.clients.remove(&id);
                }
                true
            }
            Err(Unsent::Full) => {
                entry.full = true;
                let output = entry.client.output().clone();
                let slow = self.slow;
                self.watches.push(Box::pin(async move {
                    // A closed queue has no room either, but that is seen elsewhere.
                    match tokio::time::timeout(slow, output.reserve()).await {
                        Ok(_) => ClientEvent::Room(id),
                        Err(_) => ClientEvent::Cut(id, Cut::Slow),
                    }
                }));
                false
            }
        }
    }
}

/// Ends at `deadline`; never, where there is none.
async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
