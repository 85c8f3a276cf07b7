//! How many connections there are, in all and of each peer.

use super::ServerOptions;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The prefix of an IPv6 address that one customer usually has whole.
const NETWORK: u128 = !0 << 64;

/// Counts connections.
#[derive(Debug)]
pub(super) struct Places {
    max: u32,
    max_per_peer: u32,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    total: u32,
    per_peer: HashMap<IpAddr, u32>,
}

/// The place of one connection, until dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    peer: IpAddr,
}

impl Places {
    /// As many as `options` say, none taken.
    pub(super) fn new(options: &ServerOptions) -> Self {
        Self {
            max: options.max_connections,
            max_per_peer: options.max_connections_per_peer.unwrap_or(u32::MAX),
            taken: Mutex::default(),
        }
    }

    /// A place for a connection from `address`. `None` where it can have none.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let peer = peer_of(address);
        let mut taken = self.taken();
        let of_peer = taken.per_peer.get(&peer).copied().unwrap_or(0);
        if taken.total >= self.max || of_peer >= self.max_per_peer {
            return None;
        }
        taken.total += 1;
        taken.per_peer.insert(peer, of_peer + 1);
        Some(Place {
            places: Arc::clone(self),
            peer,
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Nothing panics while it is held.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.total -= 1;
        if let Some(of_peer) = taken.per_peer.get_mut(&self.peer) {
            *of_peer -= 1;
            if *of_peer == 0 {
                // Peers that are gone must not pile up.
                taken.per_peer.remove(&self.peer);
            }
        }
    }
}

fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(max: u32, max_per_peer: u32) -> Arc<Places> {
        Arc::new(Places::new(&ServerOptions {
            max_connections: max,
            max_connections_per_peer: Some(max_per_peer),
            ..ServerOptions::default()
        }))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("address")
    }

    #[test]
    fn nobody_has_more_than_a_share_and_all_together_no_more_than_there_are() {
        let places = places(3, 2);
        let (a, b) = (ip("192.0.2.1"), ip("192.0.2.2"));
        let first = places.take(a).expect("a place");
        let _second = places.take(a).expect("a place");
        assert!(places.take(a).is_none(), "its share is taken");
        let _third = places.take(b).expect("a place");
        assert!(places.take(b).is_none(), "all are taken");
        drop(first);
        assert!(places.take(b).is_some());
    }

    #[test]
    fn peers_that_left_are_forgotten() {
        let places = places(10, 10);
        for last in 0..=255 {
            drop(places.take(ip(&format!("192.0.2.{last}"))));
        }
        assert_eq!(places.taken().total, 0);
        assert_eq!(places.taken().per_peer.len(), 0);
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer_and_a_mapped_address_is_what_it_maps() {
        let places = places(10, 1);
        let _place = places.take(ip("2001:db8::1")).expect("a place");
        assert!(places.take(ip("2001:db8::2")).is_none());
        assert!(places.take(ip("2001:db8:0:1::1")).is_some());
        let _place = places.take(ip("::ffff:192.0.2.1")).expect("a place");
        assert!(places.take(ip("192.0.2.1")).is_none());
    }
}
