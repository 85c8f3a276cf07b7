//! Four draft workers of unlike speed and acceptance: alone, together, and while the best of them is
//! lost and comes back.

use super::single::link;
use super::stand::{CoordinatorStand, DraftStand, target};
use super::streams::{Mode, Track, endless, steady, total_rate};
use crate::{Claim, Process};
use anyhow::Result;
use engine::synthetic::Description;
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

/// Milliseconds per step, and how often the draft is the target's choice. Last the best: the one
/// that is lost.
const DRAFTS: [(f64, f64); 4] = [(16.0, 0.5), (8.0, 0.6), (4.0, 0.75), (2.0, 0.9)];

/// Rows cost nothing: together, the workers fill the target's steps with more rows than alone, and
/// that is not what is asked here.
const TARGET_MS: f64 = 17.0;
const RTT_MS: f64 = 0.5;
const STREAMS_EACH: usize = 4;
const WINDOW: Duration = Duration::from_millis(250);

/// Within so long throughput must have settled.
const SETTLED_S: f64 = 2.0;

/// Rates in tokens per second of all streams together.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    drafts: [(f64, f64); 4],
    target_ms: f64,
    alone: Vec<f64>,
    together: f64,
    failed_streams: usize,
    after_loss: Phase,
    after_return: Phase,
}

/// What follows a change.
#[derive(Debug, Serialize)]
struct Phase {
    window_s: f64,
    rates: Vec<f64>,
    /// The mean rate once it has settled: of the second half.
    level: f64,
    /// When the rate over a second has come to nine tenths of that, to stay there.
    settled_s: f64,
}

pub(crate) async fn measure(quick: bool, progress: &dyn Fn(&str)) -> Result<Figures> {
    let (ramp, window, phase) = if quick {
        (0.5, 1.0, 3.0)
    } else {
        (1.0, 3.0, 6.0)
    };
    let [ramp, window, phase] = [ramp, window, phase].map(Duration::from_secs_f64);
    let description = Description {
        base_ms: TARGET_MS,
        ..Description::default()
    };
    let target = target(&description).await?;
    let mut drafts = Vec::new();
    let mut alone = Vec::new();
    for (base_ms, agreement) in DRAFTS {
        progress(&format!("unlike: alone, {base_ms} ms at {agreement}"));
        let description = Description {
            base_ms,
            agreement,
            ..Description::default()
        };
        let draft = DraftStand::start(description, link(RTT_MS)).await?;
        let coordinator = CoordinatorStand::start(&target, &[&draft], &[]).await?;
        let client = &coordinator.client;
        let tracks = steady(client, STREAMS_EACH, Mode::Model, ramp, window).await?;
        alone.push(total_rate(&tracks));
        drafts.push(draft);
    }
    progress("unlike: together, one lost, and back");
    together(&target, &mut drafts, alone, [ramp, window, phase]).await
}

async fn together(
    target: &Process,
    drafts: &mut [DraftStand],
    alone: Vec<f64>,
    [ramp, window, phase]: [Duration; 3],
) -> Result<Figures> {
    let links: Vec<&DraftStand> = drafts.iter().collect();
    let coordinator = CoordinatorStand::start(target, &links, &[]).await?;
    let begun = Instant::now();
    let lost = begun + ramp + window;
    let starts = lost + phase;
    // A process takes its time to start.
    let until = starts + Duration::from_secs(1) + phase;
    let streams = endless(
        &coordinator.client,
        drafts.len() * STREAMS_EACH,
        Mode::Model,
        until,
    );
    let disturb = async {
        let Some(best) = drafts.last_mut() else {
            return Ok(starts);
        };
        sleep_until(lost.into()).await;
        best.process.kill().await?;
        sleep_until(starts.into()).await;
        best.restart().await?;
        anyhow::Ok(Instant::now())
    };
    let (tracks, returned) = tokio::join!(streams, disturb);
    let returned = returned?;
    let before = rates(&tracks, begun + ramp, window, window);
    Ok(Figures {
        drafts: DRAFTS,
        target_ms: TARGET_MS,
        alone,
        together: before.iter().sum::<f64>() / before.len() as f64,
        failed_streams: tracks.iter().filter(|it| it.failure.is_some()).count(),
        after_loss: Phase::new(rates(&tracks, lost, phase, WINDOW)),
        after_return: Phase::new(rates(&tracks, returned, phase, WINDOW)),
    })
}

/// Tokens per second of all `tracks` in each window of a time.
fn rates(tracks: &[Track], from: Instant, len: Duration, window: Duration) -> Vec<f64> {
    let windows = (len.as_secs_f64() / window.as_secs_f64()).round() as usize;
    let mut tokens = vec![0_u32; windows];
    for (at, count) in tracks.iter().flat_map(|track| &track.deltas) {
        let Some(since) = at.checked_duration_since(from) else {
            continue;
        };
        let index = (since.as_secs_f64() / window.as_secs_f64()) as usize;
        if let Some(tokens) = tokens.get_mut(index) {
            *tokens += count;
        }
    }
    let rate = |tokens: u32| f64::from(tokens) / window.as_secs_f64();
    tokens.into_iter().map(rate).collect()
}

impl Phase {
    fn new(rates: Vec<f64>) -> Self {
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let level = mean(&rates[rates.len() / 2..]);
        let per_second = (1.0 / WINDOW.as_secs_f64()) as usize;
        let seconds: Vec<_> = rates.windows(per_second).map(mean).collect();
        let low = seconds.iter().rposition(|rate| *rate < 0.9 * level);
        let settled = low.map_or(0, |low| low + 1);
        Self {
            window_s: WINDOW.as_secs_f64(),
            rates,
            level,
            settled_s: settled as f64 * WINDOW.as_secs_f64(),
        }
    }
}

impl Figures {
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let sum: f64 = self.alone.iter().sum();
        let left: f64 = self.alone.iter().take(self.alone.len() - 1).sum();
        vec![
            Claim::at_least(
                "four unlike draft workers together over the sum of each alone",
                self.together / sum,
                0.9,
            ),
            Claim::at_most(
                "streams that failed as a draft worker was lost and came back",
                self.failed_streams as f64,
                0.0,
            ),
            Claim::at_most(
                "seconds until throughput settled after the loss",
                self.after_loss.settled_s,
                SETTLED_S,
            ),
            Claim::at_most(
                "seconds until throughput settled after the return",
                self.after_return.settled_s,
                SETTLED_S,
            ),
            Claim::at_least(
                "settled after the loss over the sum of the three alone that are left",
                self.after_loss.level / left,
                0.9,
            ),
            Claim::at_least(
                "settled after the return over before the loss",
                self.after_return.level / self.together,
                0.9,
            ),
        ]
    }
}
