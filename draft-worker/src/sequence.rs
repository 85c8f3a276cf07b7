//! One sequence at the draft worker: what is committed, what is wanted, and what runs.
//!
//! Plain state: the stream's task owns it, so every command is checked and recorded at once. Only
//! the engine's sequences are shared with the work that runs, which reports back to here. A newer
//! commit abandons a draft that runs for an older one: its proposal would come too late. It abandons the outcomes
//! that did not come about as well; the one that did becomes the sequence, and goes on where it still runs.

use crate::history::{Feed, History};
use crate::line::Line;
use crate::outcomes::{Foreseen, Ground, Outcome, Outcomes};
use crate::proposer::{Drafted, Drawing, Proposer};
use crate::wish::Wish;
use engine::{EngineError, Reader, Row, Sequence};
use proto::v1::{DraftCommit, DraftLaws};
use service::CancellationToken;
use service::telemetry::traces::Span;
use speculation::TokenId;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio_util::sync::DropGuard;
use worker::{Fault, Limits, Opening, Served};

/// A sequence in the engine, once it is opened there.
pub(crate) type Slot = Arc<Mutex<Option<Sequence>>>;

/// One sequence at the draft worker.
#[derive(Debug)]
pub(crate) struct Drafting {
    /// The trace that its spans belong to; empty where there is none.
    traceparent: String,
    history: History,
    drawing: Drawing,
    engine: Slot,
    /// True until the opened tokens are prefilled: no commit abandons that.
    prefilling: bool,
    /// What the latest commit asks for.
    wish: Wish,
    due: Due,
    running: Option<Running>,
    /// What was proposed after the committed tokens.
    line: Line,
    /// What may come of that.
    outcomes: Outcomes,
    /// Of the next draft.
    next_id: u64,
}

/// What is to be started on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Nothing,
    /// A proposal.
    Draft,
    /// The outcomes of the line.
    Outcomes,
}

/// The draft that runs.
#[derive(Debug)]
struct Running {
    id: u64,
    /// Dropped, it abandons the draft.
    _guard: DropGuard,
    /// Where the draft was begun for an outcome: what to go back to should it fail.
    before: Option<(Slot, History)>,
}

/// What to do for a sequence.
pub(crate) enum Next {
    /// Nothing is wanted, or it has to wait for the prefill.
    Nothing,
    /// Say what there is to propose: it is drafted, or there is no room for more. Then follow its
    /// outcomes.
    Propose(Line),
    /// Follow the outcomes of what was proposed.
    Follow,
    /// Draft.
    Draft(Box<Draft>),
}

/// What a draft that ended is good for.
pub(crate) enum Settled {
    /// Nothing.
    Nothing,
    /// A proposal after the committed tokens.
    Proposal(Line, Option<DraftLaws>),
    /// A proposal after an outcome.
    Foreseen(Foreseen),
    /// An outcome that came about could not be drafted: to be drafted anew.
    Again,
}

/// Tokens to be drafted.
pub(crate) struct Draft {
    pub(crate) id: u64,
    count: usize,
    feed: Feed,
    proposer: Proposer,
    engine: Slot,
    /// True where it is not known yet to be of use.
    is_outcome: bool,
    abandoned: CancellationToken,
}

/// A sequence to be opened, and its tokens, all but the last, to be fed.
pub(crate) struct Prefill {
    opening: Opening,
    feed: Option<Feed>,
    engine: Slot,
}

/// Reads nothing.
#[derive(Debug)]
struct Nothing;

impl Drafting {
    /// A sequence and the work that opens it.
    pub(crate) fn new(mut opening: Opening, traceparent: String) -> (Self, Prefill) {
        let drafting = Self {
            traceparent,
            history: History::new(std::mem::take(&mut opening.tokens)),
            drawing: Drawing {
                rule: opening.rule,
                sampler: opening.sampler,
                adjustments: Arc::clone(&opening.adjustments),
            },
            engine: Arc::default(),
            prefilling: true,
            wish: Wish::default(),
            due: Due::Nothing,
            running: None,
            line: Line::default(),
            outcomes: Outcomes::default(),
            next_id: 0,
        };
        let prefill = Prefill {
            opening,
            feed: drafting.history.prefill(),
            engine: drafting.engine.clone(),
        };
        (drafting, prefill)
    }

    /// A span of what begins for it now.
    pub(crate) fn span(&self, name: &'static str) -> Span {
        Span::of_peer(name, &self.traceparent)
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
        self.wish = Wish::parse(commit, self.drawing.rule, limits)?;
        self.history.commit(commit.base_len, tokens)?;
        self.running = None;
        let line = std::mem::take(&mut self.line);
        let outcome = std::mem::take(&mut self.outcomes).take(tokens);
        if self.wish.want == 0 {
            self.due = Due::Nothing;
            return Ok(());
        }
        self.due = Due::Draft;
        match outcome {
            Some(outcome) => self.go_on_with(outcome),
            // Whoever does not ask for more than proposals gets each of them drafted.
            None if self.wish.ahead.is_some() => self.line = line.after(tokens),
            None => {}
        }
        Ok(())
    }

    /// Makes the outcome that came about the sequence.
    fn go_on_with(&mut self, outcome: Outcome) {
        let before = (self.engine.clone(), self.history.clone());
        self.history.switched(outcome.keep());
        self.engine = outcome.slot;
        match outcome.line {
            Some(line) => {
                self.history.drafted(&line.ids);
                self.line = line;
                self.due = Due::Outcomes;
            }
            None => {
                self.due = Due::Nothing;
                self.running = Some(Running {
                    id: outcome.id,
                    _guard: outcome.guard,
                    before: Some(before),
                });
            }
        }
    }

    /// The opened tokens, of which there were `opened`, are prefilled.
    pub(crate) fn prefilled(&mut self, opened: u32) {
        self.history.prefilled(opened as usize - 1);
        self.prefilling = false;
    }

    /// Starts on what is wanted. `closed` ends the work together with the sequence.
    pub(crate) fn next(&mut self, limits: &Limits, closed: &CancellationToken) -> Next {
        if self.prefilling {
            return Next::Nothing;
        }
        match std::mem::replace(&mut self.due, Due::Nothing) {
            Due::Nothing => Next::Nothing,
            Due::Outcomes => Next::Follow,
            Due::Draft => self.draft(limits, closed),
        }
    }

    /// Drafts what the line lacks of what is wanted.
    fn draft(&mut self, limits: &Limits, closed: &CancellationToken) -> Next {
        let room = limits.context_length.saturating_sub(self.history.len());
        self.line.truncate(self.wish.want.min(room));
        let ends = &self.drawing.adjustments.options().end_tokens;
        let is_over = self.line.ids.last().is_some_and(|last| ends.contains(last));
        let count = self.wish.want.min(room) - self.line.len();
        if count == 0 || is_over {
            return Next::Propose(self.line.clone());
        }
        let (id, abandoned) = self.start(closed);
        self.running = Some(Running {
            id,
            _guard: abandoned.clone().drop_guard(),
            before: None,
        });
        let line = std::mem::take(&mut self.line);
        Next::Draft(Box::new(Draft {
            id,
            count,
            feed: self.history.feed(&line.ids),
            proposer: self.proposer(line),
            engine: self.engine.clone(),
            is_outcome: false,
            abandoned,
        }))
    }

    /// Has forks of the sequence draft on after each outcome of the line that is to be followed.
    pub(crate) fn follow(&mut self, limits: &Limits, closed: &CancellationToken) -> Vec<Draft> {
        let Some(ahead) = self.wish.ahead else {
            return Vec::new();
        };
        let adjustments = Arc::clone(&self.drawing.adjustments);
        let ground = Ground {
            line: &self.line,
            base: self.history.len(),
            last: self.history.last(),
            context: limits.context_length,
            ends: &adjustments.options().end_tokens,
        };
        let starts = ground.starts(ahead);
        let engine = self.engine.clone();
        // Nothing else works at the sequence: its draft is done.
        let Ok(mut engine) = engine.try_lock() else {
            return Vec::new();
        };
        let Some(sequence) = engine.as_mut() else {
            return Vec::new();
        };
        sequence.promote();
        let mut drafts = Vec::new();
        for start in starts {
            // Where the engine takes no more forks the less likely outcomes are left out.
            let Ok(fork) = sequence.fork(start.keep) else {
                break;
            };
            let slot = Arc::new(Mutex::new(Some(fork)));
            let (id, abandoned) = self.start(closed);
            drafts.push(Draft {
                id,
                count: start.count,
                feed: Feed {
                    keep: start.keep,
                    tokens: vec![start.feed],
                },
                proposer: self.proposer(Line::default()).after(start.pick.clone()),
                engine: slot.clone(),
                is_outcome: true,
                abandoned: abandoned.clone(),
            });
            let outcome = Outcome::new(id, start, slot, abandoned.drop_guard());
            self.outcomes.push(outcome);
        }
        drafts
    }

    /// A draft's number, and what abandons it.
    fn start(&mut self, closed: &CancellationToken) -> (u64, CancellationToken) {
        self.next_id += 1;
        (self.next_id, closed.child_token())
    }

    fn proposer(&self, line: Line) -> Proposer {
        let base = u64::from(self.base_len());
        Proposer::new(self.drawing.clone(), &self.wish, base, line)
    }

    /// Records what a draft came to.
    ///
    /// # Errors
    /// The draft's, where the sequence cannot go on.
    pub(crate) fn settle(
        &mut self,
        id: u64,
        result: Result<Drafted, Fault>,
    ) -> Result<Settled, Fault> {
        let Some(running) = self.running.take_if(|running| running.id == id) else {
            let foreseen = self.outcomes.settle(id, result);
            return Ok(foreseen.map_or(Settled::Nothing, Settled::Foreseen));
        };
        match (result, running.before) {
            (Ok(Drafted { line, laws }), before) => {
                // An outcome may end with its first token, which then was not fed.
                if line.len() > 0 || before.is_none() {
                    self.history.drafted(&line.ids);
                }
                self.line = line.clone();
                Ok(Settled::Proposal(line, laws))
            }
            (Err(fault), Some((engine, history))) => {
                tracing::debug!(%fault, "an outcome is drafted anew");
                (self.engine, self.history) = (engine, history);
                self.due = Due::Draft;
                Ok(Settled::Again)
            }
            (Err(fault), None) => Err(fault),
        }
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
    /// How many tokens are drafted, at most.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Drafts; `None` where it is abandoned.
    pub(crate) async fn run(self) -> Option<Result<Drafted, Fault>> {
        let Feed { keep, tokens } = self.feed;
        // The lock waits until an abandoned draft has let go.
        let draft = async {
            let mut engine = self.engine.lock().await;
            let sequence = engine
                .as_mut()
                .ok_or_else(|| Fault::desync("the sequence is not open"))?;
            if !self.is_outcome {
                sequence.promote();
            }
            Ok(sequence
                .decode(keep, tokens, self.count, self.proposer)
                .await?)
        };
        let result = self.abandoned.run_until_cancelled(draft).await?;
        Some(result.map(Proposer::finish))
    }
}
