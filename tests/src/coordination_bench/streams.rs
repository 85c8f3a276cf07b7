//! Streams of tokens, and the rates at which they came.

use crate::{Client, Prompting as _, text_prompt};
use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use futures::future::join_all;
use proto::v1::{
    DraftSource, Finished, GenerateRequest, SpeculationStats, generate_response::Event,
};
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

/// More tokens than a stream that is watched for a while comes to.
const ENDLESS: u32 = 7_500;

/// What came of one stream.
#[derive(Debug, Default)]
pub(crate) struct Track {
    /// When deltas came, and with how many tokens.
    pub(crate) deltas: Vec<(Instant, u32)>,
    /// Its end, where it was waited for.
    pub(crate) finished: Option<Finished>,
    /// Why it failed.
    pub(crate) failure: Option<String>,
}

/// Tokens and the time that they took, the first delta left out: it took the prompt's time.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub(crate) struct Pace {
    pub(crate) tokens: u32,
    pub(crate) seconds: f64,
}

/// How a request is to be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// By the target alone.
    Plain,
    /// With so many drafted tokens in each round.
    Fixed(u32),
    /// As the coordinator decides, over draft models alone.
    Model,
    /// As the coordinator decides.
    Default,
}

/// The request number `number`, for `tokens` tokens.
///
/// The number stands at the end of the prompt: synthetic models look back a few tokens, so that texts of
/// prompts that end alike are one text, accepted and rejected in step.
pub(crate) fn request(number: usize, tokens: u32, mode: Mode) -> GenerateRequest {
    let mut request = text_prompt(&format!("Text number {number}")).tokens(tokens);
    match mode {
        Mode::Plain => request = request.plain(),
        Mode::Fixed(k) => {
            let speculation = request.speculation.get_or_insert_default();
            speculation.max_draft_tokens = Some(k);
            speculation.min_draft_tokens = Some(k);
        }
        Mode::Model => {
            let speculation = request.speculation.get_or_insert_default();
            speculation.sources = vec![DraftSource::Model.into()];
        }
        Mode::Default => {}
    }
    request
}

/// Decodes `request` to its end.
pub(crate) async fn whole(client: &Client, request: GenerateRequest) -> Result<Track> {
    let mut track = Track::default();
    track.follow(client, request).await?;
    anyhow::ensure!(track.finished.is_some(), "a stream ended without a finish");
    Ok(track)
}

/// Runs `count` streams that do not end, until `until`.
pub(crate) async fn endless(
    client: &Client,
    count: usize,
    mode: Mode,
    until: Instant,
) -> Vec<Track> {
    let streams = (0..count).map(|number| async move {
        let mut track = Track::default();
        let request = request(number, ENDLESS, mode);
        let followed = tokio::select! {
            followed = track.follow(client, request) => followed,
            () = sleep_until(until.into()) => return track,
        };
        track.failure = Some(match followed {
            Err(error) => format!("{error:#}"),
            Ok(()) => format!("it ended after {} deltas", track.deltas.len()),
        });
        track
    });
    join_all(streams).await
}

/// Runs `count` streams for `ramp` and then for `window`. Returns what each did in the window.
pub(crate) async fn steady(
    client: &Client,
    count: usize,
    mode: Mode,
    ramp: Duration,
    window: Duration,
) -> Result<Vec<Track>> {
    let from = Instant::now() + ramp;
    let mut tracks = endless(client, count, mode, from + window).await;
    for track in &mut tracks {
        if let Some(failure) = &track.failure {
            bail!("a stream failed: {failure}");
        }
        track.deltas.retain(|(at, _)| *at >= from);
    }
    Ok(tracks)
}

/// The sum of the rates of `tracks`, in tokens per second.
pub(crate) fn total_rate(tracks: &[Track]) -> f64 {
    tracks.iter().map(|track| track.pace().rate()).sum()
}

impl Track {
    async fn follow(&mut self, client: &Client, request: GenerateRequest) -> Result<()> {
        let mut stream = client.raw().generate(request).await?.into_inner();
        while let Some(response) = stream.next().await {
            match response?.event.context("an empty response")? {
                Event::Delta(delta) => {
                    let tokens = u32::try_from(delta.token_ids.len())?;
                    self.deltas.push((Instant::now(), tokens));
                }
                Event::Finished(finished) => self.finished = Some(finished),
            }
        }
        Ok(())
    }

    pub(crate) fn pace(&self) -> Pace {
        let mut deltas = self.deltas.iter().filter(|(_, tokens)| *tokens > 0);
        let Some((first, _)) = deltas.next() else {
            return Pace::default();
        };
        deltas.fold(Pace::default(), |pace, (at, tokens)| Pace {
            tokens: pace.tokens + tokens,
            seconds: (*at - *first).as_secs_f64(),
        })
    }

    pub(crate) fn stats(&self) -> SpeculationStats {
        let finished = self.finished.clone().unwrap_or_default();
        finished.speculation.unwrap_or_default()
    }
}

impl Pace {
    /// Tokens per second.
    pub(crate) fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            f64::from(self.tokens) / self.seconds
        } else {
            0.0
        }
    }
}

impl std::ops::AddAssign for Pace {
    fn add_assign(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.seconds += other.seconds;
    }
}
