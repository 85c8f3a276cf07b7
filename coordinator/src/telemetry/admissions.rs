//! What the gate tells of itself, asked for at each scrape.

use super::Metrics;
use crate::api::admission::Gate;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;

/// The gate's numbers, as metrics.
#[derive(Debug)]
pub(super) struct Admissions {
    pub(super) gate: Gate,
    pub(super) metrics: Metrics,
}

impl Collector for Admissions {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stats = self.gate.stats();
        let mut gauge = |name, help, value| {
            let gauge = ConstGauge::<i64>::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
        };
        gauge(
            "requests_waiting",
            "Choices of requests that wait for their turn, here or for the target",
            i64::from(stats.waiting) + self.metrics.waiting.get(),
        )?;
        gauge(
            "tokens_in_flight",
            "Tokens of what runs: prompts, and what may still be generated",
            stats.tokens.try_into().unwrap_or(i64::MAX),
        )?;
        let mut refused = encoder.encode_descriptor(
            "requests_refused",
            "Requests that were turned away: full, key_full, waited (too long) or draining",
            None,
            MetricType::Counter,
        )?;
        let counts = stats.refused;
        for (reason, count) in [
            ("full", counts.full),
            ("key_full", counts.key_full),
            ("waited", counts.waited),
            ("draining", counts.draining),
        ] {
            let labels = [("reason", reason)];
            ConstCounter::new(count).encode(refused.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
