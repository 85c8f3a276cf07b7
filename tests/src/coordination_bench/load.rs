//! Many requests at once, over good drafts and bad ones.

use super::single::link;
use super::stand::{CoordinatorStand, DraftStand, target};
use super::streams::{Mode, steady, total_rate};
use crate::Claim;
use anyhow::Result;
use engine::synthetic::Description;
use serde::Serialize;
use speculation::planner::{StepTime, System, plain_rate, plan};
use std::time::Duration;

/// What a GPU is like that verifies for many: a step is bound by memory, then by its rows.
const TARGET_MS: (f64, f64) = (17.0, 0.05);
const DRAFT_MS: (f64, f64) = (2.5, 0.02);
const RTT_MS: f64 = 0.5;
const AGREEMENTS: [f64; 3] = [0.0, 0.5, 0.9];
const STREAMS: [usize; 4] = [1, 4, 16, 64];
/// The coordinator's own limit where a request states none.
const MOST_DRAFTED: usize = 8;

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
    /// What the planner has for the best way over what it has for plain decoding.
    planned_gain: f64,
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
                planned_gain: planned_gain(agreement, streams),
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

/// By the stated times and agreement alone.
fn planned_gain(agreement: f64, streams: usize) -> f64 {
    let [verify, draft] = [TARGET_MS, DRAFT_MS].map(|(base, row)| StepTime {
        base: base / 1e3,
        row: row / 1e3,
    });
    let mut system = System::new(verify, draft, &[agreement]);
    system.draft_rtt = RTT_MS / 1e3;
    system.requests = streams;
    system.max_draft_tokens = MOST_DRAFTED;
    plan(&system).tokens_per_second() / plain_rate(&system) / streams as f64
}

impl Point {
    fn gain(&self) -> f64 {
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
        mean(&self.default) / mean(&self.plain)
    }
}

impl Figures {
    pub(crate) fn claims(&self) -> Vec<Claim> {
        self.points.iter().flat_map(Point::claims).collect()
    }
}

impl Point {
    fn claims(&self) -> Vec<Claim> {
        let (agreement, streams) = (self.agreement, self.streams);
        let point = format!("agreement {agreement}, {streams} streams");
        let name = format!("{point}: default over plain");
        let mut claims = vec![Claim::at_least(name, self.gain(), 0.98)];
        if STREAMS.last() == Some(&streams) {
            let name = format!("{point}: gain over plain as a share of the planner's");
            let share = self.gain() / self.planned_gain;
            claims.push(Claim::at_least(name, share, 0.9));
        }
        claims
    }
}
