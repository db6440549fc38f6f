//! Where the secret of a client comes from: `auth_file`, or `auth_query` on a server.
//!
//! Owns on which server and as which user the query runs, what its rows mean, and PgBouncer's texts for errors of either.
//! The query runs at every login, as with PgBouncer, so a changed password counts at once; only a name that has just been
//! unknown several times is not queried again within the second.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use auth::{Secret, Zeroizing};
use messages::{ServerQuery, ServerQueryRow};
use session::StartupRequest;
use settings::AuthType;
use telemetry::Level;
use wire::sqlstate;

use crate::ConnId;
use crate::auth_query::AuthQueries;
use crate::client::Phase;
use crate::client::login::{Purpose, QueriedSecret, SecretNeeded};
use crate::core::{CONSOLE, Core};
use crate::effects::Effect;
use crate::link::client_end;
use crate::link::internal_query::CONFIG_ERROR;

/// How long a name stays unknown without another query.
const ABSENT_US: u64 = 1_000_000;

/// How often a name is queried within that time before it stays unknown.
const ABSENT_ASKED: u32 = 4;

/// Unknown names that are remembered at most.
const ABSENT_NAMES: usize = 1024;

/// Names found at servers that are remembered for SHOW USERS at most.
const FOUND_NAMES: usize = 16_384;

/// What a shard remembers of earlier answers.
#[derive(Default)]
pub(crate) struct AuthQueryCache {
    /// Unknown names by database and name: since when, and how often they were queried.
    absent: BTreeMap<(String, String), (u64, u32)>,
    /// Names that were found.
    pub(crate) found: BTreeSet<String>,
}

impl AuthQueryCache {
    /// Whether a name has been unknown so often lately that it need not be queried.
    fn is_absent(&self, database: &str, user: &str, now_us: u64) -> bool {
        let key = (database.to_owned(), user.to_owned());
        self.absent.get(&key).is_some_and(|(since_us, asked)| {
            *asked >= ABSENT_ASKED && now_us.saturating_sub(*since_us) < ABSENT_US
        })
    }

    /// A name was queried and is unknown.
    fn note_absent(&mut self, database: &str, user: &str, now_us: u64) {
        let default_params = |since_us: u64| now_us.saturating_sub(since_us) < ABSENT_US;
        if self.absent.len() >= ABSENT_NAMES {
            self.absent.retain(|_, (since_us, _)| default_params(*since_us));
        }
        if self.absent.len() >= ABSENT_NAMES {
            self.absent.clear();
        }
        let (since_us, asked) =
            self.absent.entry((database.to_owned(), user.to_owned())).or_insert((now_us, 0));
        if !default_params(*since_us) {
            (*since_us, *asked) = (now_us, 0);
        }
        *asked += 1;
    }

    /// A name was queried and is known.
    fn note_found(&mut self, database: &str, asked: &str, user: &str) {
        self.absent.remove(&(database.to_owned(), asked.to_owned()));
        if self.found.len() < FOUND_NAMES {
            self.found.insert(user.to_owned());
        }
    }
}

/// Why the query cannot run, or its result is unusable: the client gets [`CONFIG_ERROR`], the log this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LookupFault {
    /// `auth_dbname` names no database.
    NotConfigured(String),
    /// `auth_dbname` is the console, or a console client logs in and there is none.
    Reserved,
    /// The rows do not have two columns.
    Columns(usize),
    /// A row without a name.
    NullName,
    /// A name that no user can have.
    BadName,
}

impl LookupFault {
    fn detail(&self) -> String {
        match self {
            LookupFault::NotConfigured(name) => {
                format!("authentication database \"{name}\" is not configured")
            }
            LookupFault::Reserved => {
                format!("cannot use the reserved \"{CONSOLE}\" database as an auth_dbname")
            }
            LookupFault::Columns(count) => format!("expected 2 columns from auth_query, not {count}"),
            LookupFault::NullName => "auth_query response contained null user name".to_owned(),
            LookupFault::BadName => "auth_query response contained an invalid user name".to_owned(),
        }
    }
}

impl AuthQueries {
    /// The proof begins with the secret of `auth_file`; without one a server is asked first, if one is to be. Where all
    /// that counts is that there is such a user, the secret itself is not used.
    pub(crate) fn find_secret(&mut self, core: &mut Core, conn: ConnId, secret_needed: SecretNeeded) {
        let now_us = core.now.mono_us;
        let Some(startup_request) = startup_request_of(core, conn) else { return };
        if let Some(text) = core.config.secrets.get(&startup_request.user) {
            let secret = Secret::parse(if secret_needed == SecretNeeded::Secret { text } else { "" });
            drop(startup_request); // As in `require_authentication`.
            return core.effects.push(Effect::SecretKnown(conn, Some(secret)));
        }
        match auth_query_for(core, &startup_request) {
            Ok(Some(query)) if core.administration.is_disabled(&query.database) => {
                let text = format!("authentication database \"{}\" is disabled", query.database);
                client_end::fail_client(core, conn, sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, &text);
            }
            // An entry of [users] holds settings, and does not make the user known.
            Ok(None) => {
                if core.config.global.auth_type != AuthType::Any {
                    core.log_client(conn, Level::Log, &format!("no such user: {}", startup_request.user));
                }
                core.effects.push(Effect::SecretKnown(conn, None));
            }
            Ok(Some(_)) if self.cache.is_absent(&startup_request.database, &startup_request.user, now_us) => {
                self.no_such_user(core, conn, &startup_request.database);
            }
            Ok(Some(query)) => self.request_query(core, conn, query, Purpose::Secret),
            Err(fault) => self.lookup_fault(core, conn, &fault),
        }
    }

    /// The server has answered.
    pub(crate) fn secret_found(&mut self, core: &mut Core, conn: ConnId, rows: &[ServerQueryRow]) {
        let now_us = core.now.mono_us;
        let Some(startup_request) = startup_request_of(core, conn) else { return };
        match found(rows) {
            Err(fault) => self.lookup_fault(core, conn, &fault),
            Ok(None) => {
                self.cache.note_absent(&startup_request.database, &startup_request.user, now_us);
                self.no_such_user(core, conn, &startup_request.database);
            }
            Ok(Some(found)) => {
                self.cache.note_found(&startup_request.database, &startup_request.user, &found.user);
                let secret = Secret::parse(&found.secret);
                let Some(client) = core.client(conn) else { return };
                client.login_user = found.user.as_str().into();
                if let Phase::Login(login) = &mut client.phase {
                    login.found = Some(found);
                }
                core.effects.push(Effect::SecretKnown(conn, Some(secret)));
            }
        }
    }

    /// PgBouncer's error after a query, whatever the authentication method.
    fn no_such_user(&mut self, core: &mut Core, conn: ConnId, database: &str) {
        if core.config.global.log_connections {
            core.log_client(conn, Level::Log, &format!("login failed: db={database}"));
        }
        core.effects.push(Effect::UserUnknown(conn));
    }

    pub(crate) fn lookup_fault(&mut self, core: &mut Core, conn: ConnId, fault: &LookupFault) {
        core.log_client(conn, Level::Error, &fault.detail());
        client_end::fail_client(core, conn, sqlstate::CONFIG_FILE_ERROR, CONFIG_ERROR);
    }
}

pub(crate) fn startup_request_of(core: &mut Core, conn: ConnId) -> Option<Arc<StartupRequest>> {
    match &core.client(conn)?.phase {
        Phase::Login(login) => Some(Arc::clone(&login.startup_request)),
        _ => None,
    }
}

/// The query for the secret of a user; None where none is configured.
pub(crate) fn auth_query_for(
    core: &Core,
    startup_request: &StartupRequest,
) -> Result<Option<ServerQuery>, LookupFault> {
    let database = core.config.database(&startup_request.database);
    let database = database.as_deref();
    let is_console = startup_request.database == CONSOLE;
    let Some(user) = core.config.auth_user(database) else { return Ok(None) };
    // Whoever asks for a database that there is not proves himself in vain, known or not.
    if core.config.global.auth_type == AuthType::Any || database.is_none() && !is_console {
        return Ok(None);
    }
    let name = core.config.auth_dbname(database).unwrap_or(&startup_request.database);
    if name == CONSOLE {
        return Err(LookupFault::Reserved);
    }
    if core.config.database(name).is_none() {
        return Err(LookupFault::NotConfigured(name.to_owned()));
    }
    Ok(Some(ServerQuery {
        database: name.to_owned(),
        user: user.to_owned(),
        sql: core.config.auth_query(database).to_owned(),
        values: vec![startup_request.user.clone()],
        simple: false,
    }))
}

/// Name and secret in the last row. A secret of NULL (none, or expired) is one that nothing fits.
fn found(rows: &[ServerQueryRow]) -> Result<Option<QueriedSecret>, LookupFault> {
    let Some(row) = rows.last() else { return Ok(None) };
    let [name, secret] = row.as_slice() else { return Err(LookupFault::Columns(row.len())) };
    let name = name.as_deref().ok_or(LookupFault::NullName)?;
    let user = std::str::from_utf8(name).map_err(|_| LookupFault::BadName)?;
    if user.is_empty() || user.contains('\0') {
        return Err(LookupFault::BadName);
    }
    // An empty plain secret admits no client; the user is known all the same.
    let secret = secret.as_deref().and_then(|secret| std::str::from_utf8(secret).ok()).unwrap_or_default();
    Ok(Some(QueriedSecret {
        user: settings::truncate_identifier(user).to_owned(),
        secret: Zeroizing::new(secret.to_owned()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[Option<&str>]) -> ServerQueryRow {
        values.iter().map(|value| value.map(|value| value.as_bytes().to_vec())).collect()
    }

    fn user_of(rows: &[ServerQueryRow]) -> Result<Option<String>, LookupFault> {
        found(rows).map(|found| found.map(|found| found.user))
    }

    #[test]
    fn the_last_row_counts() {
        let rows = [row(&[Some("a"), Some("x")]), row(&[Some("b"), None])];
        assert_eq!(user_of(&rows), Ok(Some("b".to_owned())));
        assert_eq!(user_of(&[]), Ok(None));
    }

    #[test]
    fn a_row_has_a_name_and_a_secret() {
        assert_eq!(user_of(&[row(&[Some("a")])]), Err(LookupFault::Columns(1)));
        assert_eq!(user_of(&[row(&[None, Some("x")])]), Err(LookupFault::NullName));
        assert_eq!(user_of(&[row(&[Some(""), Some("x")])]), Err(LookupFault::BadName));
        let binary = vec![Some(vec![0xff]), None];
        assert_eq!(user_of(&[binary]), Err(LookupFault::BadName));
    }

    #[test]
    fn a_name_stays_unknown_for_the_rest_of_a_second_and_no_longer() {
        let mut auth_query_cache = AuthQueryCache::default();
        for _ in 0..ABSENT_ASKED {
            assert!(!auth_query_cache.is_absent("d", "x", 10));
            auth_query_cache.note_absent("d", "x", 10);
        }
        assert!(auth_query_cache.is_absent("d", "x", 9 + ABSENT_US));
        assert!(!auth_query_cache.is_absent("other", "x", 10));
        assert!(!auth_query_cache.is_absent("d", "x", 10 + ABSENT_US));
        auth_query_cache.note_absent("d", "x", 10 + ABSENT_US);
        assert!(!auth_query_cache.is_absent("d", "x", 10 + ABSENT_US), "counted anew");
    }

    #[test]
    fn a_name_that_is_found_is_not_unknown_and_memory_has_an_end() {
        let mut auth_query_cache = AuthQueryCache::default();
        for _ in 0..ABSENT_ASKED {
            auth_query_cache.note_absent("d", "x", 10);
        }
        auth_query_cache.note_found("d", "x", "x");
        assert!(!auth_query_cache.is_absent("d", "x", 10));
        for number in 0..2 * ABSENT_NAMES {
            auth_query_cache.note_absent("d", &number.to_string(), 10);
            assert!(auth_query_cache.absent.len() <= ABSENT_NAMES);
        }
    }
}
