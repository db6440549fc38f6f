//! Slows down guessing: after some failed logins of an address for one name, further attempts wait.
//!
//! Owns the counts, all of them by address, so that a user cannot be locked out from another address; the right password succeeds after
//! its wait. An attempt counts as failed until it has succeeded, so parallel attempts are not a way around.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Failures of an address within [`WINDOW`] that are free, for one name and for all names.
const FREE_FOR_NAME: u32 = 5;
const FREE_FOR_ADDRESS: u32 = 20;

/// How long failures count.
const WINDOW: Duration = Duration::from_mins(1);

/// After that attempts are this far apart.
const PACE: Duration = Duration::from_secs(1);

/// Attempts that would wait longer are rejected.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Counts that are kept; the oldest are dropped.
const MAX_TRACKED: usize = 10_000;

/// Longer names are the same as what they begin with.
const NAME_CHARS: usize = 64;

/// An address, and a name or all together.
type Key = (IpAddr, Option<String>);

/// Addresses that are trusted; the one with the oldest login is dropped for a further one.
const MAX_TRUSTED: usize = 1_000;

/// Addresses from which there was a login, each with its last.
#[derive(Default)]
pub(crate) struct TrustedAddresses(HashMap<IpAddr, Instant>);

impl TrustedAddresses {
    pub(crate) fn add(&mut self, address: IpAddr, now: Instant) {
        if self.0.len() >= MAX_TRUSTED && !self.0.contains_key(&address) {
            let oldest = self.0.iter().min_by_key(|(_, last)| **last).map(|(address, _)| *address);
            oldest.map(|oldest| self.0.remove(&oldest));
        }
        self.0.insert(address, now);
    }

    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.0.contains_key(&address)
    }
}

/// Recent failures.
#[derive(Default)]
pub(crate) struct Throttle(HashMap<Key, Count>);

struct Count {
    since: Instant,
    failures: u32,
    /// When the next attempt may be made.
    next: Instant,
}

impl Throttle {
    /// Counts an attempt and returns its wait; if that is too long, the seconds until an attempt is accepted.
    pub(crate) fn attempt(&mut self, address: IpAddr, name: &str, now: Instant) -> Result<Duration, u64> {
        let keys = [(key(address, name), FREE_FOR_NAME), ((address, None), FREE_FOR_ADDRESS)];
        let waits = keys.each_ref().map(|(key, free)| self.wait(key, *free, now));
        let wait = waits.into_iter().max().unwrap_or_default();
        if wait > MAX_WAIT {
            return Err((wait - MAX_WAIT).as_secs() + 1);
        }
        for (key, _) in keys {
            self.count(key, now, now + wait + PACE);
        }
        Ok(wait)
    }

    /// The attempt succeeded: it does not count as a failure.
    pub(crate) fn succeeded(&mut self, address: IpAddr, name: &str) {
        self.0.remove(&key(address, name));
        if let Some(count) = self.0.get_mut(&(address, None)) {
            count.failures = count.failures.saturating_sub(1);
        }
    }

    fn wait(&self, key: &Key, free: u32, now: Instant) -> Duration {
        let count = self.0.get(key).filter(|count| count.failures >= free && !count.is_exiting(now));
        count.map(|count| count.next.saturating_duration_since(now)).unwrap_or_default()
    }

    fn count(&mut self, key: Key, now: Instant, next: Instant) {
        if self.0.len() >= MAX_TRACKED && !self.0.contains_key(&key) {
            self.0.retain(|_, count| !count.is_exiting(now));
            let oldest = self.0.iter().min_by_key(|(_, count)| count.since).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest.filter(|_| self.0.len() >= MAX_TRACKED) {
                self.0.remove(&oldest);
            }
        }
        let count = self.0.entry(key).or_insert(Count { since: now, failures: 0, next });
        if count.is_exiting(now) {
            *count = Count { since: now, failures: 0, next };
        }
        count.failures += 1;
        count.next = count.next.max(next);
    }
}

impl Count {
    /// Nothing of it counts any more, and no attempt waits.
    fn is_exiting(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= WINDOW && self.next <= now
    }
}

fn key(address: IpAddr, name: &str) -> Key {
    (address, Some(name.chars().take(NAME_CHARS).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_sixth_guess_in_a_minute_waits_for_its_turn_and_nobody_else_does() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        for _ in 0..5 {
            assert_eq!(throttle.attempt(HERE, "ann", now), Ok(Duration::ZERO));
        }
        for turn in 1..=5 {
            assert_eq!(throttle.attempt(HERE, "ann", now), Ok(turn * SECOND));
        }
        assert_eq!(throttle.attempt(HERE, "ann", now), Err(2));
        assert_eq!(throttle.attempt(THERE, "ann", now), Ok(Duration::ZERO));
        assert_eq!(throttle.attempt(HERE, "bob", now), Ok(Duration::ZERO));
        assert_eq!(throttle.attempt(HERE, "ann", now + 4 * SECOND), Ok(2 * SECOND));
        assert_eq!(throttle.attempt(HERE, "ann", now + WINDOW), Ok(Duration::ZERO));
    }

    #[test]
    fn many_names_of_one_address_wait_too() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        let waits = (0..22).map(|number| throttle.attempt(HERE, &number.to_string(), now));
        let waits: Vec<_> = waits.collect();
        assert!(waits[..20].iter().all(|wait| *wait == Ok(Duration::ZERO)));
        assert_eq!(waits[20..], [Ok(SECOND), Ok(2 * SECOND)]);
        assert_eq!(throttle.attempt(THERE, "1", now), Ok(Duration::ZERO));
    }

    #[test]
    fn a_success_forgives() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        for _ in 0..100 {
            assert_eq!(throttle.attempt(HERE, "ann", now), Ok(Duration::ZERO));
            throttle.succeeded(HERE, "ann");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        for number in 0..MAX_TRACKED + 10 {
            let address = IpAddr::from(u32::try_from(number).expect("small").to_be_bytes());
            let _ = throttle.attempt(address, &number.to_string(), now);
        }
        assert_eq!(throttle.0.len(), MAX_TRACKED);
        let mut trusted = TrustedAddresses::default();
        for number in 0..MAX_TRUSTED + 10 {
            let address = IpAddr::from(u32::try_from(number).expect("small").to_be_bytes());
            trusted.add(address, now + SECOND * u32::try_from(number).expect("small"));
        }
        assert_eq!(trusted.0.len(), MAX_TRUSTED);
        assert!(!trusted.has(IpAddr::from([0, 0, 0, 9])) && trusted.has(IpAddr::from([0, 0, 0, 10])));
    }
}
