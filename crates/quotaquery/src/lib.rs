//! The thread that asks PostgreSQL what quotas need to know: who is a member of which role, how much is on disk, and which temporary files there are.
//!
//! Owns when that is asked, and what is known: while a server cannot be asked, what it has said before stays. It has a connection for as long as its questions take, and nothing
//! waits for it.
#![forbid(unsafe_code)]

mod answers;
mod plan;
mod questions;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pgclient::{ConfigThread, System};
use quota::{Book, RoleMembers};
use settings::Config;
use telemetry::{Level, Record};
use tls::TlsConfig;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::answers::Answers;
use crate::plan::{Ask, Plan};

/// Between two rounds, at least, whatever changes.
const LEAST_PAUSE: Duration = Duration::from_secs(1);

/// The thread's name.
const THREAD: &str = "weir-quotaquery";

/// Tells the control thread who the members of roles are.
pub type Tell = Arc<dyn Fn(RoleMembers) + Send + Sync>;

/// Writes to the log.
pub type Log = Arc<dyn Fn(Record) + Send + Sync>;

/// Where answers go.
#[derive(Clone)]
struct Out {
    tell: Tell,
    book: Arc<Mutex<Book>>,
    log: Log,
    system: System,
}

/// The thread; there is none as long as no quota needs it.
pub struct QuotaQuery {
    out: Out,
    running: Option<ConfigThread<Arc<Config>>>,
}

impl QuotaQuery {
    /// Asks what the quotas of this configuration need.
    #[must_use]
    pub fn start(
        config: &Arc<Config>,
        book: Arc<Mutex<Book>>,
        tell: Tell,
        log: Log,
        system: System,
    ) -> QuotaQuery {
        let mut query = QuotaQuery { out: Out { tell, book, log, system }, running: None };
        query.configure(config);
        query
    }

    /// A new configuration is in force: what it needs is asked at once.
    pub fn configure(&mut self, config: &Arc<Config>) {
        match &self.running {
            Some(running) => running.configure(config),
            None if Plan::of(config).is_empty() => {}
            None => self.begin(config),
        }
    }

    fn begin(&mut self, config: &Arc<Config>) {
        let out = self.out.clone();
        match ConfigThread::begin(THREAD, config, |configs| ask_always(configs, out)) {
            Ok(running) => self.running = Some(running),
            Err(why) => (self.out.log)(Record::new(
                Level::Error,
                format!(
                    "quotas: cannot start the thread that asks for members of roles, sizes and temporary files: {why}"
                ),
            )),
        }
    }
}

async fn ask_always(mut configs: watch::Receiver<Arc<Config>>, out: Out) {
    let mut answers = Answers::default();
    loop {
        let config = Arc::clone(&configs.borrow_and_update());
        let (began, plan) = (Instant::now(), Plan::of(&config));
        answers.begin(&plan, &out.log, config.quotas.role_members());
        if !plan.is_empty() {
            round(&config, &plan, &mut answers, &out).await;
        }
        let pause = config.global.quota_query_interval.max(LEAST_PAUSE);
        tokio::select! {
            changed = configs.changed() => match changed {
                Ok(()) => sleep_until(began + LEAST_PAUSE).await,
                Err(_) => return,
            },
            () = sleep_until(began + pause) => {}
        }
    }
}

/// Asks every server once.
async fn round(config: &Config, plan: &Plan, answers: &mut Answers, out: &Out) {
    let tls = TlsConfig::new(config).map_err(|fault| fault.to_string());
    for ask in &plan.asks {
        let outcome = match &tls {
            Ok(tls) => ask_one(ask, tls, out.system).await,
            Err(why) => Err(why.clone()),
        };
        answers.take(ask, outcome, &out.log);
        // Others may wait for what was just answered while the next server is not there.
        give(plan, answers, out);
    }
}

fn give(plan: &Plan, answers: &mut Answers, out: &Out) {
    for measure in &plan.measured {
        let (known, is_all) = answers.measured(plan, *measure);
        out.book.lock().unwrap_or_else(PoisonError::into_inner).set_measured(*measure, known, is_all);
    }
    if let Some(members) = answers.changed_members() {
        (out.tell)(members);
    }
}

/// Asks the first host that answers.
async fn ask_one(ask: &Ask, tls: &TlsConfig, system: System) -> Result<questions::Answer, String> {
    let account = ask.account.as_ref().ok_or(plan::NO_USER)?;
    let mut whys = Vec::new();
    for place in &ask.places {
        match questions::ask(ask, account, place, tls, system).await {
            Ok(answer) => return Ok(answer),
            Err(why) => whys.push(format!("{}: {why}", place.label())),
        }
    }
    Err(whys.join("; "))
}
