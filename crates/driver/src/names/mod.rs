//! Host names: their addresses, how long these are valid, and a notification when they change.
//!
//! Owns the cache with PgBouncer's rules (`dns_max_ttl`, `dns_nxdomain_ttl`). Looking up waits, and is done by helper
//! threads only. Never connects to a host.

mod exchange;
mod files;
mod resolver;
mod zones;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use messages::{HostRow, ZoneRow};
use settings::Global;

use crate::clock::monotonic_us;
use resolver::{Found, LookupError, Resolver};
use zones::Zones;

/// The addresses of a name, and the one to start with this time.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// At least one; ports are meaningless.
    pub(crate) list: Arc<[SocketAddr]>,
    /// Counts up with every use, so that connections spread over the addresses.
    pub(crate) turn: usize,
}

/// Names that are kept at once; beyond, those that have expired go, and if none has, all.
const NAMES: usize = 1_000;

/// Called when the addresses of a name have changed: with the name, and the addresses that are no longer among them.
pub(crate) type Tell = Box<dyn Fn(&str, &[IpAddr]) + Send + Sync>;

/// All names of a process.
pub(crate) struct Names {
    resolver: Resolver,
    state: Mutex<State>,
    /// Rung when zones have to be looked at.
    wakeup: Condvar,
    tell: Tell,
}

#[derive(Default)]
struct State {
    hosts: BTreeMap<String, CachedName>,
    /// Pending lookups.
    underway: BTreeMap<String, u64>,
    zones: Zones,
    max_ttl_us: u64,
    nxdomain_ttl_us: u64,
    /// The resolver has stopped.
    closed: bool,
}

/// What is known of a name.
#[derive(Clone)]
struct CachedName {
    answer: Result<Addresses, String>,
    until_us: u64,
}

impl Names {
    /// No name is known yet.
    pub(crate) fn new(global: &Global, tell: Tell) -> Names {
        let names = Names {
            resolver: Resolver::new(global.resolv_conf.as_deref()),
            state: Mutex::default(),
            wakeup: Condvar::new(),
            tell,
        };
        names.configure(global);
        names
    }

    /// Settings that RELOAD and SET may change.
    pub(crate) fn configure(&self, global: &Global) {
        let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let mut state = self.state();
        state.max_ttl_us = micros(global.dns_max_ttl);
        state.nxdomain_ttl_us = micros(global.dns_nxdomain_ttl);
        state.zones.set_period(micros(global.dns_zone_check_period));
        drop(state);
        self.wakeup.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name's addresses, if they were looked up lately. The next use begins with the next address.
    pub(crate) fn remembered(&self, host: &str) -> Option<Result<Addresses, String>> {
        let mut state = self.state();
        let kept = state.hosts.get_mut(host).filter(|kept| kept.until_us > monotonic_us())?;
        if let Ok(addresses) = &mut kept.answer {
            addresses.turn = addresses.turn.wrapping_add(1);
        }
        Some(kept.answer.clone())
    }

    /// Resolves a name unless it is cached; blocks.
    pub(crate) fn look_up(&self, host: &str) -> Result<Addresses, String> {
        match self.remembered(host) {
            Some(answer) => answer,
            None => self.look_up_anew(host),
        }
    }

    /// Resolves a name again; blocks. Reports addresses that were removed.
    fn look_up_anew(&self, host: &str) -> Result<Addresses, String> {
        *self.state().underway.entry(host.to_owned()).or_default() += 1;
        let found = self.resolver.addresses(host);
        let now_us = monotonic_us();
        let mut state = self.state();
        state.arrived(host);
        let (max_us, nxdomain_us) = (state.max_ttl_us, state.nxdomain_ttl_us);
        let before = state.hosts.get(host).and_then(|kept| kept.answer.as_ref().ok()).cloned();
        let (answer, ttl_us) = match (found, &before) {
            (Ok(Found { addresses, ttl_s }), _) => {
                let ttl_us = ttl_s.map_or(max_us, |ttl_s| u64::from(ttl_s) * 1_000_000);
                (Ok(in_order(addresses)), ttl_us.min(max_us))
            }
            // No name server answered: the last answer is the best guess.
            (Err(LookupError::NoAnswer(_) | LookupError::Silence(_)), Some(before)) => {
                (Ok(before.clone()), nxdomain_us)
            }
            (Err(fault), _) => (Err(fault.text()), nxdomain_us),
        };
        state.keep(
            host,
            CachedName { answer: answer.clone(), until_us: now_us.saturating_add(ttl_us) },
            now_us,
        );
        drop(state);
        self.wakeup.notify_all();
        if let (Some(before), Ok(after)) = (before, &answer) {
            let gone = gone(&before, after);
            if !gone.is_empty() {
                (self.tell)(host, &gone);
            }
        }
        answer
    }

    /// Lets [`Names::watch_zones`] end.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.wakeup.notify_all();
    }

    /// Watches zones until the end: when a serial number has changed, all names of the zone are looked up again.
    pub(crate) fn watch_zones(&self) {
        while let Some(zones) = self.wait_for_zones() {
            for zone in zones {
                let serial = self.resolver.serial(&zone);
                let changed = self.state().zones.checked(&zone, serial, monotonic_us());
                if changed {
                    self.look_up_zone(&zone);
                }
            }
        }
    }

    /// Waits until some zones are due; None at the end.
    fn wait_for_zones(&self) -> Option<Vec<String>> {
        let mut state = self.state();
        loop {
            let now_us = monotonic_us();
            let due = state.zones.due(now_us);
            if state.closed {
                return None;
            }
            if !due.is_empty() {
                return Some(due);
            }
            state = match state.zones.next_us() {
                None => self.wakeup.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(next_us) => {
                    let wait = std::time::Duration::from_micros(next_us.saturating_sub(now_us));
                    self.wakeup.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn look_up_zone(&self, zone: &str) {
        let of_zone = |host: &&String| zones::zone_of(host) == Some(zone);
        let hosts: Vec<String> = self.state().hosts.keys().filter(of_zone).cloned().collect();
        for host in hosts {
            let _ = self.look_up_anew(&host);
        }
    }

    /// For SHOW DNS_HOSTS.
    pub(crate) fn host_rows(&self) -> Vec<HostRow> {
        let now_us = monotonic_us();
        let state = self.state();
        let underway = |name: &str| state.underway.get(name).copied().unwrap_or(0);
        let known = |(name, kept): (&String, &CachedName)| HostRow {
            name: name.clone(),
            known: true,
            underway: underway(name),
            ttl_s: kept.until_us.saturating_sub(now_us) / 1_000_000,
            addresses: kept
                .answer
                .as_ref()
                .map_or_else(|_| Vec::new(), |known| known.list.iter().map(|address| address.ip()).collect()),
        };
        let unknown = |(name, underway): (&String, &u64)| {
            let row = HostRow { name: name.clone(), underway: *underway, ..HostRow::default() };
            (!state.hosts.contains_key(name)).then_some(row)
        };
        state.hosts.iter().map(known).chain(state.underway.iter().filter_map(unknown)).collect()
    }

    /// For SHOW DNS_ZONES.
    pub(crate) fn zone_rows(&self) -> Vec<ZoneRow> {
        let state = self.state();
        let hosts = |zone: &str| state.hosts.keys().filter(|host| zones::zone_of(host) == Some(zone)).count();
        state
            .zones
            .serials()
            .map(|(name, serial)| ZoneRow { name: name.to_owned(), serial, hosts: hosts(name) as u64 })
            .collect()
    }
}

impl State {
    /// A look-up has been answered.
    fn arrived(&mut self, host: &str) {
        if let Some(count) = self.underway.get_mut(host) {
            *count -= 1;
        }
        self.underway.retain(|_, count| *count > 0);
    }

    fn keep(&mut self, host: &str, kept: CachedName, now_us: u64) {
        if self.hosts.len() >= NAMES && !self.hosts.contains_key(host) {
            self.hosts.retain(|_, kept| kept.until_us > now_us);
            if self.hosts.len() >= NAMES {
                self.hosts.clear();
            }
        }
        self.hosts.insert(host.to_owned(), kept);
        let names = self.hosts.keys().filter_map(|host| zones::zone_of(host));
        self.zones.set_names(names);
    }
}

impl Addresses {
    /// Not known yet.
    pub(crate) fn none() -> Addresses {
        Addresses { list: Arc::new([]), turn: 0 }
    }
}

/// Addresses without a port, each once.
fn in_order(addresses: Vec<IpAddr>) -> Addresses {
    let mut list: Vec<SocketAddr> = Vec::new();
    for address in addresses.into_iter().map(|address| SocketAddr::new(address, 0)) {
        if !list.contains(&address) {
            list.push(address);
        }
    }
    Addresses { list: list.into(), turn: 0 }
}

/// What a name does not stand for any more.
fn gone(before: &Addresses, after: &Addresses) -> Vec<IpAddr> {
    before.list.iter().filter(|address| !after.list.contains(address)).map(|address| address.ip()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Addresses {
        in_order(texts.iter().filter_map(|text| text.parse().ok()).collect())
    }

    #[test]
    fn addresses_stand_once_and_their_order_is_no_change() {
        assert_eq!(addresses(&["10.0.0.1", "::1", "10.0.0.1"]).list.len(), 2);
        let before = addresses(&["10.0.0.1", "10.0.0.2"]);
        assert!(gone(&before, &addresses(&["10.0.0.2", "10.0.0.1", "10.0.0.3"])).is_empty());
        assert_eq!(gone(&before, &addresses(&["10.0.0.2"])), ["10.0.0.1".parse::<IpAddr>().expect("one")]);
    }

    #[test]
    fn what_is_known_is_known_for_its_time() {
        let names = Names::new(&Global::default(), Box::new(|_, _| {}));
        assert!(names.remembered("localhost").is_none());
        let first = names.look_up("localhost").expect("it is in every hosts file");
        assert!(first.list.iter().all(|address| address.ip().is_loopback()));
        let again = names.remembered("localhost").expect("it was looked up").expect("well");
        assert_ne!(again.turn, first.turn, "the next use begins with the next address");
        let [row] = &names.host_rows()[..] else { panic!("one name") };
        assert!(row.ttl_s <= 15 && !row.addresses.is_empty());
    }

    #[test]
    fn names_are_bounded() {
        let mut state = State::default();
        for number in 0..3 * NAMES {
            let kept = CachedName { answer: Err("none".to_owned()), until_us: 10 };
            state.keep(&format!("h{number}.test"), kept, 5);
        }
        assert!(state.hosts.len() <= NAMES);
    }
}
