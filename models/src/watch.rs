//! Gives up on work that goes silent.
//!
//! The hub's client has no deadline of its own: a host that swallows packets would hold a start
//! for minutes.

use anyhow::{Context as _, Result, bail};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// How long silence is borne.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Until the first sign of life.
    pub(crate) first: Duration,
    /// From one sign of life to the next.
    pub(crate) next: Duration,
}

/// What watched work says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// So many bytes will come in all.
    Total(u64),
    /// So many more bytes have come.
    More(u64),
}

/// Through which watched work shows that it lives.
#[derive(Debug)]
pub(crate) struct Beat(SyncSender<Sign>);

impl Beat {
    /// Shows a sign. Nobody may be listening any more.
    pub(crate) fn sign(&self, sign: Sign) {
        let _ = self.0.send(sign);
    }
}

/// Runs `work` on a thread of its own and passes its signs to `on_sign`. Work that goes silent is
/// left behind: its thread ends when its own network calls do.
pub(crate) fn watched<T: Send + 'static>(
    patience: Patience,
    work: impl FnOnce(&Beat) -> Result<T> + Send + 'static,
    mut on_sign: impl FnMut(Sign),
) -> Result<T> {
    let (signs_in, signs) = sync_channel(64);
    let (result_in, result) = sync_channel(1);
    thread::Builder::new()
        .name("watched".to_owned())
        .spawn(move || {
            let beat = Beat(signs_in);
            let _ = result_in.send(work(&beat));
        })
        .context("start a thread")?;
    follow(&signs, patience, &mut on_sign)?;
    result.recv().context("the work panicked")?
}

/// Returns once the work has ended, and fails once it has been silent for too long.
fn follow(
    signs: &Receiver<Sign>,
    patience: Patience,
    on_sign: &mut impl FnMut(Sign),
) -> Result<()> {
    let mut limit = patience.first;
    loop {
        match signs.recv_timeout(limit) {
            Ok(sign) => on_sign(sign),
            Err(RecvTimeoutError::Timeout) => bail!("no answer within {limit:?}"),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        limit = patience.next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn signs_and_result_arrive() {
        let mut seen = Vec::new();
        let patience = Patience {
            first: LONG,
            next: LONG,
        };
        let work = |beat: &Beat| {
            beat.sign(Sign::Total(3));
            beat.sign(Sign::More(3));
            Ok(7)
        };
        assert_eq!(watched(patience, work, |sign| seen.push(sign)).unwrap(), 7);
        assert_eq!(seen, [Sign::Total(3), Sign::More(3)]);
    }

    #[test]
    fn silent_work_is_left_behind() {
        let (release, held) = sync_channel::<()>(0);
        let patience = Patience {
            first: LONG,
            next: Duration::from_millis(1),
        };
        let work = move |beat: &Beat| {
            beat.sign(Sign::More(1));
            let _ = held.recv();
            Ok(())
        };
        let error = watched(patience, work, |_| ()).unwrap_err();
        assert!(error.to_string().contains("no answer"), "{error}");
        drop(release);
    }

    #[test]
    fn a_panic_is_an_error() {
        let patience = Patience {
            first: LONG,
            next: LONG,
        };
        let work = |_: &Beat| -> Result<()> { panic!("planned") };
        assert!(watched(patience, work, |_| ()).is_err());
    }
}
