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
