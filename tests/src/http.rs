//! A client of the coordinator over HTTP.

use crate::PATIENCE;
use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Method, Request, Response, StatusCode, body::Incoming};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Ends a stream that is whole.
const DONE: &str = "[DONE]";

/// A client of one coordinator.
#[derive(Debug, Clone)]
pub struct Http {
    inner: Client<HttpConnector, Full<Bytes>>,
    url: String,
}

/// An answer over HTTP.
#[derive(Debug, Clone)]
pub struct HttpAnswer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body; null where that is no JSON.
    pub json: Value,
}

impl HttpAnswer {
    /// The field that an error names; empty where it names none, or is none.
    pub fn param(&self) -> &str {
        self.json["error"]["param"].as_str().unwrap_or_default()
    }

    /// The message of an error; empty where it is none.
    pub fn message(&self) -> &str {
        self.json["error"]["message"].as_str().unwrap_or_default()
    }
}

impl Http {
    /// A client of the coordinator at `url`.
    pub fn new(url: &str) -> Self {
        Self {
            inner: Client::builder(TokioExecutor::new()).build_http(),
            url: url.to_owned(),
        }
    }

    /// Asks, and reads the answer to its end.
    ///
    /// # Errors
    /// Where the connection fails or the answer does not come.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: impl Into<Bytes>,
    ) -> Result<HttpAnswer> {
        let response = self.send(method, path, kind, body.into()).await?;
        let (head, body) = response.into_parts();
        let body = tokio::time::timeout(PATIENCE, body.collect()).await;
        let body = body.context("the answer does not end")??.to_bytes();
        Ok(HttpAnswer {
            status: head.status,
            headers: head.headers,
            json: serde_json::from_slice(&body).unwrap_or_default(),
        })
    }

    /// Posts JSON.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub async fn post(&self, path: &str, body: &Value) -> Result<HttpAnswer> {
        self.ask(Method::POST, path, "application/json", body.to_string())
            .await
    }

    /// Gets.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub async fn get(&self, path: &str) -> Result<HttpAnswer> {
        self.ask(Method::GET, path, "", Bytes::new()).await
    }

    /// Posts JSON, and reads the stream of events that answers; it must end as a whole one does.
    ///
    /// # Errors
    /// As [`ask`](Self::ask), and where the answer is no such stream.
    pub async fn stream(&self, path: &str, body: &Value) -> Result<Vec<Value>> {
        let body = body.to_string();
        let kind = "application/json";
        let response = self.send(Method::POST, path, kind, body.into()).await?;
        let status = response.status();
        anyhow::ensure!(status == StatusCode::OK, "status {status}");
        let body = tokio::time::timeout(PATIENCE, response.into_body().collect()).await;
        let body = body.context("the stream does not end")??.to_bytes();
        let body = std::str::from_utf8(&body)?;
        let mut events: Vec<&str> = body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .collect();
        anyhow::ensure!(events.pop() == Some(DONE), "not whole: {body}");
        let events = events.into_iter().map(serde_json::from_str);
        Ok(events.collect::<Result<_, _>>()?)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header(CONTENT_TYPE, kind)
            .body(Full::new(body))?;
        let response = tokio::time::timeout(PATIENCE, self.inner.request(request)).await;
        Ok(response.context("no answer")??)
    }
}
