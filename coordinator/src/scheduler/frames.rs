//! Draft commands of one step, packed into as few frames as their order allows.

use super::{SequenceId, WorkerId};
use proto::v1::{DraftCommand, DraftCommit, DraftOpen};

/// What is to be sent to each draft worker. A worker takes a frame's opens first, then its commits,
/// then its closes, so an open that may need what a close frees starts a frame.
#[derive(Debug)]
pub(super) struct DraftFrames {
    workers: Vec<Vec<DraftCommand>>,
}

impl DraftFrames {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            workers: vec![Vec::new(); workers],
        }
    }

    pub(super) fn open(&mut self, worker: WorkerId, open: DraftOpen) {
        let frames = &mut self.workers[worker];
        if frames.last().is_some_and(|frame| !frame.closes.is_empty()) {
            frames.push(DraftCommand::default());
        }
        self.frame(worker).opens.push(open);
    }

    pub(super) fn commit(&mut self, worker: WorkerId, commit: DraftCommit) {
        self.frame(worker).commits.push(commit);
    }

    pub(super) fn close(&mut self, worker: WorkerId, id: SequenceId) {
        self.frame(worker).closes.push(id);
    }

    /// Drops what was meant for a worker that is gone.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.workers[worker].clear();
    }

    /// All frames, in order.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (WorkerId, DraftCommand)> {
        self.workers
            .iter_mut()
            .enumerate()
            .flat_map(|(worker, frames)| frames.drain(..).map(move |frame| (worker, frame)))
    }

    /// The frame that is being filled.
    fn frame(&mut self, worker: WorkerId) -> &mut DraftCommand {
        let frames = &mut self.workers[worker];
        if frames.is_empty() {
            frames.push(DraftCommand::default());
        }
        frames.last_mut().expect("one was just pushed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(sequence: SequenceId) -> DraftOpen {
        DraftOpen {
            sequence,
            ..DraftOpen::default()
        }
    }

    #[test]
    fn different_sequences_share_a_frame() {
        let mut frames = DraftFrames::new(2);
        frames.open(1, open(2));
        frames.commit(1, DraftCommit::default());
        frames.close(1, 1);
        let sent: Vec<_> = frames.take().collect();
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].0, 1);
        assert_eq!(frames.take().count(), 0);
    }

    #[test]
    fn what_is_opened_after_a_close_finds_its_place_free() {
        let mut frames = DraftFrames::new(1);
        frames.close(0, 1);
        frames.open(0, open(1));
        let sent: Vec<_> = frames.take().map(|(_, frame)| frame).collect();
        assert_eq!(sent.len(), 2);
        assert_eq!(sent[0].closes, [1]);
        assert_eq!(sent[1].opens, [open(1)]);
    }
}
