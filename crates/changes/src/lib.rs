//! Follows the changes of primaries for the query cache, by logical decoding.
//!
//! Owns the thread, which has a task for each entry with `query_cache`, how often each tries again, and the lines of the log. What shards make of the news is theirs.
#![forbid(unsafe_code)]

mod decoding;
mod follower;
mod news;
pub mod probe;
mod questions;
mod relations;
mod snapshot;
mod target;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use messages::{CacheNews, CacheNewsKind};
use pgclient::ConfigThread;
use settings::Config;
use telemetry::{Level, Record};
use tls::TlsConfig;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::follower::Primary;
use crate::target::Target;

/// The first pause before another try; each is twice as long as the one before, up to `server_login_retry`.
const FIRST_RETRY: Duration = Duration::from_millis(100);

/// Entries that are followed at most.
const MAX_ENTRIES: usize = 64;

/// Sends to all shards, in order.
pub type Tell = Arc<dyn Fn(CacheNews) + Send + Sync>;

/// Writes to the log.
pub type Log = Arc<dyn Fn(Record) + Send + Sync>;

/// What only the system knows.
#[derive(Clone, Copy)]
pub struct System {
    /// Microseconds of the clock by which shards tell the age of what they know.
    pub monotonic_us: fn() -> u64,
    /// Bytes that cannot be guessed.
    pub fill_random: fn(&mut [u8]),
}

impl System {
    pub(crate) fn client(self) -> pgclient::System {
        pgclient::System { fill_random: self.fill_random }
    }
}

impl auth::Entropy for System {
    fn fill(&mut self, bytes: &mut [u8]) {
        (self.fill_random)(bytes);
    }
}

/// The thread that follows changes; there is none as long as no entry keeps answers.
pub struct Changes {
    tell: Tell,
    log: Log,
    system: System,
    running: Option<ConfigThread<Arc<Config>>>,
}

impl Changes {
    /// Follows what this configuration names.
    #[must_use]
    pub fn start(config: &Arc<Config>, tell: Tell, log: Log, system: System) -> Changes {
        let mut changes = Changes { tell, log, system, running: None };
        changes.configure(config);
        changes
    }

    /// A new configuration is in force; the shards have it already.
    pub fn configure(&mut self, config: &Arc<Config>) {
        match &self.running {
            Some(running) => running.configure(config),
            None if config.databases.values().all(|entry| entry.query_cache == 0) => {}
            None => self.begin(config),
        }
    }

    fn begin(&mut self, config: &Arc<Config>) {
        let (tell, log, system) = (Arc::clone(&self.tell), Arc::clone(&self.log), self.system);
        let main = move |configs: watch::Receiver<Arc<Config>>| {
            supervise(configs.clone(), Out { tell, log, system, configs })
        };
        match ConfigThread::begin("weir-changes", config, main) {
            Ok(running) => self.running = Some(running),
            Err(why) => {
                (self.log)(Record::new(Level::Error, format!("query cache: cannot start the thread: {why}")));
            }
        }
    }
}

/// Where news and log records go, and what the system is asked for.
#[derive(Clone)]
struct Out {
    tell: Tell,
    log: Log,
    system: System,
    configs: watch::Receiver<Arc<Config>>,
}

impl Out {
    fn tell(&self, database: &Arc<str>, what: CacheNewsKind) {
        (self.tell)(CacheNews { database: Arc::clone(database), what });
    }

    /// Writes news to the log, where that shows them.
    fn log(&self, database: &Arc<str>, what: &CacheNewsKind) {
        let (level, verbose) = match what {
            CacheNewsKind::Current { .. } => (Level::Noise, 2),
            _ => (Level::Debug, 1),
        };
        if self.configs.borrow().global.verbose >= verbose {
            (self.log)(Record::new(level, format!("query cache: {database}: {what:?}")));
        }
    }

    fn lost(&self, database: &Arc<str>, why: &str) {
        self.tell(database, CacheNewsKind::Lost { why: why.into() });
    }
}

/// One entry's task, and what it was started for.
struct Following {
    target: Result<Target, &'static str>,
    tls_from: Arc<Config>,
    /// None where there is nothing to be followed with.
    task: Option<AbortHandle>,
}

impl Following {
    fn stays(&self, wanted: Option<&Result<Target, &'static str>>, config: &Config) -> bool {
        wanted == Some(&self.target) && has_same_tls(&self.tls_from, config)
    }
}

/// Servers are met with the same TLS.
fn has_same_tls(one: &Config, other: &Config) -> bool {
    let of = |config: &Config| {
        let global = &config.global;
        (
            global.server_tls_sslmode,
            global.server_tls_protocols.clone(),
            global.server_tls_ciphers.clone(),
            global.server_tls13_ciphers.clone(),
        )
    };
    of(one) == of(other) && one.tls_files.server == other.tls_files.server
}

/// Has as many tasks as entries keep answers.
async fn supervise(mut configs: watch::Receiver<Arc<Config>>, out: Out) {
    let mut tasks = JoinSet::new();
    let mut following: BTreeMap<Arc<str>, Following> = BTreeMap::new();
    loop {
        let config = Arc::clone(&configs.borrow_and_update());
        let entries = config.databases.values();
        let wanted =
            entries.filter_map(|entry| Some((Arc::from(entry.name.as_str()), Target::of(&config, entry)?)));
        let bounded = wanted.enumerate().map(|(at, (name, target))| {
            (
                name,
                if at < MAX_ENTRIES { target } else { Err("the changes of 64 entries are followed at most") },
            )
        });
        let mut wanted: BTreeMap<Arc<str>, _> = bounded.collect();
        following.retain(|name, one| {
            let stays = one.stays(wanted.get(name), &config);
            if !stays {
                one.task.iter().for_each(AbortHandle::abort);
                out.lost(name, "the configuration has changed");
            }
            stays
        });
        wanted.retain(|name, _| !following.contains_key(name));
        for (name, target) in wanted {
            let task = match &target {
                Ok(target) => {
                    let work =
                        keep_following(Arc::clone(&name), target.clone(), Arc::clone(&config), out.clone());
                    Some(tasks.spawn(work))
                }
                Err(why) => {
                    report(&out, &name, why);
                    None
                }
            };
            following.insert(name, Following { target, tls_from: Arc::clone(&config), task });
        }
        tokio::select! {
            changed = configs.changed() => if changed.is_err() { return },
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// Says that an entry's primary is not followed.
fn report(out: &Out, name: &Arc<str>, why: &str) {
    out.lost(name, why);
    let text = format!(
        "query cache: {name}: cannot follow the primary's changes: {why}; every query goes to a server"
    );
    (out.log)(Record::new(Level::Warning, text));
}

/// Follows an entry's primary again and again.
async fn keep_following(name: Arc<str>, target: Target, config: Arc<Config>, out: Out) {
    let mut pause = FIRST_RETRY;
    let mut last = String::new();
    loop {
        let began = Instant::now();
        let outcome = match TlsConfig::new(&config) {
            Ok(tls) => follow_once(&name, &target, &tls, &out, &mut last).await,
            Err(fault) => Err(fault.to_string()),
        };
        let (why, has_begun) = match outcome {
            Ok(why) => (why, true),
            Err(why) => (why, false),
        };
        if has_begun && began.elapsed() > target.retry {
            pause = FIRST_RETRY;
        }
        if why == last {
            out.lost(&name, &why);
        } else {
            report(&out, &name, &why);
            last = why;
        }
        sleep(pause).await;
        pause = (pause * 2).min(target.retry.max(FIRST_RETRY));
    }
}

/// Follows the first host that is a primary. Ok: why no longer; otherwise why it has not begun.
async fn follow_once(
    name: &Arc<str>,
    target: &Target,
    tls: &TlsConfig,
    out: &Out,
    last: &mut String,
) -> Result<String, String> {
    let mut whys = Vec::new();
    for place in &target.places {
        match Primary::find(target, place, tls, out.system).await {
            Ok(primary) => return follow(name, target, primary, out, last).await,
            Err(why) => whys.push(format!("{}: {why}", place.label())),
        }
    }
    Err(whys.join("; "))
}

async fn follow(
    name: &Arc<str>,
    target: &Target,
    primary: Primary,
    out: &Out,
    last: &mut String,
) -> Result<String, String> {
    let label = primary.label();
    let named = |why: String| format!("{label}: {why}");
    let mut beginning = std::pin::pin!(primary.begin(target));
    let follower = match timeout(target.account.connect_timeout, &mut beginning).await {
        Ok(begun) => begun,
        Err(_) => {
            let why = named("waiting for transactions that began before its replication slot; end those that are left open (pg_stat_activity, backend_xid)".to_owned());
            report(out, name, &why);
            *last = why;
            beginning.await
        }
    };
    let follower = follower.map_err(named)?;
    (out.log)(Record::new(Level::Log, format!("query cache: {name}: following the changes of {label}")));
    last.clear();
    let mut sink = |what: CacheNewsKind| {
        out.log(name, &what);
        out.tell(name, what);
    };
    let why = follower.run(target, &mut sink).await;
    Ok(format!("{label}: {why}"))
}
