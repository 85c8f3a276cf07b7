//! The connections to workers. Each has a task that connects, checks what is served, holds the one
//! long stream, and connects again when it is lost. Decides nothing about sequences.

mod address;
mod discovery;
mod draft;
mod pulse;
mod roster;
mod target;
mod tokenizers;

pub(crate) use address::{DraftPlace, check_url};
pub(crate) use discovery::{Discovery, SystemResolver};
pub(crate) use draft::DraftLink;
pub(crate) use pulse::Pulse;
pub(crate) use target::{KnownModels, TargetLink};

use crate::model::Model;
use crate::scheduler::{DraftLimits, TargetLimits, WorkerId};
use proto::v1::{DraftCommand, DraftEvent, TargetCommand, TargetEvent, TokenizerChunk};
use service::client::PeerChannel;
use service::{CancellationToken, Class, Error};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tonic::{Code, Status, Streaming};

/// The served model, while the target is connected.
pub(crate) type ServedModel = watch::Receiver<Option<Arc<Model>>>;

/// What links tell the driver. Of one link: in order.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// The target is connected.
    TargetUp {
        /// Where commands go.
        session: Session<TargetCommand>,
        /// What it takes.
        limits: TargetLimits,
        /// True where it serves another model than before.
        replaced: bool,
    },
    /// The target is lost.
    TargetDown,
    /// The target says something.
    Target(TargetEvent),
    /// A draft worker is connected, and its tokenizer is the target's.
    DraftUp(WorkerId, Session<DraftCommand>, DraftLimits),
    /// A draft worker is lost.
    DraftDown(WorkerId),
    /// A draft worker that was connected is not to be used any more.
    DraftRetired(WorkerId),
    /// A draft worker says something.
    Draft(WorkerId, DraftEvent),
}

/// One connection's outgoing half.
#[derive(Debug)]
pub(crate) struct Session<C> {
    commands: mpsc::Sender<C>,
    reset: CancellationToken,
}

impl<C> Session<C> {
    /// The half that sends `commands`, and gives the connection up by `reset`.
    pub(crate) fn new(commands: mpsc::Sender<C>, reset: CancellationToken) -> Self {
        Self { commands, reset }
    }

    /// Sends `command` without waiting. False where the worker does not keep up or is gone.
    pub(crate) fn send(&self, command: C) -> bool {
        self.commands.try_send(command).is_ok()
    }

    /// Gives the connection up.
    pub(crate) fn reset(&self) {
        self.reset.cancel();
    }
}

/// Commands that wait for a connection to take them. One that lets so many pile up is lost.
const COMMANDS: usize = 1024;

/// How long a worker may take to say what it serves, or to take a stream.
const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// How long a tokenizer may take to arrive.
const TOKENIZER_DEADLINE: Duration = Duration::from_secs(60);

/// More than any tokenizer has.
const MAX_TOKENIZER_BYTES: usize = 256 * 1024 * 1024;

/// A worker that cannot be used as it is is asked again after this.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// A call to a worker, under a deadline.
async fn call<T>(
    deadline: Duration,
    answer: impl Future<Output = Result<T, Status>>,
) -> Result<T, Error> {
    match tokio::time::timeout(deadline, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(status)) => Err(lost(&status)),
        Err(_) => Err(Error::new(
            Class::Deadline,
            "the worker did not answer in time",
        )),
    }
}

/// What operators are told where a worker asks for another token.
const REFUSED_TOKEN: &str = "it does not take our token: --worker-token-file must hold one of the worker's, \
                             in its first line";

/// Refuses a worker that says of `service` that it does not serve: its engine hangs.
async fn check_serving(channel: &PeerChannel, service: &str) -> Result<(), Error> {
    if service::client::is_serving(channel.clone(), service, CALL_DEADLINE).await {
        Ok(())
    } else {
        Err(Error::new(Class::Unavailable, "the worker does not serve"))
    }
}

fn lost(status: &Status) -> Error {
    let class = match status.code() {
        Code::Unauthenticated => Class::Unauthenticated,
        Code::Unimplemented => Class::NotFound,
        _ => Class::Unavailable,
    };
    let mut message = format!("{}: {}", status.code(), status.message());
    // What a connection failed for, such as a certificate, is said by the causes alone.
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let said = error.to_string();
        if !message.ends_with(&said) {
            message.push_str(": ");
            message.push_str(&said);
        }
        cause = error.source();
    }
    Error::new(class, message)
}

async fn collect(mut chunks: Streaming<TokenizerChunk>) -> Result<Vec<u8>, Status> {
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.message().await? {
        if bytes.len() + chunk.data.len() > MAX_TOKENIZER_BYTES {
            return Err(Status::out_of_range("the tokenizer is too large"));
        }
        bytes.extend_from_slice(&chunk.data);
    }
    Ok(bytes)
}

/// Passes a worker's events on until its stream ends, and says why it did.
async fn relay<E>(
    mut incoming: Streaming<E>,
    reset: &CancellationToken,
    events: &mpsc::Sender<LinkEvent>,
    wrap: impl Fn(E) -> LinkEvent,
) -> Error {
    loop {
        let message = tokio::select! {
            message = incoming.message() => message,
            () = reset.cancelled() => {
                return Error::new(Class::Unavailable, "the connection was given up");
            }
        };
        match message {
            Ok(Some(event)) => {
                if events.send(wrap(event)).await.is_err() {
                    return Error::new(Class::Internal, "the driver has ended");
                }
            }
            Ok(None) => return Error::new(Class::Unavailable, "the worker ended the stream"),
            Err(status) => return lost(&status),
        }
    }
}

/// The pauses between attempts to connect: longer each time, and never the same for two.
#[derive(Debug, Default)]
struct Backoff {
    attempts: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);
    /// What a worker that is back waits at most, and often enough for a call that costs a packet or two.
    const LONGEST: Duration = Duration::from_millis(500);

    fn reset(&mut self) {
        self.attempts = 0;
    }

    /// True for the first attempt after a success: worth a louder message than the others.
    fn is_first(&self) -> bool {
        self.attempts == 0
    }

    fn next(&mut self) -> Duration {
        let pause = (Self::FIRST * (1 << self.attempts.min(10))).min(Self::LONGEST);
        self.attempts += 1;
        pause.mul_f64(rand::random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_their_limit_and_begin_again_after_a_success() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..100).map(|_| backoff.next()).collect();
        assert!(pauses[0] <= Backoff::FIRST);
        assert!(pauses[99] >= Backoff::LONGEST / 2);
        assert!(pauses.iter().all(|pause| *pause <= Backoff::LONGEST));
        backoff.reset();
        assert!(backoff.is_first() && backoff.next() <= Backoff::FIRST);
    }
}
