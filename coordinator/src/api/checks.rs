//! Where requests are checked: beside the tasks that must not wait, no more at once than there are
//! processors, and with an end.

use service::{Class, Error};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How long checking a request may take: nearly all of it is the tokenizer's.
const CHECK_DEADLINE: Duration = Duration::from_secs(10);

/// Runs checks. How many wait for it is bounded by whoever asks.
#[derive(Debug)]
pub(crate) struct Checks {
    processors: Arc<Semaphore>,
}

impl Checks {
    /// Nothing is being checked.
    pub(crate) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            processors: Arc::new(Semaphore::new(processors)),
        }
    }

    /// Runs `work`, which may take the processor for long, by `deadline` where there is one.
    ///
    /// # Errors
    /// What `work` says, or [`Class::Deadline`].
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        deadline: Option<Instant>,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let latest = Instant::now() + CHECK_DEADLINE;
        let until = deadline.map_or(latest, |deadline| deadline.min(latest));
        let checked = async {
            let processor = Arc::clone(&self.processors).acquire_owned().await;
            let processor = processor.map_err(|error| internal(&error))?;
            blocking(processor, work).await
        };
        let in_time = tokio::time::timeout_at(until, checked).await;
        in_time.unwrap_or_else(|_| {
            let message = "checking the request took too long";
            Err(Error::new(Class::Deadline, message))
        })
    }
}

/// Runs `work` on a thread of its own. It cannot be stopped: `processor` is taken until it ends,
/// whether or not anybody still waits.
async fn blocking<T: Send + 'static>(
    processor: OwnedSemaphorePermit,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let work = tokio::task::spawn_blocking(move || {
        let _processor = processor;
        work()
    });
    work.await.map_err(|error| internal(&error))?
}

fn internal(error: &dyn std::error::Error) -> Error {
    Error::new(Class::Internal, error.to_string())
}
