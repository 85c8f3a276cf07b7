//! What a server does with connections that take too long, or are too many.

use axum::body::Bytes;
use axum::routing::post;
use service::server::{Router, ServerOptions, Services, serve};
use service::{CancellationToken, Tasks};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Less than the limits that hold where none is set.
const PATIENCE: Duration = Duration::from_secs(20);

/// Short for a test, and long enough for a loaded machine to send a few bytes in.
const LIMIT_MS: u64 = 1000;

struct Server {
    address: SocketAddr,
    _tasks: Tasks,
}

impl Server {
    async fn start(options: ServerOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let tasks = Tasks::new();
        let http = Router::new().route("/", post(async |body: Bytes| body.len().to_string()));
        let services = Services {
            http,
            ..Services::default()
        };
        tasks.spawn("server", async move {
            let until = CancellationToken::new();
            let served = serve(listener, services, &options, until, Duration::ZERO).await;
            served.expect("serves");
        });
        Self {
            address,
            _tasks: tasks,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("connects")
    }

    /// What comes after `said` until the server closes.
    async fn answer(&self, said: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(said).await.expect("sent");
        rest_of(&mut stream).await
    }
}

/// What comes until the server closes the connection, whichever way.
async fn rest_of(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    let _ = read.expect("closed in time");
    String::from_utf8_lossy(&answer).into_owned()
}

fn hasty() -> ServerOptions {
    ServerOptions {
        header_timeout_ms: LIMIT_MS,
        body_timeout_ms: LIMIT_MS,
        ..ServerOptions::default()
    }
}

const WHOLE: &[u8] = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody";

#[tokio::test]
async fn a_connection_that_does_not_begin_or_ends_no_headers_is_closed() {
    let server = Server::start(hasty()).await;
    for said in [
        &b""[..],
        b"P",
        b"PRI * HTTP/2.0\r\n",
        b"POST",
        b"POST / HTTP/1.1\r\nhost: x\r\nmore: ",
    ] {
        let answer = server.answer(said).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn headers_that_drip_do_not_buy_time() {
    let server = Server::start(hasty()).await;
    let mut stream = server.connect().await;
    let (mut read, mut write) = stream.split();
    write.write_all(b"POST / HTTP/1.1\r\n").await.expect("sent");
    let drip = async {
        while write.write_all(b"a: b\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(LIMIT_MS / 20)).await;
        }
    };
    let mut answer = Vec::new();
    let closed = async {
        let _ = read.read_to_end(&mut answer).await;
    };
    let either = async {
        tokio::select! { () = drip => {}, () = closed => {} }
    };
    tokio::time::timeout(PATIENCE, either)
        .await
        .expect("closed");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_refused_and_the_connection_closed() {
    let server = Server::start(hasty()).await;
    for said in [
        &b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf"[..],
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ] {
        let answer = server.answer(said).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
        assert!(answer.contains("in time"), "says why: {answer}");
    }
}

#[tokio::test]
async fn a_connection_without_a_next_request_is_closed() {
    let server = Server::start(hasty()).await;
    let answer = server.answer(&[WHOLE, WHOLE].concat()).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 2, "{answer}");
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_places_come_back() {
    for options in [
        ServerOptions {
            max_connections: 2,
            ..ServerOptions::default()
        },
        ServerOptions {
            max_connections_per_peer: Some(2),
            ..ServerOptions::default()
        },
    ] {
        let server = Server::start(options).await;
        let mut held = [server.connect().await, server.connect().await];
        for stream in &mut held {
            // Served, and so accepted.
            stream.write_all(WHOLE).await.expect("sent");
            stream.read_u8().await.expect("an answer");
        }
        let mut third = server.connect().await;
        assert_eq!(rest_of(&mut third).await, "", "no place");
        drop(held);
        let served = async {
            loop {
                let mut stream = server.connect().await;
                let sent = stream.write_all(WHOLE).await;
                if sent.is_ok() && stream.read_u8().await.is_ok() {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, served)
            .await
            .expect("a place");
    }
}
