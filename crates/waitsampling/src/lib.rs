//! The thread that asks PostgreSQL which backends wait, and what for (`track_lock_waits`).
//!
//! Owns which servers are asked and how often. Each has a connection that stays; whose query a backend runs, the shards know. While the setting is off there is no connection, and
//! until it was on for the first time no thread.
#![forbid(unsafe_code)]

mod plan;
mod server;

use std::io;
use std::sync::Arc;
use std::thread;

use messages::ServerWaitSample;
use pgclient::System;
use settings::Config;
use telemetry::{Level, Record};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::plan::{AskedServer, asked_servers};

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
    running: Option<watch::Sender<Arc<Config>>>,
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
            Some(running) => drop(running.send_replace(Arc::clone(config))),
            None if config.global.track_lock_waits => self.spawn(config),
            None => {}
        }
    }

    fn spawn(&mut self, config: &Arc<Config>) {
        let (config, configs) = watch::channel(Arc::clone(config));
        let out = self.out.clone();
        let run = move || {
            if let Err(why) = run(configs, &out) {
                out.log(Level::Error, &format!("cannot start the runtime: {why}"));
            }
        };
        match thread::Builder::new().name(THREAD.to_owned()).spawn(run) {
            Ok(_) => self.running = Some(config),
            Err(why) => self.out.log(Level::Error, &format!("cannot start the thread that asks: {why}")),
        }
    }
}

/// The thread's main function; returns when the process ends.
fn run(configs: watch::Receiver<Arc<Config>>, out: &Out) -> io::Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_io().enable_time().thread_name(THREAD).max_blocking_threads(2);
    builder.build()?.block_on(sample_always(configs, out));
    Ok(())
}

/// Each server that is to be asked is, and no other.
async fn sample_always(mut configs: watch::Receiver<Arc<Config>>, out: &Out) {
    let mut asked: Vec<(AskedServer, JoinHandle<()>)> = Vec::new();
    loop {
        let config = Arc::clone(&configs.borrow_and_update());
        let (mut wanted, unasked) = asked_servers(&config);
        unasked.iter().for_each(|why| out.log(Level::Warning, why));
        asked.retain(|(server, task)| {
            let is_kept = wanted.contains(server);
            if !is_kept {
                task.abort();
            }
            is_kept
        });
        wanted.retain(|server| asked.iter().all(|(other, _)| other != server));
        for server in wanted {
            let task = tokio::spawn(server::sample_always(server.clone(), configs.clone(), out.clone()));
            asked.push((server, task));
        }
        if configs.changed().await.is_err() {
            return;
        }
    }
}
