//! Whether a worker that is connected makes progress: it is asked again and again, busy or not.

use crate::scheduler::WorkerId;
use crate::telemetry::{Board, Peer, PeerState};
use service::client::PeerChannel;
use service::client::is_serving;
use std::convert::Infallible;
use std::time::Duration;

/// How workers' health is found out, and where that is told.
#[derive(Debug, Clone)]
pub(crate) struct Pulse {
    board: Board,
    /// A worker that hangs is found out within this.
    deadline: Duration,
}

impl Pulse {
    /// Tells `board` within `deadline`.
    pub(crate) fn new(board: Board, deadline: Duration) -> Self {
        Self { board, deadline }
    }

    /// The target, or a draft worker, is known, and not connected yet.
    pub(super) fn known(&self, worker: Option<WorkerId>, url: &str) {
        let peer = Peer {
            address: url.to_owned(),
            model: String::new(),
            state: PeerState::Disconnected,
        };
        self.board.put(worker, peer);
    }

    /// It is connected and usable.
    pub(super) fn up(&self, worker: Option<WorkerId>, url: &str, model: &str) {
        let peer = Peer {
            address: url.to_owned(),
            model: model.to_owned(),
            state: PeerState::Serving,
        };
        self.board.put(worker, peer);
    }

    /// It is not connected any more, or not usable.
    pub(super) fn down(&self, worker: Option<WorkerId>, state: PeerState) {
        self.board.state(worker, state);
    }

    /// A draft worker is no more.
    pub(super) fn gone(&self, worker: WorkerId) {
        self.board.forget(worker);
    }

    /// Watches a worker that is up, which serves `service` over `channel`.
    pub(super) async fn watch(
        &self,
        worker: Option<WorkerId>,
        channel: &PeerChannel,
        service: &'static str,
    ) -> Infallible {
        let (pause, patience) = (self.deadline / 4, self.deadline / 2);
        let mut serving = true;
        loop {
            tokio::time::sleep(pause).await;
            let serves = is_serving(channel.clone(), service, patience).await;
            if serves == serving {
                continue;
            }
            serving = serves;
            let state = if serves {
                tracing::info!(?worker, service, "worker answers again");
                PeerState::Serving
            } else {
                tracing::warn!(
                    ?worker,
                    service,
                    "worker hangs: it does not say that it serves"
                );
                PeerState::Hung
            };
            self.board.state(worker, state);
        }
    }
}
