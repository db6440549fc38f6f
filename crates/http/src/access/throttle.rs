//! Guessing is slow: so many failed logins a minute of one address, and for one name.
//! Owns the counts. An attempt counts as failed until it has succeeded, so that many at once are no way around.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// So many failures within [`WINDOW`]; then one waits until it is over.
const FAILURES: u32 = 5;

/// How long failures count.
const WINDOW: Duration = Duration::from_mins(1);

/// At most so many addresses and names are remembered; the oldest are forgotten.
const MOST: usize = 10_000;

/// Failures of late.
#[derive(Default)]
pub(crate) struct Throttle {
    addresses: HashMap<IpAddr, Count>,
    names: HashMap<String, Count>,
}

struct Count {
    since: Instant,
    failures: u32,
}

impl Throttle {
    /// Counts an attempt, unless there were too many: then the seconds until the next is heard.
    pub(crate) fn attempt(&mut self, address: IpAddr, name: &str, now: Instant) -> Result<(), u64> {
        let name = name.chars().take(64).collect::<String>();
        let waits = [wait(&self.addresses, &address, now), wait(&self.names, &name, now)];
        if let Some(wait) = waits.into_iter().flatten().max() {
            return Err(wait.as_secs() + 1);
        }
        count(&mut self.addresses, address, now);
        count(&mut self.names, name, now);
        Ok(())
    }

    /// The attempt was good: nothing is held against this address and this name.
    pub(crate) fn succeeded(&mut self, address: IpAddr, name: &str) {
        self.addresses.remove(&address);
        self.names.remove(&name.chars().take(64).collect::<String>());
    }
}

fn wait<K: Hash + Eq>(counts: &HashMap<K, Count>, key: &K, now: Instant) -> Option<Duration> {
    let count = counts.get(key).filter(|count| count.failures >= FAILURES)?;
    WINDOW.checked_sub(now.duration_since(count.since)).filter(|wait| !wait.is_zero())
}

fn count<K: Hash + Eq + Clone>(counts: &mut HashMap<K, Count>, key: K, now: Instant) {
    if counts.len() >= MOST {
        counts.retain(|_, count| now.duration_since(count.since) < WINDOW);
        let oldest = counts.iter().min_by_key(|(_, count)| count.since).map(|(key, _)| key.clone());
        if let Some(oldest) = oldest.filter(|_| counts.len() >= MOST) {
            counts.remove(&oldest);
        }
    }
    let count = counts.entry(key).or_insert(Count { since: now, failures: 0 });
    if now.duration_since(count.since) >= WINDOW {
        *count = Count { since: now, failures: 0 };
    }
    count.failures += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn the_sixth_guess_in_a_minute_waits_by_address_and_by_name() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        for _ in 0..5 {
            assert_eq!(throttle.attempt(HERE, "ann", now), Ok(()));
        }
        assert_eq!(throttle.attempt(HERE, "bob", now + Duration::from_secs(20)), Err(41));
        assert_eq!(throttle.attempt(THERE, "ann", now), Err(61));
        assert_eq!(throttle.attempt(THERE, "bob", now), Ok(()));
        assert_eq!(throttle.attempt(HERE, "ann", now + WINDOW), Ok(()));
    }

    #[test]
    fn a_success_forgives() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        for _ in 0..20 {
            assert_eq!(throttle.attempt(HERE, "ann", now), Ok(()));
            throttle.succeeded(HERE, "ann");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        for number in 0..MOST + 10 {
            let address = IpAddr::from(u32::try_from(number).expect("small").to_be_bytes());
            let _ = throttle.attempt(address, &number.to_string(), now);
        }
        assert_eq!((throttle.addresses.len(), throttle.names.len()), (MOST, MOST));
    }
}
