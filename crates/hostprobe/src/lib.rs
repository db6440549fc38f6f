//! The thread that asks the hosts of entries what they are and how far they are (`host_probe_interval`).
//!
//! Owns which hosts are asked and how often, and what is known of them: SHOW HOSTS has it beside what connections for clients have seen, and also of entries without clients. A
//! primary that it finds on a newer timeline is told to the shards, which leave the older one.
#![forbid(unsafe_code)]

mod known_hosts;
mod plan;
mod server;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use messages::ClusterRow;
use pgclient::{ConfigThread, Place, System, Tasks};
use pool::ProbedCluster;
use settings::Config;
use telemetry::{Level, Record};
use tokio::sync::watch;

use crate::known_hosts::KnownHosts;
use crate::plan::{Plan, ProbedEntry, ProbedServer};

/// The thread's name.
const THREAD: &str = "weir-hosts";

/// What the hosts of an entry have answered.
pub type FoundCluster = Arc<dyn Fn(&str, ProbedCluster) + Send + Sync>;

/// Writes to the log.
pub type Log = Arc<dyn Fn(Record) + Send + Sync>;

/// Where answers go.
#[derive(Clone)]
struct Out {
    known_hosts: Arc<Mutex<KnownHosts>>,
    found_cluster: FoundCluster,
    log: Log,
    system: System,
}

impl Out {
    fn log(&self, level: Level, text: &str) {
        (self.log)(Record::new(level, format!("host probe: {text}")));
    }

    fn known_hosts(&self) -> MutexGuard<'_, KnownHosts> {
        self.known_hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known, and tells what of clusters follows from it before it changes again.
    fn change(&self, change: impl FnOnce(&mut KnownHosts) -> Vec<(String, ProbedCluster)>) {
        let mut known_hosts = self.known_hosts();
        for (entry, probed) in change(&mut known_hosts) {
            (self.found_cluster)(&entry, probed);
        }
    }
}

/// What the thread is to do.
#[derive(Clone)]
struct Orders {
    config: Arc<Config>,
    servers: Arc<Vec<ProbedServer>>,
    /// Servers of entries that are paused: no connection to them stays.
    paused: Arc<Vec<Place>>,
}

/// The thread; there is none until there is a host to be asked.
pub struct HostProbe {
    out: Out,
    orders: Orders,
    entries: Vec<ProbedEntry>,
    /// What the log has last said of servers that are not asked.
    unasked: Vec<String>,
    running: Option<ConfigThread<Orders>>,
}

impl HostProbe {
    /// Asks as this configuration says.
    #[must_use]
    pub fn start(config: &Arc<Config>, found_cluster: FoundCluster, log: Log, system: System) -> HostProbe {
        let out = Out { known_hosts: Arc::default(), found_cluster, log, system };
        let orders = Orders { config: Arc::clone(config), servers: Arc::default(), paused: Arc::default() };
        let mut probe = HostProbe { out, orders, entries: Vec::new(), unasked: Vec::new(), running: None };
        probe.configure(config, &[]);
        probe
    }

    /// A new configuration is in force, and these entries are paused (None: all). What is told of clusters follows from the new hosts as soon as this returns.
    pub fn configure(&mut self, config: &Arc<Config>, paused: &[Option<String>]) {
        let Plan { entries, servers, unasked } = Plan::of(config);
        if unasked != self.unasked {
            unasked.iter().for_each(|why| self.out.log(Level::Warning, why));
            self.unasked = unasked;
        }
        self.entries.clone_from(&entries);
        self.out.change(|known_hosts| known_hosts.configure(entries));
        self.orders.config = Arc::clone(config);
        self.orders.servers = Arc::new(servers);
        self.pause(paused);
    }

    /// These entries are paused (None: all), and no others: a connection that stays would keep their servers from being stopped (`pg_ctl stop -m smart`), and their
    /// databases from being dropped.
    pub fn pause(&mut self, paused: &[Option<String>]) {
        let is_paused = |entry: &&ProbedEntry| {
            paused.iter().any(|paused| paused.as_ref().is_none_or(|name| *name == entry.name))
        };
        let places = self.entries.iter().filter(is_paused).flat_map(|entry| &entry.hosts);
        self.orders.paused = Arc::new(places.map(|(_, place)| place.clone()).collect());
        match &self.running {
            Some(running) => running.configure(&self.orders),
            None if !self.orders.servers.is_empty() => self.begin(),
            None => {}
        }
    }

    /// RECONNECT: the servers of this entry, or of all, may be those of another cluster. To be called before the shards forget theirs.
    pub fn forget(&self, entry: Option<&str>) {
        self.out.change(|known_hosts| known_hosts.forget(entry));
    }

    /// What is known of the hosts of each entry.
    #[must_use]
    pub fn rows(&self) -> Vec<ClusterRow> {
        self.out.known_hosts().rows()
    }

    fn begin(&mut self) {
        let out = self.out.clone();
        match ConfigThread::begin(THREAD, &self.orders, |orders| probe_always(orders, out)) {
            Ok(running) => self.running = Some(running),
            Err(why) => self.out.log(Level::Error, &format!("cannot start the thread that asks: {why}")),
        }
    }
}

/// Each server that is to be asked is, and no other.
async fn probe_always(mut orders: watch::Receiver<Orders>, out: Out) {
    let mut tasks = Tasks::default();
    loop {
        let servers = Arc::clone(&orders.borrow_and_update().servers);
        tasks.keep(servers.to_vec(), |server| server::probe_always(server, orders.clone(), out.clone()));
        if orders.changed().await.is_err() {
            return;
        }
    }
}
