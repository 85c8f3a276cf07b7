//! Clients of both fronts, one connection each: the same requests over gRPC and over HTTP.

use crate::{Client, Prompting as _, text_prompt};
use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use proto::v1::{FinishReason, generate_response::Event};
use service::Class;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic_health::pb::health_check_response::ServingStatus;

const PROMPT: &str = "Once upon a time";

/// Which of the coordinator's two fronts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// `specdec.v1.Generation`.
    Grpc,
    /// Server-sent events after `POST /v1/completions`.
    Http,
}

/// An open connection to a front.
#[derive(Debug)]
pub struct Connection(Inner);

#[derive(Debug)]
enum Inner {
    Grpc(Client),
    Http(Http),
}

/// A connection that carries one request at a time.
#[derive(Debug)]
struct Http {
    url: String,
    requests: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It ran until it had as many tokens as it asked for.
    Ran,
    /// It was turned away, and may be tried again after this long.
    Refused(Duration),
}

impl Connection {
    /// Connects, so that a request that follows pays for nothing but itself.
    ///
    /// # Errors
    /// Where nothing listens at `url`.
    pub async fn open(front: Front, url: &str) -> Result<Self> {
        let inner = match front {
            Front::Grpc => {
                let client = Client::connect(url).await?;
                let health = client.health().await?;
                anyhow::ensure!(health == ServingStatus::Serving, "{url}: {health:?}");
                Inner::Grpc(client)
            }
            Front::Http => Inner::Http(Http::open(url).await?),
        };
        Ok(Self(inner))
    }

    /// Asks for `tokens` tokens, decoded plainly; tells `piece` when each came.
    ///
    /// # Errors
    /// Where the request fails, or is answered by anything but a text or a clear refusal.
    pub async fn complete(
        &mut self,
        tokens: u32,
        mut piece: impl FnMut(Instant),
    ) -> Result<Outcome> {
        match &mut self.0 {
            Inner::Grpc(client) => over_grpc(client, tokens, &mut piece).await,
            Inner::Http(http) => http.complete(tokens, &mut piece).await,
        }
    }
}

async fn over_grpc(
    client: &Client,
    tokens: u32,
    piece: &mut impl FnMut(Instant),
) -> Result<Outcome> {
    let request = text_prompt(PROMPT).tokens(tokens).plain();
    let mut stream = match client.raw().generate(request).await {
        Ok(stream) => stream.into_inner(),
        Err(status) => match service::Error::from_status(&status).class {
            Class::Overloaded { retry_after } => return Ok(Outcome::Refused(retry_after)),
            _ => return Err(status.into()),
        },
    };
    let mut came = 0;
    while let Some(response) = stream.next().await {
        match response?.event.context("an empty response")? {
            Event::Delta(delta) => {
                piece(Instant::now());
                came += delta.token_ids.len();
            }
            Event::Finished(finished) => {
                anyhow::ensure!(finished.reason() == FinishReason::Length, "{finished:?}");
                anyhow::ensure!(came == tokens as usize, "{came} tokens, not {tokens}");
                return Ok(Outcome::Ran);
            }
        }
    }
    bail!("the stream ended after {came} tokens")
}

impl Http {
    #[expect(clippy::disallowed_methods, reason = "aborted by drop")]
    async fn open(url: &str) -> Result<Self> {
        let address = url.strip_prefix("http://").context("an address")?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async move {
            // That it was lost is seen by the request that it carried.
            let _ = connection.await;
        });
        let url = url.to_owned();
        Ok(Self {
            url,
            requests,
            driver,
        })
    }

    async fn complete(&mut self, tokens: u32, piece: &mut impl FnMut(Instant)) -> Result<Outcome> {
        let body = serde_json::json!({
            "prompt": PROMPT,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": true,
            "stream": true,
            "speculative": { "enabled": false },
        });
        let request = Request::post("/v1/completions")
            .header(header::HOST, "specdec")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body.to_string()))?;
        // A server that refuses a request may close its connection, whose next request needs another.
        if self.requests.ready().await.is_err() {
            *self = Self::open(&self.url).await?;
        }
        let response = self.requests.send_request(request).await?;
        match response.status() {
            StatusCode::OK => events(response.into_body(), piece).await,
            StatusCode::TOO_MANY_REQUESTS => refused(response).await,
            status => {
                let body = response.into_body().collect().await?.to_bytes();
                bail!("{status}: {}", String::from_utf8_lossy(&body))
            }
        }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn refused(response: Response<Incoming>) -> Result<Outcome> {
    let after = response.headers().get(header::RETRY_AFTER);
    let seconds = after.context("no retry-after")?.to_str()?.parse()?;
    response.into_body().collect().await?;
    Ok(Outcome::Refused(Duration::from_secs(seconds)))
}

/// Reads server-sent events to the last, which says that it is.
async fn events(mut body: Incoming, piece: &mut impl FnMut(Instant)) -> Result<Outcome> {
    let mut whole = false;
    let mut unread = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            unread.extend_from_slice(data);
        }
        while let Some(end) = unread.windows(2).position(|pair| pair == b"\n\n") {
            let event: Vec<u8> = unread.drain(..end + 2).collect();
            if event.starts_with(b"data: [DONE]") {
                anyhow::ensure!(whole, "it was not ended by its length");
                body.collect().await?;
                return Ok(Outcome::Ran);
            }
            if contains(&event, b"\"finish_reason\":\"length\"") {
                whole = true;
            } else if event.starts_with(b"data: ") {
                piece(Instant::now());
            }
        }
    }
    bail!("the stream was cut off")
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
