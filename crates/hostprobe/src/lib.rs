//! The thread that asks the hosts of entries what they are and how far they are (`host_probe_interval`).
//!
//! Owns which hosts are asked and how often, and what is known of them: SHOW HOSTS has it beside what connections for clients have seen, and also of entries without clients. A
//! primary that it finds on a newer timeline is told to the shards, which leave the older one.
#![forbid(unsafe_code)]

mod board;
mod plan;
mod server;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use messages::ClusterRow;
use pgclient::{ConfigThread, System, Tasks};
use pool::ProbedPrimary;
use settings::Config;
use telemetry::{Level, Record};
use tokio::sync::watch;

use crate::board::Board;
use crate::plan::Plan;

/// The thread's name.
const THREAD: &str = "weir-hosts";

/// The primary of an entry, or that none has answered.
pub type FoundPrimary = Arc<dyn Fn(&str, Option<ProbedPrimary>) + Send + Sync>;

/// Writes to the log.
pub type Log = Arc<dyn Fn(Record) + Send + Sync>;

/// Where answers go.
#[derive(Clone)]
struct Out {
    board: Arc<Mutex<Board>>,
    found_primary: FoundPrimary,
    log: Log,
    system: System,
}

impl Out {
    fn log(&self, level: Level, text: &str) {
        (self.log)(Record::new(level, format!("host probe: {text}")));
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, primaries: Vec<(String, Option<ProbedPrimary>)>) {
        for (entry, primary) in primaries {
            (self.found_primary)(&entry, primary);
        }
    }
}

/// The thread; there is none until there is a host to be asked.
pub struct HostProbe {
    out: Out,
    running: Option<ConfigThread<Arc<Config>>>,
}

impl HostProbe {
    /// Asks as this configuration says.
    #[must_use]
    pub fn start(config: &Arc<Config>, found_primary: FoundPrimary, log: Log, system: System) -> HostProbe {
        let out = Out { board: Arc::default(), found_primary, log, system };
        let mut probe = HostProbe { out, running: None };
        probe.configure(config);
        probe
    }

    /// A new configuration is in force.
    pub fn configure(&mut self, config: &Arc<Config>) {
        match &self.running {
            Some(running) => running.configure(config),
            None if !Plan::of(config).servers.is_empty() => self.begin(config),
            None => {}
        }
    }

    /// What is known of the hosts of each entry.
    #[must_use]
    pub fn rows(&self) -> Vec<ClusterRow> {
        self.out.board().rows()
    }

    fn begin(&mut self, config: &Arc<Config>) {
        let out = self.out.clone();
        match ConfigThread::begin(THREAD, config, |configs| probe_always(configs, out)) {
            Ok(running) => self.running = Some(running),
            Err(why) => self.out.log(Level::Error, &format!("cannot start the thread that asks: {why}")),
        }
    }
}

/// Each server that is to be asked is, and no other.
async fn probe_always(mut configs: watch::Receiver<Arc<Config>>, out: Out) {
    let mut tasks = Tasks::default();
    loop {
        let Plan { entries, servers, unasked } = Plan::of(&configs.borrow_and_update());
        unasked.iter().for_each(|why| out.log(Level::Warning, why));
        let primaries = out.board().configure(entries);
        out.tell(primaries);
        tasks.keep(servers, |server| server::probe_always(server, configs.clone(), out.clone()));
        if configs.changed().await.is_err() {
            return;
        }
    }
}
