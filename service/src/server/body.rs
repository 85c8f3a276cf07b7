//! A request's body has to come within a time: one that never does would hold its call for ever.

use super::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;

/// Has the bodies of requests to `router` fail that take longer than `limit`.
pub fn timely_bodies(router: Router, limit: Duration) -> Router {
    router.layer(from_fn_with_state(limit, watch))
}

async fn watch(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    let request = request.map(|body| {
        if body.is_end_stream() {
            return body;
        }
        Body::new(Timely {
            body,
            limit: Box::pin(tokio::time::sleep(limit)),
        })
    });
    next.run(request).await
}

/// A body that fails when its time is over.
struct Timely {
    body: Body,
    limit: Pin<Box<Sleep>>,
}

impl HttpBody for Timely {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        ready!(self.limit.as_mut().poll(cx));
        Poll::Ready(Some(Err(axum::Error::new(
            "the request's body did not come in time",
        ))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
