//! A target whose steps take time: all that came before a step begins is computed in it.

use super::Micros;
use super::law::Law;
use super::pace::{Pace, Rough, Step};
use crate::scheduler::SequenceId;
use proto::v1::{
    TargetCommand, TargetEvent, TargetOpen, TargetOpened, Verdict, VerdictBatch, VerifyBatch,
    VerifyItem, target_command::Command, target_event,
};
use speculation::TokenId;
use std::collections::BTreeMap;

/// What a step computes; batches with the times at which they came.
#[derive(Debug, Default)]
struct Work {
    opens: Vec<TargetOpen>,
    batches: Vec<(Micros, VerifyBatch)>,
}

#[derive(Debug)]
pub(super) struct TimedTarget {
    pace: Pace,
    held: BTreeMap<SequenceId, Vec<TokenId>>,
    waiting: Work,
    computing: Option<Work>,
    /// Rows of each step so far.
    pub(super) steps: Vec<usize>,
}

impl TimedTarget {
    pub(super) fn new(step: Step, rough: Rough) -> Self {
        Self {
            pace: Pace::new(step, rough),
            held: BTreeMap::new(),
            waiting: Work::default(),
            computing: None,
            steps: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, command: TargetCommand, now: Micros) {
        match command.command.expect("a command") {
            Command::Open(open) => self.waiting.opens.push(open),
            Command::Verify(batch) => self.waiting.batches.push((now, batch)),
            Command::Close(close) => drop(self.held.remove(&close.sequence)),
        }
    }

    /// Begins a step where there is something to do and none runs; returns how long it takes.
    pub(super) fn start_step(&mut self) -> Option<Micros> {
        let idle = self.waiting.opens.is_empty() && self.waiting.batches.is_empty();
        if self.computing.is_some() || idle {
            return None;
        }
        let work = std::mem::take(&mut self.waiting);
        let items = work.batches.iter().flat_map(|(_, batch)| &batch.items);
        let rows = items.map(|item| 1 + item.draft_ids.len()).sum::<usize>() + work.opens.len();
        self.steps.push(rows);
        self.computing = Some(work);
        Some(self.pace.next(rows))
    }

    pub(super) fn end_step(&mut self, now: Micros) -> Vec<TargetEvent> {
        let Work { opens, batches } = self.computing.take().expect("a step that ran");
        let opened = opens
            .into_iter()
            .map(|open| self.open(open))
            .collect::<Vec<_>>();
        let mut events: Vec<_> = opened
            .into_iter()
            .map(target_event::Event::Opened)
            .collect();
        for (came, batch) in batches {
            let items = batch.items.into_iter().filter_map(|item| self.verify(item));
            let items = items.collect();
            events.push(target_event::Event::Verdicts(VerdictBatch {
                step: batch.step,
                items,
                compute_us: (now - came) as u32,
            }));
        }
        events
            .into_iter()
            .map(|event| TargetEvent { event: Some(event) })
            .collect()
    }

    fn open(&mut self, open: TargetOpen) -> TargetOpened {
        let mut tokens = open.token_ids;
        let base_len = tokens.len() as u32;
        let next_token = Law::next(&tokens);
        tokens.push(next_token);
        self.held.insert(open.sequence, tokens);
        TargetOpened {
            sequence: open.sequence,
            epoch: open.epoch,
            base_len,
            next_token,
            logprobs: None,
            cached_tokens: 0,
        }
    }

    fn verify(&mut self, item: VerifyItem) -> Option<Verdict> {
        let tokens = self.held.get_mut(&item.sequence)?;
        assert_eq!(tokens.len(), item.base_len as usize, "bases agree");
        let mut accepted = 0;
        let mut next = Law::next(tokens);
        for drafted in item.draft_ids {
            tokens.push(next);
            if drafted != next {
                tokens.pop();
                break;
            }
            accepted += 1;
            next = Law::next(tokens);
        }
        tokens.push(next);
        Some(Verdict {
            sequence: item.sequence,
            epoch: item.epoch,
            base_len: item.base_len,
            accepted,
            next_token: next,
            logprobs: Vec::new(),
        })
    }
}
