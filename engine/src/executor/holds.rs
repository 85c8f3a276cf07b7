//! Holds: while one lives, the thread begins no step.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How many live, and whether the thread sleeps until none does. Holds are many and mostly nothing
/// was asked for during one: waking the thread at the end of each would cost more than they save.
#[derive(Debug, Default)]
pub(super) struct Holds {
    living: AtomicUsize,
    waited_for: AtomicBool,
}

impl Holds {
    pub(super) fn begin(&self) {
        self.living.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends one. True where the thread is to be woken.
    pub(super) fn end(&self) -> bool {
        let last = self.living.fetch_sub(1, Ordering::SeqCst) == 1;
        last && self.waited_for.swap(false, Ordering::SeqCst)
    }

    /// True where the thread, which has something to do, must sleep: it is woken at the end of the
    /// last.
    pub(super) fn keep_waiting(&self) -> bool {
        if self.living.load(Ordering::SeqCst) == 0 {
            return false;
        }
        self.waited_for.store(true, Ordering::SeqCst);
        // One that ended before this was known wakes nobody.
        self.living.load(Ordering::SeqCst) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hold_wakes_a_thread_that_waits_and_only_such_a_one() {
        let holds = Holds::default();
        holds.begin();
        assert!(!holds.end(), "nobody waits");
        assert!(!holds.keep_waiting(), "nothing holds");
        holds.begin();
        holds.begin();
        assert!(holds.keep_waiting());
        assert!(!holds.end(), "another one lives");
        assert!(holds.end());
        holds.begin();
        assert!(!holds.end(), "it was woken");
    }
}
