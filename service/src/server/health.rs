//! `grpc.health.v1`, which turns to not serving by itself when shutdown begins.

use futures::{Stream, StreamExt as _, future, stream};
use std::pin::Pin;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_check_response::ServingStatus as WireStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_health::server::{HealthReporter, HealthService};

/// The health service, and the reporter that says what it answers. Put it among the routes:
///
/// ```
/// # use service::CancellationToken;
/// # use tonic::service::Routes;
/// # async fn example(shutdown: CancellationToken) -> Routes {
/// let (reporter, health) = service::server::health(&shutdown);
/// reporter
///     .set_service_status("specdec.v1.Draft", service::server::ServingStatus::Serving)
///     .await;
/// Routes::new(health)
/// # }
/// ```
///
/// The server as a whole, the empty name, starts as serving; a service is unknown until reported.
/// From `shutdown` on, whatever was reported, all that are known do not serve, and watches end: an
/// open watch must not hold up draining.
pub fn health(shutdown: &CancellationToken) -> (HealthReporter, HealthServer<impl Health>) {
    let reporter = HealthReporter::new();
    let service = UntilShutdown {
        reported: HealthService::from_health_reporter(reporter.clone()),
        shutdown: shutdown.clone(),
    };
    (reporter, HealthServer::new(service))
}

struct UntilShutdown {
    reported: HealthService,
    shutdown: CancellationToken,
}

type Answers = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Health for UntilShutdown {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let reported = self.reported.check(request).await?;
        if self.shutdown.is_cancelled() {
            return Ok(Response::new(not_serving()));
        }
        Ok(reported)
    }

    type WatchStream = Answers;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Answers>, Status> {
        let reported = self.reported.watch(request).await?.into_inner();
        let until_shutdown = reported.take_until(self.shutdown.clone().cancelled_owned());
        let last = stream::once(future::ready(Ok(not_serving())));
        Ok(Response::new(Box::pin(until_shutdown.chain(last))))
    }
}

fn not_serving() -> HealthCheckResponse {
    HealthCheckResponse {
        status: WireStatus::from(ServingStatus::NotServing).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_check_during_shutdown_says_not_serving_whatever_was_reported() {
        let shutdown = CancellationToken::new();
        let reporter = HealthReporter::new();
        let health = UntilShutdown {
            reported: HealthService::from_health_reporter(reporter.clone()),
            shutdown: shutdown.clone(),
        };
        let check = async |service: &str| {
            let service = service.to_owned();
            let request = Request::new(HealthCheckRequest { service });
            let answer = health.check(request).await;
            answer.map(|answer| answer.into_inner().status())
        };
        assert_eq!(check("").await.expect("known"), WireStatus::Serving);
        shutdown.cancel();
        reporter
            .set_service_status("", ServingStatus::Serving)
            .await;
        assert_eq!(check("").await.expect("known"), WireStatus::NotServing);
        check("nobody").await.expect_err("still unknown");
    }
}
