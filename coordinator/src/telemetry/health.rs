//! What is known of the workers' health, by those who hold the connections to them.

use super::metrics::Metrics;
use crate::scheduler::WorkerId;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// A worker, as far as health goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Where it is.
    pub(crate) address: String,
    /// What it serves, as it said last.
    pub(crate) model: String,
    /// How it is.
    pub(crate) state: PeerState,
}

/// How a worker is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PeerState {
    /// There is no connection to it.
    #[default]
    Disconnected,
    /// Connected, and making progress.
    Serving,
    /// Connected, but it does not answer in time, or says itself that it does not serve.
    Hung,
    /// It cannot be used: its tokenizer is not the target's.
    Refused,
}

impl PeerState {
    /// Its name for people and programs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Serving => "serving",
            Self::Hung => "hung",
            Self::Refused => "refused",
        }
    }
}

/// All workers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Workers {
    pub(crate) target: Option<Peer>,
    pub(crate) drafts: BTreeMap<WorkerId, Peer>,
}

impl Workers {
    /// Why nothing can be served; `None` where it can.
    pub(crate) fn failure(&self) -> Option<&'static str> {
        match self
            .target
            .as_ref()
            .map_or(PeerState::Disconnected, |peer| peer.state)
        {
            PeerState::Serving => None,
            PeerState::Hung => Some("the target does not answer"),
            PeerState::Disconnected | PeerState::Refused => Some("the target is not connected"),
        }
    }

    /// True where some draft worker is of no use.
    pub(crate) fn is_degraded(&self) -> bool {
        self.drafts
            .values()
            .any(|peer| peer.state != PeerState::Serving)
    }
}

/// Where links say how their workers are. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board {
    workers: Arc<watch::Sender<Workers>>,
    metrics: Metrics,
}

impl Board {
    /// One that shows workers in `metrics` as well.
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            ..Self::default()
        }
    }

    /// Follows it.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Workers> {
        self.workers.subscribe()
    }

    /// A draft worker, or the target, is so.
    pub(crate) fn put(&self, worker: Option<WorkerId>, peer: Peer) {
        self.change(|workers| match worker {
            Some(worker) => drop(workers.drafts.insert(worker, peer)),
            None => workers.target = Some(peer),
        });
    }

    /// The state of a worker is another.
    pub(crate) fn state(&self, worker: Option<WorkerId>, state: PeerState) {
        self.change(|workers| {
            let peer = match worker {
                Some(worker) => workers.drafts.get_mut(&worker),
                None => workers.target.as_mut(),
            };
            if let Some(peer) = peer {
                peer.state = state;
            }
        });
    }

    /// A draft worker is no more.
    pub(crate) fn forget(&self, worker: WorkerId) {
        self.change(|workers| drop(workers.drafts.remove(&worker)));
    }

    fn change(&self, change: impl FnOnce(&mut Workers)) {
        self.workers.send_if_modified(|workers| {
            let before = workers.clone();
            change(workers);
            let changed = *workers != before;
            if changed {
                self.show(workers);
            }
            changed
        });
    }

    fn show(&self, workers: &Workers) {
        self.metrics.forget_workers();
        if let Some(target) = &workers.target {
            self.metrics.show_worker(None, target);
        }
        for (worker, peer) in &workers.drafts {
            self.metrics.show_worker(Some(*worker), peer);
        }
    }
}
