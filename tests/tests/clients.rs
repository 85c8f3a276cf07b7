//! Clients that others wrote drive a running service: the official `openai` client, `grpcio` by
//! reflection alone, a load generator, and Prometheus' parsers. What they expect is written in
//! `tests/clients`, in Python.

use anyhow::{Context as _, Result};
use models::{Role, manifest};
use specdec_tests::{Cluster, ClusterOptions};
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

/// Runs the tests of `files` against `cluster`.
async fn drive(cluster: &Cluster, files: &[&str]) -> Result<()> {
    let python = models::store_dir()
        .with_file_name("clients")
        .join("bin/python");
    anyhow::ensure!(
        python.is_file(),
        "{} is missing: run `cargo xtask clients` first",
        python.display()
    );
    let output = Command::new(python)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .args(files)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("clients"))
        .env("SPECDEC_URL", cluster.coordinator.url())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("start pytest")?;
    anyhow::ensure!(
        output.status.success(),
        "{}{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        cluster.coordinator.log()
    );
    Ok(())
}

/// A small model of the real ones, whose template knows of tools, and itself as its draft.
#[tokio::test]
async fn clients_of_openai_and_of_grpc_work_on_a_real_model() -> Result<()> {
    let model = manifest()
        .find("qwen2.5-coder", Role::Draft)?
        .path(&models::store_dir());
    let model = model.display().to_string();
    let cluster = Cluster::start(ClusterOptions::new(&model, [&model])).await?;
    drive(
        &cluster,
        &["test_openai.py", "test_grpc.py", "test_metrics.py"],
    )
    .await
}

#[tokio::test]
async fn a_load_generator_from_the_registry_runs() -> Result<()> {
    let options = ClusterOptions::new(
        "synthetic:base_ms=5",
        ["synthetic:agreement=0.9,base_ms=0.5"],
    );
    let cluster = Cluster::start(options).await?;
    drive(&cluster, &["test_load.py"]).await
}
