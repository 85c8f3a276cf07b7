//! A draft worker's model, which answers alone: to those who ask for it, the worker is a target.

use crate::Config;
use crate::deployments::Deployments;
use crate::driver::Driver;
use crate::links::{KnownModels, Pulse, ServedModel, TargetLink};
use crate::model::ModelOptions;
use crate::scheduler::{Patience, SpecOptions, WorkerId};
use crate::telemetry::{Board, Metrics, Observer};
use proto::v1::ModelRole;
use service::client::Peers;
use service::{CancellationToken, Spawner};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// What a worker says that its driver has not taken in yet.
const EVENTS: usize = 64;

/// What decodes without drafts.
const PLAIN: SpecOptions = SpecOptions {
    ahead: false,
    ngram: false,
    ngram_history: 0,
};

/// Serves draft workers' models. Clones serve them together.
#[derive(Debug, Clone)]
pub(crate) struct Alone {
    deployments: Deployments,
    peers: Peers,
    options: ModelOptions,
    known: KnownModels,
    metrics: Metrics,
    patience: Patience,
    slow_client: Duration,
    health_deadline: Duration,
    max_requests: usize,
    tasks: Spawner,
}

impl Alone {
    /// What serves models as `config` says, among `deployments`, in `tasks`.
    pub(crate) fn new(
        config: &Config,
        deployments: Deployments,
        peers: Peers,
        metrics: &Metrics,
        tasks: Spawner,
    ) -> Self {
        Self {
            deployments,
            peers,
            options: ModelOptions {
                name: None,
                ..config.model_options()
            },
            known: KnownModels::default(),
            metrics: metrics.of_requests_alone(),
            patience: config.patience(),
            slow_client: config.admission.slow_client_timeout(),
            health_deadline: config.health_deadline(),
            max_requests: config.admission.max_requests as usize,
            tasks,
        }
    }

    /// Serves the model of the worker at `url` until it is to `retire`; what runs then goes on.
    pub(crate) async fn serve(self, worker: WorkerId, url: String, retire: CancellationToken) {
        // Its own: to the service's health, it is a draft worker and no target.
        let board = Board::default();
        let (publish, served) = watch::channel(None);
        let (events, from_link) = mpsc::channel(EVENTS);
        let (admissions, admitted) = mpsc::channel(self.max_requests);
        let link = TargetLink::new(
            ModelRole::Draft,
            self.known.clone(),
            url,
            &self.peers,
            self.options.clone(),
            publish,
            events,
            Pulse::new(board.clone(), self.health_deadline),
        );
        let link = match link {
            Ok(link) => link,
            Err(error) => return tracing::error!(worker, %error, "draft model left out"),
        };
        let driver = Driver::new(
            self.patience,
            PLAIN,
            self.slow_client,
            from_link,
            admitted,
            Observer::new(self.metrics.clone()),
        );
        self.tasks.spawn("draft model", async move {
            tokio::select! {
                () = driver.run() => {}
                () = link.run() => {}
            }
        });
        let target = self.deployments.target();
        self.deployments
            .add(worker, served.clone(), admissions, board.subscribe());
        tokio::select! {
            () = tell_clash(worker, served, target) => {}
            () = retire.cancelled() => {}
        }
        retire.cancelled().await;
        self.deployments.remove(worker);
    }
}

/// Says so, once, where a draft worker's model cannot be asked for because the target has its name.
async fn tell_clash(worker: WorkerId, mut draft: ServedModel, mut target: ServedModel) {
    let name = async |model: &mut ServedModel| {
        let served = model.wait_for(Option::is_some).await.ok()?;
        served.as_ref().map(|model| model.name.clone())
    };
    let Some(model) = name(&mut draft).await else {
        return;
    };
    if name(&mut target).await.as_ref() == Some(&model) {
        tracing::info!(
            worker,
            model,
            "the draft model cannot be asked for alone: the target has its name"
        );
    }
}
