//! Many requests at once, over good drafts and bad ones.

use super::single::link;
use super::stand::{CoordinatorStand, DraftStand, target};
use super::streams::{Mode, steady, total_rate};
use crate::Claim;
use anyhow::Result;
use engine::synthetic::Description;
use serde::Serialize;
use std::time::Duration;

/// What a GPU is like that verifies for many: a step is bound by memory, then by its rows.
const TARGET_MS: (f64, f64) = (17.0, 0.05);
const DRAFT_MS: (f64, f64) = (2.5, 0.02);
const RTT_MS: f64 = 0.5;
const AGREEMENTS: [f64; 3] = [0.0, 0.5, 0.9];
const STREAMS: [usize; 4] = [1, 4, 16, 64];

/// Times in milliseconds, base and per row; rates in tokens per second of all streams together.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    target_ms: (f64, f64),
    draft_ms: (f64, f64),
    rtt_ms: f64,
    points: Vec<Point>,
}

#[derive(Debug, Serialize)]
struct Point {
    agreement: f64,
    streams: usize,
    /// Of each turn.
    plain: Vec<f64>,
    default: Vec<f64>,
}

pub(crate) async fn measure(quick: bool, progress: &dyn Fn(&str)) -> Result<Figures> {
    let (turns, ramp, window) = if quick { (1, 0.3, 1.0) } else { (2, 0.8, 2.5) };
    let [ramp, window] = [ramp, window].map(Duration::from_secs_f64);
    let description = Description {
        base_ms: TARGET_MS.0,
        row_ms: TARGET_MS.1,
        ..Description::default()
    };
    let target = target(&description).await?;
    let mut points = Vec::new();
    for agreement in AGREEMENTS {
        let description = Description {
            agreement,
            base_ms: DRAFT_MS.0,
            row_ms: DRAFT_MS.1,
            ..Description::default()
        };
        let draft = DraftStand::start(description, link(RTT_MS)).await?;
        let coordinator = CoordinatorStand::start(&target, &[&draft], &[]).await?;
        for streams in STREAMS {
            progress(&format!("load: agreement {agreement}, {streams} streams"));
            let mut point = Point {
                agreement,
                streams,
                plain: Vec::new(),
                default: Vec::new(),
            };
            for _ in 0..turns {
                for (mode, rates) in [
                    (Mode::Plain, &mut point.plain),
                    (Mode::Default, &mut point.default),
                ] {
                    let client = &coordinator.client;
                    let tracks = steady(client, streams, mode, ramp, window).await?;
                    rates.push(total_rate(&tracks));
                }
            }
            points.push(point);
        }
    }
    Ok(Figures {
        target_ms: TARGET_MS,
        draft_ms: DRAFT_MS,
        rtt_ms: RTT_MS,
        points,
    })
}

impl Point {
    fn gain(&self) -> f64 {
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
        mean(&self.default) / mean(&self.plain)
    }
}

impl Figures {
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let claim = |point: &Point| {
            let (agreement, streams) = (point.agreement, point.streams);
            Claim::at_least(
                format!("agreement {agreement}, {streams} streams: default over plain"),
                point.gain(),
                0.98,
            )
        };
        self.points.iter().map(claim).collect()
    }
}
