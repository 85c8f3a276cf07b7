//! Tasks with a name and an owner.

use std::future::Future;

/// The tasks of one owner. Dropping it aborts them.
#[derive(Debug, Default)]
pub struct Tasks {}

impl Tasks {
    /// An owner without tasks.
    pub fn new() -> Self {
        todo!("helper: service")
    }

    /// Starts a task. A panic in it is logged with its name and ends that task alone.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let _ = (name, task);
        todo!("helper: service")
    }

    /// Waits until all tasks have ended.
    pub async fn finished(&self) {
        todo!("helper: service")
    }
}
