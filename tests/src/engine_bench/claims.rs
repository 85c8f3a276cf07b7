//! What the engine is held to.

use super::{Figures, ModelFigures};
use crate::Claim;

pub(crate) fn of(figures: &Figures) -> Vec<Claim> {
    let Figures {
        target,
        draft,
        lean_draft,
        prefix,
        memory,
        ..
    } = figures;
    let bandwidth = figures.bandwidth.best();
    let weights = (target.file_bytes + draft.file_bytes) as f64;
    let resident = (target.resident_bytes + draft.resident_bytes) as f64;
    let pass = 512.0 / target.prefill_512.best() * target.decode.best();
    vec![
        Claim::at_least(
            "plain decoding, share of the bandwidth limit: target",
            target.of_limit(bandwidth),
            0.75,
        ),
        Claim::at_least(
            "plain decoding, share of the bandwidth limit: draft",
            draft.of_limit(bandwidth),
            0.6,
        ),
        Claim::at_most("a step of 4 rows over one of 1", target.rows_cost(4), 1.5),
        Claim::at_most("a step of 8 rows over one of 1", target.rows_cost(8), 2.2),
        Claim::at_least(
            "prefill of 512 tokens over plain decoding, tokens/s",
            pass,
            4.0,
        ),
        Claim::at_most(
            "a step of the draft with frequent ids over a target step",
            lean_draft.step(1) / target.step(1),
            0.3,
        ),
        Claim::at_least(
            "time to first token, without over with a cached prefix of 1,000 tokens",
            prefix.gain(),
            10.0,
        ),
        Claim::at_least(
            "answers over a cached prefix are those without (1: yes)",
            f64::from(u8::from(prefix.equal())),
            1.0,
        ),
        Claim::at_most(
            "resident weights over the files' bytes",
            resident / weights,
            1.1,
        ),
        Claim::at_most(
            "most memory held while both were loaded over the files' bytes",
            memory.loading_peak() / weights,
            1.25,
        ),
        Claim::at_most(
            "growth over the requests, bytes per request",
            memory.growth(),
            1024.0,
        ),
    ]
}

impl ModelFigures {
    fn of_limit(&self, bandwidth: f64) -> f64 {
        self.bytes_per_token as f64 / bandwidth / self.decode.best()
    }

    fn step(&self, rows: usize) -> f64 {
        let step = self.steps.iter().find(|step| step.rows == rows);
        step.map_or(f64::INFINITY, |step| step.times.best())
    }

    fn rows_cost(&self, rows: usize) -> f64 {
        self.step(rows) / self.step(1)
    }
}
