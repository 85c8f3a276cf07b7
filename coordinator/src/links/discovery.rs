//! Which draft workers there are, while they come and go.
//!
//! The one task here owns the links to draft workers. A name is looked up again and again; each
//! address that it has is a worker, which has a link as long as the name has the address.

use super::DraftPlace;
use super::roster::{Changes, Roster};
use crate::scheduler::WorkerId;
use futures::future::join_all;
use service::{CancellationToken, Tasks};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a lookup may take.
const LOOKUP_DEADLINE: Duration = Duration::from_secs(5);

/// Knows the addresses that a name has.
pub(crate) trait Resolve: Send + Sync {
    /// The addresses of `name:port`.
    fn addresses(&self, name: &str) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send;
}

/// Asks the operating system.
#[derive(Debug)]
pub(crate) struct SystemResolver;

impl Resolve for SystemResolver {
    async fn addresses(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host(name).await?.collect())
    }
}

/// Keeps a link to every draft worker that there is.
#[derive(Debug)]
pub(crate) struct Discovery<R, L> {
    /// Workers that are always there.
    fixed: BTreeSet<String>,
    names: Vec<Name>,
    every: Duration,
    resolver: R,
    /// Makes what runs for a worker until it is told to end.
    link: L,
    roster: Roster,
    running: BTreeMap<WorkerId, Running>,
    links: Tasks,
}

/// A name, and what is known of it.
#[derive(Debug)]
struct Name {
    name: String,
    /// True where the workers there speak TLS.
    tls: bool,
    /// What it stood for when it was last found.
    urls: BTreeSet<String>,
    /// True where the last lookup failed.
    failed: bool,
}

/// A link that runs.
#[derive(Debug)]
struct Running {
    retire: CancellationToken,
    /// Resolves when it has ended.
    ended: oneshot::Receiver<()>,
}

impl<R, L, F> Discovery<R, L>
where
    R: Resolve,
    L: Fn(WorkerId, String, CancellationToken) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    /// No links yet. Names among `places` are to be looked up with `resolver`, `every` so often;
    /// `link` makes what runs for a worker until its token is cancelled.
    pub(crate) fn new(places: Vec<DraftPlace>, every: Duration, resolver: R, link: L) -> Self {
        let (mut fixed, mut names) = (BTreeSet::new(), Vec::new());
        for place in places {
            match place {
                DraftPlace::Url(url) => {
                    fixed.insert(url);
                }
                DraftPlace::Name { name, tls } => names.push(Name {
                    name,
                    tls,
                    urls: BTreeSet::new(),
                    failed: false,
                }),
            }
        }
        Self {
            fixed,
            names,
            every,
            resolver,
            link,
            roster: Roster::default(),
            running: BTreeMap::new(),
            links: Tasks::new(),
        }
    }

    /// Keeps the links, for as long as it is polled: dropping it ends them.
    pub(crate) async fn run(mut self) {
        // What needs no lookup does not wait for one.
        self.settle().await;
        while !self.names.is_empty() {
            self.look_up().await;
            self.settle().await;
            tokio::time::sleep(self.every).await;
        }
        self.links.finished().await;
    }

    /// Asks for every name. One that cannot be found keeps what it stood for.
    async fn look_up(&mut self) {
        let resolver = &self.resolver;
        let lookups = self.names.iter_mut().map(|name| async move {
            let answer = tokio::time::timeout(LOOKUP_DEADLINE, resolver.addresses(&name.name));
            let answer = answer.await.unwrap_or_else(|_| {
                let late = "no answer in time";
                Err(io::Error::new(io::ErrorKind::TimedOut, late))
            });
            name.found(answer);
        });
        join_all(lookups).await;
    }

    /// Starts and ends links until they are those of the workers that there are.
    async fn settle(&mut self) {
        let found = self.names.iter().flat_map(|name| &name.urls);
        let urls = self.fixed.iter().chain(found).cloned().collect();
        let Changes {
            left,
            joined,
            refused,
        } = self.roster.update(&urls);
        if refused > 0 {
            tracing::error!(refused, "too many draft workers: some are left out");
        }
        for (worker, url) in left {
            tracing::info!(worker, url, "draft worker is no longer listed");
            if let Some(link) = self.running.remove(&worker) {
                link.retire.cancel();
                // What it says last must come before what a successor with its number says.
                let _ = link.ended.await;
            }
        }
        for (worker, url) in joined {
            tracing::info!(worker, url, "draft worker is listed");
            self.start(worker, url);
        }
    }

    fn start(&mut self, worker: WorkerId, url: String) {
        let retire = CancellationToken::new();
        let (end, ended) = oneshot::channel::<()>();
        let link = (self.link)(worker, url, retire.clone());
        self.links.spawn("draft link", async move {
            link.await;
            drop(end);
        });
        self.running.insert(worker, Running { retire, ended });
    }
}

impl Name {
    /// Where the worker at `address` is. Its certificate is of the name, not of the address.
    fn url(&self, address: SocketAddr) -> String {
        match self.name.rsplit_once(':') {
            Some((name, _)) if self.tls => format!("https://{address}#{name}"),
            _ => format!("http://{address}"),
        }
    }

    fn found(&mut self, answer: io::Result<Vec<SocketAddr>>) {
        match answer {
            Ok(addresses) => {
                self.failed = false;
                let urls = addresses.into_iter().map(|address| self.url(address));
                self.urls = urls.collect();
            }
            Err(error) => {
                let name = &self.name;
                if !std::mem::replace(&mut self.failed, true) {
                    tracing::warn!(name, %error, "draft workers' name not found: those known stay");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::{Mutex, mpsc};

    type Answer = io::Result<Vec<SocketAddr>>;

    /// Gives each lookup the next of the test's answers.
    struct Told(Mutex<mpsc::Receiver<Answer>>);

    impl Resolve for Told {
        async fn addresses(&self, _: &str) -> Answer {
            match self.0.lock().await.recv().await {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    }

    /// What a link did.
    #[derive(Debug, PartialEq, Eq)]
    enum Did {
        Start(WorkerId, String),
        End(WorkerId),
    }

    /// Runs `test` beside a discovery of `places`; it tells answers and hears of links.
    async fn beside_a_discovery(
        places: &[&str],
        test: impl AsyncFnOnce(mpsc::Sender<Answer>, mpsc::Receiver<Did>),
    ) {
        let (answers, told) = mpsc::channel(1);
        let (did, seen) = mpsc::channel(16);
        let link = move |worker, url: String, retire: CancellationToken| {
            let did = did.clone();
            async move {
                did.send(Did::Start(worker, url)).await.unwrap();
                retire.cancelled().await;
                // Time enough for a successor that does not wait to be seen first.
                tokio::task::yield_now().await;
                did.send(Did::End(worker)).await.unwrap();
            }
        };
        let places = places.iter().map(|place| DraftPlace::parse(place).unwrap());
        let every = Duration::from_millis(1);
        let resolver = Told(Mutex::new(told));
        let discovery = Discovery::new(places.collect(), every, resolver, link);
        tokio::select! {
            () = discovery.run() => panic!("it ends"),
            () = test(answers, seen) => {}
        }
    }

    fn addresses(ports: &[u16]) -> Answer {
        let address = |port: &u16| SocketAddr::from(([127, 0, 0, 1], *port));
        Ok(ports.iter().map(address).collect())
    }

    fn start(worker: WorkerId, port: u16) -> Did {
        Did::Start(worker, format!("http://127.0.0.1:{port}"))
    }

    #[tokio::test]
    async fn workers_come_and_go_with_the_addresses_of_a_name() {
        beside_a_discovery(&["dns://drafts:1"], async |answers, mut seen| {
            answers.send(addresses(&[1, 2])).await.unwrap();
            let mut first = [seen.recv().await.unwrap(), seen.recv().await.unwrap()];
            first.sort_by_key(|did| matches!(did, Did::Start(1, _)));
            assert_eq!(first, [start(0, 1), start(1, 2)]);
            answers.send(addresses(&[2, 3])).await.unwrap();
            assert_eq!(seen.recv().await, Some(Did::End(0)));
            assert_eq!(
                seen.recv().await,
                Some(start(0, 3)),
                "once the number is free"
            );
            answers.send(addresses(&[2])).await.unwrap();
            assert_eq!(seen.recv().await, Some(Did::End(0)));
            answers.send(addresses(&[])).await.unwrap();
            assert_eq!(seen.recv().await, Some(Did::End(1)));
        })
        .await;
    }

    #[tokio::test]
    async fn workers_of_a_name_with_tls_have_a_certificate_of_the_name() {
        beside_a_discovery(&["dns+https://drafts.svc:1"], async |answers, mut seen| {
            answers.send(addresses(&[1])).await.unwrap();
            let url = "https://127.0.0.1:1#drafts.svc".to_owned();
            assert_eq!(seen.recv().await, Some(Did::Start(0, url)));
        })
        .await;
    }

    #[tokio::test]
    async fn a_lookup_that_fails_changes_nothing() {
        beside_a_discovery(&["dns://drafts:1"], async |answers, mut seen| {
            answers.send(addresses(&[1])).await.unwrap();
            assert_eq!(seen.recv().await, Some(start(0, 1)));
            for _ in 0..3 {
                let failure = Err(io::ErrorKind::NotFound.into());
                answers.send(failure).await.unwrap();
            }
            answers.send(addresses(&[1, 2])).await.unwrap();
            assert_eq!(seen.recv().await, Some(start(1, 2)), "the first goes on");
        })
        .await;
    }

    #[tokio::test]
    async fn workers_with_an_address_of_their_own_wait_for_no_lookup_and_stay() {
        let places = ["http://127.0.0.1:1", "dns://drafts:1"];
        beside_a_discovery(&places, async |answers, mut seen| {
            assert_eq!(seen.recv().await, Some(start(0, 1)));
            answers.send(addresses(&[1, 2])).await.unwrap();
            assert_eq!(seen.recv().await, Some(start(1, 2)), "one link each");
            answers.send(addresses(&[])).await.unwrap();
            assert_eq!(seen.recv().await, Some(Did::End(1)));
        })
        .await;
    }
}
