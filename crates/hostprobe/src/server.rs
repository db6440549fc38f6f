//! One server: a connection that stays, and a question every `host_probe_interval`.
//!
//! Owns which failures say that the server is down, and which only that it cannot be asked. The log says each once.

use std::sync::Arc;
use std::time::Duration;

use pgclient::question::SESSION;
use pgclient::{Complaints, Connection, Failure};
use session::{ServerIdentity, ServerPosition, server_identity, server_position};
use settings::Config;
use telemetry::Level;
use tls::TlsConfig;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use wire::sqlstate;

use crate::Out;
use crate::board::{Answer, Seen, Unanswered};
use crate::plan::ProbedServer;

/// For a login, and for each answer: a server that takes longer is down.
const STEP_LIMIT: Duration = Duration::from_secs(2);

/// Before a server that could not be asked is tried again, unless the interval is longer.
const RETRY: Duration = Duration::from_millis(500);

/// Asks until the task is ended.
pub(crate) async fn probe_always(server: ProbedServer, mut configs: watch::Receiver<Arc<Config>>, out: Out) {
    let mut complaints = Complaints::default();
    loop {
        let why = match probe_until_failure(&server, &mut configs, &mut complaints, &out).await {
            Ok(never) => match never {},
            Err(why) => why,
        };
        let label = server.place.label();
        let (level, text) = match &why {
            Unanswered::Refused(why) => {
                (Level::Log, format!("{label} cannot be asked: {why}; set host_probe_user"))
            }
            Unanswered::Down(why) => (Level::Warning, format!("{label} is down: {why}")),
        };
        if let Some(text) = complaints.raise("server", text) {
            out.log(level, &text);
        }
        note(&server, Seen::Unanswered(why), &out);
        let interval = configs.borrow().global.host_probe_interval;
        sleep(interval.max(RETRY)).await;
    }
}

fn note(server: &ProbedServer, seen: Seen, out: &Out) {
    let primaries = out.board().note(&server.place, &seen);
    out.tell(primaries);
}

enum Never {}

async fn probe_until_failure(
    server: &ProbedServer,
    configs: &mut watch::Receiver<Arc<Config>>,
    complaints: &mut Complaints,
    out: &Out,
) -> Result<Never, Unanswered> {
    let config = Arc::clone(&configs.borrow());
    let mut connection = open(server, &config, out).await?;
    let question = format!("{};{}", server_position::QUERY_OF_ANY, server_identity::QUERY);
    loop {
        let began = Instant::now();
        let rows =
            connection.ask(&question).await.map_err(|failure| unanswered(&failure, &failure.to_string()))?;
        let answer =
            answer(&rows).ok_or_else(|| Unanswered::Refused("its answer is not PostgreSQL's".to_owned()))?;
        if complaints.settle("server") {
            out.log(Level::Log, &format!("{} answers again", server.place.label()));
        }
        note(server, Seen::Answered(answer), out);
        let interval = configs.borrow().global.host_probe_interval;
        sleep_until(began + interval).await;
    }
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
                Unanswered::Refused(why) => whys.push(format!("user \"{}\": {why}", account.user)),
                down => return Err(down),
            },
        }
    }
    Err(Unanswered::Refused(whys.join("; ")))
}

/// A server that cannot be connected to, ends, or begins is down; one that refuses a user may serve others.
fn unanswered(failure: &Failure, words: &str) -> Unanswered {
    let ends = [sqlstate::ADMIN_SHUTDOWN, sqlstate::CRASH_SHUTDOWN, sqlstate::CANNOT_CONNECT_NOW];
    match failure {
        Failure::Io(_) | Failure::TimedOut => Unanswered::Down(words.to_owned()),
        Failure::Refused(refusal) if ends.contains(&refusal.code.as_str()) => {
            Unanswered::Down(words.to_owned())
        }
        Failure::Refused(_) | Failure::Other(_) => Unanswered::Refused(words.to_owned()),
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
}
