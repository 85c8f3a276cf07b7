//! Joins draft and target workers and streams accepted tokens to clients.
//!
//! A request's way: `api` checks it (`request`, `prompt`) and hands it to the `driver`, the
//! one task that owns the pure `scheduler`. What the scheduler decides goes out over `links` to
//! the workers; what they verify is committed in one place (`commit`), where it also becomes text
//! (`detokenize`) up to where that ends (`stop`), and streamed. No model is computed here.

mod api;
mod commit;
mod config;
mod detokenize;
mod driver;
mod links;
mod model;
pub mod plan;
mod prompt;
mod request;
mod scheduler;
mod stop;
mod template;
#[cfg(test)]
mod testing;

pub use config::{Config, LogprobsMode, SpecRule};

use api::Api;
use driver::Driver;
use links::{DraftLink, ServedModel, TargetLink};
use proto::v1::generation_server::GenerationServer;
use request::Defaults;
use scheduler::Patience;
use service::server::{HealthReporter, MAX_MESSAGE_BYTES, ServingStatus};
use service::{CancellationToken, Tasks};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
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
    let (admissions, admitted) = mpsc::channel(config.max_requests as usize);
    let (publish, served) = watch::channel(None);

    // The workers.
    let target = TargetLink::new(
        config.target.clone(),
        config.model_name.clone(),
        publish,
        events.clone(),
    )?;
    tasks.spawn("target link", target.run());
    for (worker, url) in config.drafts.iter().enumerate() {
        let draft = DraftLink::new(worker, url.clone(), served.clone(), events.clone())?;
        tasks.spawn("draft link", draft.run());
    }
    drop(events);

    // Clients.
    let (reporter, health) = service::server::health(&shutdown);
    report(&reporter, false).await;
    tasks.spawn("health", report_health(reporter, served.clone()));
    let api = Api {
        served,
        admissions,
        places: Arc::new(Semaphore::new(config.max_requests as usize)),
        defaults: Defaults {
            max_draft_tokens: config.spec_draft_n_max,
            rule: config.spec_rule.into(),
            logprobs: config.logprobs_mode.into(),
            max_requests: config.max_requests,
        },
    };
    let generation = GenerationServer::new(api)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let routes = Routes::new(generation).add_service(health);

    // Between the two. It must outlive the open calls, and without it there is nothing to serve.
    let patience = Patience {
        draft: config.draft_timeout(),
        target: config.target_timeout(),
    };
    let driver = Driver::new(patience, config.drafts.len(), from_links, admitted);
    tokio::select! {
        served = service::server::serve(listener, routes, shutdown, config.shutdown_grace()) => served,
        () = driver.run() => Err(anyhow::anyhow!("the driver has ended")),
    }
}

/// Says that the service serves exactly while the target is connected.
async fn report_health(reporter: HealthReporter, mut served: ServedModel) {
    loop {
        let serving = served.borrow_and_update().is_some();
        report(&reporter, serving).await;
        if served.changed().await.is_err() {
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
