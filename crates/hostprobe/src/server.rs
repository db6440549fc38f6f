//! One server: a connection that stays, and a question every `host_probe_interval`.
//!
//! Owns which failures say that the server is down, and which only that it cannot be asked. The log says each once.

use std::time::Duration;

use pgclient::question::SESSION;
use pgclient::{Connection, Failure};
use session::{ServerIdentity, ServerPosition, server_identity, server_position};
use settings::{Config, Global};
use telemetry::Level;
use tls::TlsConfig;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use wire::sqlstate;

use crate::known_hosts::{Answer, Seen, Unanswered};
use crate::plan::ProbedServer;
use crate::{Orders, Out};

/// For a login, and for each answer: a server that takes longer is down.
const STEP_LIMIT: Duration = Duration::from_secs(2);

/// Before a server that could not be asked is tried again, unless the interval is longer. If it refuses the users, each wait is twice as long as the one before, up to
/// `server_login_retry`.
const RETRY: Duration = Duration::from_millis(500);

/// The longest wait: a clock has no time that is much later.
const MAX_WAIT: Duration = Duration::from_secs(86_400);

/// Failures that the log has until the server answers again.
const MAX_FAILURES: usize = 8;

/// What is kept of a server's own words.
const MAX_WORDS: usize = 500;

/// Asks until the task is ended.
pub(crate) async fn probe_always(server: ProbedServer, mut orders: watch::Receiver<Orders>, out: Out) {
    let mut failures = Failures::default();
    loop {
        let began = Instant::now();
        let why = match probe_until_failure(&server, &mut orders, &mut failures, &out).await {
            Ok(never) => match never {},
            Err(why) => why,
        };
        failures.note(&server, &why, &out);
        out.change(|known_hosts| known_hosts.note(&server.place, &Seen::Unanswered(why), began.into_std()));
        wait(&mut orders, Instant::now(), |orders| failures.wait(&orders.config.global)).await;
    }
}

/// What has failed since the server answered last.
#[derive(Default)]
struct Failures {
    logged: Vec<String>,
    /// Refusals one after the other.
    refusals: u32,
}

impl Failures {
    fn note(&mut self, server: &ProbedServer, why: &Unanswered, out: &Out) {
        let label = server.place.label();
        let (level, text) = match why {
            Unanswered::Refused(why) => {
                (Level::Log, format!("{label} cannot be asked: {why}; set host_probe_user"))
            }
            Unanswered::Down(why) => (Level::Warning, format!("{label} is down: {why}")),
        };
        self.refusals = match why {
            Unanswered::Refused(_) => self.refusals.saturating_add(1),
            Unanswered::Down(_) => 0,
        };
        if self.logged.len() < MAX_FAILURES && !self.logged.contains(&text) {
            out.log(level, &text);
            self.logged.push(text);
        }
    }

    /// True if it has failed before.
    fn settle(&mut self) -> bool {
        self.refusals = 0;
        !std::mem::take(&mut self.logged).is_empty()
    }

    /// Before the server is tried again.
    fn wait(&self, global: &Global) -> Duration {
        let doubled = RETRY.saturating_mul(2_u32.saturating_pow(self.refusals.saturating_sub(1)));
        global.host_probe_interval.max(doubled.min(global.server_login_retry)).max(RETRY)
    }
}

/// Waits so long, as the orders have it that are in force meanwhile.
async fn wait(
    orders: &mut watch::Receiver<Orders>,
    began: Instant,
    mut time: impl FnMut(&Orders) -> Duration,
) {
    loop {
        let until = began + time(&orders.borrow_and_update()).min(MAX_WAIT);
        match timeout_at(until, orders.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => sleep_until(until).await,
            Err(_) => return,
        }
    }
}

enum Never {}

async fn probe_until_failure(
    server: &ProbedServer,
    orders: &mut watch::Receiver<Orders>,
    failures: &mut Failures,
    out: &Out,
) -> Result<Never, Unanswered> {
    let mut kept = None;
    loop {
        let began = Instant::now();
        let config = orders.borrow().config.clone();
        let answer = ask(server, &config, &mut kept, out).await?;
        if failures.settle() {
            out.log(Level::Log, &format!("{} answers again", server.place.label()));
        }
        out.change(|known_hosts| known_hosts.note(&server.place, &Seen::Answered(answer), began.into_std()));
        wait(orders, began, |orders| {
            if orders.paused.contains(&server.place) {
                kept = None;
            }
            // A connection is not opened more often than this.
            orders.config.global.host_probe_interval.max(if kept.is_none() { RETRY } else { Duration::ZERO })
        })
        .await;
    }
}

/// Asks on the connection that was kept, or on another: one that has ended meanwhile (`pg_terminate_backend`, `idle_session_timeout`) does not say that the
/// server is down.
async fn ask(
    server: &ProbedServer,
    config: &Config,
    kept: &mut Option<Connection>,
    out: &Out,
) -> Result<Answer, Unanswered> {
    let question = format!("{};{}", server_position::QUERY_OF_ANY, server_identity::QUERY);
    let failed = |failure: Failure| unanswered(&failure, &failure.to_string());
    let rows = match kept.take() {
        Some(mut connection) => match connection.ask(&question).await {
            Ok(rows) => Some((connection, rows)),
            Err(failure @ Failure::TimedOut) => return Err(failed(failure)),
            Err(_) => None,
        },
        None => None,
    };
    let (connection, rows) = match rows {
        Some(answered) => answered,
        None => {
            let mut connection = open(server, config, out).await?;
            let rows = connection.ask(&question).await.map_err(failed)?;
            (connection, rows)
        }
    };
    let answer =
        answer(&rows).ok_or_else(|| Unanswered::Refused("its answer is not PostgreSQL's".to_owned()))?;
    *kept = Some(connection);
    Ok(answer)
}

/// As the first user that may log in.
async fn open(server: &ProbedServer, config: &Config, out: &Out) -> Result<Connection, Unanswered> {
    let tls = TlsConfig::new(config).map_err(|fault| Unanswered::Refused(fault.to_string()))?;
    let mut whys = Vec::new();
    for mut account in server.accounts.iter().flat_map(pgclient::Account::in_turn) {
        account.connect_timeout = account.connect_timeout.min(STEP_LIMIT);
        match Connection::open(&account, &server.place, &tls, (out.system, false)).await {
            Ok(mut connection) => match connection.ask(SESSION).await {
                Ok(_) => return Ok(connection),
                Err(failure) => return Err(unanswered(&failure, &failure.explained(&account))),
            },
            Err(failure) => match unanswered(&failure, &failure.explained(&account)) {
                Unanswered::Refused(why) => {
                    let why = format!("user \"{}\": {why}", account.user);
                    // Another database makes no difference to most.
                    if !whys.contains(&why) {
                        whys.push(why);
                    }
                }
                down => return Err(down),
            },
        }
    }
    Err(Unanswered::Refused(whys.join("; ")))
}

/// A server that cannot be connected to, ends, or begins is down; one that refuses a user may serve others.
fn unanswered(failure: &Failure, words: &str) -> Unanswered {
    let words: String = words.chars().take(MAX_WORDS).collect();
    let ends = [sqlstate::ADMIN_SHUTDOWN, sqlstate::CRASH_SHUTDOWN, sqlstate::CANNOT_CONNECT_NOW];
    match failure {
        Failure::Io(_) | Failure::TimedOut => Unanswered::Down(words),
        Failure::Refused(refusal) if ends.contains(&refusal.code.as_str()) => Unanswered::Down(words),
        Failure::Refused(_) | Failure::Other(_) => Unanswered::Refused(words),
    }
}

/// The rows of both questions.
fn answer(rows: &[pgclient::Row]) -> Option<Answer> {
    let position = ServerPosition::read(rows)?;
    let ServerIdentity { system, timeline } = ServerIdentity::read(rows.get(1)?)?;
    let of_standby = position.timeline.filter(|_| position.is_standby);
    // A server that is promoted between the two questions is asked again soon.
    let timeline = timeline.or(of_standby).unwrap_or_default();
    Some(Answer { system, timeline, is_standby: position.is_standby, lsn: position.lsn })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::{Arc, Mutex};

    fn row(columns: &[Option<&str>]) -> pgclient::Row {
        columns.iter().map(|column| column.map(|text| text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn answers_of_primaries_and_standbys_are_read() {
        let primary = [
            row(&[Some("f"), Some("1000"), None, Some("8192"), Some("16777216")]),
            row(&[Some("7"), Some("0000000A")]),
        ];
        let expected = Answer { system: 7, timeline: 10, is_standby: false, lsn: Some(1000) };
        assert_eq!(answer(&primary), Some(expected));
        let standby = [
            row(&[Some("t"), Some("990"), Some("2 3 2"), Some("8192"), Some("16777216")]),
            row(&[Some("7"), None]),
        ];
        let expected = Answer { system: 7, timeline: 3, is_standby: true, lsn: Some(990) };
        assert_eq!(answer(&standby), Some(expected));
        assert_eq!((answer(&[]), answer(&primary[..1])), (None, None));
    }

    #[test]
    fn a_server_that_refuses_a_user_is_not_down() {
        let refused = |code: &str| {
            let refusal = pgclient::Refusal { code: code.to_owned(), message: "no".to_owned() };
            matches!(unanswered(&Failure::Refused(refusal), "no"), Unanswered::Refused(_))
        };
        assert!(["28P01", "28000", "3D000", "42501", "53300"].into_iter().all(refused));
        assert!(!["57P01", "57P02", "57P03"].into_iter().any(refused));
        assert!(matches!(unanswered(&Failure::TimedOut, ""), Unanswered::Down(_)));
    }

    fn global(settings: &str) -> Global {
        struct Ini(String);
        impl settings::Files for Ini {
            fn read(&self, _: &str) -> std::io::Result<Vec<u8>> {
                Ok(self.0.clone().into_bytes())
            }
        }
        settings::load(&Ini(format!("[pgbouncer]\n{settings}\n")), "w.ini", &[]).unwrap().global
    }

    #[test]
    fn a_server_that_refuses_users_is_tried_less_and_less_often() {
        let (out, _, server) = noted();
        let refused = |why: &str| Unanswered::Refused(why.to_owned());
        let (mut failures, global) = (Failures::default(), global("host_probe_interval = 0.2"));
        let waits = |failures: &mut Failures, out: &Out| {
            failures.note(&server, &refused("password"), out);
            failures.wait(&global).as_millis()
        };
        let found: Vec<_> = (0..7).map(|_| waits(&mut failures, &out)).collect();
        assert_eq!(found, [500, 1000, 2000, 4000, 8000, 15_000, 15_000]);
        failures.note(&server, &Unanswered::Down("refused".to_owned()), &out);
        assert_eq!(failures.wait(&global).as_millis(), 500, "its primary may be awaited");
    }

    #[test]
    fn the_log_has_each_failure_once_and_not_many() {
        let (out, lines, server) = noted();
        let mut failures = Failures::default();
        let mut fails = |why: String| failures.note(&server, &Unanswered::Down(why), &out);
        ["reset", "closed", "reset", "closed"].iter().for_each(|why| fails((*why).to_owned()));
        assert_eq!(lines.lock().unwrap().len(), 2);
        (0..100).for_each(|number| fails(format!("no {number}")));
        assert_eq!(lines.lock().unwrap().len(), MAX_FAILURES);
        assert_eq!([failures.settle(), failures.settle()], [true, false]);
    }

    type Lines = Arc<Mutex<Vec<String>>>;

    /// Where answers go, the lines of the log, and a server.
    fn noted() -> (Out, Lines, ProbedServer) {
        let lines = Lines::default();
        let written = Arc::clone(&lines);
        let out = Out {
            known_hosts: Arc::default(),
            found_cluster: Arc::new(|_, _| {}),
            log: Arc::new(move |record| written.lock().unwrap().push(record.text)),
            system: pgclient::System { fill_random: |_| {} },
        };
        let place = pgclient::Place::Unix("/tmp/.s.PGSQL.1".to_owned());
        (out, lines, ProbedServer { place, accounts: Vec::new() })
    }
}
