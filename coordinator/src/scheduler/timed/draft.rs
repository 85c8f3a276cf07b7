//! A draft worker whose steps take time, and which drafts ahead as the real one does: outcomes of the
//! proposal that is being verified are followed as one batch, and a commit that is one of them finds its
//! draft done or under way.

use super::law::{Law, WINDOW};
use super::pace::{Pace, Rough};
use super::{DraftSetting, Micros};
use crate::scheduler::SequenceId;
use proto::v1::{DraftCommand, DraftCommit, DraftEvent, DraftOpened, Proposal, StepTime};
use speculation::TokenId;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct TimedDraft {
    setting: DraftSetting,
    pace: Pace,
    held: BTreeMap<SequenceId, Held>,
    /// Opened, and not said so.
    opened: Vec<DraftOpened>,
    /// What runs, and since when.
    running: Option<(Running, Micros)>,
    /// Of which the coordinator has not heard.
    steps: Vec<StepTime>,
    now: Micros,
    next_job: u64,
    /// Proposals asked for so far.
    pub(super) asked: usize,
}

/// What a worker does at a time.
#[derive(Debug)]
enum Running {
    /// A step of these jobs.
    Step(Vec<(SequenceId, u64)>),
    Prefill(Vec<DraftOpened>),
}

#[derive(Debug)]
struct Held {
    epoch: u32,
    committed: Vec<TokenId>,
    line: Vec<TokenId>,
    ahead: (usize, usize),
    jobs: Vec<Job>,
}

/// A string that is being drafted, or was.
#[derive(Debug)]
struct Job {
    number: u64,
    path: Vec<TokenId>,
    rank: u32,
    drafted: Vec<TokenId>,
    count: usize,
    begun: Micros,
    /// Steps before its first own token: the row that its outcome comes from.
    delay: usize,
}

impl Job {
    fn is_done(&self) -> bool {
        self.drafted.len() >= self.count
    }
}

impl TimedDraft {
    pub(super) fn new(setting: DraftSetting, rough: Rough) -> Self {
        Self {
            setting,
            pace: Pace::new(setting.step, rough),
            held: BTreeMap::new(),
            opened: Vec::new(),
            running: None,
            steps: Vec::new(),
            now: 0,
            next_job: 0,
            asked: 0,
        }
    }

    pub(super) fn take(&mut self, command: DraftCommand, now: Micros) -> Option<DraftEvent> {
        self.now = now;
        let mut event = DraftEvent::default();
        for open in command.opens {
            self.opened.push(DraftOpened {
                sequence: open.sequence,
                epoch: open.epoch,
                base_len: open.token_ids.len() as u32,
            });
            let held = Held {
                epoch: open.epoch,
                committed: open.token_ids,
                line: Vec::new(),
                ahead: (0, 0),
                jobs: Vec::new(),
            };
            self.held.insert(open.sequence, held);
        }
        for commit in command.commits {
            self.commit(commit);
        }
        for id in command.closes {
            self.held.remove(&id);
        }
        if self.setting.prefill == 0 {
            event.opened = std::mem::take(&mut self.opened);
        }
        (event != DraftEvent::default()).then_some(event)
    }

    fn commit(&mut self, commit: DraftCommit) {
        self.asked += 1;
        let Some(held) = self.held.get_mut(&commit.sequence) else {
            return;
        };
        assert_eq!(held.committed.len(), commit.base_len as usize, "no gap");
        let run = commit.token_ids;
        let jobs = std::mem::take(&mut held.jobs);
        let followed = jobs
            .into_iter()
            .find(|job| !job.path.is_empty() && job.path == run);
        held.committed.extend(&run);
        held.ahead = (commit.ahead_want as usize, commit.ahead_width as usize);
        let goes_on = held.line.len() > run.len() && held.line.starts_with(&run);
        let line = held
            .line
            .split_off(if goes_on { run.len() } else { held.line.len() });
        held.line.clear();
        match followed {
            Some(job) if job.is_done() => {
                held.line = job.drafted;
                self.follow(commit.sequence);
            }
            Some(job) => held.jobs.push(Job {
                path: Vec::new(),
                rank: 0,
                ..job
            }),
            None => {
                self.next_job += 1;
                held.jobs.push(Job {
                    number: self.next_job,
                    path: Vec::new(),
                    rank: 0,
                    count: (commit.want as usize).max(line.len()),
                    drafted: line,
                    begun: self.now,
                    delay: 0,
                });
            }
        }
    }

    /// Follows the outcomes of a sequence's line.
    fn follow(&mut self, id: SequenceId) {
        let agreement = self.setting.agreement;
        let Some(held) = self.held.get_mut(&id) else {
            return;
        };
        let (count, width) = held.ahead;
        if count == 0 || width == 0 {
            return;
        }
        for at in 0..=held.line.len() {
            let last = at == held.line.len();
            if width == 1 && !last {
                continue;
            }
            let prefix = [recent(&held.committed), &held.line[..at]].concat();
            let candidates = Law::candidates(&prefix, agreement, width + 1);
            let skip = usize::from(!last);
            for (rank, token) in candidates.into_iter().enumerate().skip(skip).take(width) {
                self.next_job += 1;
                held.jobs.push(Job {
                    number: self.next_job,
                    path: [&held.line[..at], &[token]].concat(),
                    rank: rank as u32 + 1,
                    drafted: Vec::new(),
                    count: count - usize::from(last && count > 1),
                    begun: self.now,
                    delay: usize::from(last),
                });
            }
        }
    }

    /// Begins a prefill, or a step of all jobs that are not done; returns what it takes.
    pub(super) fn start_step(&mut self, now: Micros) -> Option<Micros> {
        if self.running.is_some() {
            return None;
        }
        if !self.opened.is_empty() {
            let opened = std::mem::take(&mut self.opened);
            let work = self.setting.prefill * opened.len() as Micros;
            self.running = Some((Running::Prefill(opened), now));
            return Some(work);
        }
        let jobs = self.held.iter().flat_map(|(id, held)| {
            let open = held.jobs.iter().filter(|job| !job.is_done());
            open.map(|job| (*id, job.number))
        });
        let jobs: Vec<_> = jobs.collect();
        let rows = jobs.len();
        self.running = (rows > 0).then_some((Running::Step(jobs), now));
        (rows > 0).then(|| self.pace.next(rows))
    }

    pub(super) fn end_step(&mut self, now: Micros) -> Option<DraftEvent> {
        self.now = now;
        match self.running.take().expect("a step that ran") {
            (Running::Step(jobs), begun) => {
                self.steps.push(StepTime {
                    rows: jobs.len() as u32,
                    micros: (now - begun) as u32,
                });
                self.advance(jobs, now)
            }
            (Running::Prefill(opened), _) => Some(DraftEvent {
                opened,
                ..DraftEvent::default()
            }),
        }
    }

    fn advance(&mut self, stepped: Vec<(SequenceId, u64)>, now: Micros) -> Option<DraftEvent> {
        let mut event = DraftEvent::default();
        let mut drafted = Vec::new();
        for (id, number) in stepped {
            let agreement = self.setting.agreement;
            let Some(held) = self.held.get_mut(&id) else {
                continue;
            };
            let Some(job) = held.jobs.iter_mut().find(|job| job.number == number) else {
                continue;
            };
            if job.delay > 0 {
                job.delay -= 1;
                continue;
            }
            let prefix = [recent(&held.committed), &job.path, &job.drafted].concat();
            job.drafted.extend(Law::candidates(&prefix, agreement, 1));
            if job.is_done() {
                event.proposals.push(Proposal {
                    sequence: id,
                    epoch: held.epoch,
                    base_len: held.committed.len() as u32,
                    draft_ids: job.drafted.clone(),
                    compute_us: (now - job.begun) as u32,
                    assumed: job.path.clone(),
                    rank: job.rank,
                    ..Proposal::default()
                });
                if job.path.is_empty() {
                    held.line = job.drafted.clone();
                    held.jobs.clear();
                    drafted.push(id);
                }
            }
        }
        for id in drafted {
            self.follow(id);
        }
        if event != DraftEvent::default() {
            event.steps = std::mem::take(&mut self.steps);
            return Some(event);
        }
        None
    }
}

/// What the law sees of `tokens`.
fn recent(tokens: &[TokenId]) -> &[TokenId] {
    &tokens[tokens.len().saturating_sub(WINDOW)..]
}
