//! What a call asks for, and how far the thread has come with it.

use super::{Reader, Row, SequenceState, plan::SHORT_ROWS};
use crate::{EngineError, Input, Lease, ModelShape, cache::BLOCK_TOKENS};
use speculation::{Prefix, TokenId};
use std::sync::{Arc, atomic::Ordering};
use tokio::sync::oneshot;
use tracing::Span;

/// What a call asks for.
#[derive(Debug)]
pub(super) struct Work {
    /// The cache is first cut back to this many tokens.
    pub(super) keep: usize,
    /// Appended then.
    pub(super) tokens: Vec<TokenId>,
    /// The logits after each of this many last ones are read.
    pub(super) rows: usize,
    /// How many tokens that the reader returns are then appended in turn, each bringing one more row
    /// to read.
    pub(super) decode: usize,
}

/// A call on its way to the thread.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) sequence: Arc<SequenceState>,
    pub(super) work: Work,
    pub(super) reader: Box<dyn Reader>,
    pub(super) reply: Reply,
    pub(super) span: Span,
}

pub(super) type Reply = oneshot::Sender<Result<Box<dyn Reader>, EngineError>>;

/// What the thread keeps of a sequence: its cache, and the request's view of the same tokens.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) lease: Lease,
    pub(super) prefix: Prefix,
}

/// A call that the thread works at. It holds its sequence's cache until it ends.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) sequence: Arc<SequenceState>,
    pub(super) held: Held,
    pub(super) span: Span,
    work: Work,
    /// How many of the work's tokens the cache holds.
    done: usize,
    reader: Box<dyn Reader>,
    /// What the reader returned last.
    next: Option<TokenId>,
    reply: Reply,
}

impl Work {
    /// Refuses what no state of the engine could make possible.
    pub(super) fn check(&self, shape: &ModelShape, cache_bytes: usize) -> Result<(), EngineError> {
        if self.tokens.is_empty() {
            return Err(EngineError::Invalid("tokens must not be empty".to_owned()));
        }
        if self.rows > self.tokens.len() {
            return Err(EngineError::Invalid(format!(
                "rows must be at most the number of tokens, {}, not {}",
                self.tokens.len(),
                self.rows
            )));
        }
        let rows = shape.vocabulary_rows;
        if let Some(token) = self.tokens.iter().find(|&&token| token as usize >= rows) {
            return Err(EngineError::Invalid(format!(
                "tokens must be below {rows}, the size of the vocabulary, not {token}"
            )));
        }
        let tokens = self.final_len();
        if tokens > shape.context_length {
            return Err(EngineError::ContextExceeded {
                tokens,
                context_length: shape.context_length,
            });
        }
        // Checked here, so that a sequence that can never fit evicts nobody.
        let blocks = tokens.div_ceil(BLOCK_TOKENS);
        if blocks.saturating_mul(shape.kv.block_bytes()) > cache_bytes {
            return Err(EngineError::CacheFull {
                tokens,
                budget_bytes: cache_bytes,
            });
        }
        Ok(())
    }

    /// The cache's length at the end.
    fn final_len(&self) -> usize {
        self.keep
            .saturating_add(self.tokens.len())
            .saturating_add(self.decode)
    }
}

impl Held {
    /// Takes back all tokens but the first `len`.
    pub(super) fn truncate(&mut self, len: usize) {
        self.lease.truncate(len);
        self.prefix.truncate(len);
    }
}

impl Job {
    /// Starts on `command` with what its sequence holds, at least what is kept.
    pub(super) fn new(command: Command, mut held: Held) -> Self {
        held.truncate(command.work.keep);
        let job = Self {
            sequence: command.sequence,
            held,
            span: command.span,
            work: command.work,
            done: 0,
            reader: command.reader,
            next: None,
            reply: command.reply,
        };
        job.publish();
        job
    }

    /// Makes room in the cache for all that the job will append.
    pub(super) fn reserve(&mut self) -> Result<(), EngineError> {
        self.held
            .lease
            .reserve(self.work.tokens.len() + self.work.decode)
    }

    /// Rows that can be computed now.
    pub(super) fn due(&self) -> usize {
        self.work.tokens.len() - self.done
    }

    /// True where the job is verification or decoding, by its size.
    pub(super) fn is_short(&self) -> bool {
        self.due() <= SHORT_ROWS
    }

    /// How many of the next `rows` rows are read.
    pub(super) fn wanted(&self, rows: usize) -> usize {
        let first_wanted = self.work.tokens.len() - self.work.rows;
        let end = self.done + rows;
        end.saturating_sub(first_wanted.max(self.done))
    }

    /// The job's part of a batch: its next `rows` rows.
    pub(super) fn input(&mut self, rows: usize) -> Input<'_> {
        Input {
            wanted: self.wanted(rows),
            tokens: &self.work.tokens[self.done..self.done + rows],
            cache: &mut self.held.lease,
        }
    }

    /// Takes in that the next `rows` rows are computed, and has the `logits` of the wanted ones read.
    ///
    /// # Errors
    /// The reader's: the job cannot go on.
    pub(super) fn advance<'a>(
        &mut self,
        rows: usize,
        mut logits: impl Iterator<Item = &'a [f32]>,
    ) -> Result<(), EngineError> {
        let unread = rows - self.wanted(rows);
        for row in 0..rows {
            self.held.prefix.push(self.work.tokens[self.done + row]);
            if row >= unread
                && let Some(logits) = logits.next()
            {
                self.next = self.reader.read(Row::new(logits, &mut self.held.prefix))?;
            }
        }
        self.done += rows;
        if self.due() == 0 && self.work.decode > 0 {
            match self.next {
                Some(token) => {
                    self.work.tokens.push(token);
                    self.work.rows = 1;
                    self.work.decode -= 1;
                }
                None => self.work.decode = 0,
            }
        }
        self.publish();
        Ok(())
    }

    /// True where the lease has grown by the next `rows` rows.
    pub(super) fn has_appended(&self, rows: usize) -> bool {
        self.held.lease.len() == self.work.keep + self.done + rows
    }

    /// True where nothing is left to do.
    pub(super) fn is_finished(&self) -> bool {
        self.due() == 0
    }

    /// True where nobody waits for the answer any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    /// Answers the caller and returns what is held, cut back to what was kept where the job failed.
    pub(super) fn end(mut self, outcome: Result<(), EngineError>) -> Held {
        if outcome.is_err() {
            self.held.truncate(self.work.keep);
            self.publish();
        }
        // A caller that has gone meanwhile knows no more than that its `keep` tokens are held.
        let _ = self.reply.send(outcome.map(|()| self.reader));
        self.held
    }

    fn publish(&self) {
        self.sequence
            .cached
            .store(self.held.lease.len(), Ordering::Relaxed);
    }
}
