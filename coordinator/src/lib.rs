//! Joins draft and target workers and streams accepted tokens to clients.
//!
//! A request's way: it comes in over gRPC (`api::grpc`) or HTTP (`openai`), on one port; `api`
//! checks it (`request`, `prompt`) and hands it to the `driver`, the one task that owns the pure `scheduler`. What the scheduler decides goes out over `links` to
//! the workers; what they verify is committed in one place (`commit`), where it also becomes text
//! (`detokenize`) up to where that ends (`stop`), and streamed. No model is computed here.

mod access;
mod alone;
mod api;
mod commit;
mod config;
mod deployments;
mod detokenize;
mod driver;
mod links;
mod model;
mod openai;
pub mod plan;
mod prompt;
mod request;
mod scheduler;
mod stop;
mod telemetry;
mod template;
#[cfg(test)]
mod testing;
mod tools;

pub use config::{
    AdmissionOptions, Config, LogprobsMode, SpecAhead, SpecRule, SpeculationOptions, Switch,
    WorkerOptions,
};

use alone::Alone;
use api::admission::Gate;
use api::{Api, Checks, LOOKUPS, grpc::Grpc};
use axum::middleware;
use deployments::Deployments;
use driver::Driver;
use futures::future::{BoxFuture, OptionFuture};
use links::{
    Discovery, DraftLink, KnownModels, LinkEvent, Pulse, ServedModel, SystemResolver, TargetLink,
};
use proto::v1::ModelRole;
use proto::v1::generation_server::GenerationServer;
use request::Defaults;
use scheduler::WorkerId;
use service::client::Peers;
use service::reload::reloaded;
use service::server::{
    self, HealthReporter, MAX_MESSAGE_BYTES, Services, ServingStatus, serve, timely_bodies,
};
use service::{CancellationToken, Tasks};
use std::sync::Arc;
use telemetry::{Board, Metrics, Observer, Workers};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tonic::service::Routes;

/// What workers say that the driver has not taken in yet; beyond it, their streams wait.
const EVENTS: usize = 256;

/// The names under which health is asked for: the whole server, and the public service.
const HEALTH_NAMES: [&str; 2] = ["", "specdec.v1.Generation"];

/// Runs a coordinator on `listener` until `shutdown`, then lets running requests end.
///
/// # Errors
/// Where serving fails, or requests still run when the grace period is over.
pub async fn run(
    config: Config,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let tasks = Tasks::new();
    let (events, from_links) = mpsc::channel(EVENTS);
    let (admissions, admitted) = mpsc::channel(config.admission.max_requests as usize);
    let (publish, served) = watch::channel(None);
    let peers = config.workers.peers(&tasks)?;

    let metrics = Metrics::default();
    let board = Board::new(metrics.clone());
    let pulse = Pulse::new(board.clone(), config.health_deadline());

    // The workers.
    let target = TargetLink::new(
        ModelRole::Target,
        KnownModels::default(),
        config.target.clone(),
        &peers,
        config.model_options(),
        publish,
        events.clone(),
        pulse.clone(),
    )?;
    tasks.spawn("target link", target.run());
    let deployments = Deployments::new(served.clone(), admissions, board.subscribe());
    let alone = (config.serve_draft_models == Switch::On).then(|| {
        let (deployments, peers) = (deployments.clone(), peers.clone());
        Alone::new(&config, deployments, peers, &metrics, tasks.spawner())
    });
    let drafts = Discovery::new(
        config.draft_places()?,
        config.draft_resolve_interval(),
        SystemResolver,
        draft_links(peers, served, events, pulse, alone),
    );
    tasks.spawn("draft workers", drafts.run());

    // Clients.
    let (reporter, health) = service::server::health(&shutdown);
    report(&reporter, false).await;
    tasks.spawn("health", report_health(reporter, board.subscribe()));
    let gate = Gate::new(config.admission.capacity(), config.admission.max_wait());
    tasks.spawn("draining", drain(gate.clone(), shutdown.clone()));
    let api = Arc::new(Api {
        deployments,
        gate: gate.clone(),
        checks: Checks::new(),
        lookups: Semaphore::new(LOOKUPS),
        defaults: Defaults {
            max_draft_tokens: config.speculation.spec_draft_n_max,
            min_draft_tokens: config.speculation.spec_draft_n_min,
            min_confidence: config.speculation.spec_draft_p_min,
            rule: config.speculation.spec_rule.into(),
            logprobs: config.logprobs_mode.into(),
            max_requests: config.admission.max_requests,
        },
    });
    let generation = GenerationServer::new(Grpc(Arc::clone(&api)))
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let named = middleware::from_fn(telemetry::with_request_id);
    let generation = Routes::new(generation).into_axum_router();
    let generation = timely_bodies(generation, config.server.body_timeout()).layer(named.clone());
    let services = Services {
        grpc: Routes::from(generation).add_service(health),
        http: openai::router(api)
            .layer(named)
            .merge(telemetry::http::router(
                &board,
                &metrics,
                gate,
                shutdown.clone(),
            )),
        gate: key_gate(&config, &tasks)?,
    };

    // Between the two. It must outlive the open calls, and without it there is nothing to serve.
    let driver = Driver::new(
        config.patience(),
        config.speculation.scheduling(),
        config.admission.slow_client_timeout(),
        from_links,
        admitted,
        Observer::new(metrics),
    );
    // A task, not a part of this one: what wakes it then runs on the thread that heard from a worker.
    // From here it would take two more switches of threads a round.
    let (ends, ended) = oneshot::channel::<()>();
    tasks.spawn("driver", async move {
        driver.run().await;
        drop(ends);
    });
    tokio::select! {
        served = serve(listener, services, &config.server, shutdown, config.shutdown_grace()) => served,
        _ = ended => Err(anyhow::anyhow!("the driver has ended")),
    }
}

/// Turns away whoever waits or comes once the server is to end; what runs goes on.
async fn drain(gate: Gate, shutdown: CancellationToken) {
    shutdown.cancelled().await;
    gate.close();
    let stats = gate.stats();
    tracing::info!(
        running = stats.running,
        tokens = stats.tokens,
        refused = ?stats.refused,
        "no more requests are taken"
    );
}

/// What lets in only clients with a key, where there are keys.
fn key_gate(config: &Config, tasks: &Tasks) -> anyhow::Result<Option<server::Gate>> {
    let Some(path) = config.api_keys.clone() else {
        return Ok(None);
    };
    let keys = reloaded(tasks, "API keys", move || access::read_keys(&path))?;
    Ok(Some(server::Gate::new(keys)))
}

/// What runs for each draft worker: its drafting, and its model `alone`.
fn draft_links(
    peers: Peers,
    served: ServedModel,
    events: mpsc::Sender<LinkEvent>,
    pulse: Pulse,
    alone: Option<Alone>,
) -> impl Fn(WorkerId, String, CancellationToken) -> BoxFuture<'static, ()> + Send + 'static {
    move |worker, url, retire| {
        let (served, events, pulse) = (served.clone(), events.clone(), pulse.clone());
        let alone = alone.clone();
        let alone = alone.map(|alone| alone.serve(worker, url.clone(), retire.clone()));
        let link = DraftLink::new(worker, url.clone(), &peers, served, events, pulse);
        Box::pin(async move {
            let drafting = async {
                match link {
                    Ok(link) => link.run(retire).await,
                    Err(error) => tracing::error!(worker, url, %error, "draft worker left out"),
                }
            };
            tokio::join!(drafting, OptionFuture::from(alone));
        })
    }
}

/// Says that the service serves exactly while the target is connected and makes progress.
async fn report_health(reporter: HealthReporter, mut workers: watch::Receiver<Workers>) {
    loop {
        let serving = workers.borrow_and_update().failure().is_none();
        report(&reporter, serving).await;
        if workers.changed().await.is_err() {
            return;
        }
    }
}

async fn report(reporter: &HealthReporter, serving: bool) {
    let status = if serving {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    };
    for name in HEALTH_NAMES {
        reporter.set_service_status(name, status).await;
    }
}
