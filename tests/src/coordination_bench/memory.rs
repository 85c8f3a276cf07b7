//! The coordinator's memory over many requests of all kinds, some of which are given up.

use super::single::link;
use super::stand::{CoordinatorStand, DraftStand, target};
use crate::{Claim, Prompting as _, text_prompt};
use anyhow::{Context as _, Result};
use engine::synthetic::Description;
use futures::{StreamExt as _, stream};
use proto::v1::{GenerateRequest, SamplingParams, VerificationRule};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::Serialize;

const SEED: u64 = 11;
const AT_ONCE: usize = 50;

/// Requests before the first that counts, as a share of those that do: caches and buffers come to
/// their size, and the allocator to what it keeps.
const WARM: f64 = 1.0;

/// The share by which the coordinator may grow over the requests that count: what an allocator keeps
/// of pieces that it can no longer join.
const GROWTH: f64 = 1.05;

#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    requests: usize,
    seed: u64,
    warm_requests: usize,
    /// Of the coordinator, as it starts and after each so many requests.
    every: usize,
    resident_bytes: Vec<u64>,
    given_up: usize,
}

/// A request, and after how many deltas its client leaves.
struct Case {
    request: GenerateRequest,
    leaves_after: Option<usize>,
}

pub(crate) async fn measure(quick: bool, progress: &dyn Fn(&str)) -> Result<Figures> {
    let requests = if quick { 500 } else { 5000 };
    let description = Description {
        base_ms: 1.0,
        ..Description::default()
    };
    let target = target(&description).await?;
    let description = Description {
        base_ms: 0.2,
        agreement: 0.75,
        ..description
    };
    let draft = DraftStand::start(description, link(0.2)).await?;
    let coordinator = CoordinatorStand::start(&target, &[&draft], &[]).await?;
    let mut random = StdRng::seed_from_u64(SEED);
    let mut figures = Figures {
        requests,
        seed: SEED,
        warm_requests: (requests as f64 * WARM) as usize,
        every: requests / 10,
        resident_bytes: vec![coordinator.process.resident_bytes()?],
        given_up: 0,
    };
    progress(&format!("memory: {requests} requests, seed {SEED}"));
    let rounds = (requests + figures.warm_requests) / figures.every;
    for _ in 0..rounds {
        let cases: Vec<_> = (0..figures.every)
            .map(|_| Case::draw(&mut random))
            .collect();
        let left = cases.iter().filter(|case| case.leaves_after.is_some());
        figures.given_up += left.count();
        let mut running = stream::iter(cases)
            .map(|case| case.run(&coordinator))
            .buffer_unordered(AT_ONCE);
        while let Some(result) = running.next().await {
            result.with_context(|| coordinator.process.log())?;
        }
        let resident = coordinator.process.resident_bytes()?;
        figures.resident_bytes.push(resident);
    }
    Ok(figures)
}

impl Case {
    fn draw(random: &mut StdRng) -> Self {
        let words = random.random_range(1..200);
        let prompt: Vec<String> = (0..words)
            .map(|_| random.random_range(0..1000_u32).to_string())
            .collect();
        let mut request = text_prompt(&prompt.join(" "))
            .at_most(random.random_range(1..60))
            .seed(random.random());
        if random.random() {
            request = request.sampling(SamplingParams::default());
        }
        if random.random_bool(0.2) {
            request = request.choices(random.random_range(2..5));
        }
        request = match random.random_range(0..10) {
            0 => request.plain(),
            1 => request.rule(VerificationRule::Token),
            2 => request.rule(VerificationRule::Block),
            3 => request.stop_string("ba"),
            4 => request.logprobs(5, proto::v1::LogprobsMode::RawLogprobs),
            _ => request,
        };
        request.tenant = format!("tenant {}", random.random_range(0..4));
        Self {
            request,
            leaves_after: random.random_bool(0.2).then(|| random.random_range(0..10)),
        }
    }

    async fn run(self, coordinator: &CoordinatorStand) -> Result<()> {
        let mut client = coordinator.client.raw();
        let stream = client.generate(self.request).await?.into_inner();
        let mut stream = stream.take(self.leaves_after.unwrap_or(usize::MAX));
        while let Some(response) = stream.next().await {
            response?;
        }
        Ok(())
    }
}

impl Figures {
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let before = self.resident_bytes[self.warm_requests / self.every];
        let after = self.resident_bytes[self.resident_bytes.len() - 1];
        let requests = self.requests;
        vec![Claim::at_most(
            format!("coordinator's memory after {requests} mixed requests over that before them"),
            after as f64 / before as f64,
            GROWTH,
        )]
    }
}
