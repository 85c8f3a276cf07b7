//! Health follows the engine.

use engine::{
    BlockId, CacheType, Engine, EngineError, EngineOptions, Input, Logits, Model, ModelShape,
    Reader, Row, Synthetic,
};
use proto::v1::ModelDescription;
use service::server::ServerOptions;
use service::{CancellationToken, Tasks};
use speculation::{AdjustmentOptions, Adjustments, Prefix, TokenId};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tonic::Streaming;
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use worker::{AccessOptions, Limits, Pulse, Served};

const PATIENCE: Duration = Duration::from_secs(30);

/// A model whose steps do what a test wants, and then fail.
struct Broken {
    shape: ModelShape,
    step: Box<dyn FnMut() -> EngineError + Send>,
}

impl Model for Broken {
    fn shape(&self) -> &ModelShape {
        &self.shape
    }

    fn allocate(&mut self, _blocks: usize, _kind: CacheType) -> Result<(), EngineError> {
        Ok(())
    }

    fn copy_block(&mut self, _from: BlockId, _to: BlockId) -> Result<(), EngineError> {
        Ok(())
    }

    fn forward(&mut self, _batch: &[Input<'_>]) -> Result<Logits, EngineError> {
        Err((self.step)())
    }
}

fn served(step: impl FnMut() -> EngineError + Send + 'static) -> Served {
    let synthetic = Synthetic::new(Default::default());
    let model = Broken {
        shape: synthetic.shape().clone(),
        step: Box::new(step),
    };
    let options = EngineOptions {
        max_sequences: 1,
        cache_bytes: 1 << 20,
        cache_type: CacheType::F32,
        prefix_sharing: true,
        max_step_tokens: 8,
        tokenizer_size: 512,
    };
    let limits = Limits {
        tokenizer_size: 512,
        context_length: 8192,
        max_sequences: 1,
        max_draft_tokens: 16,
    };
    let engine = Engine::start(Box::new(model), options).expect("a thread");
    let vocabulary = Arc::new(synthetic.vocabulary());
    Served::new(engine, vocabulary, ModelDescription::default(), limits)
}

/// Serves it; returns a channel to it.
async fn serve(served: Served, tasks: &Tasks, pulse: Pulse) -> Channel {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tasks.spawn("worker", async move {
        let (routes, shutdown) = (Routes::default(), CancellationToken::new());
        let access = AccessOptions {
            server: ServerOptions::default(),
            worker_token_file: None,
        };
        let names = &["specdec.v1.Target"];
        let serving = worker::serve(&served, names, routes, &access, listener, shutdown, pulse);
        serving.await.expect("serves");
    });
    service::client::channel(&format!("http://{address}")).expect("valid")
}

#[tokio::test]
async fn an_engine_that_hangs_is_reported_as_not_serving_until_it_goes_on() {
    let (resume, resumed) = std::sync::mpsc::sync_channel::<()>(0);
    let failure = EngineError::Model("as intended".to_owned());
    let failed = failure.clone();
    let served = served(move || {
        resumed.recv().expect("told to go on");
        failed.clone()
    });
    let (engine, tasks) = (served.engine.clone(), Tasks::new());
    let patience = Duration::from_millis(100);
    let channel = serve(served, &tasks, Pulse { patience }).await;
    let mut target = Watch::begin(channel, "specdec.v1.Target").await;
    assert_eq!(target.next().await, ServingStatus::Serving);
    let went_on = async {
        assert_eq!(target.next().await, ServingStatus::NotServing, "it hangs");
        resume.send(()).expect("it waits");
        target
    };
    let (outcome, mut target) = tokio::join!(step(&engine), went_on);
    assert_eq!(outcome, Some(failure));
    assert_eq!(target.next().await, ServingStatus::Serving, "it goes on");
}

#[tokio::test]
async fn a_crashed_engine_is_reported_as_not_serving() {
    let (served, tasks) = (served(|| panic!("as intended")), Tasks::new());
    let engine = served.engine.clone();
    let channel = serve(served, &tasks, Pulse::default()).await;
    let mut whole = Watch::begin(channel.clone(), "").await;
    let mut target = Watch::begin(channel, "specdec.v1.Target").await;
    assert_eq!(whole.next().await, ServingStatus::Serving);
    assert_eq!(target.next().await, ServingStatus::Serving);
    assert_eq!(step(&engine).await, Some(EngineError::Stopped));
    assert_eq!(whole.next().await, ServingStatus::NotServing);
    assert_eq!(target.next().await, ServingStatus::NotServing);
}

/// The health of a service, as it changes.
struct Watch(Streaming<HealthCheckResponse>);

impl Watch {
    async fn begin(channel: Channel, service: &str) -> Self {
        let service = service.to_owned();
        let request = HealthCheckRequest { service };
        let watch = HealthClient::new(channel).watch(request).await;
        Self(watch.expect("known").into_inner())
    }

    async fn next(&mut self) -> ServingStatus {
        let next = tokio::time::timeout(PATIENCE, self.0.message()).await;
        let answer = next.expect("in time").expect("no failure");
        answer.expect("a status").status()
    }
}

/// Has the engine make a step; returns how that failed.
async fn step(engine: &Engine) -> Option<EngineError> {
    let adjustments = Adjustments::new(AdjustmentOptions::default()).expect("valid");
    let prefix = Prefix::new(Arc::new(adjustments), None);
    let mut sequence = engine.open(prefix).expect("room");
    sequence.read(0, vec![1], 1, Unread).await.err()
}

#[derive(Debug)]
struct Unread;

impl Reader for Unread {
    fn read(&mut self, _row: Row<'_>) -> Result<Option<TokenId>, EngineError> {
        Ok(None)
    }
}
