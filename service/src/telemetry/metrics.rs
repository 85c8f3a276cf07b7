//! `GET /metrics`: a registry in the text formats that Prometheus reads.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// What all names of metrics begin with, an underscore after it.
pub const PREFIX: &str = "specdec";

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The route that tells what `registry` holds: as OpenMetrics to whoever accepts it, and else in the
/// older text format (version 0.0.4).
pub fn router(registry: Registry) -> Router {
    Router::new()
        .route("/metrics", get(tell))
        .with_state(Arc::new(registry))
}

async fn tell(State(registry): State<Arc<Registry>>, headers: HeaderMap) -> Response {
    let mut body = String::new();
    let (kind, encoded) = if accepts_open_metrics(&headers) {
        (OPEN_METRICS, text::encode(&mut body, &registry))
    } else {
        let encoded = prometheus_text::encode(&mut body, &registry);
        (prometheus_text::CONTENT_TYPE, encoded)
    };
    match encoded {
        Ok(()) => ([(header::CONTENT_TYPE, kind)], body).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn accepts_open_metrics(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT);
    let accepted = accepted.and_then(|value| value.to_str().ok());
    accepted.is_some_and(|value| value.contains("application/openmetrics-text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use prometheus_client::metrics::counter::Counter;
    use tower::ServiceExt as _;

    async fn scraped(accept: Option<&str>) -> (String, String) {
        let mut registry = Registry::with_prefix(PREFIX);
        let counter = Counter::<u64>::default();
        counter.inc_by(3);
        registry.register("things", "Things", counter);
        let mut request = Request::get("/metrics");
        if let Some(accept) = accept {
            request = request.header(header::ACCEPT, accept);
        }
        let request = request.body(Body::empty()).expect("a request");
        let answer = router(registry).oneshot(request).await.expect("infallible");
        let kind = answer.headers()[header::CONTENT_TYPE].to_str();
        let kind = kind.expect("text").to_owned();
        let body = answer.into_body().collect().await.expect("a body");
        let body = String::from_utf8(body.to_bytes().to_vec()).expect("text");
        (kind, body)
    }

    #[tokio::test]
    async fn open_metrics_are_for_those_who_accept_them() {
        let (kind, body) = scraped(None).await;
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        assert!(body.contains("# TYPE specdec_things_total counter\nspecdec_things_total 3\n"));
        assert!(!body.contains("_created"), "{body}");
        let accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
        let (kind, body) = scraped(Some(accept)).await;
        assert_eq!(kind, OPEN_METRICS);
        assert!(body.contains("# TYPE specdec_things counter\nspecdec_things_total 3\n"));
        assert!(body.ends_with("# EOF\n") && !body.contains("_created"));
    }
}
