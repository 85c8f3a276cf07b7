//! A server on real sockets: health, reflection, draining.

use service::server::{
    GraceExpired, HealthReporter, ServerOptions, Services, ServingStatus, health, serve,
};
use service::{CancellationToken, Class, Error, client};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Status;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

const PATIENCE: Duration = Duration::from_secs(30);

struct Server {
    address: SocketAddr,
    reporter: HealthReporter,
    shutdown: CancellationToken,
    serving: JoinHandle<anyhow::Result<()>>,
}

impl Server {
    #[expect(
        clippy::disallowed_methods,
        reason = "the test owns it, and looks at its result"
    )]
    async fn start(grace: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let shutdown = CancellationToken::new();
        let (reporter, health) = health(&shutdown);
        let services = Services {
            grpc: Routes::new(health),
            ..Services::default()
        };
        let until = shutdown.clone();
        let serving = tokio::spawn(async move {
            serve(listener, services, &ServerOptions::default(), until, grace).await
        });
        Self {
            address,
            reporter,
            shutdown,
            serving,
        }
    }

    fn channel(&self) -> Channel {
        client::channel(&format!("http://{}", self.address)).expect("address")
    }

    async fn ended(self) -> anyhow::Result<()> {
        tokio::time::timeout(PATIENCE, self.serving)
            .await
            .expect("ends")
            .expect("no panic")
    }
}

/// A reflection call, which stays open until `requests` is dropped.
struct OpenCall {
    requests: mpsc::Sender<ServerReflectionRequest>,
    answers: Streaming<ServerReflectionResponse>,
}

impl OpenCall {
    async fn start(channel: Channel) -> Self {
        let (requests, outgoing) = mpsc::channel(1);
        let answers = ServerReflectionClient::new(channel)
            .server_reflection_info(ReceiverStream::new(outgoing))
            .await
            .expect("answers")
            .into_inner();
        Self { requests, answers }
    }

    async fn ask(&mut self, question: MessageRequest) -> MessageResponse {
        let host = String::new();
        let request = ServerReflectionRequest {
            host,
            message_request: Some(question),
        };
        self.requests.send(request).await.expect("open");
        let answer = self
            .answers
            .message()
            .await
            .expect("answers")
            .expect("open");
        answer.message_response.expect("set")
    }
}

fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.into(),
    }
}

#[tokio::test]
async fn reflection_describes_our_services_and_health() {
    let server = Server::start(Duration::ZERO).await;
    let mut call = OpenCall::start(server.channel()).await;
    let MessageResponse::ListServicesResponse(list) =
        call.ask(MessageRequest::ListServices(String::new())).await
    else {
        panic!("not a list");
    };
    let names: Vec<_> = list.service.iter().map(|service| &*service.name).collect();
    for name in [
        "specdec.v1.Draft",
        "specdec.v1.Target",
        "specdec.v1.Generation",
        "grpc.health.v1.Health",
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    let symbol = MessageRequest::FileContainingSymbol("specdec.v1.VerifyBatch".into());
    assert!(matches!(
        call.ask(symbol).await,
        MessageResponse::FileDescriptorResponse(_)
    ));
}

#[tokio::test]
async fn health_says_what_was_reported_until_shutdown_begins() {
    let server = Server::start(PATIENCE).await;
    let mut client = HealthClient::new(server.channel());
    let unknown = client.check(about("specdec.v1.Draft")).await;
    assert_eq!(
        Error::from_status(&unknown.expect_err("unknown")).class,
        Class::NotFound
    );

    server
        .reporter
        .set_service_status("specdec.v1.Draft", ServingStatus::Serving)
        .await;
    for service in ["", "specdec.v1.Draft"] {
        let answer = client
            .check(about(service))
            .await
            .expect("known")
            .into_inner();
        assert_eq!(answer.status(), Status::Serving, "{service}");
    }

    // A watcher hears of the shutdown, and does not hold it up.
    let watch = client
        .watch(about("specdec.v1.Draft"))
        .await
        .expect("known");
    let mut watch = watch.into_inner();
    assert_eq!(
        watch.message().await.expect("open").expect("now").status(),
        Status::Serving
    );
    server.shutdown.cancel();
    let last = watch.message().await.expect("open").expect("shutdown");
    assert_eq!(last.status(), Status::NotServing);
    assert!(watch.message().await.expect("ended well").is_none());
    server.ended().await.expect("drained");
}

#[tokio::test]
async fn draining_takes_no_new_connections_and_lets_open_calls_end() {
    let server = Server::start(PATIENCE).await;
    let mut call = OpenCall::start(server.channel()).await;
    server.shutdown.cancel();
    // The listener closes; until then connections are still queued.
    let refused = async { while TcpStream::connect(server.address).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, refused)
        .await
        .expect("refuses");

    let list = MessageRequest::ListServices(String::new());
    assert!(matches!(
        call.ask(list).await,
        MessageResponse::ListServicesResponse(_)
    ));
    drop(call);
    server.ended().await.expect("drained");
}

#[tokio::test]
async fn a_call_that_outlives_the_grace_is_cut_off() {
    let grace = Duration::from_millis(50);
    let server = Server::start(grace).await;
    let mut call = OpenCall::start(server.channel()).await;
    server.shutdown.cancel();
    let error = server.ended().await.expect_err("a call is open");
    assert_eq!(error.downcast_ref(), Some(&GraceExpired(grace)));
    let last = tokio::time::timeout(PATIENCE, call.answers.message()).await;
    let status = last.expect("in time").expect_err("cut off");
    assert_eq!(
        Error::from_status(&status).class,
        Class::Unavailable,
        "{status:?}"
    );
}

#[tokio::test]
async fn a_server_that_is_dropped_leaves_no_connection() {
    let server = Server::start(PATIENCE).await;
    let mut call = OpenCall::start(server.channel()).await;
    server.serving.abort();
    let cut_off = tokio::time::timeout(PATIENCE, call.answers.message()).await;
    cut_off.expect("in time").expect_err("cut off");
}

#[tokio::test]
async fn a_peer_that_does_not_exist_is_unavailable() {
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = gone.local_addr().expect("address");
    drop(gone);
    let channel = client::channel(&format!("http://{address}")).expect("address");
    let status = HealthClient::new(channel)
        .check(about(""))
        .await
        .expect_err("nobody");
    assert_eq!(
        Error::from_status(&status).class,
        Class::Unavailable,
        "{status:?}"
    );
}

#[tokio::test]
async fn a_peer_that_does_not_answer_in_time_is_a_deadline() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = silent.local_addr().expect("address");
    let channel = client::channel(&format!("http://{address}")).expect("address");
    let mut request = tonic::Request::new(about(""));
    request.set_timeout(Duration::from_millis(50));
    let status = HealthClient::new(channel)
        .check(request)
        .await
        .expect_err("silence");
    assert_eq!(
        Error::from_status(&status).class,
        Class::Deadline,
        "{status:?}"
    );
}
