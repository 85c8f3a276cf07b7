//! One direction of one connection: a thread that reads, and one that writes what was read when it
//! is due.

use super::Shared;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The most that is read at once.
const PIECE: usize = 16 * 1024;

/// Pieces under way. Whoever sends more waits, as with a full socket.
const UNDER_WAY: usize = 512;

/// A sleep ends up to so much late; the rest of a wait is spent awake.
const SLEEP_SLACK: Duration = Duration::from_micros(150);

/// When pieces arrive at the other end.
pub(super) struct Pipe {
    shared: Arc<Shared>,
    random: StdRng,
    /// When the last piece has left.
    free_at: Instant,
    /// When the last piece arrives: none overtakes it.
    last_due: Instant,
}

/// What was read.
struct Piece {
    bytes: Vec<u8>,
    due: Instant,
}

impl Pipe {
    pub(super) fn new(shared: Arc<Shared>, seed: u64) -> Self {
        let now = Instant::now();
        Self {
            shared,
            random: StdRng::seed_from_u64(seed),
            free_at: now,
            last_due: now,
        }
    }

    /// Starts both threads. They end with the connection.
    pub(super) fn start(
        self,
        from: TcpStream,
        to: TcpStream,
    ) -> std::io::Result<[JoinHandle<()>; 2]> {
        let (pieces, arriving) = sync_channel(UNDER_WAY);
        let shared = Arc::clone(&self.shared);
        let writer = thread::Builder::new()
            .name("proxy-write".to_owned())
            .spawn(move || write(&shared, &arriving, to))?;
        let reader = thread::Builder::new()
            .name("proxy-read".to_owned())
            .spawn(move || self.read(from, &pieces))?;
        Ok([reader, writer])
    }

    fn read(mut self, mut from: TcpStream, pieces: &SyncSender<Piece>) {
        let mut buffer = vec![0; PIECE];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            let piece = Piece {
                bytes: buffer[..len].to_vec(),
                due: self.due(len, Instant::now()),
            };
            if pieces.send(piece).is_err() {
                // The other end takes no more; nor does this one.
                let _ = from.shutdown(Shutdown::Read);
                return;
            }
        }
    }

    /// When a piece of `len` bytes that comes in at `now` arrives.
    fn due(&mut self, len: usize, now: Instant) -> Instant {
        let link = self.shared.state().link;
        let sending = link.bytes_per_second.map_or(Duration::ZERO, |rate| {
            Duration::from_secs_f64(len as f64 / rate.max(1) as f64)
        });
        self.free_at = self.free_at.max(now) + sending;
        let jitter = link.jitter.mul_f64(self.random.random());
        self.last_due = self.last_due.max(self.free_at + link.delay + jitter);
        self.last_due
    }
}

/// Writes what arrives, and passes the end on.
fn write(shared: &Shared, arriving: &Receiver<Piece>, mut to: TcpStream) {
    while let Ok(Piece { bytes, due }) = arriving.recv() {
        wait_until(due);
        if !shared.passes() || to.write_all(&bytes).is_err() {
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Returns at `due`, a few microseconds late at most where a processor is free.
fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if let Some(asleep) = left.checked_sub(SLEEP_SLACK) {
        thread::sleep(asleep);
    }
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}
