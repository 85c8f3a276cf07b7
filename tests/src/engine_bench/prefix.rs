//! A second request with the same long prefix.

use super::Times;
use super::subject::{Greedy, Subject};
use anyhow::Result;
use serde::Serialize;
use speculation::TokenId;
use std::time::Instant;

const PREFIX: usize = 1000;
const DECODED: usize = 16;

/// When the first token comes, and whether the answers are the same.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    first: Times,
    second: Times,
    equal: bool,
}

impl Figures {
    /// How many times sooner the second starts.
    pub(crate) fn gain(&self) -> f64 {
        self.first.best() / self.second.best()
    }

    pub(crate) fn equal(&self) -> bool {
        self.equal
    }
}

pub(crate) async fn measure(target: &Subject, tries: usize) -> Result<Figures> {
    let mut figures = Figures {
        first: Times::default(),
        second: Times::default(),
        equal: true,
    };
    for number in 0..tries.min(3) {
        // Behind the numbers of the prompts that were timed before.
        let prompt = target.prompt(1000 + number, PREFIX);
        let first = answer(target, &prompt, &mut figures.first).await?;
        let second = answer(target, &prompt, &mut figures.second).await?;
        figures.equal &= first == second;
    }
    Ok(figures)
}

async fn answer(
    target: &Subject,
    prompt: &[TokenId],
    first_token: &mut Times,
) -> Result<Vec<TokenId>> {
    let mut sequence = target.open()?;
    let begun = Instant::now();
    let first = sequence.read(0, prompt.to_vec(), 1, Greedy::new()?).await?;
    first_token.add(begun.elapsed());
    let rest = sequence
        .decode(prompt.len(), first.tokens.clone(), DECODED, Greedy::new()?)
        .await?;
    Ok([first.tokens, rest.tokens].concat())
}
