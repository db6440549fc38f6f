//! Applies one assignment of a file or of the command line to a configuration, through its row.
//! Owns which sections have which rows, and the names of entries.

use super::Resolver;
use crate::codec::{CONSOLE, PEER_ID_MAX};
use crate::connstr;
use crate::finding::{Finding, Origin};
use crate::identifier::{MAX_NAME_BYTES, truncate_identifier};
use crate::raw_config::{Assignment, Section};
use crate::table::Row;
use crate::userlist::USER_BYTES;
use crate::value::{BadValue, ValueKind};
use crate::{Database, Peer, User, database, global, peer, user};
use std::sync::Arc;

impl Resolver {
    pub(crate) fn apply(&mut self, assignment: &Assignment) {
        let outcome = match assignment.section {
            Section::Pgbouncer => return self.global(assignment),
            Section::Databases => self.database(assignment),
            Section::Users => self.user(assignment),
            Section::Peers => self.peer(assignment),
        };
        self.findings.extend(outcome.err().unwrap_or_default());
    }

    fn global(&mut self, assignment: &Assignment) {
        let Some(row) = global::row(&assignment.key) else {
            let message = format!("unknown parameter: pgbouncer/{}", assignment.key);
            return self.findings.push(Finding::error(&assignment.at, message));
        };
        if let Err(bad) = (row.assign)(&mut self.config.global, &assignment.value) {
            let value = shown(row.info.kind, &assignment.value, &bad);
            let message = format!("invalid value \"{value}\" for parameter {}: {bad}", assignment.key);
            self.findings.push(Finding::error(&assignment.at, message));
        }
    }

    fn database(&mut self, assignment: &Assignment) -> Result<(), Vec<Finding>> {
        check_name_length(assignment, "database", MAX_NAME_BYTES)?;
        if assignment.key == CONSOLE {
            return Err(vec![Finding::error(&assignment.at, "database name \"pgbouncer\" is reserved")]);
        }
        let mut entry = Database::new(&assignment.key, assignment.at.clone());
        keys(assignment, "database", &mut entry, database::row)?;
        entry.follows_members = entry.host.is_empty() && entry.patroni().is_some();
        let hosts = entry.host.len().max(1);
        let per_host = [("port", &entry.port), ("weight", &entry.weight)];
        if let Some((key, numbers)) = per_host.into_iter().find(|(_, numbers)| !numbers.fit(hosts)) {
            let message = format!(
                "database {}: {key}: \"{numbers}\" is not one {key}, or one for each of {hosts} hosts",
                entry.name
            );
            return Err(vec![Finding::error(&assignment.at, message).of_key(Some(key))]);
        }
        if let Some(reason) = entry.primary_is_needed() {
            let target = entry.target_session_attrs;
            let message = format!("database {}: {reason}, and target_session_attrs is {target}", entry.name);
            let finding = Finding::error(&assignment.at, message);
            return Err(vec![finding.of_key(Some("target_session_attrs"))]);
        }
        if assignment.key == "*" {
            self.config.fallback = Some(Arc::new(entry));
        } else {
            self.config.databases.insert(assignment.key.clone(), Arc::new(entry));
        }
        Ok(())
    }

    fn user(&mut self, assignment: &Assignment) -> Result<(), Vec<Finding>> {
        check_name_length(assignment, "user", USER_BYTES)?;
        let name = truncate_identifier(&assignment.key).to_owned();
        let mut entry = User { name: name.clone(), ..User::default() };
        keys(assignment, "user", &mut entry, user::row)?;
        self.config.users.insert(name, Arc::new(entry));
        Ok(())
    }

    fn peer(&mut self, assignment: &Assignment) -> Result<(), Vec<Finding>> {
        let wrong = |message: &str| {
            vec![Finding::error(&assignment.at, format!("peer {}: {message}", assignment.key))]
        };
        let id = assignment.key.parse().ok().filter(|id| (1..=PEER_ID_MAX).contains(id));
        let id = id.ok_or_else(|| wrong(&format!("its name is not a number from 1 to {PEER_ID_MAX}")))?;
        let mut entry = Peer::default();
        keys(assignment, "peer", &mut entry, peer::row)?;
        if entry.host.is_none() {
            return Err(wrong("host is missing"));
        }
        self.config.peers.insert(id, entry);
        Ok(())
    }

    pub(super) fn flags(&mut self, flags: &[(&str, &str)]) {
        let at = Origin { file: "command line".into(), line: 0 };
        for (name, value) in flags {
            let outcome = match global::row(name) {
                Some(row) => (row.assign)(&mut self.config.global, value)
                    .map_err(|bad| format!("\"{}\" {bad}", shown(row.info.kind, value, &bad))),
                None => Err("unknown setting".to_owned()),
            };
            if let Err(message) = outcome {
                self.findings.push(Finding::error(&at, format!("{name}: {message}")));
            }
        }
    }
}

/// An invalid value as it may be shown: it may be a secret, or a URL with one in it.
fn shown<'a>(kind: ValueKind, value: &'a str, bad: &BadValue) -> &'a str {
    let is_url = matches!(bad, BadValue::NotAUrl(_) | BadValue::NotATopology(_));
    let is_secret = kind == ValueKind::Secret || is_url && value.contains(['@', '?', '#']);
    if is_secret { "..." } else { value }
}

/// Checks the length of an entry's name.
fn check_name_length(assignment: &Assignment, what: &str, most: usize) -> Result<(), Vec<Finding>> {
    if assignment.key.len() <= most {
        return Ok(());
    }
    Err(vec![Finding::error(
        &assignment.at,
        format!("{what} name \"{}\" is longer than {most} bytes", assignment.key),
    )])
}

/// Assigns every `key=value` of an entry and reports every error.
fn keys<T>(
    assignment: &Assignment,
    what: &str,
    entry: &mut T,
    row: fn(&str) -> Option<&'static Row<T>>,
) -> Result<(), Vec<Finding>> {
    let name = &assignment.key;
    let pairs = connstr::pairs(&assignment.value)
        .map_err(|broken| broken.text(|key| row(key).is_some()))
        .map_err(|broken| vec![Finding::error(&assignment.at, format!("{what} {name}: {broken}"))])?;
    let mut wrong = Vec::new();
    for (place, (key, value)) in pairs.iter().enumerate() {
        let outcome = match row(key) {
            Some(row) => (row.assign)(entry, value)
                .map_err(|bad| format!("{key}: \"{}\" {bad}", shown(row.info.kind, value, &bad))),
            None => Err(unrecognized(what, key, pairs[..place].iter().map(|(key, _)| *key))),
        };
        if let Err(message) = outcome {
            let finding = Finding::error(&assignment.at, format!("{what} {name}: {message}"));
            wrong.push(finding.of_key(row(key).map(|row| row.info.name)));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// PgBouncer's text.
fn unrecognized<'a>(what: &str, key: &str, before: impl Iterator<Item = &'a str>) -> String {
    let what = if what == "database" { "connection" } else { what };
    if connstr::may_be_repeated(key, before) {
        return format!("unrecognized {what} parameter: {key}");
    }
    format!("unrecognized {what} parameter (not shown, it may be part of an unquoted value)")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::files::memory::Memory;
    use crate::resolver::load;
    use crate::resolver::tests::{config, errors};
    use crate::{AuthType, IoDriver, LoadBalance, PoolMode, PoolSize, Threads};
    use std::time::Duration;

    #[test]
    fn a_file_as_people_write_it() {
        let config = config(
            "[databases]
                app = host=10.0.0.1,/run/pg port=5433 dbname=prod user=u password='it''s' pool_size=5
                * = host=fallback reserve_pool=2
            [pgbouncer]
                listen_addr = 127.0.0.1, ::1
                auth_type = trust
                pool_mode = transaction
                query_wait_timeout = 0.5
                server_tls_sslmode = verify-ca
                pidfile =
                threads = 4
                io_driver = epoll
            [users]
                alice = pool_mode=session query_timeout=3
                test2 =
            [databases]
                app2= dbname=other load_balance_hosts=disable pool_mode=statement",
        );
        let app = &config.databases["app"];
        assert_eq!(app.host, ["10.0.0.1", "/run/pg"]);
        assert_eq!(
            (app.port.first(), app.dbname.as_str(), app.pool_size),
            (5433, "prod", Some(PoolSize::Fixed(5)))
        );
        assert_eq!((app.user.as_deref(), app.password.as_deref()), (Some("u"), Some("it's")));
        assert_eq!(app.at.line, 2);
        assert_eq!(config.fallback.as_ref().unwrap().reserve_pool_size, Some(2));
        assert_eq!(config.databases["app2"].load_balance_hosts, LoadBalance::Disable);
        assert_eq!(config.databases.len(), 2);
        let global = &config.global;
        assert_eq!(global.listen_addr, ["127.0.0.1", "::1"]);
        assert_eq!((global.auth_type, global.pool_mode), (AuthType::Trust, PoolMode::Transaction));
        assert_eq!(global.query_wait_timeout, Duration::from_millis(500));
        assert_eq!((global.threads, global.io_driver), (Threads::Count(4), IoDriver::Epoll));
        assert_eq!(global.conffile.as_deref(), Some("w.ini"));
        assert_eq!(config.user("alice").unwrap().query_timeout, Some(Duration::from_secs(3)));
        assert!(config.user("test2").is_some() && config.user("bob").is_none());
    }

    #[test]
    fn the_last_of_two_values_counts() {
        let text = "[pgbouncer]\nverbose = 1\nverbose = 2\n[databases]\na = port=1 pool_size=3\na = port=2";
        let config = config(text);
        assert_eq!(config.global.verbose, 2);
        assert_eq!((config.databases["a"].port.first(), config.databases["a"].pool_size), (2, None));
    }

    #[test]
    fn a_section_that_comes_again_goes_on() {
        let config = config("[pgbouncer]\nverbose = 1\n[users]\n[pgbouncer]\nlisten_port = 7000");
        assert_eq!((config.global.verbose, config.global.listen_port), (1, 7000));
    }

    #[test]
    fn no_error_repeats_what_may_be_a_secret() {
        for text in [
            "[databases]\na = host=h password=my secret dbname=t",
            "[databases]\na = password=my secret=x",
            "[databases]\na = password=my port=1 secret=x",
            "[databases]\na = postgres://u:secret@h/db",
            "[databases]\na = postgres://u:secret@h/db?sslmode=require",
            "[databases]\na = secret",
            "[peers]\n1 = password=my secret",
            "[pgbouncer]\notlp_endpoint = http://u:secret@h/",
            "[pgbouncer]\notlp_endpoint = https://h/v1?token=secret",
            "[pgbouncer]\notlp_endpoint = u:secret@h",
            "[pgbouncer]\notlp_headers = secret",
        ] {
            let errors = errors(text);
            assert!(!errors.is_empty() && errors.iter().all(|error| !error.contains("secret")), "{errors:?}");
        }
        let unknown = errors("[databases]\na = host=h frob=1 password=x");
        assert_eq!(unknown, ["w.ini:2: database a: unrecognized connection parameter: frob"]);
    }

    #[test]
    fn every_error_is_reported_with_its_place() {
        let text = "[pgbouncer]
            listen_port = sixty
            auth_type = sometimes
            client_tls_sslmode = sometimes
            pool_mode = tx
            conffile =
            colour = red
            [databases]
            pgbouncer = host=h
            a = host
            b = pool_size=x colour=red
            [users]
            c = pool_mode=never
            [peers]
            0 = host=/tmp
            2 = port=1
            3 = colour=red
            1 = host=/tmp
            [odd]";
        let expected = [
            "w.ini:19: invalid section \"odd\"",
            "w.ini:2: invalid value \"sixty\" for parameter listen_port: is not a whole number",
            "w.ini:3: invalid value \"sometimes\" for parameter auth_type: is not one of any, trust, plain, md5, scram-sha-256, cert, hba, peer, ldap, pam",
            "w.ini:4: invalid value \"sometimes\" for parameter client_tls_sslmode: is not one of disable, allow, prefer, require, verify-ca, verify-full",
            "w.ini:5: invalid value \"tx\" for parameter pool_mode: is not one of session, transaction, statement",
            "w.ini:7: unknown parameter: pgbouncer/colour",
            "w.ini:9: database name \"pgbouncer\" is reserved",
            "w.ini:10: database a: syntax error: expected \"=\" after \"host\"",
            "w.ini:11: database b: pool_size: \"x\" is not a whole number",
            "w.ini:11: database b: unrecognized connection parameter: colour",
            "w.ini:13: user c: pool_mode: \"never\" is not one of session, transaction, statement",
            "w.ini:15: peer 0: its name is not a number from 1 to 16383",
            "w.ini:16: peer 2: host is missing",
            "w.ini:17: peer 3: unrecognized peer parameter: colour",
        ];
        assert_eq!(errors(text), expected);
    }

    #[test]
    fn names_have_the_lengths_of_pgbouncer() {
        let long = "n".repeat(64);
        assert_eq!(errors(&format!("[pgbouncer]\n[databases]\n{long} =")).len(), 1);
        config(&format!("[pgbouncer]\n[databases]\n{} =\n[users]\n{long} =", &long[1..]));
        assert_eq!(errors(&format!("[pgbouncer]\n[users]\n{} =", "n".repeat(128))).len(), 1);
    }

    #[test]
    fn flags_win_over_the_file() {
        let files = [("w.ini", "[pgbouncer]\nuser = a\nverbose = 1")];
        let config = load(&Memory(&files), "w.ini", &[("user", "b"), ("verbose", "2")]).unwrap();
        assert_eq!((config.global.user.as_deref(), config.global.verbose), (Some("b"), 2));
        let findings = load(&Memory(&files), "w.ini", &[("verbose", "x"), ("odd", "")]).unwrap_err();
        let reported: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            reported,
            ["command line: verbose: \"x\" is not a whole number", "command line: odd: unknown setting"]
        );
    }
}
