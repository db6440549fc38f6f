//! The thread that asks PostgreSQL which backends wait, and what for (`track_lock_waits`).
//!
//! Owns which servers are asked and how often. Each has a connection that stays; whose query a backend runs, the shards know. While the setting is off there is no connection, and
//! until it was on for the first time no thread.
#![forbid(unsafe_code)]

mod plan;
mod server;

use std::sync::Arc;

use messages::ServerWaitSample;
use pgclient::{ConfigThread, System, Tasks};
use settings::Config;
use telemetry::{Level, Record};
use tokio::sync::watch;

use crate::plan::asked_servers;

/// The thread's name.
const THREAD: &str = "weir-waits";

/// Tells all shards.
pub type Tell = Arc<dyn Fn(ServerWaitSample) + Send + Sync>;

/// Writes to the log.
pub type Log = Arc<dyn Fn(Record) + Send + Sync>;

/// Where samples go.
#[derive(Clone)]
struct Out {
    tell: Tell,
    log: Log,
    system: System,
}

impl Out {
    fn log(&self, level: Level, text: &str) {
        (self.log)(Record::new(level, format!("lock waits: {text}")));
    }
}

/// The thread; there is none as long as the setting is off.
pub struct WaitSampling {
    out: Out,
    running: Option<ConfigThread<Arc<Config>>>,
}

impl WaitSampling {
    /// Asks as this configuration says.
    #[must_use]
    pub fn start(config: &Arc<Config>, tell: Tell, log: Log, system: System) -> WaitSampling {
        let mut sampling = WaitSampling { out: Out { tell, log, system }, running: None };
        sampling.configure(config);
        sampling
    }

    /// A new configuration is in force.
    pub fn configure(&mut self, config: &Arc<Config>) {
        match &self.running {
            Some(running) => running.configure(config),
            None if config.global.track_lock_waits => self.begin(config),
            None => {}
        }
    }

    fn begin(&mut self, config: &Arc<Config>) {
        let out = self.out.clone();
        match ConfigThread::begin(THREAD, config, |configs| sample_always(configs, out)) {
            Ok(running) => self.running = Some(running),
            Err(why) => self.out.log(Level::Error, &format!("cannot start the thread that asks: {why}")),
        }
    }
}

/// Each server that is to be asked is, and no other.
async fn sample_always(mut configs: watch::Receiver<Arc<Config>>, out: Out) {
    let mut tasks = Tasks::default();
    loop {
        let config = Arc::clone(&configs.borrow_and_update());
        let (wanted, unasked) = asked_servers(&config);
        unasked.iter().for_each(|why| out.log(Level::Warning, why));
        tasks.keep(wanted, |server| server::sample_always(server, configs.clone(), out.clone()));
        if configs.changed().await.is_err() {
            return;
        }
    }
}
