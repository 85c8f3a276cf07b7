//! Requests as a closed queueing network: each is drafted for, then verified in a batch with others.

use super::System;

/// Iterations of the fixed point; it settles within some ten.
const ITERATIONS: usize = 60;

/// How the target's batches are formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// All requests in one.
    OneBatch,
    /// Two that alternate: one is drafted for while the other is verified.
    TwoBatches,
    /// Whichever are ready when the target is.
    Continuous,
}

/// What limits the tokens per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The target, verifying all the time.
    Target,
    /// The draft workers, drafting all the time.
    Drafts,
    /// The number of requests: each waits for its own drafts and verifications.
    Concurrency,
}

/// Tokens per second that cannot be exceeded, each bound by itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// The target, verifying batches of all requests all the time.
    pub target: f64,
    /// The draft workers, drafting all the time. Infinite in plain decoding.
    pub drafts: f64,
    /// All requests, none ever waiting for another.
    pub concurrency: f64,
}

/// What a draft length gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Tokens drafted in a round, k.
    pub draft_tokens: usize,
    /// Tokens committed in a round, E(k).
    pub tokens_per_round: f64,
    /// Of all requests.
    pub tokens_per_second: f64,
    /// Of one request.
    pub seconds_per_token: f64,
    /// Sequences in a batch, on average.
    pub batch: f64,
    /// How batches are best formed.
    pub way: Way,
    /// What cannot be exceeded.
    pub bounds: Bounds,
    /// The lowest of the bounds.
    pub binding: Bound,
    /// Draft workers that are busy all the time for this, rounded up:
    /// ⌈X·k·t_d(b) / (E·b)⌉, b sequences each.
    pub draft_workers: usize,
}

/// A way's tokens per second, and sequences in a batch.
type Rate = (f64, f64, Way);

/// A number of requests, of workers, and a length.
struct Network<'a> {
    system: &'a System,
    requests: f64,
    /// Sequences that a worker drafts for.
    each: f64,
    k: f64,
    expected: f64,
}

/// What `k` drafted tokens give with so many draft workers.
pub(super) fn choice(system: &System, workers: usize, k: usize) -> Choice {
    let requests = system.requests.max(1);
    let network = Network {
        system,
        requests: requests as f64,
        each: requests.div_ceil(workers) as f64,
        k: k as f64,
        expected: system.acceptance.expected(k),
    };
    let ways = [
        network.one_batch(),
        network.two_batches(),
        network.continuous(),
    ];
    let best = ways.into_iter().fold(
        ways[0],
        |best, way| {
            if way.0 > best.0 * 1.001 { way } else { best }
        },
    );
    let bounds = network.bounds(workers as f64);
    let lowest = bounds.target.min(bounds.drafts).min(bounds.concurrency);
    let rate = best.0.min(lowest);
    let binding = if lowest == bounds.target {
        Bound::Target
    } else if lowest == bounds.drafts {
        Bound::Drafts
    } else {
        Bound::Concurrency
    };
    let busy = rate * network.steps(network.each) / (network.expected * network.each);
    Choice {
        draft_tokens: k,
        tokens_per_round: network.expected,
        tokens_per_second: rate,
        seconds_per_token: network.requests / rate,
        batch: best.1,
        way: best.2,
        bounds,
        binding,
        // What is busy by a rounding error more than whole is whole.
        draft_workers: (busy - 1e-9).ceil().max(0.0) as usize,
    }
}

impl Network<'_> {
    /// Seconds of drafting for `sequences` at once.
    fn steps(&self, sequences: f64) -> f64 {
        self.k * self.system.draft.seconds(sequences)
    }

    /// Seconds between a verdict and the next proposal's arrival at the target, Z.
    fn away(&self, sequences: f64) -> f64 {
        let draft_rtt = if self.k > 0.0 {
            self.system.draft_rtt
        } else {
            0.0
        };
        draft_rtt + self.steps(sequences.max(1.0)) + self.system.target_rtt
    }

    /// Seconds to verify the proposals of so many sequences.
    fn verify(&self, sequences: f64) -> f64 {
        self.system.verify.seconds(sequences * (self.k + 1.0))
    }

    fn one_batch(&self) -> Rate {
        let round = self.away(self.each) + self.verify(self.requests);
        let rate = self.requests * self.expected / round;
        (rate, self.requests, Way::OneBatch)
    }

    fn two_batches(&self) -> Rate {
        let half = (self.requests / 2.0).ceil();
        let verify = self.verify(half);
        let round = (2.0 * verify).max(self.away((self.each / 2.0).ceil()) + verify);
        let rate = self.requests * self.expected / round;
        let rate = if self.requests < 2.0 { 0.0 } else { rate };
        (rate, half, Way::TwoBatches)
    }

    /// Proposals come when they come, so that each waits for half of the batch under way, on
    /// average, before it is verified itself: X = C·E / (Z + 1.5·t_v(n)), with n = B·(k+1) rows and
    /// B = C·t_v / (Z + 1.5·t_v) sequences in a batch, iterated (design, verification 4). One
    /// request alone waits for none; among C, (C - 1) / C of the batches are those of others.
    fn continuous(&self) -> Rate {
        let wait = 1.0 + 0.5 * (1.0 - 1.0 / self.requests);
        let mut batch = self.requests;
        let mut round = 0.0;
        for _ in 0..ITERATIONS {
            let verify = self.verify(batch);
            round = self.away(self.each * (1.0 - batch / self.requests)) + wait * verify;
            let next = (self.requests * verify / round).clamp(1.0, self.requests);
            batch = f64::midpoint(batch, next);
        }
        let rate = self.requests * self.expected / round;
        (rate, batch, Way::Continuous)
    }

    fn bounds(&self, workers: f64) -> Bounds {
        let tokens = self.requests * self.expected;
        let drafts = if self.k > 0.0 {
            let each = (self.requests / workers).max(1.0);
            workers.min(self.requests) * each * self.expected / self.steps(each)
        } else {
            f64::INFINITY
        };
        Bounds {
            target: tokens / self.verify(self.requests),
            drafts,
            concurrency: tokens / (self.away(1.0) + self.verify(1.0)),
        }
    }
}
