//! What hostile connections get: a clear refusal or nothing, and nothing of the service with it.

use anyhow::{Context as _, Result};
use futures::future::join_all;
use specdec_tests::{
    Client, Cluster, ClusterOptions, PATIENCE, Prompting, eventually, text_prompt,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// More than an allocator keeps of what was freed; a flood that stays is a hundred times this.
const SLACK_KIB: u64 = 24 * 1024;

/// An end of the coordinator's for hostile bytes.
struct Stand {
    cluster: Cluster,
    client: Client,
}

impl Stand {
    async fn new() -> Result<Self> {
        let mut options = ClusterOptions::new("synthetic", ["synthetic"]);
        let short = ["--header-timeout-ms=1000", "--body-timeout-ms=1000"];
        options.coordinator_args = short.map(str::to_owned).to_vec();
        let cluster = Cluster::start(options).await?;
        let client = cluster.client().await?;
        Ok(Self { cluster, client })
    }

    /// What comes after `said` until the connection is closed.
    async fn answer(&self, said: &[u8]) -> Result<Vec<u8>> {
        let address = self.cluster.coordinator.url().trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).await?;
        let (mut read, mut write) = stream.split();
        let mut answer = Vec::new();
        let talk = async {
            // Either fails where the other side has had enough.
            let _ = tokio::join!(write.write_all(said), read.read_to_end(&mut answer));
        };
        tokio::time::timeout(PATIENCE, talk)
            .await
            .context("stays open")?;
        Ok(answer)
    }

    /// A request of somebody else's, meanwhile.
    async fn serves(&self) -> Result<()> {
        let request = text_prompt("Once upon a time").drafting(3).tokens(8);
        let answer = tokio::time::timeout(PATIENCE, self.client.generate(request)).await;
        assert_eq!(answer.context("others wait")??.ids.len(), 8);
        Ok(())
    }

    fn files(&self) -> Result<usize> {
        let id = self.cluster.coordinator.id()?;
        Ok(std::fs::read_dir(format!("/proc/{id}/fd"))?.count())
    }

    fn memory_kib(&self) -> Result<u64> {
        let id = self.cluster.coordinator.id()?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let size = line.and_then(|line| line.split_whitespace().next());
        Ok(size.context("VmRSS")?.parse()?)
    }

    /// Sends all of `attacks` again and again, some at a time, beside somebody else's requests; the
    /// second half must leave no more than the first.
    async fn withstands(&self, attacks: &[Vec<u8>], rounds: usize) -> Result<()> {
        let files = self.files()?;
        let attack = || async {
            for _ in 0..rounds {
                let answers = join_all(attacks.iter().map(|said| self.answer(said)));
                let (answers, served) = tokio::join!(answers, self.serves());
                served?;
                answers.into_iter().collect::<Result<Vec<_>>>()?;
            }
            anyhow::Ok(())
        };
        attack().await?;
        let memory = self.memory_kib()?;
        attack().await?;
        eventually("files are closed", PATIENCE, || async {
            self.files().is_ok_and(|now| now <= files + 2)
        })
        .await?;
        let grown = self.memory_kib()?.saturating_sub(memory);
        assert!(
            grown < SLACK_KIB,
            "{grown} KiB more than after the first half"
        );
        Ok(())
    }
}

/// A request for what exists, in `body` whatever a hostile peer would hide there.
fn post(headers: &str, body: &str) -> Vec<u8> {
    format!("POST /v1/models HTTP/1.1\r\nhost: x\r\n{headers}\r\n\r\n{body}").into_bytes()
}

/// A second request, which nobody sent.
const HIDDEN: &str = "GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n";

/// Requests whose end two readers could see in two places.
fn smuggled() -> Vec<Vec<u8>> {
    let get = |headers: &str| {
        let text = format!("GET /v1/models HTTP/1.1\r\n{headers}\r\n\r\n{HIDDEN}");
        text.into_bytes()
    };
    let chunked = "transfer-encoding: chunked";
    let after_chunks = format!("0\r\n\r\n{HIDDEN}");
    vec![
        post(&format!("content-length: 5\r\n{chunked}"), &after_chunks),
        post(&format!("{chunked}\r\ncontent-length: 5"), &after_chunks),
        post("content-length: 0\r\ncontent-length: 5", HIDDEN),
        post("content-length: 0, 5", HIDDEN),
        post("content-length: +0", HIDDEN),
        post("content-length: -1", HIDDEN),
        post("content-length: 0x0", HIDDEN),
        post("content-length: 99999999999999999999999", HIDDEN),
        post("content-length : 0", HIDDEN),
        post("transfer-encoding: xchunked", &after_chunks),
        post("transfer-encoding: chunked, identity", &after_chunks),
        post("transfer-encoding: identity", HIDDEN),
        post("transfer-encoding : chunked", &after_chunks),
        post("transfer-encoding:\u{b}chunked", &after_chunks),
        post(chunked, &format!("zz\r\n{after_chunks}")),
        post(chunked, &format!("-1\r\n{after_chunks}")),
        post(chunked, &format!("ffffffffffffffffff\r\n{after_chunks}")),
        post(chunked, &format!("1\r\nabc\r\n{after_chunks}")),
        post(chunked, &format!("1\nx\n{after_chunks}")),
        post(chunked, &format!("1;{}\r\n", "x".repeat(1 << 20))),
        get("host: x\r\nfolded: a\r\n b: c"),
        get("host: x\r\nbare: a\rb"),
        get("host: x\r\nnothing: a\0b"),
        get("host: x\r\n: no name"),
        get("host: x\r\nno colon"),
        format!("GET /v1/models HTTP/1.0\r\n{chunked}\r\n\r\n{after_chunks}").into_bytes(),
        format!("GET  /v1/models  HTTP/1.1\r\nhost: x\r\n\r\n{HIDDEN}").into_bytes(),
        format!("GET /v1/models HTTP/9.9\r\nhost: x\r\n\r\n{HIDDEN}").into_bytes(),
    ]
}

/// Requests that are too large, and what are no requests.
fn misshapen() -> Vec<Vec<u8>> {
    let with = |headers: String| format!("GET /v1/models HTTP/1.1\r\n{headers}\r\n").into_bytes();
    let many = (0..5000)
        .map(|number| format!("h{number}: x\r\n"))
        .collect();
    vec![
        with(format!("huge: {}\r\n", "x".repeat(1 << 20))),
        with(many),
        format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20)).into_bytes(),
        vec![0; 1 << 16],
        (0..1 << 16)
            .map(|index: u32| ((index * 7919) >> 3) as u8)
            .collect(),
        // The beginning of TLS.
        [
            &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
            &[7; 512],
        ]
        .concat(),
        b"GET /v1/models\r\n\r\n".to_vec(),
        b"GET /v1/mod".to_vec(),
    ]
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The beginning of a connection, and `frames`.
fn http2(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes.extend(frames.into_iter().flatten());
    bytes
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A whole request for `/`, in HPACK: method, scheme, path, authority.
const REQUEST: &[u8] = b"\x82\x86\x84\x41\x01x";

/// One header, as long as it is said; nothing of it is kept in tables.
const HEADER: &[u8] = b"\x00\x01a\x01b";

fn floods() -> Vec<Vec<u8>> {
    let streams = |count: u32| (0..count).map(|index| 2 * index + 1);
    let reset = streams(20_000).flat_map(|stream| {
        let open = frame(HEADERS, END_HEADERS | END_STREAM, stream, REQUEST);
        [open, frame(RESET, 0, stream, &8_u32.to_be_bytes())]
    });
    let headers = std::iter::once(frame(HEADERS, 0, 1, REQUEST));
    let endless = (0..2000).map(|_| frame(CONTINUATION, 0, 1, &HEADER.repeat(1000)));
    let empty = (0..50_000).map(|_| frame(CONTINUATION, 0, 1, &[]));
    let bomb = frame(
        HEADERS,
        END_HEADERS,
        1,
        &[REQUEST, &HEADER.repeat(3000)].concat(),
    );
    vec![
        http2(reset),
        http2(headers.clone().chain(endless)),
        http2(headers.chain(empty)),
        http2([bomb.clone(), frame(DATA, 0, 2, &[])]),
        http2([frame(HEADERS, END_HEADERS, 2, REQUEST)]),
        http2([frame(SETTINGS, 0, 0, &[0; 5])]),
        http2([frame(PING, 0, 0, &[0; 7])]),
        http2([frame(DATA, 0, 0, &[0; 7])]),
        http2([vec![0xff; 9]]),
    ]
}

/// The statuses of HTTP/1 in `answer`.
fn statuses(answer: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(answer);
    let answers = text.split("HTTP/1.1 ").skip(1);
    answers
        .map(|answer| answer.chars().take(3).collect())
        .collect()
}

#[tokio::test]
async fn requests_of_two_meanings_have_one_answer_and_nothing_hides_in_them() -> Result<()> {
    let stand = Stand::new().await?;
    for said in smuggled() {
        let shown = String::from_utf8_lossy(&said[..said.len().min(200)]).into_owned();
        let statuses = statuses(&stand.answer(&said).await?);
        assert!(statuses.len() <= 1, "{statuses:?} to {shown:?}");
        let refused = statuses.iter().all(|status| status.starts_with('4'));
        assert!(refused, "{statuses:?} to {shown:?}");
        stand.serves().await?;
    }
    // What only looks like it: lines that end in a bare line feed, one request after another.
    let plain = b"GET /v1/models HTTP/1.1\nhost: x\nconnection: close\n\n";
    let statuses = statuses(&stand.answer(plain).await?);
    assert!(
        statuses.iter().all(|status| !status.starts_with('5')),
        "{statuses:?}"
    );
    Ok(())
}

#[tokio::test]
async fn what_is_too_large_or_no_request_is_refused() -> Result<()> {
    let stand = Stand::new().await?;
    for said in misshapen() {
        let shown = String::from_utf8_lossy(&said[..said.len().min(40)]).into_owned();
        let statuses = statuses(&stand.answer(&said).await?);
        let refused = statuses.iter().all(|status| status.starts_with('4'));
        assert!(statuses.len() <= 1 && refused, "{statuses:?} to {shown:?}");
        stand.serves().await?;
    }
    Ok(())
}

#[tokio::test]
async fn floods_of_http2_are_cut_off() -> Result<()> {
    let stand = Stand::new().await?;
    for (index, said) in floods().iter().enumerate() {
        let answer = stand.answer(said).await?;
        let away = answer
            .windows(9)
            .any(|bytes| bytes[3] == GO_AWAY && bytes[4..9] == [0; 5]);
        // A reset may overtake the farewell, where the peer has sent more than was read.
        assert!(
            away || said.len() > 1 << 16,
            "flood {index} ends without a farewell"
        );
        stand.serves().await?;
    }
    Ok(())
}

#[tokio::test]
async fn nothing_stays_of_hostile_connections() -> Result<()> {
    let stand = Stand::new().await?;
    stand.withstands(&smuggled(), 3).await?;
    stand.withstands(&misshapen(), 3).await?;
    stand.withstands(&floods(), 3).await
}

#[tokio::test]
async fn connections_that_say_nothing_hold_nobody_up_and_do_not_stay() -> Result<()> {
    let stand = Stand::new().await?;
    let files = stand.files()?;
    let address = stand
        .cluster
        .coordinator
        .url()
        .trim_start_matches("http://");
    let beginnings: [&[u8]; 4] = [
        b"",
        b"PRI * HTTP/2.0\r\n",
        b"POST /v1/models HTTP/1.1\r\nhost: x\r\nslow: ",
        b"POST /v1/models HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf",
    ];
    let mut held = Vec::new();
    for number in 0..200 {
        let mut stream = TcpStream::connect(address).await?;
        stream
            .write_all(beginnings[number % beginnings.len()])
            .await?;
        held.push(stream);
    }
    for _ in 0..5 {
        stand.serves().await?;
    }
    eventually("the silent are cut off", PATIENCE, || async {
        stand.files().is_ok_and(|now| now <= files + 2)
    })
    .await?;
    drop(held);
    stand.serves().await
}
