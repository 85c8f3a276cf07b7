//! Who may use the service, and who may not: certificates, tokens, keys, and what is never told.

use anyhow::{Context as _, Result};
use proto::v1::draft_client::DraftClient;
use proto::v1::generation_client::GenerationClient;
use proto::v1::target_client::TargetClient;
use proto::v1::{DescribeRequest, GenerateRequest, ListModelsRequest};
use service::client::Peers;
use service::keyring::Tokens;
use specdec_tests::{
    Authority, Certified, Cluster, ClusterOptions, PATIENCE, Process, Prompting, chat, eventually,
    program, text_prompt,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tonic::Code;

const MODEL: &str = "synthetic";

/// A folder and two authorities, of which ours knows nothing of the other.
struct Office {
    _folder: tempfile::TempDir,
    path: PathBuf,
    ours: Authority,
    other: Authority,
}

impl Office {
    fn open() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().to_owned();
        Ok(Self {
            _folder: folder,
            ours: Authority::new(&path, "ours")?,
            other: Authority::new(&path, "other")?,
            path,
        })
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    fn trusting(&self, own: Option<&Certified>) -> Result<Peers> {
        let own = own.map(|own| (own.cert.as_path(), own.key.as_path()));
        Ok(Peers::trusting(&self.ours.file(), own)?)
    }
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

/// A secret as clients send it.
fn sending(office: &Office, secret: &str) -> Result<Peers> {
    let tokens = Tokens::read(&office.write("sent", secret)?)?;
    let (_, sent) = watch::channel(Arc::new(tokens));
    Ok(Peers::default().with_tokens(sent))
}

fn code<T>(answer: Result<T, tonic::Status>) -> Code {
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

async fn models(peers: &Peers, url: &str) -> Result<Code> {
    let mut client = GenerationClient::new(peers.channel(url)?);
    Ok(code(client.list_models(ListModelsRequest {}).await))
}

/// What the coordinator answers to a GET, head and body.
async fn get(url: &str, path: &str, headers: &str) -> Result<String> {
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await?;
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn request() -> GenerateRequest {
    text_prompt("Once upon a time").drafting(4).tokens(64)
}

#[tokio::test]
async fn everything_is_encrypted_and_both_ends_of_a_link_are_known() -> Result<()> {
    let office = Office::open()?;
    let authority = flag("tls-client-ca", &office.ours.file());
    let worker = |name: &str| -> Result<Vec<String>> {
        let model = ["--model".to_owned(), MODEL.to_owned(), authority.clone()];
        Ok([office.ours.certify(name)?.flags("tls"), model.to_vec()].concat())
    };
    let target = Process::start("target-worker", &worker("target")?).await?;
    let draft = Process::start("draft-worker", &worker("draft")?).await?;
    assert!(target.url().starts_with("https://"), "{}", target.url());
    let port = draft.url().rsplit(':').next().context("a port")?;
    let own = office.ours.certify("coordinator")?;
    let args = [
        own.flags("tls"),
        own.flags("worker"),
        vec![
            flag("worker-ca", &office.ours.file()),
            format!("--target={}", target.url()),
            // The certificate has the name, and is asked for at the addresses that it has.
            format!("--draft=dns+https://localhost:{port}"),
        ],
    ];
    let coordinator = Process::start("coordinator", &args.concat()).await?;
    let usable = || async { coordinator.log().contains("draft worker usable") };
    eventually("the draft worker is usable", PATIENCE, usable).await?;
    let channel = office.trusting(None)?.channel(coordinator.url())?;
    let mut stream = GenerationClient::new(channel)
        .generate(request())
        .await?
        .into_inner();
    let mut drafted = 0;
    while let Some(response) = stream.message().await? {
        if let Some(proto::v1::generate_response::Event::Finished(finished)) = response.event {
            drafted += finished.speculation.context("statistics")?.draft_tokens;
        }
    }
    assert!(drafted > 0, "the draft worker takes part");

    // A client of HTTP/1.1 and of another authority is none of ours.
    let strangers = Peers::trusting(&office.other.file(), None)?;
    assert_eq!(
        models(&strangers, coordinator.url()).await?,
        Code::Unavailable
    );
    Ok(())
}

#[tokio::test]
async fn a_worker_that_asks_for_certificates_talks_to_nobody_without() -> Result<()> {
    let office = Office::open()?;
    let args = [
        office.ours.certify("draft")?.flags("tls"),
        vec![
            "--model=synthetic".to_owned(),
            flag("tls-client-ca", &office.ours.file()),
        ],
    ];
    let worker = Process::start("draft-worker", &args.concat()).await?;
    let describe = async |peers: Peers| -> Result<Code> {
        let mut client = DraftClient::new(peers.channel(worker.url())?);
        Ok(code(client.describe(DescribeRequest {}).await))
    };
    let ours = office.ours.certify("coordinator")?;
    let others = office.other.certify("coordinator")?;
    assert_eq!(describe(office.trusting(Some(&ours))?).await?, Code::Ok);
    for own in [None, Some(&others)] {
        let refused = describe(office.trusting(own)?).await?;
        // TLS 1.3 has the client begin before the server has refused it: how that is said differs.
        assert_ne!(refused, Code::Ok, "{own:?}");
    }
    let plain = worker.url().replace("https", "http");
    let mut client = DraftClient::new(Peers::default().channel(&plain)?);
    let refused = code(client.describe(DescribeRequest {}).await);
    assert_ne!(refused, Code::Ok, "without TLS");
    assert_eq!(describe(office.trusting(Some(&ours))?).await?, Code::Ok);
    Ok(())
}

#[tokio::test]
async fn certificates_are_read_again_on_sighup() -> Result<()> {
    let office = Office::open()?;
    let (old, new) = (
        office.ours.certify("worker")?,
        office.other.certify("worker")?,
    );
    let args = [old.flags("tls"), vec!["--model=synthetic".to_owned()]];
    let worker = Process::start("target-worker", &args.concat()).await?;
    let describe = async |authority: &Authority| -> Result<Code> {
        let peers = Peers::trusting(&authority.file(), None)?;
        let mut client = TargetClient::new(peers.channel(worker.url())?);
        Ok(code(client.describe(DescribeRequest {}).await))
    };
    assert_eq!(describe(&office.ours).await?, Code::Ok);
    std::fs::copy(&new.cert, &old.cert)?;
    worker.signal("HUP").await?;
    let kept = || async { worker.log().contains("not read again") };
    eventually("a certificate without its key is refused", PATIENCE, kept).await?;
    assert_eq!(describe(&office.ours).await?, Code::Ok, "the old one stays");
    std::fs::copy(&new.key, &old.key)?;
    worker.signal("HUP").await?;
    eventually("the new certificate is shown", PATIENCE, || async {
        describe(&office.other)
            .await
            .is_ok_and(|code| code == Code::Ok)
    })
    .await
}

#[tokio::test]
async fn a_worker_takes_only_its_tokens_and_the_operator_is_told() -> Result<()> {
    let office = Office::open()?;
    let workers = office.write("workers", "canary-of-the-workers-1\n")?;
    let ours = office.write("ours", "canary-of-the-coordinator\n")?;
    let args = ["--model=synthetic", &flag("worker-token-file", &workers)].map(str::to_owned);
    let target = Process::start("target-worker", &args).await?;
    let args = [
        format!("--target={}", target.url()),
        flag("worker-token-file", &ours),
    ];
    let coordinator = Process::start("coordinator", &args).await?;
    let told = || async {
        let log = coordinator.log();
        log.lines()
            .any(|line| line.contains("ERROR") && line.contains("--worker-token-file"))
    };
    eventually("the coordinator says what is wrong", PATIENCE, told).await?;
    let nobody = TargetClient::new(Peers::default().channel(target.url())?)
        .describe(DescribeRequest {})
        .await;
    assert_eq!(code(nobody), Code::Unauthenticated);

    // The worker takes the other's as well from now on.
    std::fs::write(
        &workers,
        "canary-of-the-workers-1\ncanary-of-the-coordinator\n",
    )?;
    target.signal("HUP").await?;
    let connected = || async { coordinator.log().contains("target connected") };
    eventually("the coordinator is let in", PATIENCE, connected).await?;
    for log in [target.log(), coordinator.log()] {
        assert!(!log.contains("canary"), "{log}");
    }
    Ok(())
}

#[tokio::test]
async fn clients_need_a_key_over_grpc_and_http_and_keys_change_on_sighup() -> Result<()> {
    let office = Office::open()?;
    let entry = |name: &str, key: &str| format!("[[keys]]\nname = '{name}'\nkey = '{key}'\n");
    let keys = office.write("keys.toml", &entry("ann", "canary-of-ann-0001"))?;
    let mut options = ClusterOptions::new(MODEL, [MODEL]);
    options.coordinator_args = vec![flag("api-keys", &keys), "--log=debug".to_owned()];
    let cluster = Cluster::start(options).await?;
    let url = cluster.coordinator.url();
    let ann = sending(&office, "canary-of-ann-0001")?;
    let bob = sending(&office, "canary-of-bob-0002")?;

    assert_eq!(models(&Peers::default(), url).await?, Code::Unauthenticated);
    assert_eq!(models(&bob, url).await?, Code::Unauthenticated);
    assert_eq!(models(&ann, url).await?, Code::Ok);
    for headers in [
        "",
        "authorization: Bearer wrong\r\n",
        "authorization: Basic x\r\n",
    ] {
        let refused = get(url, "/v1/models", headers).await?;
        let (head, body) = refused.split_once("\r\n\r\n").context("a head")?;
        assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
        assert!(head.contains("www-authenticate: Bearer"), "{head}");
        let body: serde_json::Value = serde_json::from_str(body)?;
        assert_eq!(body["error"]["code"], "invalid_api_key", "{body}");
    }
    let key = "authorization: Bearer canary-of-ann-0001\r\n";
    let served = get(url, "/v1/models", key).await?;
    assert!(served.starts_with("HTTP/1.1 200 "), "{served}");
    assert!(cluster.client().await?.is_serving().await, "health is open");

    std::fs::write(&keys, entry("bob", "canary-of-bob-0002"))?;
    cluster.coordinator.signal("HUP").await?;
    let known = || async { models(&bob, url).await.is_ok_and(|code| code == Code::Ok) };
    eventually("the new key is known", PATIENCE, known).await?;
    assert_eq!(
        models(&ann, url).await?,
        Code::Unauthenticated,
        "the old is not"
    );

    std::fs::write(&keys, "[[keys]]\nname = 'bob'\nkey = canary")?;
    cluster.coordinator.signal("HUP").await?;
    let kept = || async { cluster.coordinator.log().contains("not read again") };
    eventually("a broken file is refused", PATIENCE, kept).await?;
    assert_eq!(models(&bob, url).await?, Code::Ok, "the keys stay");
    let log = cluster.coordinator.log();
    assert!(!log.contains("canary"), "{log}");
    Ok(())
}

#[tokio::test]
async fn no_user_text_is_logged_at_any_level_of_ours() -> Result<()> {
    let levels = "--log=coordinator=trace,target_worker=trace,draft_worker=trace,worker=trace,\
                  service=trace,engine=trace,debug";
    let mut options = ClusterOptions::new(MODEL, [MODEL]);
    options.coordinator_args = vec![levels.to_owned()];
    options.worker_args = vec![levels.to_owned()];
    let cluster = Cluster::start(options).await?;
    let client = cluster.client().await?;
    for request in [text_prompt("a canary sings"), chat("a canary sings")] {
        // The synthetic model may have no template: a refusal must not tell either.
        let _ = client.generate(request.drafting(4).tokens(32)).await;
    }
    let wrong = text_prompt("a canary sings").stop_string("canary").seed(1);
    let _ = client
        .generate(wrong.choosing(|sampling| sampling.top_p = Some(7.0)))
        .await;
    let path = "/v1/models?prompt=canary";
    get(cluster.coordinator.url(), path, "x-note: canary\r\n").await?;
    for process in [&cluster.coordinator, &cluster.target, &cluster.drafts[0]] {
        let log = process.log();
        assert!(log.contains("DEBUG"), "the level is set: {log}");
        let told = log.lines().find(|line| line.contains("canary"));
        assert_eq!(told, None);
    }
    Ok(())
}

#[tokio::test]
async fn other_machines_are_not_served_unprotected() -> Result<()> {
    for (name, args, remedy) in [
        ("coordinator", "--target=http://127.0.0.1:1", "--api-keys"),
        ("draft-worker", "--model=synthetic", "--worker-token-file"),
        ("target-worker", "--model=synthetic", "--worker-token-file"),
    ] {
        let output = tokio::process::Command::new(program(name)?)
            .args([args, "--listen=0.0.0.0:0"])
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(PATIENCE, output).await??;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{name}: {said}");
        for word in ["--listen", remedy, "--insecure"] {
            assert!(said.contains(word), "{word} in {said}");
        }
    }
    Ok(())
}
