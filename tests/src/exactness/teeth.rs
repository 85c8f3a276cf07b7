//! That the statistic has teeth: it passes the right loop and fails each planted error, on the same
//! models as the lines that it is trusted with and, but for one error that shows little, at as many
//! samples.

use super::biased::{Planted, Rule, Speculation};
use super::law::{Law, Text, TokenId};
use super::options::OptionSet;
use super::oracle::Oracle;
use super::statistics::{Counts, g_test};
use super::table::{Check, Expectation, Line};
use super::tables::Table;
use super::{DRAFTED, LENGTH};
use anyhow::Result;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use std::cell::RefCell;
use std::collections::HashMap;

/// A loop that is right, or wrong in one way.
struct Case {
    rule: Rule,
    options: &'static str,
    error: &'static str,
    planted: Option<Planted>,
    /// The penalties of a round count only what was there when it began.
    counts_rounds: bool,
    /// How many times as many samples it takes to see.
    times: u64,
}

impl Case {
    fn right(rule: Rule, options: &'static str) -> Self {
        Self {
            rule,
            options,
            error: "nothing planted",
            planted: None,
            counts_rounds: false,
            times: 1,
        }
    }

    fn wrong(rule: Rule, planted: Planted, error: &'static str) -> Self {
        Self {
            error,
            planted: Some(planted),
            ..Self::right(rule, "plain")
        }
    }
}

fn cases() -> Vec<Case> {
    use Planted::*;
    use Rule::*;
    let per_round = |rule| Case {
        error: "penalties counted per round",
        counts_rounds: true,
        ..Case::right(rule, "penalties")
    };
    vec![
        Case::right(Token, "plain"),
        Case::right(Block, "plain"),
        Case::right(Token, "penalties"),
        Case::right(Block, "penalties"),
        Case::wrong(Token, ResidualSoftmaxed, "residual softmaxed"),
        Case::wrong(Block, ResidualSoftmaxed, "residual softmaxed"),
        Case::wrong(Token, ResidualDropped, "residual dropped"),
        Case::wrong(Block, ResidualDropped, "residual dropped"),
        Case::wrong(Token, DrawnGreedily, "drawn greedily, q declared"),
        Case::wrong(Block, DrawnGreedily, "drawn greedily, q declared"),
        Case::wrong(Token, NoiseShared, "coupled noise in a ratio rule"),
        per_round(Token),
        per_round(Block),
        Case::wrong(Block, StopsAtFirstFailure, "stops at the first failure"),
        Case {
            times: 8,
            ..Case::wrong(Block, VariablesReused, "variables reused by rounds")
        },
    ]
}

/// A line for the right loop of each rule and for each planted error.
///
/// # Errors
/// Where there are too few samples for a statistic.
pub fn lines(
    (target, draft): (&Table, &Table),
    sets: &[OptionSet],
    samples: u64,
    seed: u64,
) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (number, case) in (0..).zip(cases()) {
        let set = sets.iter().find(|set| set.name == case.options);
        let Some(options) = set else { continue };
        let oracle = |table| Oracle { table, options };
        let mut rng = StdRng::seed_from_u64(seed ^ (number << 32));
        let samples = samples * case.times;
        let counts = case.sample(oracle(target), oracle(draft), samples, &mut rng);
        let rule = match case.rule {
            Rule::Token => "token",
            Rule::Block => "block",
        };
        let expectation = if case.is_right() {
            Expectation::Exact
        } else {
            Expectation::Planted
        };
        let outcome = g_test(&oracle(target).joint(LENGTH), &counts)?;
        let what = format!("{}: {}", case.options, case.error);
        lines.push(Line::law(Check::Teeth, rule, &what, samples, outcome).expecting(expectation));
    }
    Ok(lines)
}

impl Case {
    fn sample(
        &self,
        target: Oracle<'_>,
        draft: Oracle<'_>,
        samples: u64,
        rng: &mut StdRng,
    ) -> Counts {
        let (targets, drafts) = (RefCell::default(), RefCell::default());
        let speculation = Speculation {
            target: &|output, round| self.next(&targets, target, output, round),
            draft: &|output, round| self.next(&drafts, draft, output, round),
            rule: self.rule,
            planted: self.planted,
            drafted: DRAFTED,
        };
        let mut counts = Counts::new();
        for _ in 0..samples {
            *counts.entry(speculation.text(LENGTH, rng)).or_default() += 1;
        }
        counts
    }

    fn is_right(&self) -> bool {
        self.planted.is_none() && !self.counts_rounds
    }

    fn next(&self, known: &Known, oracle: Oracle<'_>, output: &[TokenId], round: usize) -> Law {
        let counted = if self.counts_rounds {
            round
        } else {
            output.len()
        };
        let mut known = known.borrow_mut();
        let law = known
            .entry((output.to_vec(), counted))
            .or_insert_with(|| oracle.law_counting(output, counted));
        law.clone()
    }
}

/// Laws that were asked for before, by the output and how much of it the penalties count.
type Known = RefCell<HashMap<(Text, usize), Law>>;
