//! llama.cpp on the same file and threads, through its Python package.

use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

const SCRIPT: &str = include_str!("llama.py");

/// A Python that has llama-cpp-python, in a virtual environment that is made where it is absent.
pub(super) fn environment() -> Result<PathBuf> {
    let store = models::store_dir();
    let cache = store.parent().context("the model store has no parent")?;
    let folder = cache.join("llama-cpp-python");
    let python = folder.join("bin/python");
    let has_it = Command::new(&python)
        .args(["-c", "import llama_cpp"])
        .output();
    if has_it.is_ok_and(|output| output.status.success()) {
        return Ok(python);
    }
    eprintln!("installing llama-cpp-python, which compiles llama.cpp: some minutes");
    let make = |program: &Path, args: &[&str]| -> Result<()> {
        let status = Command::new(program).args(args).status();
        let status = status.with_context(|| format!("start {}", program.display()))?;
        ensure!(
            status.success(),
            "{} {} ended with {status}",
            program.display(),
            args.join(" ")
        );
        Ok(())
    };
    make(
        Path::new("python3"),
        &["-m", "venv", &folder.to_string_lossy()],
    )?;
    make(
        &python,
        &["-m", "pip", "install", "--quiet", "llama-cpp-python"],
    )?;
    Ok(python)
}

/// Tokens per second of plain greedy decoding, the prompt and the first token left out.
pub(super) async fn decode_rate(
    python: &Path,
    model: &Path,
    prompt: &str,
    tokens: u32,
) -> Result<f64> {
    let threads = thread::available_parallelism()?.to_string();
    let output = tokio::process::Command::new(python)
        .args(["-c", SCRIPT])
        .arg(model)
        .args([&threads, &tokens.to_string(), prompt])
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("start {}", python.display()))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "llama.cpp ended with {}:\n{told}",
        output.status
    );
    let rate = String::from_utf8_lossy(&output.stdout);
    rate.trim()
        .parse()
        .with_context(|| format!("llama.cpp printed {rate:?}"))
}
