//! One server: a connection that stays, and a question every `lock_wait_interval`.
//!
//! Owns that a server which cannot be asked is tried again, and that the log says each failure once.

use std::sync::Arc;
use std::time::Duration;

use messages::ServerWaitSample;
use pgclient::question::{SESSION, literal, number, text};
use pgclient::{Complaints, Connection, Failure, Place};
use settings::Config;
use telemetry::{Level, ServerWait};
use tls::TlsConfig;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::Out;
use crate::plan::AskedServer;

/// Before a server that could not be asked is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Backends that are looked at.
const MOST_BACKENDS: usize = 10_000;

/// Asks until the task is ended.
pub(crate) async fn sample_always(server: AskedServer, mut configs: watch::Receiver<Arc<Config>>, out: Out) {
    let mut complaints = Complaints::default();
    let label = server.place.label();
    loop {
        let why = match sample_until_failure(&server, &mut configs, &mut complaints, &out).await {
            Ok(never) => match never {},
            Err(why) => why,
        };
        let text = format!("{label} cannot be asked: {why}; its waits are not counted meanwhile");
        if let Some(text) = complaints.raise("server", text) {
            out.log(Level::Warning, &text);
        }
        sleep(RETRY).await;
    }
}

enum Never {}

async fn sample_until_failure(
    server: &AskedServer,
    configs: &mut watch::Receiver<Arc<Config>>,
    complaints: &mut Complaints,
    out: &Out,
) -> Result<Never, String> {
    let config = Arc::clone(&configs.borrow());
    let (mut connection, user) = open(server, &config, out).await?;
    let question = question(server);
    let mut before: Option<Instant> = None;
    loop {
        let interval = configs.borrow().global.lock_wait_interval;
        let began = Instant::now();
        let rows = connection.ask(&question).await.map_err(|failure: Failure| failure.to_string())?;
        if complaints.settle("server") {
            out.log(Level::Log, &format!("{} answers again", server.place.label()));
        }
        let since = before.map_or(interval, |before| began.duration_since(before).min(2 * interval));
        before = Some(began);
        let is_hidden = rows.iter().any(|row| row.first().is_none_or(Option::is_none));
        if is_hidden && let Some(text) = complaints.raise("permission", hidden(server, &user)) {
            out.log(Level::Warning, &text);
        }
        let mut backends: Vec<_> = rows.iter().filter_map(|row| backend(row)).collect();
        if !backends.is_empty() {
            backends.sort_unstable_by_key(|(pid, _)| *pid);
            (out.tell)(sample(&server.place, &connection, since, backends));
        }
        sleep_until(began + interval).await;
    }
}

/// As the first user that may log in.
async fn open(server: &AskedServer, config: &Config, out: &Out) -> Result<(Connection, String), String> {
    let tls = TlsConfig::new(config).map_err(|fault| fault.to_string())?;
    let mut whys = Vec::new();
    for account in &server.accounts {
        match Connection::open(account, &server.place, &tls, (out.system, false)).await {
            Ok(mut connection) => {
                connection.ask(SESSION).await.map_err(|failure| failure.explained(account))?;
                return Ok((connection, account.user.clone()));
            }
            Err(failure) => whys.push(format!("user \"{}\": {}", account.user, failure.explained(account))),
        }
    }
    Err(whys.join("; "))
}

/// A row for each client's backend that waits; one of NULLs if there are sessions of which this is not shown.
fn question(server: &AskedServer) -> String {
    let databases: Vec<_> = server.databases.iter().map(|name| literal(name)).collect();
    format!(
        "SELECT pid, wait_event_type FROM pg_stat_activity WHERE state <> 'idle' AND pid <> pg_backend_pid() \
         AND backend_type = 'client backend' AND wait_event_type NOT IN ('Activity', 'Client') \
         UNION ALL (SELECT NULL, NULL FROM pg_stat_activity \
         WHERE query = '<insufficient privilege>' AND datname IN ({}) LIMIT 1) LIMIT {MOST_BACKENDS}",
        databases.join(", ")
    )
}

fn hidden(server: &AskedServer, user: &str) -> String {
    format!(
        "{} does not show user \"{user}\" what sessions of other users wait for, which is not counted; \
         GRANT pg_monitor TO \"{user}\"",
        server.place.label()
    )
}

fn backend(row: &[Option<Vec<u8>>]) -> Option<(u32, ServerWait)> {
    let pid = u32::try_from(number(row, 0)?).ok()?;
    Some((pid, ServerWait::of_event_type(&text(row, 1)?)?))
}

fn sample(
    place: &Place,
    connection: &Connection,
    since: Duration,
    backends: Vec<(u32, ServerWait)>,
) -> ServerWaitSample {
    let (host, port) = match place {
        Place::Unix(path) => (path.as_str(), 0),
        Place::Inet { host, port, .. } => (host.as_str(), *port),
    };
    ServerWaitSample {
        host: host.into(),
        port,
        address: connection.address(),
        us: u64::try_from(since.as_micros()).unwrap_or(u64::MAX),
        backends: backends.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: Option<&str>, wait: Option<&str>) -> Vec<Option<Vec<u8>>> {
        [pid, wait].map(|value| value.map(|text| text.as_bytes().to_vec())).to_vec()
    }

    #[test]
    fn what_backends_wait_for_is_read() {
        assert_eq!(backend(&row(Some("17"), Some("Lock"))), Some((17, ServerWait::Lock)));
        assert_eq!(backend(&row(Some("17"), Some("Client"))), None);
        assert_eq!(backend(&row(None, None)), None);
        assert_eq!(backend(&row(Some("-1"), Some("IO"))), None);
    }
}
