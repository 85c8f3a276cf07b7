//! One sequence at the draft worker: what is committed, what is wanted, and what runs.
//!
//! Plain state: the stream's task owns it, so every command is checked and recorded at once. Only
//! the engine's sequence is shared with the work that runs, which reports back to here. A newer
//! commit abandons a draft that runs for an older one: its proposal would come too late.

use crate::history::{Feed, History};
use engine::{EngineError, Sequence};
use proto::v1::DraftCommit;
use service::CancellationToken;
use speculation::TokenId;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio_util::sync::DropGuard;
use worker::{Fault, Limits};

/// One sequence at the draft worker.
#[derive(Debug)]
pub(crate) struct Drafting {
    history: History,
    engine: Arc<Mutex<Sequence>>,
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
    engine: Arc<Mutex<Sequence>>,
    abandoned: CancellationToken,
}

/// The opened tokens, all but the last, to be fed.
pub(crate) struct Prefill {
    feed: Option<Feed>,
    engine: Arc<Mutex<Sequence>>,
}

impl Drafting {
    /// A sequence of `tokens`, at least one, and the prefill that it begins with.
    pub(crate) fn new(sequence: Sequence, tokens: Vec<TokenId>) -> (Self, Prefill) {
        let drafting = Self {
            history: History::new(tokens),
            engine: Arc::new(Mutex::new(sequence)),
            prefilling: true,
            wanted: 0,
            running: None,
        };
        let prefill = Prefill {
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
    /// Feeds the tokens.
    pub(crate) async fn run(self) -> Result<(), EngineError> {
        if let Some(Feed { keep, tokens }) = self.feed {
            self.engine.lock().await.score(keep, tokens, 0).await?;
        }
        Ok(())
    }
}

impl Draft {
    /// Drafts the proposal; `None` where it is abandoned.
    pub(crate) async fn run(self) -> Option<Result<Vec<TokenId>, EngineError>> {
        let Feed { keep, tokens } = self.feed;
        // The lock waits until an abandoned draft has let go.
        let draft = async {
            let mut engine = self.engine.lock().await;
            engine.generate(keep, tokens, self.count).await
        };
        let result = self.abandoned.run_until_cancelled(draft).await?;
        Some(result.map(|choices| choices.iter().map(|choice| choice.token).collect()))
    }
}
