//! One request at a time, at round trips from none to long ones.

use super::closed_form::Times;
use super::single::{AGREEMENT, Pair, TIMES, Way, link};
use super::streams::Mode;
use crate::Claim;
use anyhow::Result;
use serde::Serialize;

const ROUND_TRIPS_MS: [f64; 5] = [0.0, 1.0, 5.0, 20.0, 80.0];

/// The longest draft that the closed forms are asked for: what the worker takes.
const LONGEST: u32 = 16;

#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    agreement: f64,
    points: Vec<Point>,
}

/// Rates in tokens per second at one round trip, beside the closed forms at the stated agreement.
#[derive(Debug, Serialize)]
struct Point {
    times: Times,
    plain: Way,
    plain_closed_form: f64,
    /// With the closed form's best draft length.
    synchronous: Way,
    synchronous_draft_tokens: u32,
    synchronous_closed_form: f64,
    default: Way,
    /// The most that drafting ahead can give.
    hidden_closed_form: f64,
}

pub(crate) async fn measure(quick: bool, progress: &dyn Fn(&str)) -> Result<Figures> {
    let pair = Pair::start().await?;
    let (requests, tokens) = if quick { (1, 60) } else { (2, 150) };
    let mut points = Vec::new();
    for rtt_ms in ROUND_TRIPS_MS {
        progress(&format!("sweep: a round trip of {rtt_ms} ms"));
        pair.draft.link.set(link(rtt_ms));
        let mut point = Point::new(Times { rtt_ms, ..TIMES });
        // What the coordinator knew of the link before is no part of this.
        let unmeasured = &mut Way::default();
        let default = &pair.default.client;
        unmeasured.run(default, 100, tokens, Mode::Model).await?;
        for number in 0..requests {
            point
                .plain
                .run(default, number, tokens, Mode::Plain)
                .await?;
            let fixed = Mode::Fixed(point.synchronous_draft_tokens);
            let synchronous = &pair.synchronous.client;
            point
                .synchronous
                .run(synchronous, number, tokens, fixed)
                .await?;
            point
                .default
                .run(default, number, tokens, Mode::Model)
                .await?;
        }
        points.push(point);
    }
    Ok(Figures {
        agreement: AGREEMENT,
        points,
    })
}

impl Point {
    fn new(times: Times) -> Self {
        let (k, synchronous) = times.best(Times::synchronous, AGREEMENT, LONGEST);
        let (_, hidden) = times.best(Times::hidden, AGREEMENT, LONGEST);
        Self {
            times,
            plain: Way::default(),
            plain_closed_form: times.plain(),
            synchronous: Way::default(),
            synchronous_draft_tokens: k,
            synchronous_closed_form: synchronous,
            default: Way::default(),
            hidden_closed_form: hidden,
        }
    }
}

impl Figures {
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let claim = |point: &Point| {
            Claim::at_least(
                format!(
                    "round trip of {} ms, default over plain",
                    point.times.rtt_ms
                ),
                point.default.rate / point.plain.rate,
                0.98,
            )
        };
        self.points.iter().map(claim).collect()
    }
}
