//! A worker's metrics: what its engine did, read when somebody asks.

use engine::{BLOCK_TOKENS, Engine};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use service::telemetry::metrics::PREFIX;
use std::fmt;

/// Everything that is told of `engine`.
pub(crate) fn registry(engine: Engine) -> Registry {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Told(engine)));
    registry
}

#[derive(Debug)]
struct Told(Engine);

impl Collector for Told {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (steps, cache) = (self.0.step_totals(), self.0.cache());
        let blocks = cache.blocks;
        let all = blocks.used + blocks.cached + blocks.free;
        let ratio = blocks.used as f64 / all.max(1) as f64;
        let mut tell =
            |name: &str, help: &str, metric: &dyn Tell| metric.tell(&mut encoder, name, help);
        let count = ConstCounter::<u64>::new;
        tell("worker_steps", "Steps of the engine", &count(steps.steps))?;
        let help =
            "Rows that the engine's steps computed; over worker_steps_total it is the mean batch";
        tell("worker_step_rows", help, &count(steps.rows))?;
        let seconds = ConstCounter::new(steps.time.as_secs_f64());
        tell(
            "worker_step_seconds",
            "Seconds that the engine's steps took",
            &seconds,
        )?;
        let open = ConstGauge::new(self.0.active_sequences() as f64);
        tell("worker_sequences", "Sequences that are open", &open)?;
        let help = "The share of the cache that open sequences hold, 0 to 1";
        tell("kv_cache_usage_ratio", help, &ConstGauge::new(ratio))?;
        let size = ConstGauge::new((all * BLOCK_TOKENS) as f64);
        tell(
            "kv_cache_size_tokens",
            "Tokens that the cache has room for",
            &size,
        )?;
        let help = "Tokens that were not computed because the cache held them";
        tell("prefix_cache_hits", help, &count(cache.prefix_hit_tokens))?;
        let help = "How often a sequence gave its cache up for another";
        tell("preemptions", help, &count(cache.preemptions))
    }
}

/// Any kind of metric.
trait Tell {
    fn tell(&self, encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str) -> fmt::Result;
}

impl<M: EncodeMetric> Tell for M {
    fn tell(&self, encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str) -> fmt::Result {
        let place = encoder.encode_descriptor(name, help, None, self.metric_type())?;
        self.encode(place)
    }
}
