//! The program refuses what it cannot serve, and says why.

use std::process::{Command, Output};

fn run(args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = Command::new(env!("CARGO_BIN_EXE_draft-worker"))
        .args(args)
        .args(["--listen", "127.0.0.1:0"])
        .env_remove("SPECDEC_MODEL")
        .output()
        .expect("the program runs");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn a_missing_or_broken_model_file_ends_it_with_the_file_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing.gguf");
    let broken = folder.path().join("broken.gguf");
    std::fs::write(&broken, b"GGUF and then nothing that makes sense").expect("written");
    for path in [missing, broken] {
        let path = path.to_str().expect("text");
        let (code, log) = run(&["--model", path]);
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains(path), "{log}");
    }
}

#[test]
fn wrong_flags_end_it_with_the_flag_named() {
    for (args, named) in [
        (&[][..], "--model"),
        (&["--model", "hf:nothing"], "--model"),
        (&["--model", "synthetic", "--device", "cuda:0"], "--device"),
        (&["--model", "synthetic", "--threads", "0"], "--threads"),
        (
            &["--model", "synthetic", "--max-sequences", "0"],
            "--max-sequences",
        ),
        (
            &["--model", "some.gguf", "--draft-vocab", "0"],
            "--draft-vocab",
        ),
        (
            &["--model", "some.gguf", "--draft-vocab-file", "ids.txt"],
            "--draft-vocab",
        ),
        (
            &["--model", "some.gguf", "--requantize", "q9"],
            "--requantize",
        ),
        (
            &["--model", "synthetic", "--draft-vocab", "100"],
            "--draft-vocab",
        ),
        (
            &["--model", "synthetic", "--requantize", "q8_0"],
            "--requantize",
        ),
    ] {
        let (code, log) = run(args);
        assert_eq!(code, Some(64), "{log}");
        assert!(log.contains(named), "{log}");
    }
}
