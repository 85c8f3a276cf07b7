//! Every check that a change must pass, in the order that finds mistakes soonest.

use crate::{cargo, clients, models, tidy};
use anyhow::{Context as _, Result, ensure};
use std::time::{Duration, Instant};

/// A check: what it is called, and how it is done.
type Step = (&'static str, fn() -> Result<()>);

/// One profile throughout, so that each dependency is compiled once. The programs are built
/// together with the tests: built alone, dependencies would have other features.
const STEPS: [Step; 9] = [
    ("format", || cargo(&["fmt", "--all", "--check"])),
    ("lint", || {
        cargo(&[
            "clippy",
            "--release",
            "--workspace",
            "--all-targets",
            "--",
            "-Dwarnings",
        ])
    }),
    ("tidy", tidy::run),
    ("models", || {
        models::fetch_all(&[
            "qwen2.5-coder".into(),
            "smollm2-135m".into(),
            "gemma-3-270m".into(),
        ])
    }),
    ("clients", clients::install),
    ("build", || {
        cargo(&["build", "--release", "--workspace", "--all-targets"])
    }),
    ("doc", document),
    ("doc tests", || {
        cargo(&["test", "--release", "--workspace", "--doc"])
    }),
    ("test", test),
];

/// Runs the steps, and stops at the first that fails.
pub(crate) fn run() -> Result<()> {
    let mut times = Vec::new();
    for (name, step) in STEPS {
        eprintln!("\n=== {name} ===");
        let start = Instant::now();
        let outcome = step();
        times.push((name, start.elapsed()));
        if outcome.is_err() {
            summarize(&times);
        }
        outcome.with_context(|| format!("the step \"{name}\" failed"))?;
    }
    summarize(&times);
    println!("all checks passed");
    Ok(())
}

fn summarize(times: &[(&str, Duration)]) {
    println!();
    for (name, time) in times {
        println!("{name:<10} {:>8.1} s", time.as_secs_f64());
    }
    let total: Duration = times.iter().map(|(_, time)| *time).sum();
    println!("{:<10} {:>8.1} s", "total", total.as_secs_f64());
}

fn test() -> Result<()> {
    let installed = cargo::command()
        .args(["nextest", "--version"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !installed {
        cargo(&["install", "--locked", "cargo-nextest"])?;
    }
    // Tests run side by side, one to a core: a model that took all cores would spin waiting for them.
    succeed(cargo::command().env("CANDLE_NUM_THREADS", "1").args([
        "nextest",
        "run",
        "--release",
        "--workspace",
        "--profile=ci",
    ]))
}

fn document() -> Result<()> {
    let mut command = cargo::command();
    command.env("RUSTDOCFLAGS", "-Dwarnings");
    command.args(["doc", "--release", "--workspace", "--no-deps"]);
    succeed(&mut command)
}

fn cargo(args: &[&str]) -> Result<()> {
    succeed(cargo::command().args(args))
}

fn succeed(command: &mut std::process::Command) -> Result<()> {
    let status = command.status().context("start cargo")?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
