//! One trace shows a request across coordinator, draft and target, with its rounds.

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use proto::v1::generate_response::Event;
use service::Tasks;
use specdec_tests::drafts::{Agreement, write_draft, write_target};
use specdec_tests::{
    Client, Cluster, ClusterOptions, PATIENCE, Prompting, eventually, text_prompt,
};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT: &str = "b7ad6b7169203331";

/// A span, and the program that it is of.
type Seen = (String, Span);

/// Keeps what programs export.
#[derive(Debug, Clone, Default)]
struct Collector(Arc<Mutex<Vec<Seen>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut seen = self.0.lock().expect("no panic");
        for of_program in request.into_inner().resource_spans {
            let resource = of_program.resource.unwrap_or_default();
            let name = resource.attributes.into_iter().find_map(|attribute| {
                let named = attribute.key == "service.name";
                match attribute.value.filter(|_| named)?.value? {
                    Value::StringValue(name) => Some(name),
                    _ => None,
                }
            });
            let name = name.unwrap_or_default();
            let spans = of_program.scope_spans.into_iter();
            let spans = spans.flat_map(|scope| scope.spans);
            seen.extend(spans.map(|span| (name.clone(), span)));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Starts one; returns its address as well.
    async fn start(tasks: &Tasks) -> Result<(Self, String)> {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let service = TraceServiceServer::new(collector.clone());
        tasks.spawn("collector", async move {
            let server = tonic::transport::Server::builder().add_service(service);
            let serving = server.serve_with_incoming(TcpListenerStream::new(listener));
            serving.await.expect("serves");
        });
        Ok((collector, url))
    }

    fn spans(&self) -> Vec<Seen> {
        self.0.lock().expect("no panic").clone()
    }

    /// The spans of a program with a name.
    fn named(&self, program: &str, name: &str) -> Vec<Span> {
        let spans = self.spans().into_iter();
        let own = spans.filter(|(of, span)| of == program && span.name == name);
        own.map(|(_, span)| span).collect()
    }
}

async fn cluster(endpoint: &str) -> Result<(tempfile::TempDir, Cluster)> {
    let folder = tempfile::tempdir()?;
    let target = write_target(folder.path())?;
    let draft = write_draft(folder.path(), Agreement::Half)?;
    let mut options = ClusterOptions::new(target, [draft]);
    let args = ["--otlp-endpoint".to_owned(), endpoint.to_owned()];
    options.coordinator_args = args.to_vec();
    options.worker_args = args.to_vec();
    Ok((folder, Cluster::start(options).await?))
}

/// Generates in a trace; returns how many rounds there were.
async fn rounds(client: &Client, flags: &str) -> Result<u32> {
    let request = text_prompt("Once upon a time there was a wolf");
    let mut request = Request::new(request.seed(3).drafting(3).tokens(60));
    let context = format!("00-{TRACE}-{CLIENT}-{flags}");
    request
        .metadata_mut()
        .insert("traceparent", context.parse()?);
    let mut stream = client.raw().generate(request).await?.into_inner();
    let mut rounds = None;
    while let Some(response) = stream.next().await {
        if let Some(Event::Finished(finished)) = response?.event {
            rounds = finished.speculation.map(|stats| stats.rounds);
        }
    }
    rounds.context("an end")
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn one_trace_shows_a_request_in_all_programs_with_its_rounds() -> Result<()> {
    let tasks = Tasks::new();
    let (collector, endpoint) = Collector::start(&tasks).await?;
    let (_folder, cluster) = cluster(&endpoint).await?;
    let rounds = rounds(&cluster.client().await?, "01").await? as usize;
    let (coordinator, target, draft) = (
        "specdec-coordinator",
        "specdec-target-worker",
        "specdec-draft-worker",
    );
    let complete = || async {
        let count = |program, name| collector.named(program, name).len();
        count(coordinator, "generate") == 1
            && count(coordinator, "verify") >= rounds
            && count(target, "verify") >= rounds
            && count(draft, "propose") > 0
    };
    eventually("all spans have come", PATIENCE, complete).await?;
    for (program, span) in collector.spans() {
        assert_eq!(hex(&span.trace_id), TRACE, "{program}: {}", span.name);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        assert!(!format!("{span:?}").contains("wolf"), "no text of users");
    }
    let root = collector.named(coordinator, "generate").remove(0);
    assert_eq!(hex(&root.parent_span_id), CLIENT);
    for (program, name, count) in [
        (coordinator, "queue", 1),
        (coordinator, "prefill", 1),
        (coordinator, "verify", rounds),
        (target, "open", 1),
        (target, "verify", rounds),
        (draft, "open", 1),
    ] {
        let spans = collector.named(program, name);
        assert_eq!(spans.len(), count, "{program}: {name}");
        for span in spans {
            assert_eq!(span.parent_span_id, root.span_id, "{program}: {name}");
            // Clocks of one machine.
            assert!(span.start_time_unix_nano >= root.start_time_unix_nano);
        }
    }
    assert!(!collector.named(coordinator, "draft").is_empty());
    Ok(())
}

#[tokio::test]
async fn a_client_that_does_not_want_a_trace_has_none_and_a_dead_collector_costs_nothing()
-> Result<()> {
    let tasks = Tasks::new();
    let (collector, endpoint) = Collector::start(&tasks).await?;
    let (_folder, mut wanted) = cluster(&endpoint).await?;
    rounds(&wanted.client().await?, "00").await?;
    wanted.coordinator.signal("TERM").await?;
    assert_eq!(wanted.coordinator.exit_code().await?, Some(0), "it flushes");
    assert!(collector.spans().is_empty(), "{:?}", collector.spans());
    let (_folder, mut alone) = cluster("http://127.0.0.1:1").await?;
    rounds(&alone.client().await?, "01").await?;
    alone.coordinator.signal("TERM").await?;
    assert_eq!(alone.coordinator.exit_code().await?, Some(0));
    Ok(())
}
