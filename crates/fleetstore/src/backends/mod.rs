//! The client backends of PostgreSQL servers that count in budgets.
//!
//! Owns what is asked, and that a budget is answered only if all its servers are. More backends than Weir's own may be listed (other programs' ones), but never fewer,
//! with one exception: PostgreSQL shows a connection that has not logged in yet only from 18 on, and only to a member of `pg_read_all_stats`.

mod plan;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fleet::{Backend, BudgetName};
use pgclient::question::{SESSION, number, text};
use pgclient::{Account, Complaints, Connection, Failure, Place, System};
use settings::Config;
use telemetry::{Level, Record};
use tls::TlsConfig;
use tokio::net::lookup_host;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use plan::{AskedServer, Plan};

/// For connecting, and for the answer.
const STEP_LIMIT: Duration = Duration::from_secs(2);

/// Servers that are asked at once.
const MAX_AT_ONCE: usize = 16;

/// All but what certainly is no client's: `backend_type` is hidden from a user that may not see a backend's query. A replication client's backend is a walsender,
/// of no database where it replicates all of them; so is, to such a user, the launcher of logical replication, one on each primary, as the first superuser's.
const BACKENDS: &str = "SELECT pid, datname, usename, backend_type IS NULL FROM ( \
    SELECT pid, datname, usename, usesysid, backend_type, \
        may_be_launcher AND current_setting('max_logical_replication_workers') <> '0' AND NOT pg_is_in_recovery() \
            AND row_number() OVER (PARTITION BY may_be_launcher ORDER BY pid) = 1 AS is_launcher \
    FROM (SELECT *, backend_type IS NULL AND datid IS NULL AND usesysid = 10 AS may_be_launcher FROM pg_stat_activity) AS activity \
    ) AS marked WHERE pid <> pg_backend_pid() AND is_launcher IS NOT TRUE \
    AND (backend_type IN ('client backend', 'walsender') OR backend_type IS NULL AND usesysid IS NOT NULL)";

/// Writes to the log.
pub type Log = Arc<dyn Fn(Record) + Send + Sync>;

/// Where PostgreSQL servers are, and who asks them.
pub struct BackendQuery {
    config: Arc<Config>,
    user: Option<String>,
    system: System,
    log: Log,
    complaints: Arc<Mutex<Complaints>>,
}

/// A row of pg_stat_activity.
#[derive(Clone)]
struct Activity {
    pid: u32,
    datname: Option<String>,
    usename: Option<String>,
    /// Its kind is hidden.
    is_hidden: bool,
}

impl BackendQuery {
    /// All servers of a request are asked within this time, or count as not asked.
    pub const LIMIT: Duration = Duration::from_secs(5);

    /// Asks the servers of this configuration as `user` (`fleet_user`); without one as the entry's user, else as `auth_user`. The log says which cannot be asked.
    #[must_use]
    pub fn new(config: &Arc<Config>, user: Option<String>, system: System, log: Log) -> BackendQuery {
        BackendQuery { config: Arc::clone(config), user, system, log, complaints: Arc::default() }
    }

    pub(crate) fn configure(&mut self, config: &Arc<Config>, user: Option<String>) {
        self.config = Arc::clone(config);
        self.user = user;
    }

    /// The backends of each of these budgets; not of those that cannot be asked for on all their servers.
    pub(crate) fn ask(
        &self,
        budgets: Vec<BudgetName>,
    ) -> impl Future<Output = Vec<(BudgetName, Vec<Backend>)>> + Send + use<> {
        let (config, log, complaints) =
            (Arc::clone(&self.config), Arc::clone(&self.log), Arc::clone(&self.complaints));
        let (user, system) = (self.user.clone(), self.system);
        async move {
            let plan = Plan::of(&config, user.as_ref(), budgets);
            let answers = ask_servers(&config, &plan.servers, system).await;
            report(&plan, &answers, &mut complaints.lock().unwrap_or_else(PoisonError::into_inner), &log);
            counted(&plan, &answers)
        }
    }
}

/// Each server's answer, in their order.
async fn ask_servers(
    config: &Config,
    servers: &[AskedServer],
    system: System,
) -> Vec<Result<Vec<Activity>, String>> {
    let tls = match TlsConfig::new(config) {
        Ok(tls) => Arc::new(tls),
        Err(fault) => return servers.iter().map(|_| Err(fault.to_string())).collect(),
    };
    let late = || Err(format!("no answer within {} s", BackendQuery::LIMIT.as_secs()));
    let mut answers: Vec<_> = servers.iter().map(|_| late()).collect();
    let (mut tasks, places) = (JoinSet::new(), Arc::new(Semaphore::new(MAX_AT_ONCE)));
    for (at, server) in servers.iter().cloned().enumerate() {
        let (tls, places) = (Arc::clone(&tls), Arc::clone(&places));
        tasks.spawn(async move {
            let _place = places.acquire().await;
            (at, ask_server(&server, &tls, system).await)
        });
    }
    let all = async {
        while let Some(done) = tasks.join_next().await {
            if let Ok((at, answer)) = done
                && let Some(of_server) = answers.get_mut(at)
            {
                *of_server = answer;
            }
        }
    };
    let _ = timeout(BackendQuery::LIMIT, all).await;
    answers
}

/// Asks a server as the first user that may log in.
async fn ask_server(server: &AskedServer, tls: &TlsConfig, system: System) -> Result<Vec<Activity>, String> {
    one_server(&server.place).await?;
    let mut whys = Vec::new();
    for mut account in server.accounts.iter().flat_map(Account::in_turn) {
        account.connect_timeout = account.connect_timeout.min(STEP_LIMIT);
        match activities(&account, &server.place, tls, system).await {
            Ok(found) => return Ok(found),
            Err(failure) => whys.push(failure.explained(&account)),
        }
    }
    if whys.is_empty() {
        whys.push("no user asks; set fleet_user (or auth_user, or user for the entry)".to_owned());
    }
    Err(whys.join("; "))
}

/// Refuses a name of several servers: a connection to one of them does not show the backends of the others.
async fn one_server(place: &Place) -> Result<(), String> {
    let Place::Inet { host, port, .. } = place else { return Ok(()) };
    let found = timeout(STEP_LIMIT, lookup_host((host.as_str(), *port))).await;
    let found = found.map_err(|_| format!("the name {host} was not resolved in time"))?;
    let addresses: BTreeSet<IpAddr> =
        found.map_err(|why| why.to_string())?.map(|address| address.ip()).collect();
    if addresses.len() > 1 && !addresses.iter().all(IpAddr::is_loopback) {
        return Err(format!(
            "{host} has {} addresses, and not all of them may be of one server; name each server in host",
            addresses.len()
        ));
    }
    Ok(())
}

async fn activities(
    account: &Account,
    place: &Place,
    tls: &TlsConfig,
    system: System,
) -> Result<Vec<Activity>, Failure> {
    let mut connection = Connection::open(account, place, tls, (system, false)).await?;
    connection.ask(SESSION).await?;
    let rows = connection.ask(BACKENDS).await?;
    let activity = |row: &pgclient::Row| {
        let pid = number(row, 0).and_then(|pid| u32::try_from(pid).ok());
        let pid = pid.ok_or_else(|| Failure::Other("a process id is no number".to_owned()))?;
        let is_hidden = text(row, 3).as_deref() == Some("t");
        Ok(Activity { pid, datname: text(row, 1), usename: text(row, 2), is_hidden })
    };
    rows.iter().map(activity).collect()
}

/// What counts in each budget of which all servers have answered.
fn counted(plan: &Plan, answers: &[Result<Vec<Activity>, String>]) -> Vec<(BudgetName, Vec<Backend>)> {
    let mut counted = Vec::new();
    'budgets: for budget in &plan.budgets {
        let mut backends = BTreeSet::new();
        for (at, filter) in &budget.servers {
            let (Some(server), Some(Ok(found))) = (plan.servers.get(*at), answers.get(*at)) else {
                continue 'budgets;
            };
            let label: Arc<str> = server.place.label().into();
            let counts = |one: &&Activity| filter.has(one.datname.as_deref(), one.usename.as_deref());
            let backend = |one: &Activity| Backend { server: Arc::clone(&label), pid: one.pid };
            backends.extend(found.iter().filter(counts).map(backend));
        }
        counted.push((budget.name.clone(), backends.into_iter().collect()));
    }
    counted
}

/// Writes to the log what cannot be asked, once until it changes.
fn report(plan: &Plan, answers: &[Result<Vec<Activity>, String>], complaints: &mut Complaints, log: &Log) {
    const KEPT: &str = "slots of nodes that are gone stay counted meanwhile";
    let mut raise = |about: &str, text: String| {
        if let Some(text) = complaints.raise(about, text) {
            log(Record::new(Level::Warning, format!("fleet: {text}")));
        }
    };
    for (server, answer) in plan.servers.iter().zip(answers) {
        let label = server.place.label();
        match answer {
            Ok(found) if found.iter().any(|one| one.is_hidden) => raise(
                &format!("hidden {label}"),
                format!(
                    "{label} hides the kinds of backends, so that some of PostgreSQL's own count as clients; GRANT pg_read_all_stats to the user who asks (fleet_user)"
                ),
            ),
            Ok(_) => {}
            Err(why) => raise(&label, format!("{label} cannot be asked: {why}; {KEPT}")),
        }
    }
    for why in &plan.unasked {
        raise(why, format!("{why}; {KEPT}"));
    }
    for (server, _) in plan.servers.iter().zip(answers).filter(|(_, answer)| answer.is_ok()) {
        let label = server.place.label();
        if complaints.settle(&label) {
            log(Record::new(Level::Log, format!("fleet: {label} answers again")));
        }
    }
}
