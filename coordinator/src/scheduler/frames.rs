//! Draft commands of one step, packed into as few frames as their order allows.

use super::{SequenceId, WorkerId};
use prost::Message as _;
use proto::v1::{DraftCommand, DraftCommit, DraftOpen};

/// Opens share a frame up to this size: well below what a worker takes as one message, since many
/// choices of a request with a long prompt or a large grammar may come at once.
const MAX_OPEN_BYTES: usize = 4 * 1024 * 1024;

/// What is to be sent to each draft worker. A worker takes a frame's opens first, then its commits,
/// then its closes, so an open that may need what a close frees starts a frame.
#[derive(Debug, Default)]
pub(super) struct DraftFrames {
    workers: Vec<Frames>,
}

/// What is to be sent to one worker.
#[derive(Debug, Default)]
struct Frames {
    frames: Vec<DraftCommand>,
    /// The size of the last frame's opens.
    open_bytes: usize,
}

impl DraftFrames {
    pub(super) fn open(&mut self, worker: WorkerId, open: DraftOpen) {
        let frames = self.of(worker);
        let bytes = open.encoded_len();
        let full = frames.open_bytes + bytes > MAX_OPEN_BYTES;
        let ends = |frame: &DraftCommand| !frame.closes.is_empty() || full;
        if frames.frames.last().is_some_and(ends) {
            frames.start();
        }
        frames.last().opens.push(open);
        frames.open_bytes += bytes;
    }

    pub(super) fn commit(&mut self, worker: WorkerId, commit: DraftCommit) {
        self.of(worker).last().commits.push(commit);
    }

    pub(super) fn close(&mut self, worker: WorkerId, id: SequenceId) {
        self.of(worker).last().closes.push(id);
    }

    /// Drops what was meant for a worker that is gone.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        *self.of(worker) = Frames::default();
    }

    fn of(&mut self, worker: WorkerId) -> &mut Frames {
        if worker >= self.workers.len() {
            self.workers.resize_with(worker + 1, Frames::default);
        }
        &mut self.workers[worker]
    }

    /// All frames, in order.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (WorkerId, DraftCommand)> {
        self.workers
            .iter_mut()
            .enumerate()
            .flat_map(|(worker, frames)| {
                let frames = std::mem::take(frames).frames.into_iter();
                frames.map(move |frame| (worker, frame))
            })
    }
}

impl Frames {
    fn start(&mut self) {
        self.frames.push(DraftCommand::default());
        self.open_bytes = 0;
    }

    /// The frame that is being filled.
    fn last(&mut self) -> &mut DraftCommand {
        if self.frames.is_empty() {
            self.start();
        }
        self.frames.last_mut().expect("one was just pushed")
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
        let mut frames = DraftFrames::default();
        frames.open(1, open(2));
        frames.commit(1, DraftCommit::default());
        frames.close(1, 1);
        let sent: Vec<_> = frames.take().collect();
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].0, 1);
        assert_eq!(frames.take().count(), 0);
    }

    #[test]
    fn large_opens_do_not_share_a_frame_that_no_worker_would_take() {
        let mut frames = DraftFrames::default();
        for sequence in 0..64 {
            let token_ids = vec![151_935; 200_000];
            frames.open(
                0,
                DraftOpen {
                    token_ids,
                    ..open(sequence)
                },
            );
        }
        let sent: Vec<_> = frames.take().map(|(_, frame)| frame).collect();
        assert!(
            sent.iter()
                .all(|frame| frame.encoded_len() <= MAX_OPEN_BYTES + 1024)
        );
        let opened = sent.iter().flat_map(|frame| &frame.opens);
        assert!(
            opened.map(|open| open.sequence).eq(0..64),
            "each once, in order"
        );
        assert!(sent.len() < 20, "small ones share");
    }

    #[test]
    fn what_is_opened_after_a_close_finds_its_place_free() {
        let mut frames = DraftFrames::default();
        frames.close(0, 1);
        frames.open(0, open(1));
        let sent: Vec<_> = frames.take().map(|(_, frame)| frame).collect();
        assert_eq!(sent.len(), 2);
        assert_eq!(sent[0].closes, [1]);
        assert_eq!(sent[1].opens, [open(1)]);
    }
}
