//! The executor: one thread owns the model and all caches, and batches what sequences ask for.
//!
//! [`Engine`] and [`Sequence`] are handles. A call on a sequence is checked here, in the caller's
//! task, and travels as a command over a bounded channel to the thread (`worker`), which batches
//! it with the others' (`plan`) once the cache has room for it (`admission`). The thread sleeps
//! while nobody asks for anything and ends when the last handle is gone.
//!
//! Knows nothing of drafts, proposals and peers: a sequence is a cache and the request's prefix
//! beside it, and what is done with logits is the caller's own ([`Reader`]).

mod admission;
mod counters;
mod fork;
mod hold;
mod holds;
mod job;
mod plan;
mod reader;
mod worker;

pub use counters::{CacheState, StepTime, StepTotals};
pub use fork::MAX_FORKS;
pub use hold::Hold;
pub use reader::{Reader, Row};

use crate::{CacheType, EngineError, KvLayout, Model, ModelShape, Pool};
use counters::Counters;
use fork::{Fork, ForkPlace};
use holds::Holds;
use job::{Command, Work};
use speculation::{Prefix, TokenId};
use std::{
    any::Any,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tracing::Span;
use worker::Connections;

/// Limits of an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Sequences at once.
    pub max_sequences: usize,
    /// Bytes for keys and values of all sequences.
    pub cache_bytes: usize,
    /// How keys and values are stored.
    pub cache_type: CacheType,
    /// Whether sequences that begin with the same tokens share what is computed of them.
    pub prefix_sharing: bool,
    /// Rows per step; a longer prompt is prefilled in pieces between other sequences' steps.
    pub max_step_tokens: usize,
    /// Ids that the tokenizer knows; logits beyond are padding and are never chosen.
    pub tokenizer_size: usize,
}

/// A running engine. Clones share it; it stops when the last clone and sequence are gone.
#[derive(Debug, Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

/// A sequence in an engine. Dropping it frees its place at once, where no fork of it is left, and its
/// cache before the next step.
///
/// A call that is dropped before it ends is abandoned before the next step, and the cache is cut
/// back to what the call was to keep; the sequence stays usable.
#[derive(Debug)]
pub struct Sequence {
    shared: Arc<Shared>,
    state: Arc<SequenceState>,
    /// True once the thread may hold a cache for it.
    sent: bool,
    /// What the latest call was to keep, where its answer has not been read.
    unanswered: Option<usize>,
    /// A sequence and its forks have one together.
    place: Arc<Place>,
    /// While it is a fork.
    fork: Option<ForkPlace>,
}

/// A place among the open sequences.
#[derive(Debug)]
struct Place {
    shared: Arc<Shared>,
}

/// What all handles of an engine share. The thread holds none of it but its parts: it would
/// keep its own channel open otherwise.
#[derive(Debug)]
struct Shared {
    shape: ModelShape,
    options: EngineOptions,
    pool: Pool,
    counters: Arc<Counters>,
    messages: mpsc::Sender<Message>,
    open: watch::Sender<usize>,
    next_id: AtomicU64,
    dropped: Arc<DroppedIds>,
    /// [`Hold`]s that live.
    holds: Arc<Holds>,
    /// Forks that live.
    forks: AtomicUsize,
}

/// What the handle and the thread both see of a sequence.
#[derive(Debug)]
struct SequenceState {
    id: u64,
    /// Until the thread takes it, with the sequence's first call; then it lies beside the cache.
    prefix: Mutex<Option<Prefix>>,
    /// Tokens that it holds; only the thread writes it.
    len: AtomicUsize,
    /// True until it is promoted: it must not take others' room.
    is_fork: AtomicBool,
    /// Tokens that were found in the cache instead of being computed; only the thread writes it.
    adopted: AtomicUsize,
}

/// Sequences that are gone, for the thread to free.
///
/// A drop must neither block nor fail, so it cannot wait for a place in the channel. It leaves its
/// id here and then tries to wake the thread. Where the channel is full the thread has messages to
/// take, and it looks here after it has taken them. The list is as bounded as the channel: only a
/// sequence that has sent a command is put here.
#[derive(Debug, Default)]
struct DroppedIds(Mutex<Vec<u64>>);

#[derive(Debug)]
enum Message {
    Run(Command),
    Fork(Fork),
    /// Look at the dropped ids and at the holds.
    Wake,
    /// Say that the thread goes on.
    Ping(oneshot::Sender<()>),
}

impl Engine {
    /// Has the model provide for the cache and starts the executor thread.
    ///
    /// # Errors
    /// Where an option is 0 that cannot be, where the model has no room for the cache, or where the
    /// thread cannot be started.
    pub fn start(mut model: Box<dyn Model>, options: EngineOptions) -> io::Result<Self> {
        for (name, value) in [
            ("max_sequences", options.max_sequences),
            ("max_step_tokens", options.max_step_tokens),
            ("tokenizer_size", options.tokenizer_size),
        ] {
            if value == 0 {
                let detail = format!("{name} must be over 0");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, detail));
            }
        }
        // A sequence has one call at a time; the rest is for abandoned calls, forks and wake-ups.
        let places = options.max_sequences.saturating_mul(2);
        let places = places.saturating_add(4 * MAX_FORKS + 16);
        let (messages, receiver) = mpsc::channel(places.min(Semaphore::MAX_PERMITS));
        let dropped = Arc::new(DroppedIds::default());
        let holds = Arc::new(Holds::default());
        let layout = KvLayout {
            kind: options.cache_type,
            ..model.shape().kv
        };
        let pool = Pool::new(layout, options.cache_bytes).with_sharing(options.prefix_sharing);
        let allocated = model.allocate(pool.blocks(), options.cache_type);
        allocated.map_err(io::Error::other)?;
        let counters = Arc::new(Counters::default());
        let shape = model.shape().clone();
        let connections = Connections {
            pool: pool.clone(),
            messages: receiver,
            dropped: Arc::clone(&dropped),
            holds: Arc::clone(&holds),
            counters: Arc::clone(&counters),
        };
        worker::spawn(model, options.clone(), connections)?;
        Ok(Self {
            shared: Arc::new(Shared {
                shape,
                options,
                pool,
                counters,
                messages,
                open: watch::Sender::new(0),
                next_id: AtomicU64::new(0),
                dropped,
                holds,
                forks: AtomicUsize::new(0),
            }),
        })
    }

    /// The model's sizes.
    pub fn shape(&self) -> &ModelShape {
        &self.shared.shape
    }

    /// Sequences that are open.
    pub fn active_sequences(&self) -> usize {
        *self.shared.open.borrow()
    }

    /// Follows [`active_sequences`](Self::active_sequences).
    pub fn watch_active(&self) -> watch::Receiver<usize> {
        self.shared.open.subscribe()
    }

    /// What its cache holds at present, and what happened in it.
    pub fn cache(&self) -> CacheState {
        self.shared.counters.state(self.shared.pool.usage())
    }

    /// What the steps after the first `seen` took, as far as they are remembered: the latest 32. `seen`
    /// becomes their number.
    pub fn steps_since(&self, seen: &mut u64) -> Vec<StepTime> {
        self.shared.counters.steps_since(seen)
    }

    /// What all steps took together.
    pub fn step_totals(&self) -> StepTotals {
        self.shared.counters.totals()
    }

    /// Ends when the thread has seen it, between two steps: a model that hangs never does.
    ///
    /// # Errors
    /// [`EngineError::Stopped`] where the model has crashed.
    pub async fn ping(&self) -> Result<(), EngineError> {
        let (seen, answer) = oneshot::channel();
        let sent = self.shared.messages.send(Message::Ping(seen)).await;
        sent.map_err(|_| EngineError::Stopped)?;
        answer.await.map_err(|_| EngineError::Stopped)
    }

    /// Ends when the engine has stopped by itself: its model crashed.
    pub async fn stopped(&self) {
        self.shared.messages.closed().await;
    }

    /// Opens an empty sequence. `prefix`, which must be empty, follows its cache.
    ///
    /// # Errors
    /// [`EngineError::Overloaded`] at the limit of sequences, [`EngineError::Stopped`] where the
    /// model has crashed.
    pub fn open(&self, prefix: Prefix) -> Result<Sequence, EngineError> {
        if self.shared.messages.is_closed() {
            return Err(EngineError::Stopped);
        }
        let max = self.shared.options.max_sequences;
        let has_room = self.shared.open.send_if_modified(|open| {
            let has_room = *open < max;
            *open += usize::from(has_room);
            has_room
        });
        if !has_room {
            return Err(EngineError::Overloaded { max });
        }
        let place = Place {
            shared: Arc::clone(&self.shared),
        };
        Ok(Sequence {
            shared: Arc::clone(&self.shared),
            state: Arc::new(self.shared.state(Some(prefix), 0)),
            sent: false,
            unanswered: None,
            place: Arc::new(place),
            fork: None,
        })
    }
}

impl Sequence {
    /// Tokens that the engine holds of it, whether or not their keys and values had to make room for
    /// others meanwhile. After an abandoned call, at most what it was to keep.
    pub fn cached_len(&self) -> usize {
        let cached = self.state.len.load(Ordering::Relaxed);
        // The thread may still be at an abandoned call. It never cuts back to less than that
        // keeps, so this much is there when the next call arrives.
        self.unanswered.map_or(cached, |keep| keep.min(cached))
    }

    /// Tokens of it that others had left in the cache, so that they were not computed for it.
    pub fn adopted(&self) -> usize {
        self.state.adopted.load(Ordering::Relaxed)
    }

    /// Cuts the cache back to `keep` tokens, appends `tokens`, and has `reader` read the logits after
    /// each of the last `rows` of them, in order. With `rows` 0 it only prefills. Returns the reader.
    ///
    /// # Errors
    /// Any [`EngineError`]. The sequence then holds `keep` tokens or fewer, or what it held before
    /// where the call made no sense; ask [`cached_len`](Self::cached_len).
    pub async fn read<R: Reader>(
        &mut self,
        keep: usize,
        tokens: Vec<TokenId>,
        rows: usize,
        reader: R,
    ) -> Result<R, EngineError> {
        let work = Work {
            keep,
            tokens,
            rows,
            decode: 0,
        };
        self.call(work, reader).await
    }

    /// Cuts the cache back to `keep` tokens, appends `tokens`, and decodes up to `count` tokens on
    /// its own: those that `reader` returns, fewer where it ends early. The last of them is not
    /// appended: the cache then holds `keep + tokens.len() + count - 1` tokens. Returns the reader.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn decode<R: Reader>(
        &mut self,
        keep: usize,
        tokens: Vec<TokenId>,
        count: usize,
        reader: R,
    ) -> Result<R, EngineError> {
        let Some(decode) = count.checked_sub(1) else {
            return Err(EngineError::Invalid("count must be over 0".to_owned()));
        };
        let work = Work {
            keep,
            tokens,
            rows: 1,
            decode,
        };
        self.call(work, reader).await
    }

    async fn call<R: Reader>(&mut self, work: Work, reader: R) -> Result<R, EngineError> {
        work.check(&self.shared.shape, &self.shared.pool)?;
        let place = self.shared.messages.reserve().await;
        let place = place.map_err(|_| EngineError::Stopped)?;
        let (reply, answer) = oneshot::channel();
        self.sent = true;
        self.unanswered = Some(self.cached_len().min(work.keep));
        place.send(Message::Run(Command {
            sequence: Arc::clone(&self.state),
            work,
            reader: Box::new(reader),
            reply,
            span: Span::current(),
        }));
        let outcome = answer.await.unwrap_or(Err(EngineError::Stopped));
        self.unanswered = None;
        let reader: Box<dyn Any> = outcome?;
        match reader.downcast() {
            Ok(reader) => Ok(*reader),
            Err(_) => unreachable!("the reader that was sent comes back"),
        }
    }
}

impl Shared {
    /// A new sequence of `len` tokens; a fork where it has no prefix to begin with.
    fn state(&self, prefix: Option<Prefix>, len: usize) -> SequenceState {
        SequenceState {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            is_fork: AtomicBool::new(prefix.is_none()),
            prefix: Mutex::new(prefix),
            len: AtomicUsize::new(len),
            adopted: AtomicUsize::new(0),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.open.send_modify(|open| *open -= 1);
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        if self.sent {
            self.shared.dropped.push(self.state.id);
            // Full: the thread is awake. Closed: it has freed everything.
            let _ = self.shared.messages.try_send(Message::Wake);
        }
    }
}

impl SequenceState {
    /// The prefix; the first call takes it.
    fn take_prefix(&self) -> Option<Prefix> {
        self.prefix
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl DroppedIds {
    fn push(&self, id: u64) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(id);
    }

    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
