//! What a call asks for, and how far the thread has come with it.

use super::{Reader, Row, SequenceState, plan::SHORT_ROWS};
use crate::{BLOCK_TOKENS, BlockCopy, EngineError, Input, Lease, ModelShape, Pool, cache::Content};
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

/// What the thread keeps of a sequence: the request's view of its tokens, and their cache. Where the
/// sequence was preempted the cache holds fewer of them, or none; the next job computes the rest
/// again.
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
    /// Its tokens begin with those that were kept and are not in the cache any more.
    work: Work,
    /// The position of the work's first token, at most as many as the cache holds.
    base: usize,
    reader: Box<dyn Reader>,
    /// What the reader returned last.
    next: Option<TokenId>,
    reply: Reply,
}

impl Work {
    /// Refuses what no state of the engine could make possible.
    pub(super) fn check(&self, shape: &ModelShape, pool: &Pool) -> Result<(), EngineError> {
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
        if tokens.div_ceil(BLOCK_TOKENS) > pool.blocks() {
            return Err(EngineError::CacheFull {
                tokens,
                budget_bytes: pool.budget_bytes(),
            });
        }
        Ok(())
    }

    /// The sequence's length at the end.
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

    /// Gives the cache to others and keeps the tokens. Returns how many the cache held.
    pub(super) fn preempt(&mut self) -> usize {
        let cached = self.lease.len();
        self.lease.truncate(0);
        cached
    }

    /// What a fork of the first `len` tokens starts with; none where not all of them are cached, or
    /// where there can be no second constraint.
    pub(super) fn fork(&self, len: usize) -> Option<Self> {
        if len > self.lease.len() {
            return None;
        }
        let prefix = self.prefix.fork(len)?;
        let lease = self.lease.fork(len);
        Some(Self { lease, prefix })
    }

    /// True where the sequence holds something that others could have.
    pub(super) fn is_cached(&self) -> bool {
        !self.lease.blocks().is_empty()
    }
}

impl Job {
    /// Starts on `command` with what its sequence holds, at least what is kept.
    pub(super) fn new(command: Command, mut held: Held) -> Self {
        held.truncate(command.work.keep);
        if !command.sequence.is_fork() {
            held.lease.share();
        }
        let mut job = Self {
            sequence: command.sequence,
            held,
            span: command.span,
            base: command.work.keep,
            work: command.work,
            reader: command.reader,
            next: None,
            reply: command.reply,
        };
        job.recover();
        job.publish();
        job
    }

    /// Gives the cache to others; returns how many tokens it held. The job has them computed again.
    pub(super) fn preempt(&mut self) -> usize {
        let cached = self.held.preempt();
        self.recover();
        cached
    }

    /// Puts the tokens that the cache lost before the others that are to be computed.
    fn recover(&mut self) {
        let cached = self.held.lease.len();
        if cached < self.base {
            let lost = &self.held.prefix.tokens()[cached..self.base];
            self.work.tokens.splice(0..0, lost.iter().copied());
            self.base = cached;
        }
    }

    /// Makes room in the cache for all that the job will append.
    pub(super) fn reserve(&mut self) -> Result<Option<BlockCopy>, EngineError> {
        let rows = self.due() + self.work.decode;
        self.held.lease.reserve(rows)
    }

    /// Forgets what the cache holds after the last full block.
    pub(super) fn forget_tail(&mut self) {
        let full = self.held.lease.len() / BLOCK_TOKENS * BLOCK_TOKENS;
        self.held.lease.truncate(full);
        self.recover();
    }

    /// Goes on with what others have computed of the same text, and returns how many tokens that
    /// saves. At least the rows that are read, and one, are left to compute.
    pub(super) fn adopt(&mut self) -> usize {
        let upcoming = &self.work.tokens[self.held.lease.len() - self.base..][..self.unread()];
        let adopted = self.held.lease.adopt(upcoming);
        if adopted > 0 {
            let known = self.held.prefix.len();
            for &token in self.held.lease.tokens().iter().skip(known) {
                self.held.prefix.push(token);
            }
            self.publish();
        }
        adopted
    }

    /// The next full block that the job computes rows of.
    pub(super) fn computes(&self) -> Option<Content> {
        self.held.lease.next_block(self.pending())
    }

    /// The next full block that the job could adopt.
    pub(super) fn awaits(&self) -> Option<Content> {
        let upcoming = &self.pending()[..self.unread()];
        self.held.lease.next_block(upcoming)
    }

    /// The tokens that can be computed now.
    fn pending(&self) -> &[TokenId] {
        &self.work.tokens[self.held.lease.len() - self.base..]
    }

    /// Rows that can be computed now.
    pub(super) fn due(&self) -> usize {
        self.pending().len()
    }

    /// How many of the due rows need not be computed for their logits. The last one always is.
    fn unread(&self) -> usize {
        self.due() - self.wanted(self.due()).max(1)
    }

    /// True where the job must not take room that a sequence holds.
    pub(super) fn is_fork(&self) -> bool {
        self.sequence.is_fork()
    }

    /// True where tokens that were to be kept are not in the cache any more.
    pub(super) fn has_lost(&self) -> bool {
        self.base < self.work.keep
    }

    /// True where the job is verification or decoding, by its size.
    pub(super) fn is_short(&self) -> bool {
        self.due() <= SHORT_ROWS
    }

    /// How many of the next `rows` rows are read.
    pub(super) fn wanted(&self, rows: usize) -> usize {
        let first = self.base + self.work.tokens.len() - self.work.rows;
        let start = self.held.lease.len();
        (start + rows).saturating_sub(first.max(start))
    }

    /// The job's part of a batch: its next `rows` rows.
    pub(super) fn input(&self, rows: usize) -> Input<'_> {
        Input {
            blocks: self.held.lease.blocks(),
            start: self.held.lease.len(),
            tokens: &self.pending()[..rows],
            wanted: self.wanted(rows),
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
        let start = self.held.lease.len();
        let tokens = &self.work.tokens[start - self.base..][..rows];
        self.held.lease.append(tokens);
        for (row, &token) in tokens.iter().enumerate() {
            // What is computed again is known.
            if start + row >= self.held.prefix.len() {
                self.held.prefix.push(token);
            }
            if row >= unread
                && let Some(logits) = logits.next()
            {
                self.next = self.reader.read(Row::new(logits, &mut self.held.prefix))?;
            }
        }
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
        // What decoding that ended early has reserved and not used.
        self.held.lease.truncate(self.held.lease.len());
        // A caller that has gone meanwhile knows no more than that its `keep` tokens are held.
        let _ = self.reply.send(outcome.map(|()| self.reader));
        self.held
    }

    fn publish(&self) {
        self.sequence
            .len
            .store(self.held.prefix.len(), Ordering::Relaxed);
    }
}
