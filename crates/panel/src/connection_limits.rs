//! Connections that have not authenticated: how many there may be, in all and of one address, and which of them makes room for a new one.
//!
//! A new one always has room as long as others have not authenticated either: so half-open connections, however many, never keep
//! out a health check or an operator. Never serves or closes a connection itself.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::Notify;

/// Connections of one address.
const OF_ONE_ADDRESS: usize = 64;

/// What a connection has shown so far; shared by its task and [`ConnectionLimits`].
pub(crate) struct TrackedConnection {
    network: IpAddr,
    born: Instant,
    /// Milliseconds after `born`: its last answer.
    answered_ms: AtomicU64,
    has_answered: AtomicBool,
    is_authenticated: AtomicBool,
    is_evicted: AtomicBool,
    eviction: Notify,
}

impl TrackedConnection {
    fn new(network: IpAddr) -> TrackedConnection {
        TrackedConnection {
            network,
            born: Instant::now(),
            answered_ms: AtomicU64::new(0),
            has_answered: AtomicBool::new(false),
            is_authenticated: AtomicBool::new(false),
            is_evicted: AtomicBool::new(false),
            eviction: Notify::new(),
        }
    }

    /// A request of it had a valid token or cookie: it is not evicted, even if that was decided before.
    pub(crate) fn authenticate(&self) {
        self.is_authenticated.store(true, Ordering::Relaxed);
        self.is_evicted.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.is_authenticated.load(Ordering::Relaxed)
    }

    /// A request of it has an answer.
    pub(crate) fn answer(&self) {
        let since_ms = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.answered_ms.store(since_ms, Ordering::Relaxed);
        self.has_answered.store(true, Ordering::Relaxed);
    }

    /// Something of an answer may have been sent.
    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// Waits until it has to make room.
    pub(crate) async fn evicted(&self) {
        self.eviction.notified().await;
    }

    fn is_limited(&self) -> bool {
        !self.is_authenticated() && !self.is_evicted.load(Ordering::Relaxed)
    }

    fn idle_since(&self) -> Instant {
        self.born + std::time::Duration::from_millis(self.answered_ms.load(Ordering::Relaxed))
    }

    fn evict(&self) {
        self.is_evicted.store(true, Ordering::Relaxed);
        self.eviction.notify_one();
    }
}

/// The connections that are served.
pub(crate) struct ConnectionLimits {
    entries: HashMap<u64, Arc<TrackedConnection>>,
    next: u64,
    /// The limit of all; half of them may be without authentication.
    most: usize,
}

impl ConnectionLimits {
    pub(crate) fn new(most: usize) -> ConnectionLimits {
        ConnectionLimits { entries: HashMap::new(), next: 0, most }
    }

    /// Admits a new connection, for which another one may be evicted; None where all have authenticated.
    pub(crate) fn admit(&mut self, network: IpAddr) -> Option<(u64, Arc<TrackedConnection>)> {
        let limited = || self.entries.values().filter(|tracked| tracked.is_limited());
        let own = limited().filter(|tracked| tracked.network == network).count();
        if own >= OF_ONE_ADDRESS.min(self.most / 4).max(1) {
            oldest(limited().filter(|tracked| tracked.network == network))?.evict();
        } else if limited().count() >= self.most / 2 || self.served() >= self.most {
            let largest = largest(limited())?;
            oldest(limited().filter(|tracked| tracked.network == largest))?.evict();
        }
        let tracked = Arc::new(TrackedConnection::new(network));
        self.next += 1;
        self.entries.insert(self.next, Arc::clone(&tracked));
        Some((self.next, tracked))
    }

    /// The connection has gone.
    pub(crate) fn remove(&mut self, number: u64) {
        self.entries.remove(&number);
    }

    /// Those that are not being evicted.
    fn served(&self) -> usize {
        self.entries.values().filter(|tracked| !tracked.is_evicted.load(Ordering::Relaxed)).count()
    }
}

fn oldest<'a>(
    connections: impl Iterator<Item = &'a Arc<TrackedConnection>>,
) -> Option<&'a Arc<TrackedConnection>> {
    connections.min_by_key(|tracked| tracked.idle_since())
}

/// The address with the most connections.
fn largest<'a>(connections: impl Iterator<Item = &'a Arc<TrackedConnection>>) -> Option<IpAddr> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    connections.for_each(|tracked| *counts.entry(tracked.network).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(network, _)| network)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn evicted(connections: &[Arc<TrackedConnection>]) -> Vec<usize> {
        let all = connections.iter().enumerate();
        all.filter(|(_, one)| one.is_evicted.load(Ordering::Relaxed)).map(|(number, _)| number).collect()
    }

    #[test]
    fn the_oldest_of_an_address_makes_room_and_who_has_authenticated_never_does() {
        let mut limits = ConnectionLimits::new(512);
        let connections: Vec<_> = (0..64).map(|_| limits.admit(address(1)).unwrap().1).collect();
        connections[0].authenticate();
        std::thread::sleep(std::time::Duration::from_millis(3));
        connections[1].answer();
        assert!(limits.admit(address(1)).is_some() && evicted(&connections).is_empty());
        limits.admit(address(1)).unwrap();
        assert_eq!(evicted(&connections), [2]);
        limits.admit(address(2)).unwrap();
        assert_eq!(evicted(&connections), [2]);
        connections[2].authenticate();
        assert!(evicted(&connections).is_empty());
    }

    #[test]
    fn of_all_addresses_the_one_with_the_most_makes_room() {
        let mut limits = ConnectionLimits::new(40);
        let few: Vec<_> = (0..4).map(|_| limits.admit(address(1)).unwrap().1).collect();
        let many: Vec<_> = (0..10).map(|_| limits.admit(address(2)).unwrap().1).collect();
        (0..6).for_each(|_| drop(limits.admit(address(3))));
        limits.admit(address(4)).unwrap();
        assert!(evicted(&few).is_empty());
        assert_eq!(evicted(&many), [0]);
    }

    #[test]
    fn where_all_have_authenticated_there_is_no_room_until_one_goes() {
        let mut limits = ConnectionLimits::new(8);
        let numbers: Vec<_> = (0..8)
            .map(|number| {
                let (number, tracked) = limits.admit(address(number)).unwrap();
                tracked.authenticate();
                number
            })
            .collect();
        assert!(limits.admit(address(9)).is_none());
        limits.remove(numbers[0]);
        assert!(limits.admit(address(9)).is_some());
        assert!(limits.admit(address(10)).is_some(), "the ninth makes room");
    }
}
