//! What operators' tools ask of a program over plain HTTP.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::header::HeaderMap;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// An answer.
#[derive(Debug, Clone)]
pub struct Probed {
    /// HTTP's status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: String,
}

impl Probed {
    /// The body as JSON.
    ///
    /// # Errors
    /// Where it is none.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.body).with_context(|| self.body.clone())
    }
}

/// Asks the program at `url` for `path`.
///
/// # Errors
/// Where it does not answer.
pub async fn get(url: &str, path: &str) -> Result<Probed> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let response = client.get(format!("{url}{path}").parse()?).await?;
    let (head, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Probed {
        status: head.status.as_u16(),
        headers: head.headers,
        body: String::from_utf8(body.to_vec())?,
    })
}

/// The metrics of a program at one moment.
#[derive(Debug, Clone)]
pub struct Scrape(Vec<(String, f64)>);

impl Scrape {
    /// Asks the program at `url`.
    ///
    /// # Errors
    /// Where it does not answer, or answers nonsense.
    pub async fn of(url: &str) -> Result<Self> {
        let body = get(url, "/metrics").await?.body;
        let lines = body.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.map(|line| {
            let (series, value) = line.rsplit_once(' ').context("a value")?;
            Ok((series.to_owned(), value.parse()?))
        });
        Ok(Self(samples.collect::<Result<_>>()?))
    }

    /// The sum of the series of `name` that have all of `labels`, each as `name="value"`.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let named = self.0.iter().filter(|(series, _)| {
            let own = series.split('{').next() == Some(name);
            own && labels.iter().all(|label| series.contains(label))
        });
        named.map(|(_, value)| value).sum()
    }
}
