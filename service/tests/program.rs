//! What a supervisor sees of a program: its output, how it takes signals, its exit code. The
//! program is the example `minimal`.

use service::client;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

/// Long enough for a loaded machine; nothing below takes this long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(30);

fn program(args: &[&str]) -> Command {
    let test = std::env::current_exe().expect("own path");
    let built = test.ancestors().nth(2).expect("target folder");
    let path: PathBuf = built.join("examples/minimal");
    assert!(
        path.exists(),
        "the example is not built: run all of this crate's tests"
    );
    let mut command = Command::new(path);
    command
        .args(args)
        .kill_on_drop(true)
        .env_remove("SPECDEC_CONFIG");
    command
}

async fn output_of(mut command: Command) -> (Option<i32>, String, String) {
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let Output {
        status,
        stdout,
        stderr,
    } = output.expect("ends").expect("starts");
    let text = |bytes| String::from_utf8(bytes).expect("utf-8");
    (status.code(), text(stdout), text(stderr))
}

/// A program that has said where it listens.
struct Running {
    child: Child,
    endpoint: String,
    log: Lines<BufReader<ChildStderr>>,
}

impl Running {
    async fn start(args: &[&str]) -> Self {
        let mut child = program(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = tokio::time::timeout(PATIENCE, out.next_line()).await;
        let line = line.expect("listens").expect("utf-8").expect("a line");
        let endpoint = line
            .strip_prefix("listening on ")
            .expect("the address")
            .to_owned();
        let log = BufReader::new(child.stderr.take().expect("piped")).lines();
        Self {
            child,
            endpoint,
            log,
        }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().expect("running");
        let sent = std::process::Command::new("sh")
            .args(["-c", &format!("kill -{name} {id}")])
            .status();
        assert!(sent.expect("a shell").success());
    }

    async fn logs(&mut self, words: &str) {
        let seen = async {
            while let Some(line) = self.log.next_line().await.expect("utf-8") {
                if line.contains(words) {
                    return;
                }
            }
            panic!("the log ended without `{words}`");
        };
        tokio::time::timeout(PATIENCE, seen)
            .await
            .expect("logs in time");
    }

    async fn ended(mut self) -> ExitStatus {
        tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .expect("ends")
            .expect("waits")
    }

    /// A call that stays open as long as what is returned is held.
    async fn open_call(
        &self,
    ) -> (
        mpsc::Sender<ServerReflectionRequest>,
        ServerReflectionClient<Channel>,
    ) {
        let mut client =
            ServerReflectionClient::new(client::channel(&self.endpoint).expect("address"));
        let (requests, outgoing) = mpsc::channel(1);
        let list = MessageRequest::ListServices(String::new());
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(list),
        };
        requests.send(request).await.expect("room");
        let mut answers = client
            .server_reflection_info(ReceiverStream::new(outgoing))
            .await
            .expect("answers")
            .into_inner();
        answers
            .message()
            .await
            .expect("an answer")
            .expect("the list");
        (requests, client)
    }
}

#[tokio::test]
async fn help_shows_every_flag_and_exits_0() {
    let (code, help, _) = output_of(program(&["--help"])).await;
    assert_eq!(code, Some(0));
    for flag in [
        "--listen",
        "--grace",
        "--log",
        "--log-format",
        "--config",
        "SPECDEC_LOG",
    ] {
        assert!(help.contains(flag), "{flag} in {help}");
    }
}

#[tokio::test]
async fn a_wrong_configuration_exits_64_without_binding() {
    // The port is taken: a program that tried to bind it would say so instead.
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let listen = format!("--listen={}", taken.local_addr().expect("address"));
    for (wrong, named) in [
        ("--log=loud=very", "--log"),
        ("--grace=60001", "--grace"),
        ("--grace=soon", "--grace"),
        ("--no-such-flag", "--no-such-flag"),
    ] {
        let (code, stdout, stderr) = output_of(program(&[&listen, wrong])).await;
        assert_eq!(code, Some(64), "{wrong}: {stderr}");
        assert!(
            stderr.starts_with("error: ") && stderr.contains(named),
            "{stderr}"
        );
        assert_eq!(stdout, "");
    }
}

#[tokio::test]
async fn the_environment_names_a_configuration_file() {
    let mut file = tempfile::NamedTempFile::new().expect("temporary file");
    file.write_all(b"listen = 'nowhere'").expect("write");
    let mut command = program(&[]);
    command.env("SPECDEC_CONFIG", file.path());
    let (code, _, stderr) = output_of(command).await;
    assert_eq!(code, Some(64));
    assert!(
        stderr.contains(&file.path().display().to_string()),
        "{stderr}"
    );
    assert!(stderr.contains("`listen`"), "{stderr}");
}

#[tokio::test]
async fn an_address_in_use_exits_1_and_the_log_names_it_once() {
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = taken.local_addr().expect("address").to_string();
    let (code, stdout, stderr) = output_of(program(&["--listen", &address])).await;
    assert_eq!(code, Some(1));
    assert_eq!(stderr.matches(&address).count(), 1, "{stderr}");
    assert_eq!(stdout, "");
}

#[tokio::test]
async fn either_signal_ends_an_idle_program_with_0() {
    for signal in ["TERM", "INT"] {
        let program = Running::start(&[]).await;
        program.signal(signal);
        assert_eq!(program.ended().await.code(), Some(0), "{signal}");
    }
}

#[tokio::test]
async fn a_call_that_outlives_the_grace_is_cut_off_with_exit_code_3() {
    let program = Running::start(&["--grace=0"]).await;
    let _call = program.open_call().await;
    program.signal("TERM");
    assert_eq!(program.ended().await.code(), Some(3));
}

#[tokio::test]
async fn draining_waits_for_an_open_call_to_end() {
    let mut program = Running::start(&["--grace=60000"]).await;
    let call = program.open_call().await;
    program.signal("TERM");
    program.logs("draining").await;
    drop(call);
    assert_eq!(program.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_second_signal_does_not_wait() {
    let mut program = Running::start(&["--grace=60000"]).await;
    let _call = program.open_call().await;
    program.signal("TERM");
    program.logs("draining").await;
    program.signal("INT");
    assert_eq!(program.ended().await.code(), Some(130));
}
