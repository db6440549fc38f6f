//! Patroni's REST API: asks for the members of the clusters that entries name (`topology`), and for a switchover.
//!
//! Owns the thread that asks, how often it does and how long it waits. What an answer means to clients is the control thread's and the shards' to decide.
#![forbid(unsafe_code)]

mod answer;
mod api;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use control::{Input, PatroniError, Switchover};
use settings::{Config, PatroniUrls};
use telemetry::{Level, Record};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use crate::api::Api;

/// How often each cluster's API is asked.
const INTERVAL: Duration = Duration::from_secs(1);

/// The same during a switchover.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);

/// Once in this many times an answer that says nothing new is passed on too: the control thread may have forgotten it.
const REPEAT: u64 = 5;

/// Sends to the control thread.
pub type Tell = Arc<dyn Fn(Input) + Send + Sync>;

/// Writes to the log.
pub type Log = Arc<dyn Fn(Record) + Send + Sync>;

/// The thread that asks Patroni; there is none as long as no entry names one.
pub struct Patroni {
    tell: Tell,
    log: Log,
    running: Option<Running>,
}

struct Running {
    config: watch::Sender<Arc<Config>>,
    switchovers: mpsc::UnboundedSender<Switchover>,
}

impl Patroni {
    /// Asks what this configuration names.
    #[must_use]
    pub fn start(config: &Arc<Config>, tell: Tell, log: Log) -> Patroni {
        let mut patroni = Patroni { tell, log, running: None };
        patroni.configure(config);
        patroni
    }

    /// A new configuration is in force.
    pub fn configure(&mut self, config: &Arc<Config>) {
        match &self.running {
            Some(running) => drop(running.config.send_replace(Arc::clone(config))),
            None if config.patronis().is_empty() => {}
            None => self.spawn(config),
        }
    }

    /// Asks Patroni to switch over; [`Input::SwitchedOver`] answers.
    pub fn switch_over(&self, switchover: Switchover) {
        let (id, urls) = (switchover.id, switchover.urls.clone());
        let sent = self.running.as_ref().map(|running| running.switchovers.send(switchover).is_ok());
        if sent != Some(true) {
            let outcome = Err("it is not being asked".to_owned());
            (self.tell)(Input::SwitchedOver { id, urls, outcome });
        }
    }

    fn spawn(&mut self, config: &Arc<Config>) {
        let (config, configs) = watch::channel(Arc::clone(config));
        let (switchovers, asked) = mpsc::unbounded_channel();
        let (tell, log) = (Arc::clone(&self.tell), Arc::clone(&self.log));
        let run = move || {
            if let Err(why) = run(configs, asked, tell) {
                log(Record::new(Level::Error, format!("patroni: cannot start the runtime: {why}")));
            }
        };
        match thread::Builder::new().name("weir-patroni".to_owned()).spawn(run) {
            Ok(_) => self.running = Some(Running { config, switchovers }),
            Err(why) => {
                (self.log)(Record::new(Level::Error, format!("patroni: cannot start the thread: {why}")));
            }
        }
    }
}

/// The thread's main function; returns when the process ends.
fn run(
    configs: watch::Receiver<Arc<Config>>,
    asked: mpsc::UnboundedReceiver<Switchover>,
    tell: Tell,
) -> io::Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_io().enable_time().thread_name("weir-patroni").max_blocking_threads(8);
    builder.build()?.block_on(follow(configs, asked, tell));
    Ok(())
}

/// Asks as many clusters as entries name, and passes switchovers on.
async fn follow(
    mut configs: watch::Receiver<Arc<Config>>,
    mut asked: mpsc::UnboundedReceiver<Switchover>,
    tell: Tell,
) {
    let mut tasks = JoinSet::new();
    let mut polling: BTreeMap<PatroniUrls, (AbortHandle, Arc<Config>)> = BTreeMap::new();
    loop {
        let config = Arc::clone(&configs.borrow_and_update());
        let named = config.patronis();
        polling.retain(|urls, (task, of)| {
            let stays = named.contains(urls) && of.tls_files.collector == config.tls_files.collector;
            if !stays {
                task.abort();
            }
            stays
        });
        for urls in named {
            polling.entry(urls).or_insert_with_key(|urls| {
                let task = tasks.spawn(poll(urls.clone(), Arc::clone(&config), Arc::clone(&tell)));
                (task, Arc::clone(&config))
            });
        }
        tokio::select! {
            changed = configs.changed() => if changed.is_err() { return },
            Some(switchover) = asked.recv() => {
                tasks.spawn(switch_over(switchover, config, Arc::clone(&tell)));
            }
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// Asks one cluster's API again and again, and says what is new.
async fn poll(urls: PatroniUrls, config: Arc<Config>, tell: Tell) {
    let mut api = Api::new(&urls, &config);
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<Result<Vec<settings::Member>, PatroniError>> = None;
    for count in 0_u64.. {
        ticks.tick().await;
        let answer = api.members().await;
        if count % REPEAT == 0 || last.as_ref() != Some(&answer) {
            tell(Input::Patroni { urls: urls.clone(), answer: answer.clone() });
            last = Some(answer);
        }
    }
}

/// Clients wait until another member leads: that is looked for more often than otherwise. Never ends.
async fn watch_leader(urls: &PatroniUrls, config: &Arc<Config>, tell: &Tell) {
    let mut api = Api::new(urls, config);
    let mut ticks = interval(WATCH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // A failure is for the other questions to tell, which are asked less often.
        if let Ok(members) = api.members().await {
            tell(Input::Patroni { urls: urls.clone(), answer: Ok(members) });
        }
    }
}

async fn switch_over(switchover: Switchover, config: Arc<Config>, tell: Tell) {
    let Switchover { id, urls, leader, candidate } = switchover;
    let api = Api::new(&urls, &config);
    let outcome = tokio::select! {
        outcome = api.switch_over(&leader, candidate.as_deref()) => outcome,
        () = watch_leader(&urls, &config, &tell) => return,
    };
    tell(Input::SwitchedOver { id, urls, outcome });
}
