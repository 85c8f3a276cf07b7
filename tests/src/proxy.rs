//! A TCP proxy between two programs: a link with delay, jitter and bandwidth, which can be cut and
//! can stall.
//!
//! It runs on threads of its own. The runtime's timers tick once a millisecond, which is more than
//! the delay of a good network.

mod pipe;

use anyhow::{Context as _, Result};
use pipe::Pipe;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long the other side may take to be connected to.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// What a link is like, in each of its two directions.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Link {
    /// From end to end; a round trip takes two of it.
    pub delay: Duration,
    /// The most that is added to the delay, evenly drawn for each piece of data. The order stays.
    pub jitter: Duration,
    /// How much passes, where that is limited.
    pub bytes_per_second: Option<u64>,
    /// Of the jitter.
    pub seed: u64,
}

impl Link {
    /// A link with a round trip of `rtt`, and nothing else to it.
    pub fn with_rtt(rtt: Duration) -> Self {
        Self {
            delay: rtt / 2,
            ..Self::default()
        }
    }
}

/// A listening proxy. When it is dropped, its connections end.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

/// What the threads of a proxy have in common.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Told of every change of `condition`.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    link: Link,
    condition: Condition,
    connections: Vec<Connection>,
    /// Directions that were opened, each of which draws its jitter for itself.
    directions: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Open,
    Stalled,
    Cut,
    /// The proxy is being dropped.
    Over,
}

/// Both sides of one connection, to shut them down by, and its threads.
#[derive(Debug)]
struct Connection {
    sides: [TcpStream; 2],
    threads: Vec<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy to `upstream`, an address as `http://host:port`, that listens on a free port of this
    /// machine.
    ///
    /// # Errors
    /// Where `upstream` is no address, or the proxy cannot listen.
    pub fn start(upstream: &str, link: Link) -> Result<Self> {
        let host = upstream.trim_start_matches("http://").trim_end_matches('/');
        let mut addresses = host.to_socket_addrs().context("resolve the upstream")?;
        let upstream = addresses.next().context("the upstream has no address")?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                link,
                condition: Condition::Open,
                connections: Vec::new(),
                directions: 0,
            }),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        let listener = thread::Builder::new()
            .name("proxy-listen".to_owned())
            .spawn(move || accepting.accept_all(&listener, upstream))?;
        Ok(Self {
            address,
            shared,
            listener: Some(listener),
        })
    }

    /// Where it listens: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes the link another one. What is under way arrives as it would have.
    pub fn set(&self, link: Link) {
        self.shared.state().link = link;
    }

    /// Ends all connections, and every new one at once.
    pub fn cut(&self) {
        self.shared.become_(Condition::Cut);
    }

    /// Lets nothing pass. Connections stay open, and what is sent meanwhile waits.
    pub fn stall(&self) {
        self.shared.become_(Condition::Stalled);
    }

    /// Ends a cut or a stall.
    pub fn restore(&self) {
        self.shared.become_(Condition::Open);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let connections = self.shared.become_(Condition::Over);
        // Wakes the listener, which then sees that all is over.
        let woken = TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT);
        if let (Ok(_), Some(listener)) = (woken, self.listener.take()) {
            let _ = listener.join();
        }
        let rest = self.shared.become_(Condition::Over);
        for connection in connections.into_iter().chain(rest) {
            connection.join();
        }
    }
}

impl Shared {
    /// A thread that panicked leaves nothing half done here.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the condition. Returns the connections that it ended.
    fn become_(&self, condition: Condition) -> Vec<Connection> {
        let mut state = self.state();
        state.condition = condition;
        self.changed.notify_all();
        if matches!(condition, Condition::Open | Condition::Stalled) {
            return Vec::new();
        }
        for connection in &state.connections {
            connection.end();
        }
        std::mem::take(&mut state.connections)
    }

    fn accept_all(self: &Arc<Self>, listener: &TcpListener, upstream: SocketAddr) {
        for client in listener.incoming() {
            match self.state().condition {
                Condition::Over => return,
                Condition::Cut => continue,
                Condition::Open | Condition::Stalled => {}
            }
            let connected = client.and_then(|client| {
                let server = TcpStream::connect_timeout(&upstream, CONNECT_TIMEOUT)?;
                self.connect(client, server)
            });
            // As where nobody listens upstream: the client sees its connection end.
            if let Err(error) = connected {
                eprintln!("proxy to {upstream}: {error}");
            }
        }
    }

    fn connect(self: &Arc<Self>, client: TcpStream, server: TcpStream) -> std::io::Result<()> {
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let sides = [client.try_clone()?, server.try_clone()?];
        let mut state = self.state();
        if matches!(state.condition, Condition::Cut | Condition::Over) {
            return Ok(());
        }
        let mut threads = Vec::new();
        for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
            state.directions += 1;
            let pipe = Pipe::new(Arc::clone(self), state.link.seed ^ state.directions);
            threads.extend(pipe.start(from, to)?);
        }
        state.connections.retain(|connection| !connection.is_over());
        state.connections.push(Connection { sides, threads });
        Ok(())
    }

    /// Waits while the link is stalled. False where the connection is to end.
    fn passes(&self) -> bool {
        let stalled = |state: &mut State| state.condition == Condition::Stalled;
        let state = self.changed.wait_while(self.state(), stalled);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        state.condition == Condition::Open
    }
}

impl Connection {
    fn end(&self) {
        for side in &self.sides {
            // It may have ended by itself.
            let _ = side.shutdown(std::net::Shutdown::Both);
        }
    }

    fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    fn join(self) {
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}
