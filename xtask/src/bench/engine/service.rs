//! Plain and speculative decoding through the three processes, and llama.cpp in between.

use super::llama;
use crate::bench::claims::Claim;
use crate::stack::{self, Answer, Ask, Client, Cores, ratio};
use anyhow::{Result, ensure};
use models::{Resolved, Role};
use proto::v1::{DraftSource, VerificationRule};
use serde::Serialize;
use std::path::Path;

/// The code prompt.
const PROMPT: &str = "Write a Python function that returns the n-th Fibonacci number \
                      iteratively, with a docstring.";
const TOKENS: u32 = 128;
const DRAFT_TOKENS: u32 = 3;

/// Tokens per second of each try, from the first token to the last.
#[derive(Debug, Default, Serialize)]
pub(super) struct Figures {
    plain: Vec<f64>,
    speculative: Vec<f64>,
    llama_cpp: Vec<f64>,
    mean_acceptance_length: f64,
}

/// Asks by turns, so that what the machine does meanwhile meets all of them.
pub(super) fn measure(preset: &str, tries: u32, python: Option<&Path>) -> Result<Figures> {
    let mut figures = Figures::default();
    stack::run(preset, Cores::Shared, async |_, coordinator| {
        let mut client = Client::connect(coordinator).await?;
        for number in 1..=tries {
            eprintln!("through the service, try {number} of {tries}");
            let plain = ask(&mut client, false).await?;
            let speculative = ask(&mut client, true).await?;
            ensure!(
                plain.token_ids == speculative.token_ids,
                "speculation changed the text"
            );
            figures.plain.push(plain.pace.tokens_per_second());
            figures.add_speculative(&speculative);
            if let Some(python) = python {
                let rate = llama::decode_rate(python, &target(preset)?, PROMPT, TOKENS).await?;
                figures.llama_cpp.push(rate);
            }
        }
        Ok(())
    })?;
    Ok(figures)
}

async fn ask(client: &mut Client, speculate: bool) -> Result<Answer> {
    let ask = Ask {
        prompt: PROMPT,
        max_tokens: TOKENS,
        temperature: 0.0,
        seed: 0,
        speculate,
        rule: VerificationRule::Coupled,
        min_draft_tokens: Some(DRAFT_TOKENS),
        max_draft_tokens: Some(DRAFT_TOKENS),
        sources: &[DraftSource::Model],
    };
    client.generate(&ask, |_| Ok(())).await
}

fn target(preset: &str) -> Result<std::path::PathBuf> {
    match models::resolve(preset, Role::Target, &models::store_dir())? {
        Resolved::File { path, .. } => Ok(path),
        Resolved::Synthetic(_) => anyhow::bail!("--preset: {preset} is no pair of files"),
    }
}

impl Figures {
    fn add_speculative(&mut self, answer: &Answer) {
        let stats = answer.finished.speculation.clone().unwrap_or_default();
        let rounds = f64::from(stats.rounds);
        self.mean_acceptance_length =
            ratio(f64::from(stats.accepted_draft_tokens) + rounds, rounds);
        self.speculative.push(answer.pace.tokens_per_second());
    }

    pub(super) fn claims(&self) -> Vec<Claim> {
        let [plain, speculative, llama] =
            [&self.plain, &self.speculative, &self.llama_cpp].map(|rates| best(rates));
        let mut claims = vec![Claim::at_least(
            "speculation over plain, tokens/s through the service",
            ratio(speculative, plain),
            1.3,
        )];
        if !self.llama_cpp.is_empty() {
            claims.push(Claim::at_least(
                "plain through the service over llama.cpp's plain, tokens/s",
                ratio(plain, llama),
                1.3,
            ));
        }
        claims
    }
}

fn best(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
}
