//! What a process has used, as the kernel counts it.

use crate::Process;
use anyhow::{Context as _, Result};
use std::fs;
use std::time::Duration;

/// Processor time of all threads that run.
pub(crate) fn cpu_time(process: &Process) -> Result<Duration> {
    let tasks = format!("/proc/{}/task", process.id()?);
    let mut nanoseconds = 0;
    for task in fs::read_dir(&tasks).with_context(|| format!("read {tasks}"))? {
        let path = task?.path().join("schedstat");
        // A thread may have ended since.
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let ran = text.split_whitespace().next();
        let ran = ran.and_then(|field| field.parse::<u64>().ok());
        nanoseconds += ran.with_context(|| format!("{} has no time", path.display()))?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Memory that it holds, in bytes.
pub(crate) fn resident_bytes(process: &Process) -> Result<u64> {
    let path = format!("/proc/{}/status", process.id()?);
    let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Ok(kib.with_context(|| format!("VmRSS is not in {path}"))? * 1024)
}
