//! One sequence at the draft worker: what is committed, what is wanted, and what runs.
//!
//! Plain state: the stream's task owns it, so every command is checked and recorded at once. Only
//! the engine's sequence is shared with the work that runs, which reports back to here. A newer
//! commit abandons a draft that runs for an older one: its proposal would come too late.

use crate::history::{Feed, History};
use crate::proposer::{Drafted, Drawing, Proposer};
use engine::{EngineError, Reader, Row, Sequence};
use proto::v1::DraftCommit;
use service::CancellationToken;
use speculation::TokenId;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio_util::sync::DropGuard;
use worker::{Fault, Limits, Opening, Served};

/// One sequence at the draft worker.
#[derive(Debug)]
pub(crate) struct Drafting {
    history: History,
    drawing: Drawing,
    /// None until the sequence is opened there.
    engine: Arc<Mutex<Option<Sequence>>>,
    /// True until the opened tokens are prefilled: no commit abandons that.
    prefilling: bool,
    /// Tokens that the latest commit asks for, until work on them starts.
    wanted: u32,
    /// Abandons the draft that runs.
    running: Option<DropGuard>,
}

/// What to do for a sequence.
pub(crate) enum Next {
    /// Nothing is wanted, or it has to wait for the prefill.
    Nothing,
    /// A proposal is wanted and there is no room for one in the context.
    NoRoom,
    /// Draft.
    Draft(Draft),
}

/// A proposal to be drafted.
pub(crate) struct Draft {
    /// The committed tokens that it follows.
    pub(crate) base_len: u32,
    count: usize,
    feed: Feed,
    drawing: Drawing,
    engine: Arc<Mutex<Option<Sequence>>>,
    abandoned: CancellationToken,
}

/// A sequence to be opened, and its tokens, all but the last, to be fed.
pub(crate) struct Prefill {
    opening: Opening,
    feed: Option<Feed>,
    engine: Arc<Mutex<Option<Sequence>>>,
}

/// Reads nothing: for calls that only prefill.
#[derive(Debug)]
struct Nothing;

impl Drafting {
    /// A sequence as `opening` wants it, and the prefill that it begins with.
    pub(crate) fn new(mut opening: Opening) -> (Self, Prefill) {
        let drafting = Self {
            history: History::new(std::mem::take(&mut opening.tokens)),
            drawing: Drawing {
                rule: opening.rule,
                sampler: opening.sampler,
                adjustments: Arc::clone(&opening.adjustments),
            },
            engine: Arc::default(),
            prefilling: true,
            wanted: 0,
            running: None,
        };
        let prefill = Prefill {
            opening,
            feed: drafting.history.prefill(),
            engine: drafting.engine.clone(),
        };
        (drafting, prefill)
    }

    /// Committed tokens.
    pub(crate) fn base_len(&self) -> u32 {
        u32::try_from(self.history.len()).unwrap_or(u32::MAX)
    }

    /// Records a commit and what it wants.
    ///
    /// # Errors
    /// A desync where it does not follow what is committed; a wrong field.
    pub(crate) fn commit(&mut self, commit: &DraftCommit, limits: &Limits) -> Result<(), Fault> {
        let tokens = &commit.token_ids;
        if tokens.is_empty() {
            return Err(Fault::invalid("token_ids must not be empty"));
        }
        limits.check_ids("token_ids", tokens)?;
        let (length, context) = (self.history.len() + tokens.len(), limits.context_length);
        if length > context {
            return Err(Fault::invalid(format!(
                "token_ids make {length} tokens, over the context of {context}"
            )));
        }
        self.history.commit(commit.base_len, tokens)?;
        self.wanted = commit.want;
        self.running = None;
        Ok(())
    }

    /// The opened tokens, of which there were `opened`, are prefilled.
    pub(crate) fn prefilled(&mut self, opened: u32) {
        self.history.prefilled(opened as usize - 1);
        self.prefilling = false;
    }

    /// Starts on what is wanted. `closed` ends the work together with the sequence.
    pub(crate) fn next(&mut self, limits: &Limits, closed: &CancellationToken) -> Next {
        if self.prefilling || self.wanted == 0 {
            return Next::Nothing;
        }
        let wanted = std::mem::take(&mut self.wanted) as usize;
        let room = limits.context_length.saturating_sub(self.history.len());
        let count = wanted.min(limits.max_draft_tokens).min(room);
        if count == 0 {
            return Next::NoRoom;
        }
        let abandoned = closed.child_token();
        self.running = Some(abandoned.clone().drop_guard());
        Next::Draft(Draft {
            base_len: self.base_len(),
            count,
            feed: self.history.feed(),
            drawing: self.drawing.clone(),
            engine: self.engine.clone(),
            abandoned,
        })
    }

    /// Records a proposal after `base_len` tokens. False where newer tokens are committed: the
    /// proposal is of no use then.
    pub(crate) fn drafted(&mut self, base_len: u32, proposal: &[TokenId]) -> bool {
        if base_len != self.base_len() {
            return false;
        }
        self.history.drafted(proposal);
        self.running = None;
        true
    }
}

impl Prefill {
    /// Opens the sequence and feeds its tokens.
    pub(crate) async fn run(self, served: &Served) -> Result<(), Fault> {
        let mut engine = self.engine.lock().await;
        let sequence = engine.insert(served.open(&self.opening).await?);
        if let Some(Feed { keep, tokens }) = self.feed {
            sequence.read(keep, tokens, 0, Nothing).await?;
        }
        Ok(())
    }
}

impl Reader for Nothing {
    fn read(&mut self, _row: Row<'_>) -> Result<Option<TokenId>, EngineError> {
        Ok(None)
    }
}

impl Draft {
    /// Drafts the proposal; `None` where it is abandoned.
    pub(crate) async fn run(self) -> Option<Result<Drafted, Fault>> {
        let Feed { keep, tokens } = self.feed;
        let proposer = Proposer::new(self.drawing, u64::from(self.base_len));
        // The lock waits until an abandoned draft has let go.
        let draft = async {
            let mut engine = self.engine.lock().await;
            let sequence = engine
                .as_mut()
                .ok_or_else(|| Fault::desync("the sequence is not open"))?;
            Ok(sequence.decode(keep, tokens, self.count, proposer).await?)
        };
        let result = self.abandoned.run_until_cancelled(draft).await?;
        Some(result.map(Proposer::finish))
    }
}
