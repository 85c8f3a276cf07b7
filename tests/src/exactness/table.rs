//! What was found, line by line, and what it means.

use super::statistics::{Outcome, failures};
use serde::Serialize;
use std::fmt;

/// What kind of check a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// A rule added up over all drafted paths, against the exact law.
    Enumeration,
    /// Texts of the three programs against the exact law.
    Law,
    /// Whether the statistic finds planted errors.
    Teeth,
    /// Texts of the three programs against plain decoding, byte for byte.
    Equality,
}

impl Check {
    /// What is not counted as an error, where no statistic judges.
    fn tolerance(self) -> f64 {
        match self {
            Self::Enumeration => 1e-12,
            Self::Law | Self::Teeth | Self::Equality => 0.0,
        }
    }
}

/// What a line ought to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Expectation {
    /// Everything is right.
    Exact,
    /// An error was planted, and must be found.
    Planted,
}

/// What a line shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it ought to be.
    Pass,
    /// Not the target's law, or not its text.
    Fail,
    /// A planted error was found.
    Caught,
    /// A planted error was not found: the statistic is too weak.
    Missed,
    /// Nothing was shown: drafts were not verified, or never accepted, or never rejected.
    NotExercised,
}

impl Verdict {
    /// True for what ought to be.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Pass | Self::Caught)
    }

    fn words(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Caught => "caught",
            Self::Missed => "MISSED",
            Self::NotExercised => "NOT EXERCISED",
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// What kind of check it is.
    pub check: Check,
    /// The rule.
    pub rule: String,
    /// The request's options, or what was planted.
    pub options: String,
    /// Texts that were generated.
    pub samples: u64,
    /// The G statistic; for equality, the texts that differ; for an enumeration, the largest error
    /// of a probability. Null in JSON where infinite.
    pub statistic: f64,
    /// The statistic's degrees of freedom.
    pub degrees: Option<usize>,
    /// How often chance alone gives such a statistic.
    pub p_value: Option<f64>,
    /// What it ought to show.
    pub expectation: Expectation,
    /// False where the line shows nothing; `note` says why.
    pub exercised: bool,
    /// What else was measured.
    pub note: String,
}

impl Line {
    /// A line of a G-test that expects the exact law.
    pub fn law(check: Check, rule: &str, options: &str, samples: u64, outcome: Outcome) -> Self {
        Self {
            check,
            rule: rule.to_owned(),
            options: options.to_owned(),
            samples,
            statistic: outcome.statistic,
            degrees: Some(outcome.degrees),
            p_value: Some(outcome.p_value),
            expectation: Expectation::Exact,
            exercised: true,
            note: String::new(),
        }
    }

    /// A line that added a rule up over `pairs` of models and found `error` at most.
    pub fn enumeration(rule: &str, pairs: u64, error: f64) -> Self {
        Self {
            check: Check::Enumeration,
            statistic: error,
            ..Self::equality(rule, "random laws", pairs, 0)
        }
    }

    /// A line that compared `texts`, of which `differing` were not as they ought to be.
    pub fn equality(rule: &str, options: &str, texts: u64, differing: u64) -> Self {
        Self {
            check: Check::Equality,
            rule: rule.to_owned(),
            options: options.to_owned(),
            samples: texts,
            statistic: differing as f64,
            degrees: None,
            p_value: None,
            expectation: Expectation::Exact,
            exercised: true,
            note: String::new(),
        }
    }

    /// Sets what the line ought to show.
    #[must_use]
    pub fn expecting(mut self, expectation: Expectation) -> Self {
        self.expectation = expectation;
        self
    }

    /// Says what else was measured, and whether that is enough for the line to mean something.
    #[must_use]
    pub fn noting(mut self, note: String, exercised: bool) -> Self {
        self.note = note;
        self.exercised = exercised;
        self
    }
}

/// A judged line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// The line.
    #[serde(flatten)]
    pub line: Line,
    /// What it shows.
    pub verdict: Verdict,
}

/// All lines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// The share of failures that may be chance.
    pub level: f64,
    /// The seed that the samples came from.
    pub seed: u64,
    /// The lines.
    pub lines: Vec<Judged>,
}

impl Table {
    /// Judges `lines`. Those that expect the exact law are judged together; a planted error is
    /// found where its p-value would fail among so many lines whatever the others are. `level` is
    /// the share of failures that may be chance, see [`failures`].
    pub fn judge(lines: Vec<Line>, seed: u64, level: f64) -> Self {
        let is_exact = |line: &&Line| line.expectation == Expectation::Exact;
        let exact = lines.iter().filter(is_exact);
        let p_values: Vec<f64> = exact.filter_map(|line| line.p_value).collect();
        let mut failed = failures(&p_values, level).into_iter();
        let enough = level / lines.len().max(1) as f64;
        let mut verdict = |line: &Line| match (line.expectation, line.p_value) {
            (Expectation::Planted, p) if p.is_some_and(|p| p <= enough) => Verdict::Caught,
            (Expectation::Planted, _) => Verdict::Missed,
            (Expectation::Exact, Some(_)) if failed.next() == Some(true) => Verdict::Fail,
            (Expectation::Exact, None) if line.statistic > line.check.tolerance() => Verdict::Fail,
            (Expectation::Exact, _) => Verdict::Pass,
        };
        let judge = |line: Line| {
            let verdict = match verdict(&line) {
                Verdict::Pass | Verdict::Caught if !line.exercised => Verdict::NotExercised,
                verdict => verdict,
            };
            Judged { line, verdict }
        };
        Self {
            level,
            seed,
            lines: lines.into_iter().map(judge).collect(),
        }
    }

    /// True where every line shows what it ought to.
    pub fn is_good(&self) -> bool {
        self.lines.iter().all(|line| line.verdict.is_good())
    }
}

const HEADINGS: [&str; 7] = [
    "check",
    "rule",
    "options",
    "samples",
    "statistic",
    "p-value",
    "verdict",
];

impl Judged {
    fn cells(&self) -> [String; 7] {
        let line = &self.line;
        let check = match line.check {
            Check::Enumeration => "enumeration",
            Check::Law => "law",
            Check::Teeth => "teeth",
            Check::Equality => "equality",
        };
        let statistic = match (line.check, line.degrees) {
            (_, Some(degrees)) => format!("G({degrees}) = {:.1}", line.statistic),
            (Check::Enumeration, None) => format!("off by {:.0e}", line.statistic),
            (_, None) => format!("{:.0} differ", line.statistic),
        };
        let p_value = match line.p_value {
            None => "-".to_owned(),
            Some(p) if p >= 0.001 => format!("{p:.3}"),
            Some(0.0) => "0".to_owned(),
            Some(p) => format!("{p:.0e}"),
        };
        let note = if line.note.is_empty() { "" } else { "  " };
        [
            check.to_owned(),
            line.rule.clone(),
            line.options.clone(),
            line.samples.to_string(),
            statistic,
            p_value,
            format!("{}{note}{}", self.verdict.words(), line.note),
        ]
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = vec![HEADINGS.map(str::to_owned)];
        rows.extend(self.lines.iter().map(Judged::cells));
        let mut widths = [0; HEADINGS.len()];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in &rows {
            let padded = row.iter().zip(widths).map(|(cell, width)| {
                let fill = " ".repeat(width - cell.chars().count());
                cell.clone() + &fill
            });
            let line = padded.collect::<Vec<_>>().join("  ");
            writeln!(out, "{}", line.trim_end())?;
        }
        let good = self.lines.iter().filter(|line| line.verdict.is_good());
        writeln!(
            out,
            "\n{} of {} lines are as they ought to be",
            good.count(),
            rows.len() - 1
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(p_value: f64) -> Line {
        let outcome = Outcome {
            statistic: 1.0,
            degrees: 3,
            p_value,
        };
        Line::law(Check::Law, "token", "plain", 10, outcome)
    }

    fn verdicts(lines: Vec<Line>) -> Vec<Verdict> {
        let table = Table::judge(lines, 1, 0.01);
        table.lines.iter().map(|line| line.verdict).collect()
    }

    #[test]
    fn each_line_is_judged_by_what_it_ought_to_show() {
        let planted = |p| line(p).expecting(Expectation::Planted);
        let lines = vec![
            line(0.5),
            planted(1e-9),
            line(1e-4),
            planted(0.004),
            line(0.5).noting("no drafts".to_owned(), false),
            planted(1e-9).noting("no drafts".to_owned(), false),
            line(1e-9).noting("no drafts".to_owned(), false),
            Line::equality("coupled", "plain", 10, 0),
            Line::equality("coupled", "plain", 10, 1),
            Line::enumeration("token", 10, 9e-13),
            Line::enumeration("block", 10, 2e-12),
        ];
        use Verdict::*;
        let expected = [
            Pass,
            Caught,
            Fail,
            Missed,
            NotExercised,
            NotExercised,
            Fail,
            Pass,
            Fail,
            Pass,
            Fail,
        ];
        assert_eq!(verdicts(lines), expected);
    }

    #[test]
    fn one_bad_line_makes_the_table_bad() {
        assert!(Table::judge(vec![line(0.5), line(0.02)], 1, 0.01).is_good());
        assert!(!Table::judge(vec![line(0.5), line(0.001)], 1, 0.01).is_good());
        let missed = line(0.5).expecting(Expectation::Planted);
        assert!(!Table::judge(vec![missed], 1, 0.01).is_good());
    }

    #[test]
    fn columns_are_aligned() {
        let table = Table::judge(
            vec![line(0.5), Line::equality("coupled", "a", 7, 0)],
            1,
            0.01,
        );
        let text = table.to_string();
        let place = |line: usize, word: &str| text.lines().nth(line).unwrap().find(word);
        assert_eq!(place(0, "samples"), place(1, "10"));
        assert_eq!(place(0, "verdict"), place(2, "pass"));
    }
}
