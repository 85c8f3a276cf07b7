//! All metrics: their names, their labels, their buckets. docs/telemetry.md lists them.

use super::health::{Peer, PeerState};
use crate::scheduler::{Counters, WorkerId};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};
use proto::v1::Load;
use service::telemetry::metrics::PREFIX;
use std::sync::atomic::{AtomicU64, Ordering};

/// Labels: names and values.
pub(super) type Labels<const N: usize> = [(&'static str, String); N];

/// One histogram for each set of labels.
pub(super) type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

/// A gauge of a ratio or of seconds.
type FloatGauge = Gauge<f64, AtomicU64>;

/// A quarter of a millisecond to over four seconds: steps and round trips.
fn step_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_25, 2.0, 15))
}

/// A millisecond to a minute: the time between tokens.
fn token_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

/// Five milliseconds to three quarters of an hour: requests.
fn request_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.005, 2.0, 20))
}

/// 1 to 16384: sequences and tokens of a batch.
fn sizes() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 15))
}

/// What is observed of requests for one model: found once, as a request is let in.
#[derive(Debug)]
pub(super) struct OfModel {
    pub(super) name: String,
    pub(super) prompt_tokens: Counter,
    pub(super) generation_tokens: Counter,
    pub(super) first_token: Histogram,
    pub(super) between_tokens: Histogram,
    pub(super) latency: Histogram,
}

/// What is observed of a worker.
#[derive(Debug)]
pub(super) struct OfWorker {
    pub(super) rtt: Histogram,
    /// Its steps, where it says so itself.
    pub(super) step: Histogram,
    cache_usage: FloatGauge,
    sequences: Gauge,
}

impl OfWorker {
    /// It says how busy it is.
    pub(super) fn load(&self, load: &Load) {
        let most = load.max_cache_tokens.max(1);
        self.cache_usage.set(load.cache_tokens as f64 / most as f64);
        self.sequences.set(load.active_sequences.into());
    }
}

/// The labels of a worker; the target's number is 0 as the first draft worker's is.
fn labels(worker: Option<WorkerId>) -> Labels<2> {
    let role = if worker.is_some() { "draft" } else { "target" };
    [
        ("role", role.to_owned()),
        ("worker", worker.unwrap_or(0).to_string()),
    ]
}

/// A registry, and the names in it: without the prefix and, for counters, without `_total`.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) registry: Registry,
    pub(super) names: Vec<&'static str>,
}

impl Named {
    fn add(&mut self, name: &'static str, help: &'static str, metric: &(impl Metric + Clone)) {
        self.registry.register(name, help, metric.clone());
        self.names.push(name);
    }
}

/// The coordinator's metrics. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    drafts: Family<Labels<1>, Counter>,
    draft_tokens: Family<Labels<1>, Counter>,
    accepted_tokens: Family<Labels<1>, Counter>,
    accepted_at: Family<Labels<2>, Counter>,
    rounds: Counter,
    ahead_hits: Counter,
    ahead_misses: Counter,
    stale_messages: Counter,
    malformed_proposals: Counter,
    /// Choices that the target decodes.
    pub(super) running: Gauge,
    /// Choices that were let in and wait for the target.
    pub(super) waiting: Gauge,
    pub(super) requests: Family<Labels<2>, Counter>,
    pub(super) prompt_tokens: Family<Labels<1>, Counter>,
    pub(super) generation_tokens: Family<Labels<1>, Counter>,
    pub(super) prefix_queries: Counter,
    pub(super) prefix_hits: Counter,
    pub(super) first_token: Histograms<1>,
    pub(super) between_tokens: Histograms<1>,
    pub(super) request_latency: Histograms<1>,
    pub(super) batch_sequences: Histogram,
    pub(super) batch_tokens: Histogram,
    pub(super) verify_step: Histogram,
    pub(super) draft_step: Histograms<2>,
    pub(super) rtt: Histograms<2>,
    pub(super) cache_usage: Family<Labels<2>, FloatGauge>,
    pub(super) sequences: Family<Labels<2>, Gauge>,
    pub(super) workers: Family<Labels<4>, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            drafts: Family::default(),
            draft_tokens: Family::default(),
            accepted_tokens: Family::default(),
            accepted_at: Family::default(),
            rounds: Counter::default(),
            ahead_hits: Counter::default(),
            ahead_misses: Counter::default(),
            stale_messages: Counter::default(),
            malformed_proposals: Counter::default(),
            running: Gauge::default(),
            waiting: Gauge::default(),
            requests: Family::default(),
            prompt_tokens: Family::default(),
            generation_tokens: Family::default(),
            prefix_queries: Counter::default(),
            prefix_hits: Counter::default(),
            first_token: Family::new_with_constructor(request_seconds),
            between_tokens: Family::new_with_constructor(token_seconds),
            request_latency: Family::new_with_constructor(request_seconds),
            batch_sequences: sizes(),
            batch_tokens: sizes(),
            verify_step: step_seconds(),
            draft_step: Family::new_with_constructor(step_seconds),
            rtt: Family::new_with_constructor(step_seconds),
            cache_usage: Family::default(),
            sequences: Family::default(),
            workers: Family::default(),
        }
    }
}

impl Metrics {
    /// Those for a model that a draft worker serves alone: what is told of requests is told with the
    /// others, and what would be told of the target and of speculation is not.
    #[must_use]
    pub(crate) fn of_requests_alone(&self) -> Self {
        let all = self.clone();
        Self {
            running: all.running,
            waiting: all.waiting,
            requests: all.requests,
            prompt_tokens: all.prompt_tokens,
            generation_tokens: all.generation_tokens,
            first_token: all.first_token,
            between_tokens: all.between_tokens,
            request_latency: all.request_latency,
            ..Self::default()
        }
    }

    /// All of them under their names.
    pub(crate) fn registry(&self) -> Named {
        let mut named = Named {
            registry: Registry::with_prefix(PREFIX),
            names: Vec::new(),
        };
        self.speculation(&mut named);
        self.serving(&mut named);
        self.workers(&mut named);
        named
    }

    fn speculation(&self, to: &mut Named) {
        to.add(
            "spec_decode_num_drafts",
            "Proposals that were verified, by who drafted them",
            &self.drafts,
        );
        to.add(
            "spec_decode_num_draft_tokens",
            "Drafted tokens that were verified",
            &self.draft_tokens,
        );
        to.add(
            "spec_decode_num_accepted_tokens",
            "Drafted tokens that were accepted and committed",
            &self.accepted_tokens,
        );
        to.add(
            "spec_decode_num_accepted_tokens_per_pos",
            "The same, by position in the proposal, from 0",
            &self.accepted_at,
        );
        to.add(
            "verify_rounds",
            "Verdicts, those of plain rounds included",
            &self.rounds,
        );
        to.add(
            "draft_ahead_hits",
            "Verdicts after which a proposal that was drafted ahead was at hand",
            &self.ahead_hits,
        );
        to.add(
            "draft_ahead_misses",
            "Verdicts after which none was although a draft worker drafted ahead",
            &self.ahead_misses,
        );
        to.add(
            "stale_messages",
            "Messages of workers that were dropped because what they speak of had passed",
            &self.stale_messages,
        );
        to.add(
            "malformed_proposals",
            "Proposals that were dropped because they made no sense",
            &self.malformed_proposals,
        );
    }

    fn serving(&self, to: &mut Named) {
        to.add(
            "requests_running",
            "Choices of requests that the target decodes",
            &self.running,
        );
        to.add(
            "requests",
            "Requests that ended, by how: stop, length, cancelled, or the class of the error",
            &self.requests,
        );
        to.add(
            "prompt_tokens",
            "Tokens of prompts that the target has prefilled",
            &self.prompt_tokens,
        );
        to.add(
            "generation_tokens",
            "Tokens that were committed",
            &self.generation_tokens,
        );
        to.add(
            "time_to_first_token_seconds",
            "From a request's arrival to a choice's first token",
            &self.first_token,
        );
        to.add(
            "inter_token_latency_seconds",
            "From one delivery of a choice's tokens to the next",
            &self.between_tokens,
        );
        to.add(
            "e2e_request_latency_seconds",
            "From a request's arrival to its end",
            &self.request_latency,
        );
    }

    fn workers(&self, to: &mut Named) {
        to.add(
            "prefix_cache_queries",
            "Tokens of prompts that were looked for in the target's cache",
            &self.prefix_queries,
        );
        to.add(
            "prefix_cache_hits",
            "Those that were found there, and so not computed",
            &self.prefix_hits,
        );
        to.add(
            "verify_batch_sequences",
            "Sequences of a batch that is verified",
            &self.batch_sequences,
        );
        to.add(
            "verify_batch_tokens",
            "Rows of a batch that is verified: drafted tokens, and one more for each sequence",
            &self.batch_tokens,
        );
        to.add(
            "verify_step_seconds",
            "The target's time for a batch",
            &self.verify_step,
        );
        to.add(
            "draft_step_seconds",
            "A draft worker's time for a step of its engine",
            &self.draft_step,
        );
        to.add(
            "worker_rtt_seconds",
            "From a batch or a demand to its answer, beside the worker's own time for it",
            &self.rtt,
        );
        to.add(
            "kv_cache_usage_ratio",
            "The share of a worker's cache that open sequences hold, 0 to 1",
            &self.cache_usage,
        );
        to.add(
            "worker_sequences",
            "Sequences that a worker holds, of all coordinators",
            &self.sequences,
        );
        to.add(
            "worker_up",
            "1 for a worker that serves, 0 for one that does not",
            &self.workers,
        );
    }

    pub(super) fn of_model(&self, name: &str) -> OfModel {
        let labels = [("model", name.to_owned())];
        OfModel {
            name: name.to_owned(),
            prompt_tokens: self.prompt_tokens.get_or_create_owned(&labels),
            generation_tokens: self.generation_tokens.get_or_create_owned(&labels),
            first_token: self.first_token.get_or_create_owned(&labels),
            between_tokens: self.between_tokens.get_or_create_owned(&labels),
            latency: self.request_latency.get_or_create_owned(&labels),
        }
    }

    pub(super) fn of_worker(&self, worker: Option<WorkerId>) -> OfWorker {
        let labels = labels(worker);
        OfWorker {
            rtt: self.rtt.get_or_create_owned(&labels),
            step: match worker {
                Some(_) => self.draft_step.get_or_create_owned(&labels),
                None => self.verify_step.clone(),
            },
            cache_usage: self.cache_usage.get_or_create_owned(&labels),
            sequences: self.sequences.get_or_create_owned(&labels),
        }
    }

    /// A request for `model` ended.
    pub(super) fn ended(&self, model: &str, outcome: &str) {
        let labels = [("model", model.to_owned()), ("outcome", outcome.to_owned())];
        self.requests.get_or_create(&labels).inc();
    }

    /// Shows which workers there are: with the model and the address of each, and whether it serves.
    pub(super) fn show_worker(&self, worker: Option<WorkerId>, peer: &Peer) {
        let [role, number] = labels(worker);
        let labels = [
            role,
            number,
            ("model", peer.model.clone()),
            ("address", peer.address.clone()),
        ];
        let up = peer.state == PeerState::Serving;
        self.workers.get_or_create(&labels).set(up.into());
    }

    /// Forgets which workers there are, for all of them to be shown again.
    pub(super) fn forget_workers(&self) {
        self.workers.clear();
    }

    /// Shows what the scheduler has counted since the start.
    pub(super) fn show(&self, counters: &Counters, malformed: u64) {
        for (source, drafts) in [("model", &counters.model), ("ngram", &counters.ngram)] {
            let source = ("source", source.to_owned());
            let labels = [source.clone()];
            let set = |family: &Family<Labels<1>, Counter>, value: u64| {
                store(&family.get_or_create(&labels), value);
            };
            set(&self.drafts, drafts.proposals);
            set(&self.draft_tokens, drafts.drafted);
            set(&self.accepted_tokens, drafts.accepted);
            for (position, count) in drafts.accepted_at.iter().enumerate() {
                // Positions that no proposal has reached yet would be many empty lines.
                if *count > 0 {
                    let labels = [source.clone(), ("position", position.to_string())];
                    store(&self.accepted_at.get_or_create(&labels), *count);
                }
            }
        }
        store(&self.rounds, counters.rounds);
        store(&self.ahead_hits, counters.ahead_hits);
        store(&self.ahead_misses, counters.ahead_misses);
        store(&self.stale_messages, counters.stale);
        store(&self.malformed_proposals, malformed);
    }
}

/// Has a counter show a sum that is kept elsewhere.
fn store(counter: &Counter, sum: u64) {
    counter.inner().store(sum, Ordering::Relaxed);
}
