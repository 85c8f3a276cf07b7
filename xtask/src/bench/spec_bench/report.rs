//! The figures of all modes, beside what others published.

use super::questions::{EDIT, GROUPS};
use super::{COMBINED, MODES, PLAIN};
use crate::bench::claims::Claim;
use crate::stack::{Answer, ratio};
use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt;

/// Speedups that Spec-Bench publishes (github.com/hemingkx/Spec-Bench): Vicuna-7B on an RTX 3090, FP16,
/// greedy, a request at a time. By group in the order of [`GROUPS`], overall, and tokens per step.
const PUBLISHED: [(&str, [f64; 8]); 2] = [
    (
        "draft model (SpS), published",
        [1.94, 1.37, 1.96, 1.86, 1.81, 1.83, 1.79, 2.28],
    ),
    (
        "n-gram (PLD), published",
        [1.64, 1.15, 2.46, 1.28, 1.72, 1.71, 1.64, 1.73],
    ),
];

/// What must hold.
const NEVER_BELOW_PLAIN: f64 = 0.98;
const TOKENS_PER_STEP: f64 = 2.3;
const EDIT_SPEEDUP: f64 = 1.8;

/// One answer's figures.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Sample {
    pub(super) mode: &'static str,
    group: String,
    temperature: f32,
    /// Tokens after the first delta, and how long they took.
    tokens: usize,
    seconds: f64,
    /// Tokens after the first one, and the target's steps for them.
    verified_tokens: usize,
    rounds: u32,
    draft_tokens: u32,
    accepted_draft_tokens: u32,
    ngram_draft_tokens: u32,
    accepted_ngram_tokens: u32,
    ahead_hits: u32,
    ahead_misses: u32,
}

/// All samples.
#[derive(Debug)]
pub(super) struct Figures {
    samples: Vec<Sample>,
    of_spec_bench: bool,
}

/// Sums over samples.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Sum {
    tokens: f64,
    seconds: f64,
    verified_tokens: f64,
    rounds: f64,
}

impl Sample {
    pub(super) fn new(mode: &'static str, group: &str, temperature: f32, answer: &Answer) -> Self {
        let stats = answer.finished.speculation.clone().unwrap_or_default();
        Self {
            mode,
            group: group.to_owned(),
            temperature,
            tokens: answer.pace.tokens(),
            seconds: answer.pace.seconds(),
            verified_tokens: answer.token_ids.len().saturating_sub(1),
            rounds: stats.rounds,
            draft_tokens: stats.draft_tokens,
            accepted_draft_tokens: stats.accepted_draft_tokens,
            ngram_draft_tokens: stats.ngram_draft_tokens,
            accepted_ngram_tokens: stats.accepted_ngram_tokens,
            ahead_hits: stats.ahead_hits,
            ahead_misses: stats.ahead_misses,
        }
    }

    /// Tokens per second.
    pub(super) fn rate(&self) -> f64 {
        ratio(self.tokens as f64, self.seconds)
    }
}

impl Sum {
    fn of<'a>(samples: impl Iterator<Item = &'a Sample>) -> Self {
        samples.fold(Self::default(), |sum, sample| Self {
            tokens: sum.tokens + sample.tokens as f64,
            seconds: sum.seconds + sample.seconds,
            verified_tokens: sum.verified_tokens + sample.verified_tokens as f64,
            rounds: sum.rounds + f64::from(sample.rounds),
        })
    }

    fn rate(&self) -> f64 {
        ratio(self.tokens, self.seconds)
    }

    /// Committed tokens per step of the target, its own included.
    fn tokens_per_step(&self) -> f64 {
        ratio(self.verified_tokens, self.rounds)
    }
}

impl Figures {
    pub(super) fn new(samples: Vec<Sample>, of_spec_bench: bool) -> Self {
        Self {
            samples,
            of_spec_bench,
        }
    }

    /// The samples, and what they add up to.
    pub(super) fn json(&self, preset: &str) -> Result<Map<String, Value>> {
        let mut figures = Map::new();
        figures.insert("preset".to_owned(), preset.into());
        figures.insert("samples".to_owned(), serde_json::to_value(&self.samples)?);
        let published =
            PUBLISHED.map(|(name, values)| (name.to_owned(), Value::from(values.to_vec())));
        figures.insert("published".to_owned(), Map::from_iter(published).into());
        Ok(figures)
    }

    pub(super) fn claims(&self) -> Vec<Claim> {
        let mut claims = Vec::new();
        let pairs = self.temperatures().into_iter().flat_map(|temperature| {
            let groups = self.groups().into_iter();
            groups.map(move |group| (group, temperature))
        });
        let worst = pairs
            .map(|(group, temperature)| {
                (
                    self.speedup(COMBINED, Some(group), temperature),
                    group,
                    temperature,
                )
            })
            .min_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((speedup, group, temperature)) = worst {
            claims.push(Claim::at_least(
                &format!(
                    "combined over plain, tokens/s, the worst group ({group}, temperature {temperature})"
                ),
                speedup,
                NEVER_BELOW_PLAIN,
            ));
        }
        if self.temperatures().contains(&0.0) {
            claims.push(Claim::at_least(
                "combined, tokens per target step over all groups, temperature 0",
                self.sum(COMBINED, None, 0.0).tokens_per_step(),
                TOKENS_PER_STEP,
            ));
            if self.groups().contains(&EDIT) {
                claims.push(Claim::at_least(
                    "combined over plain, tokens/s, editing a file, temperature 0",
                    self.speedup(COMBINED, Some(EDIT), 0.0),
                    EDIT_SPEEDUP,
                ));
            }
        }
        claims
    }

    /// Sums over a group, or over all but the file to edit.
    fn sum(&self, mode: &str, group: Option<&str>, temperature: f32) -> Sum {
        Sum::of(self.samples.iter().filter(|sample| {
            sample.mode == mode
                && sample.temperature == temperature
                && group.map_or(sample.group != EDIT, |group| sample.group == group)
        }))
    }

    fn speedup(&self, mode: &str, group: Option<&str>, temperature: f32) -> f64 {
        let [rate, plain] = [mode, PLAIN].map(|mode| self.sum(mode, group, temperature).rate());
        ratio(rate, plain)
    }

    /// In the order in which they were asked.
    fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        for sample in &self.samples {
            if !groups.contains(&sample.group.as_str()) {
                groups.push(&sample.group);
            }
        }
        groups
    }

    fn temperatures(&self) -> Vec<f32> {
        let mut temperatures: Vec<f32> = self
            .samples
            .iter()
            .map(|sample| sample.temperature)
            .collect();
        temperatures.sort_by(f32::total_cmp);
        temperatures.dedup();
        temperatures
    }

    /// A table with a column for each group, and one for all but the file to edit.
    fn table(
        &self,
        f: &mut fmt::Formatter<'_>,
        title: &str,
        cell: impl Fn(&str, Option<&str>) -> String,
        published: bool,
    ) -> fmt::Result {
        let groups = self.groups();
        write!(f, "\n{title}\n\n| |")?;
        for group in &groups {
            write!(f, " {group} |")?;
        }
        write!(f, " all but the edit |\n|---|")?;
        for _ in 0..=groups.len() {
            write!(f, "---|")?;
        }
        for mode in MODES {
            write!(f, "\n| {} |", mode.name)?;
            for group in groups.iter().copied().map(Some).chain([None]) {
                write!(f, " {} |", cell(mode.name, group))?;
            }
        }
        for (name, values) in PUBLISHED.iter().filter(|_| published) {
            write!(f, "\n| {name} |")?;
            for group in &groups {
                let value = GROUPS.iter().position(|known| known == group);
                let value = value.map(|at| format!("{:.2}", values[at]));
                write!(f, " {} |", value.unwrap_or_default())?;
            }
            write!(f, " {:.2} |", values[GROUPS.len()])?;
        }
        writeln!(f)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for temperature in self.temperatures() {
            let title = format!(
                "Temperature {temperature}: tokens per second after the first, and over plain."
            );
            let cell = |mode: &str, group: Option<&str>| {
                let rate = self.sum(mode, group, temperature).rate();
                let speedup = self.speedup(mode, group, temperature);
                format!("{rate:.1} ({speedup:.2})")
            };
            let published = self.of_spec_bench && temperature == 0.0;
            self.table(f, &title, cell, published)?;
            let title = format!("Temperature {temperature}: tokens per step of the target.");
            let cell = |mode: &str, group: Option<&str>| {
                let sum = self.sum(mode, group, temperature);
                format!("{:.2}", sum.tokens_per_step())
            };
            self.table(f, &title, cell, false)?;
        }
        if self.of_spec_bench {
            writeln!(
                f,
                "\nPublished: speedups by Spec-Bench, Vicuna-7B, RTX 3090, FP16, greedy; tokens per step over all groups:"
            )?;
            for (name, values) in PUBLISHED {
                writeln!(f, "{name}: {:.2}.", values[GROUPS.len() + 1])?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(mode: &'static str, group: &str, tokens: usize, seconds: f64, rounds: u32) -> Sample {
        Sample {
            tokens,
            seconds,
            verified_tokens: tokens,
            rounds,
            ..Sample::new(mode, group, 0.0, &Answer::default())
        }
    }

    fn figures(of_spec_bench: bool) -> Figures {
        let samples = vec![
            sample(PLAIN, "qa", 100, 10.0, 100),
            sample(COMBINED, "qa", 100, 5.0, 40),
            sample(PLAIN, "rag", 100, 10.0, 100),
            sample(COMBINED, "rag", 100, 11.0, 40),
            sample(PLAIN, EDIT, 100, 10.0, 100),
            sample(COMBINED, EDIT, 100, 5.0, 10),
        ];
        Figures::new(samples, of_spec_bench)
    }

    #[test]
    fn the_worst_group_counts_and_the_edit_only_for_itself() {
        let claims = figures(true).claims();
        let [worst, steps, edit] = claims.as_slice() else {
            panic!("{claims:?}")
        };
        assert!(worst.name.contains("rag"), "{worst:?}");
        assert!(
            !worst.holds && (worst.measured - 100.0 / 110.0).abs() < 1e-9,
            "{worst:?}"
        );
        assert!(steps.holds && steps.measured == 2.5, "{steps:?}");
        assert!(edit.holds && edit.measured == 2.0, "{edit:?}");
    }

    #[test]
    fn published_rows_stand_beside_the_groups_they_are_of() {
        let table = figures(true).to_string();
        assert!(
            table.contains("| combined | 20.0 (2.00) | 9.1 (0.91) | 20.0 (2.00) | 12.5 (1.25) |"),
            "{table}"
        );
        assert!(
            table.contains("| n-gram (PLD), published | 1.28 | 1.71 |  | 1.64 |"),
            "{table}"
        );
        assert!(!figures(false).to_string().contains("published"));
    }
}
