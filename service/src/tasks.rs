//! Tasks with a name and an owner. Knows nothing of what they do.

use futures::FutureExt as _;
use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// The tasks of one owner. Dropping it aborts them.
#[derive(Debug)]
pub struct Tasks {
    spawner: Spawner,
    _abort_on_drop: DropGuard,
}

/// Starts tasks for an owner of [`Tasks`] without keeping them alive: what is started after the owner
/// was dropped ends at once.
#[derive(Debug, Clone)]
pub struct Spawner {
    tracker: TaskTracker,
    aborted: CancellationToken,
}

impl Tasks {
    /// An owner without tasks.
    pub fn new() -> Self {
        let aborted = CancellationToken::new();
        Self {
            _abort_on_drop: aborted.clone().drop_guard(),
            spawner: Spawner {
                tracker: TaskTracker::new(),
                aborted,
            },
        }
    }

    /// Starts a task. A panic in it is logged with its name and ends that task alone. Must be
    /// called within a Tokio runtime.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.spawner.spawn(name, task);
    }

    /// For tasks that start others.
    pub fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }

    /// Waits until all tasks have ended.
    pub async fn finished(&self) {
        self.spawner.tracker.close();
        self.spawner.tracker.wait().await;
    }
}

impl Spawner {
    /// As [`Tasks::spawn`].
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let aborted = self.aborted.clone();
        self.tracker.spawn(async move {
            // Unwind safe: whatever the panic left half done is dropped here, with the task.
            let task = AssertUnwindSafe(task).catch_unwind();
            if let Some(Err(panic)) = aborted.run_until_cancelled_owned(task).await {
                tracing::error!(task = name, panic = panic_text(&*panic), "task panicked");
            }
        });
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("not a text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};
    use tokio::sync::oneshot;

    /// Where a test reads what was logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic holds it").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_panic_is_logged_with_the_name_of_its_task() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        // Holds for this thread, which runs all tasks of this test.
        let _guard = tracing::subscriber::set_default(subscriber);
        let tasks = Tasks::new();
        tasks.spawn("link", async { panic!("row {} is missing", 7) });
        tasks.finished().await;
        let log = String::from_utf8(log.0.lock().expect("no panic holds it").clone());
        let log = log.expect("utf-8");
        assert!(
            log.contains("link") && log.contains("row 7 is missing"),
            "{log}"
        );
    }

    #[tokio::test]
    async fn a_panic_ends_its_own_task_alone() {
        let tasks = Tasks::new();
        let (go, gone) = oneshot::channel::<()>();
        let (done, result) = oneshot::channel();
        tasks.spawn("bad", async move {
            let _held = go;
            panic!("on purpose");
        });
        tasks.spawn("good", async move {
            // Ends when the panicking task has dropped its half.
            let _ = gone.await;
            let _ = done.send(7);
        });
        assert_eq!(result.await, Ok(7));
        tasks.finished().await;
    }

    #[tokio::test]
    async fn finished_waits_for_the_last_task() {
        let tasks = Tasks::new();
        let (release, held) = oneshot::channel::<()>();
        tasks.spawn("held", async move {
            let _ = held.await;
        });
        let mut finished = Box::pin(tasks.finished());
        assert!(finished.as_mut().now_or_never().is_none());
        drop(release);
        finished.await;
    }

    #[tokio::test]
    async fn dropping_the_owner_drops_what_its_tasks_hold() {
        let tasks = Tasks::new();
        let (held, dropped) = oneshot::channel::<()>();
        tasks.spawn("endless", async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        drop(tasks);
        assert!(dropped.await.is_err());
    }
}
