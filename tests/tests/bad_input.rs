//! Files and flags that are wrong are named before a program serves, and nothing crashes.

use anyhow::Result;
use specdec_tests::drafts::write_target;
use specdec_tests::refused;
use std::io::Write as _;

#[tokio::test]
async fn workers_name_the_model_file_that_they_cannot_use() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let valid = std::fs::read(write_target(folder.path())?)?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let write = |name: &str, bytes: &[u8]| -> Result<String> {
        let path = path(name);
        std::fs::File::create(&path)?.write_all(bytes)?;
        Ok(path)
    };
    // The counts of tensors and of metadata entries follow magic and version.
    let mut absurd = valid.clone();
    absurd[8..24].fill(0xff);
    let files = [
        path("absent.gguf"),
        write("empty.gguf", b"")?,
        write("text.gguf", b"this is not a model")?,
        write("header.gguf", &valid[..100])?,
        write("truncated.gguf", &valid[..valid.len() - 1000])?,
        write("absurd.gguf", &absurd)?,
    ];
    for program in ["target-worker", "draft-worker"] {
        for file in &files {
            let (code, log) = refused(program, &["--model", file]).await?;
            assert!(
                code.is_some_and(|code| code != 0),
                "{program} {file}: {code:?}"
            );
            assert!(log.contains(file.as_str()), "{program} names {file}: {log}");
            assert!(!log.contains("panicked"), "{program} {file}: {log}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn wrong_flags_exit_with_64_and_name_the_flag() -> Result<()> {
    let cases: [(&str, &[&str], &str); 5] = [
        (
            "target-worker",
            &["--model", "no-such-preset"],
            "no-such-preset",
        ),
        (
            "target-worker",
            &["--model", "synthetic:agreement=2"],
            "agreement",
        ),
        (
            "draft-worker",
            &["--model", "synthetic", "--max-sequences", "0"],
            "max-sequences",
        ),
        ("coordinator", &["--target", "not a url"], "target"),
        (
            "coordinator",
            &["--target", "http://127.0.0.1:1", "--spec-draft-n-max", "99"],
            "spec-draft-n-max",
        ),
    ];
    for (program, args, named) in cases {
        let (code, log) = refused(program, args).await?;
        assert_eq!(code, Some(64), "{program} {args:?}: {log}");
        assert!(
            log.contains(named),
            "{program} {args:?} names {named}: {log}"
        );
    }
    Ok(())
}
