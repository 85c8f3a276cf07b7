//! Keeping an engine from beginning a step.

use super::{Engine, Message, Shared};
use std::sync::Arc;

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
        self.shared.holds.begin();
        Hold {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.shared.holds.end() {
            // Full: the thread has messages to take, and looks again after each.
            let _ = self.shared.messages.try_send(Message::Wake);
        }
    }
}
