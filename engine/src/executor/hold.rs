//! Keeping an engine from beginning a step.

use super::{Engine, Message, Shared};
use std::sync::{Arc, atomic::Ordering};

/// Keeps an engine from beginning a step while it lives; see [`Engine::hold`].
#[derive(Debug)]
#[must_use = "the engine goes on as soon as this is dropped"]
pub struct Hold {
    shared: Arc<Shared>,
}

impl Engine {
    /// Keeps the engine from beginning a step until the hold is dropped, so that all that is asked
    /// for meanwhile is computed together: an idle engine would begin on the first of several calls
    /// alone. A step that runs goes on. Everybody waits for a hold, so it must be short: never keep
    /// one across an await.
    pub fn hold(&self) -> Hold {
        self.shared.holds.fetch_add(1, Ordering::SeqCst);
        Hold {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shared.holds.fetch_sub(1, Ordering::SeqCst);
        // Full: the thread has messages to take, and looks again after each.
        let _ = self.shared.messages.try_send(Message::Wake);
    }
}
