//! `weir check`: everything that can be checked without running: errors, duplicate assignments, and settings that
//! behave differently from PgBouncer.
//!
//! Reads the same [`RawConfig`] as startup, so both always agree. Never changes anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::choice::PoolMode;
use crate::codec::Boolean;
use crate::files::Files;
use crate::finding::{Finding, Severity};
use crate::raw_config::{Assignment, RawConfig, Section};
use crate::table::{Compat, SettingInfo};
use crate::value::Codec;
use crate::{Config, Database, connstr, database, fleet_check, global, user};

/// The result of a check.
#[derive(Debug)]
pub struct CheckReport {
    /// The configuration, if the process would start with it.
    pub config: Option<Arc<Config>>,
    /// Errors and warnings, in file order.
    pub findings: Vec<Finding>,
    /// Assignments that behave differently from PgBouncer, each with its location.
    pub differences: Vec<Finding>,
}

impl CheckReport {
    /// How many findings would keep the process from starting.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.findings.iter().filter(|finding| finding.severity == Severity::Error).count()
    }
}

/// Checks a file with its includes.
pub fn check(files: &dyn Files, path: &str) -> CheckReport {
    let raw = RawConfig::read(files, path);
    let pools = raw.pools.iter().flat_map(|pools| &pools.assignments);
    let assignments = || raw.assignments.iter().chain(pools.clone());
    let mut differences: Vec<Finding> = assignments().flat_map(differences).collect();
    differences.extend(kept_sessions(assignments()));
    let assigning: Vec<Assignment> = assignments().filter(|one| assigns(one)).cloned().collect();
    let repeated = repeated(&raw.assignments);
    let of_fleet: Vec<Assignment> =
        raw.assignments.iter().filter(|one| one.key.starts_with("fleet")).cloned().collect();
    let (config, mut findings) = match raw.config(files, &[], None) {
        Ok(config) => {
            let mut warnings = config.warnings.clone();
            warnings.extend(idle_assignments(&config, &assigning));
            warnings.extend(idle_entries(&config));
            warnings.extend(fleet_check::store(&config.global, &of_fleet));
            (Some(Arc::new(config)), warnings)
        }
        Err(findings) => (None, findings),
    };
    findings.extend(repeated);
    CheckReport { config, findings, differences }
}

/// Assignments overridden by a later one with the same key, as in PgBouncer.
fn repeated(assignments: &[Assignment]) -> Vec<Finding> {
    let mut last: BTreeMap<(u8, &str), &Assignment> = BTreeMap::new();
    let mut found = Vec::new();
    for now in assignments {
        let section = now.section as u8;
        if let Some(before) = last.insert((section, &now.key), now) {
            let message = format!("\"{}\" is overridden in {}:{}", now.key, now.at.file, now.at.line);
            found.push(Finding::warning(&before.at, message));
        }
    }
    found
}

/// Where clients keep what they leave in their sessions, unless the file says what is to become of it.
fn kept_sessions<'a>(assignments: impl Iterator<Item = &'a Assignment> + Clone) -> Vec<Finding> {
    const WHY: &str = "pool_mode: session_state is `virtual` unless set to `off`: what clients leave in their sessions is kept for them, and any startup parameter is accepted";
    let pairs = |assignment: &'a Assignment| match assignment.section {
        Section::Pgbouncer => vec![(assignment.key.as_str(), assignment.value.clone())],
        Section::Databases | Section::Users => connstr::pairs(&assignment.value).unwrap_or_default(),
        Section::Peers => Vec::new(),
    };
    let has = |pairs: &[(&str, String)], name: &str| pairs.iter().any(|(key, _)| *key == name);
    let is_shared = |(key, value): &(&str, String)| {
        *key == "pool_mode"
            && ["transaction", "statement"].iter().any(|mode| value.eq_ignore_ascii_case(mode))
    };
    let mut global = assignments.clone().filter(|assignment| assignment.section == Section::Pgbouncer);
    if global.any(|assignment| assignment.key == "session_state") {
        return Vec::new();
    }
    let concerned = assignments.filter(|assignment| {
        let pairs = pairs(assignment);
        pairs.iter().any(is_shared) && !has(&pairs, "session_state")
    });
    concerned.map(|assignment| Finding::warning(&assignment.at, WHY.to_owned())).collect()
}

/// Turns `assign_server_at_login` on.
fn assigns(assignment: &Assignment) -> bool {
    const NAME: &str = "assign_server_at_login";
    let turns_on = |value: &str| Boolean::read(value).is_ok_and(|on| on);
    match assignment.section {
        Section::Pgbouncer => assignment.key == NAME && turns_on(&assignment.value),
        Section::Databases | Section::Users => {
            let pairs = connstr::pairs(&assignment.value).unwrap_or_default();
            pairs.iter().any(|(key, value)| *key == NAME && turns_on(value))
        }
        Section::Peers => false,
    }
}

/// Which of these assignments, each of which turns `assign_server_at_login` on, are for pools of which none is in session
/// pooling.
fn idle_assignments(config: &Config, assigning: &[Assignment]) -> Vec<Finding> {
    const TEXT: &str = "assign_server_at_login has no effect in transaction and statement pooling";
    let is_session = |mode: Option<PoolMode>| mode == Some(PoolMode::Session);
    let global = is_session(Some(config.global.pool_mode));
    let by_user = config.users.values().any(|user| is_session(user.pool_mode));
    let by_database =
        config.databases.values().chain(&config.fallback).any(|database| is_session(database.pool_mode));
    let has_effect = |assignment: &&Assignment| match assignment.section {
        Section::Databases => {
            let named = config.databases.get(&assignment.key).or(config.fallback.as_ref());
            let own = named.and_then(|database| database.pool_mode);
            by_user || is_session(own) || own.is_none() && global
        }
        Section::Users => {
            let own = config.users.get(&assignment.key).and_then(|user| user.pool_mode);
            is_session(own) || own.is_none() && (global || by_database)
        }
        Section::Pgbouncer | Section::Peers => global || by_user || by_database,
    };
    let idle = assigning.iter().filter(|assignment| !has_effect(assignment));
    idle.map(|assignment| Finding::warning(&assignment.at, TEXT.to_owned())).collect()
}

/// Entries of which a setting has no effect.
fn idle_entries(config: &Config) -> Vec<Finding> {
    let all = || config.databases.values().chain(&config.fallback);
    let finding =
        |database: &Arc<Database>, why: Option<&str>| Some(Finding::warning(&database.at, why?.to_owned()));
    let splits = all().filter_map(|database| finding(database, idle_split(config, database)));
    let caches = all().filter_map(|database| finding(database, idle_cache(config, database)));
    let fleet = all().flat_map(|database| {
        fleet(config, database).into_iter().filter_map(move |why| finding(database, Some(why)))
    });
    splits.chain(caches).chain(fleet).collect()
}

/// Why settings of an entry have no effect as the entry is.
#[must_use]
pub fn idle_settings(config: &Config, database: &Database) -> Vec<&'static str> {
    idle_split(config, database).into_iter().chain(idle_cache(config, database)).collect()
}

/// Why `read_write_split` sends no reads to standbys.
fn idle_split(config: &Config, database: &Database) -> Option<&'static str> {
    match database.host.len() {
        _ if !database.read_write_split => None,
        0 | 1 if !database.follows_members => {
            Some("read_write_split has no effect on an entry with one host")
        }
        _ if config.splits_reads(database, None) => None,
        // Its hosts are known once Patroni has listed them.
        0 if config.pool_mode(database, None) != PoolMode::Session => None,
        _ => Some("read_write_split has no effect in session pooling"),
    }
}

/// Why `query_cache` answers nothing.
fn idle_cache(config: &Config, database: &Database) -> Option<&'static str> {
    if database.query_cache == 0 {
        return None;
    }
    if database.name == "*" {
        return Some("query_cache has no effect in the entry `*`: name the database");
    }
    if !config.caches_reads(database, None) {
        return Some(
            "query_cache has no effect without session_state = virtual in transaction or statement pooling",
        );
    }
    let has_user = database.query_cache_user.is_some() || database.user.is_some();
    (!has_user).then_some(
        "query_cache needs a user that follows the primary's changes: query_cache_user, with REPLICATION",
    )
}

/// What an entry lacks for its limits to be shared by a fleet as they should be.
fn fleet(config: &Config, database: &Database) -> Vec<&'static str> {
    const UNASKED: &str = "fleet: no user asks this entry's servers whether connections of a node that is gone are still there: set fleet_user (or auth_user, or user)";
    const SCARCE: &str = "fleet: max_db_connections is smaller than fleet_nodes: nodes that are busy take turns, for a second each";
    if !config.global.fleet.is_some() {
        return Vec::new();
    }
    let own = config.global.fleet_user.as_deref().filter(|user| !user.is_empty());
    let asks = own.or(database.user.as_deref()).or(config.auth_user(Some(database)));
    let limit = config.max_db_connections(database);
    let is_scarce = limit > 0 && limit < config.global.fleet_nodes;
    [(asks.is_none(), UNASKED), (is_scarce, SCARCE)]
        .into_iter()
        .filter_map(|(is_so, why)| is_so.then_some(why))
        .collect()
}

/// How an assignment behaves differently from PgBouncer.
fn differences(assignment: &Assignment) -> Vec<Finding> {
    let infos: Vec<&SettingInfo> = match assignment.section {
        Section::Pgbouncer => global::row(&assignment.key).map(|row| &row.info).into_iter().collect(),
        Section::Databases => keys(assignment, |key| database::row(key).map(|row| &row.info)),
        Section::Users => keys(assignment, |key| user::row(key).map(|row| &row.info)),
        Section::Peers => Vec::new(),
    };
    infos.into_iter().filter_map(|info| difference(assignment, info)).collect()
}

fn keys(
    assignment: &Assignment,
    info: impl Fn(&str) -> Option<&'static SettingInfo>,
) -> Vec<&'static SettingInfo> {
    connstr::pairs(&assignment.value)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(key, _)| info(key))
        .collect()
}

fn difference(assignment: &Assignment, info: &SettingInfo) -> Option<Finding> {
    match info.compat {
        Compat::Different(why) => Some(Finding::warning(&assignment.at, format!("{}: {why}", info.name))),
        // Weir's own settings are not differences: a file that has them is written for Weir.
        Compat::Same | Compat::Better(_) | Compat::Own => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::memory::Memory;

    fn reported(text: &str) -> (Vec<String>, Vec<String>, usize) {
        let checked = check(&Memory(&[("w.ini", text)]), "w.ini");
        let lines = |findings: &[Finding]| findings.iter().map(ToString::to_string).collect();
        (lines(&checked.findings), lines(&checked.differences), checked.errors())
    }

    #[test]
    fn a_file_that_means_the_same_is_passed_in_silence() {
        assert_eq!(
            reported("[pgbouncer]\npool_mode = session\n[databases]\na = host=h"),
            (vec![], vec![], 0)
        );
    }

    #[test]
    fn who_has_no_word_on_session_state_is_told_that_it_is_kept() {
        let differences = |text: &str| reported(text).1;
        let told = differences(
            "[pgbouncer]\npool_mode = transaction\n[databases]\na = host=h pool_mode=statement\nb = host=h pool_mode=session",
        );
        assert!(
            matches!(&told[..], [one, other] if one.starts_with("w.ini:2: pool_mode: session_state is `virtual`") && other.starts_with("w.ini:4: ")),
            "{told:?}"
        );
        assert_eq!(differences("[pgbouncer]\npool_mode = transaction\nsession_state = virtual"), [""; 0]);
        assert_eq!(differences("[databases]\na = host=h pool_mode=transaction session_state=off"), [""; 0]);
    }

    #[test]
    fn what_splits_no_reads_is_reported() {
        let lines = |entry: &str| reported(&format!("[databases]\na = {entry}\n[pgbouncer]\n")).0;
        let split = "read_write_split=1 pool_mode=transaction session_state=off";
        assert_eq!(lines(&format!("host=a,b {split}")), [""; 0]);
        assert_eq!(lines(&format!("host=a,b {split} target_session_attrs=read-write")), [""; 0]);
        let one = "w.ini:2: read_write_split has no effect on an entry with one host";
        assert_eq!(lines(&format!("host=a {split}")), [one]);
        let session = "w.ini:2: read_write_split has no effect in session pooling";
        assert_eq!(lines("host=a,b read_write_split=1"), [session]);
        let follows = "topology='patroni http://h'";
        assert_eq!(lines(&format!("{follows} {split}")), [""; 0]);
        assert_eq!(lines(&format!("{follows} read_write_split=1")), [session]);
        for target in ["standby", "read-only", "prefer-standby"] {
            let refused =
                reported(&format!("[databases]\na = host=a,b {split} target_session_attrs={target}"));
            assert_eq!(refused.2, 1, "{target}");
        }
    }

    #[test]
    fn caches_that_answer_nothing_are_reported() {
        let lines = |name: &str, entry: &str| {
            reported(&format!("[databases]\n{name} = host=h query_cache=1MB {entry}\n[pgbouncer]\n")).0
        };
        let follows = "pool_mode=transaction session_state=virtual query_cache_user=r";
        assert_eq!(lines("a", follows), [""; 0]);
        for entry in [
            "pool_mode=session query_cache_user=r",
            "pool_mode=transaction session_state=off query_cache_user=r",
        ] {
            let found = lines("a", entry);
            assert!(
                found.len() == 1
                    && found[0].starts_with("w.ini:2: query_cache has no effect without session_state"),
                "{found:?}"
            );
        }
        let found = lines("a", "pool_mode=transaction session_state=virtual");
        assert!(found.len() == 1 && found[0].contains("query_cache_user"), "{found:?}");
        assert!(lines("*", follows)[0].contains("name the database"));
        for target in ["standby", "read-only", "prefer-standby"] {
            let errors = |cache: &str| {
                let entry = format!("a = host=h {follows} query_cache={cache} target_session_attrs={target}");
                reported(&format!("[databases]\n{entry}\n[pgbouncer]\n")).2
            };
            assert_eq!((errors("1MB"), errors("0")), (1, 0), "{target}");
        }
        assert_eq!(lines("a", &format!("{follows} target_session_attrs=read-write")), [""; 0]);
    }

    #[test]
    fn entries_whose_limits_a_fleet_cannot_share_well_are_reported() {
        let lines = |entry: &str, global: &str| {
            reported(&format!("[databases]\na = host=h {entry}\n[pgbouncer]\nfleet = {global}\n")).0
        };
        assert_eq!(lines("max_db_connections=2", "none"), [""; 0]);
        assert_eq!(lines("max_db_connections=3", "etcd://h/p\nfleet_user = f"), [""; 0]);
        for entry in ["user=u", "auth_user=u"] {
            assert_eq!(lines(entry, "etcd://h/p"), [""; 0], "{entry}");
        }
        let unasked = lines("", "etcd://h/p");
        assert!(unasked.len() == 1 && unasked[0].starts_with("w.ini:2: fleet: no user asks"), "{unasked:?}");
        let scarce = lines("user=u max_db_connections=2", "etcd://h/p");
        assert!(scarce.len() == 1 && scarce[0].contains("smaller than fleet_nodes"), "{scarce:?}");
    }

    #[test]
    fn servers_at_login_without_session_pooling_are_reported() {
        let lines = |text: &str| reported(text).0;
        let idle = |line: u32| {
            format!("w.ini:{line}: assign_server_at_login has no effect in transaction and statement pooling")
        };
        let shared = "[pgbouncer]\nsession_state = virtual\npool_mode = transaction\n";
        let on = "assign_server_at_login = 1\n";
        assert_eq!(lines(&format!("{shared}{on}")), [idle(4)]);
        assert_eq!(lines(&format!("{shared}{on}[databases]\na = host=h pool_mode=session")), [""; 0]);
        assert_eq!(lines(&format!("{shared}{on}[users]\na = pool_mode=session")), [""; 0]);
        assert_eq!(lines(&format!("[pgbouncer]\n{on}")), [""; 0], "the default is session pooling");
        let entry = "[databases]\na = host=h pool_mode=statement assign_server_at_login=1\n* = assign_server_at_login=yes\n";
        assert_eq!(lines(&format!("{entry}[pgbouncer]\npool_mode = session")), [idle(2)]);
        let users = "[users]\nu = assign_server_at_login=1\nv = assign_server_at_login=1 pool_mode=transaction\nw = assign_server_at_login=0\n";
        assert_eq!(lines(&format!("{shared}{users}")), [idle(5), idle(6)]);
        assert_eq!(lines(&format!("{shared}{users}[databases]\na = host=h pool_mode=session")), [idle(6)]);
    }

    #[test]
    fn what_is_wrong_twice_or_different_is_reported_with_its_line() {
        let (findings, differences, errors) = reported(
            "[pgbouncer]\npool_mode = session\npkt_buf = 4096\nthreads = 2\npool_mode = session\nfrob = 1",
        );
        assert_eq!(
            findings,
            ["w.ini:6: unknown parameter: pgbouncer/frob", "w.ini:2: \"pool_mode\" is overridden in w.ini:5",]
        );
        assert_eq!(errors, 1);
        assert!(differences[0].starts_with("w.ini:3: pkt_buf: "), "{differences:?}");
        assert_eq!(
            differences.len(),
            1,
            "a setting that PgBouncer does not have is no difference: {differences:?}"
        );
    }
}
