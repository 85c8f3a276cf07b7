//! Traces: spans that are exported over OTLP where the operator says where to, and else cost a branch.
//!
//! A request's spans begin and end in different places (a round begins with a batch and ends with its
//! verdict), so they are values that their owner keeps, not scopes of code. A trace crosses processes as
//! a W3C `traceparent`.

use super::LogOptions;
use anyhow::Context as _;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanKind, TraceContextExt as _, Tracer as _,
    TracerProvider as _,
};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider,
};
use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

/// Spans that wait to be exported; beyond it new ones are dropped, and serving goes on.
const MAX_QUEUED: usize = 8192;

/// How often they are exported, at the latest.
const EXPORT_EVERY: Duration = Duration::from_secs(1);

/// How long one export may take, and the last one, at the end of the process.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(3);

const TRACEPARENT: &str = "traceparent";

/// Makes the process's spans; unset where they are not exported. A process has one, as it has one log.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// Exports the process's spans, as long as it is kept.
#[derive(Debug)]
pub struct Exporting(SdkTracerProvider);

/// Begins to export spans as those of `service`, where `options` say where to. Must be called within a
/// Tokio runtime with more than one thread, and once in a process.
///
/// # Errors
/// Where the address is none.
pub fn start(service: String, options: &LogOptions) -> anyhow::Result<Option<Exporting>> {
    let Some(endpoint) = options.otlp_endpoint() else {
        return Ok(None);
    };
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(&endpoint)
        .with_timeout(EXPORT_TIMEOUT)
        .build()
        .with_context(|| format!("export traces to {endpoint}"))?;
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(MAX_QUEUED)
        .with_scheduled_delay(EXPORT_EVERY)
        .build();
    let processor = BatchSpanProcessor::builder(exporter)
        .with_batch_config(batches)
        .build();
    let provider = SdkTracerProvider::builder()
        .with_span_processor(processor)
        .with_resource(Resource::builder().with_service_name(service).build())
        .build();
    // One that was there before stays: there is one program in a process.
    let _ = TRACER.set(provider.tracer("specdec"));
    tracing::info!(endpoint, "traces are exported");
    Ok(Some(Exporting(provider)))
}

impl Exporting {
    /// Exports what is left, for as long as that may take.
    pub async fn finish(self) {
        let last = move || self.0.shutdown_with_timeout(EXPORT_TIMEOUT);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(last).await {
            tracing::warn!(%error, "the last traces were not exported");
        }
    }
}

/// A span of a trace, or nothing where it is not recorded. Ends when dropped.
#[derive(Debug, Default)]
pub struct Span(Option<Box<opentelemetry_sdk::trace::Span>>);

impl Span {
    /// A request's first span in the process that it comes to, begun at `begun`: a child of the span
    /// that `traceparent` names, or the first of a trace where that names none.
    pub fn of_request(name: &'static str, traceparent: &str, begun: SystemTime) -> Self {
        match TRACER.get() {
            Some(tracer) => {
                let parent = remote(traceparent).unwrap_or_default();
                Self::new(tracer, name, &parent, SpanKind::Server, begun)
            }
            None => Self::default(),
        }
    }

    /// A span, begun now, of what another process asks for; nothing where `traceparent` names no span.
    pub fn of_peer(name: &'static str, traceparent: &str) -> Self {
        let Some(tracer) = TRACER.get().filter(|_| !traceparent.is_empty()) else {
            return Self::default();
        };
        remote(traceparent).map_or_else(Self::default, |parent| {
            Self::new(tracer, name, &parent, SpanKind::Server, SystemTime::now())
        })
    }

    /// A span, begun at `begun`, of a part of what this one is of; nothing where this is nothing.
    pub fn child(&self, name: &'static str, begun: SystemTime) -> Self {
        match (TRACER.get(), &self.0) {
            (Some(tracer), Some(span)) => {
                let parent = Context::new().with_remote_span_context(local(span.span_context()));
                Self::new(tracer, name, &parent, SpanKind::Internal, begun)
            }
            _ => Self::default(),
        }
    }

    fn new(
        tracer: &SdkTracer,
        name: &'static str,
        parent: &Context,
        kind: SpanKind,
        begun: SystemTime,
    ) -> Self {
        let builder = SpanBuilder::from_name(name)
            .with_kind(kind)
            .with_start_time(begun);
        let span = tracer.build_with_context(builder, parent);
        // One that whoever asked does not want recorded is kept for its context alone.
        Self(Some(Box::new(span)))
    }

    /// True where it is worth while to find out what to say of it.
    pub fn is_recording(&self) -> bool {
        self.0.as_ref().is_some_and(|span| span.is_recording())
    }

    /// Says something of it. Never anything that a user wrote.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(span) = &mut self.0 {
            span.set_attribute(KeyValue::new(key, value));
        }
    }

    /// The W3C trace context that has others' spans become children of this; none where it is nothing.
    pub fn traceparent(&self) -> Option<String> {
        let context = self.0.as_ref()?.span_context();
        Some(format!(
            "00-{}-{}-{:02x}",
            context.trace_id(),
            context.span_id(),
            context.trace_flags().to_u8()
        ))
    }
}

/// True where `traceparent` is a W3C trace context.
pub fn is_traceparent(traceparent: &str) -> bool {
    remote(traceparent).is_some()
}

/// The context that `traceparent` names.
fn remote(traceparent: &str) -> Option<Context> {
    let headers = HashMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &headers);
    context.has_active_span().then_some(context)
}

/// The same context, as that of a span of this process.
fn local(context: &SpanContext) -> SpanContext {
    SpanContext::new(
        context.trace_id(),
        context.span_id(),
        context.trace_flags(),
        false,
        context.trace_state().clone(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_a_w3c_trace_context_and_nothing_else() {
        assert!(is_traceparent(
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        ));
        for wrong in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "something else",
        ] {
            assert!(!is_traceparent(wrong), "{wrong}");
        }
    }

    #[test]
    fn without_an_exporter_there_are_no_spans() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let mut span = Span::of_request("x", parent, SystemTime::now());
        span.set("key", 1);
        assert!(!span.is_recording() && span.traceparent().is_none());
        assert!(!span.child("y", SystemTime::now()).is_recording());
        assert!(!Span::of_peer("z", parent).is_recording());
    }
}
