//! What a primary is asked besides its stream, and what the answers mean.
//!
//! Owns the texts: where the primary is, the fingerprint of its catalogs, and what the catalogs say (`catalog.sql`). PostgreSQL 14 to 18, any role, nothing of the database's own.

use std::sync::Arc;

use messages::UncachedNames;
use session::Row;
use session::server_position::{self, ServerPosition};

use crate::news::{Catalog, Seen};
use crate::relations::Graph;
use crate::snapshot::Snapshot;

/// Settings of the session: each statement of a text has a snapshot of its own, names are PostgreSQL's, and a commit is on disk when it is answered.
pub(crate) const SESSION: &str = "SET search_path = pg_catalog, pg_temp; SET default_transaction_isolation = 'read committed'; SET jit = off; \
    SET synchronous_commit = local; SET lock_timeout = '5s'; SET idle_session_timeout = 0; SET max_parallel_workers_per_gather = 0; \
    SET statement_timeout = 0; SET standard_conforming_strings = on; SET bytea_output = hex";

/// Whether the server is in recovery, `wal_level`, and the encoding of names in the stream.
pub(crate) const ABILITIES: &str = "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('wal_level'), \
    pg_catalog.current_setting('server_encoding')";

/// WAL is streamed when it is on disk; this brings it there. Any role may commit a message, here with this prefix.
pub(crate) fn flush_wal(prefix: &str) -> String {
    format!("SELECT pg_catalog.pg_logical_emit_message(true, '{prefix}', '')")
}

/// Catalogs that are small or shared by all databases: what changes in those from another database is not streamed. The third part is what each row says.
const SMALL: &[(&str, &str, &str)] = &[
    ("pg_auth_members", "true", "xmin::pg_catalog.text"),
    ("pg_db_role_setting", "true", "xmin::pg_catalog.text"),
    // What others than superusers see of pg_authid has no xmin.
    ("pg_roles", "true", "pg_catalog.concat_ws(',', oid, rolname, rolsuper, rolinherit, rolbypassrls)"),
    ("pg_database", "datname = pg_catalog.current_database()", "xmin::pg_catalog.text"),
];

/// Catalogs of a database that decide what a text means, or who may ask for it. VACUUM and ANALYZE write to the first and none of the others, in place.
const LARGE: &[(&str, &str)] = &[
    ("pg_namespace", "true"),
    ("pg_policy", "true"),
    ("pg_rewrite", "true"),
    ("pg_inherits", "true"),
    ("pg_proc", "true"),
    ("pg_aggregate", "aggfnoid::pg_catalog.oid >= 16384"),
    ("pg_operator", "true"),
    ("pg_opclass", "true"),
    ("pg_cast", "true"),
    ("pg_type", "oid >= 16384"),
    ("pg_range", "true"),
    ("pg_enum", "true"),
    ("pg_collation", "true"),
    ("pg_conversion", "true"),
    ("pg_amop", "amopopr >= 16384"),
    ("pg_amproc", "amproc::pg_catalog.oid >= 16384"),
    ("pg_ts_config", "true"),
    ("pg_ts_config_map", "true"),
    ("pg_ts_dict", "true"),
];

/// The largest, of which only the numbers of transactions are added up, which costs half of hashing them.
const LARGEST: &[(&str, &str)] = &[
    ("pg_class", "oid >= 16384"),
    ("pg_constraint", "oid >= 16384"),
    ("pg_trigger", "oid >= 16384"),
    ("pg_attribute", "attrelid >= 16384"),
];

/// A question's text for [`sample`]: the position before the snapshot, and what that snapshot shows.
pub(crate) fn sampling() -> String {
    format!("{}; {}", server_position::QUERY_OF_PRIMARY, seeing("''"))
}

/// A question's text for [`compared`].
pub(crate) fn comparing() -> String {
    let rows = |from: &str, filter: &str| {
        format!(
            "(SELECT pg_catalog.concat(pg_catalog.count(*), ',', pg_catalog.sum(pg_catalog.hashtext(xmin::pg_catalog.text))) FROM pg_catalog.{from} WHERE {filter})"
        )
    };
    // The ages of rows grow with the number of the next transaction, which is taken off.
    let ages = |from: &str, filter: &str| {
        format!(
            "(SELECT pg_catalog.concat(pg_catalog.count(*), ',', pg_catalog.sum(pg_catalog.age(xmin)) - pg_catalog.count(*) * pg_catalog.age('3'::pg_catalog.xid)) FROM pg_catalog.{from} WHERE {filter})"
        )
    };
    let large = LARGE.iter().map(|(from, filter)| rows(from, filter));
    let all: Vec<String> = large.chain(LARGEST.iter().map(|(from, filter)| ages(from, filter))).collect();
    seeing(&format!("pg_catalog.concat_ws(' ', {})", all.join(", ")))
}

/// The snapshot, the end of WAL behind it, the fingerprint of small catalogs and another one.
fn seeing(large: &str) -> String {
    let small: Vec<String> = SMALL.iter().map(|(from, filter, row)| {
        format!(
            "(SELECT pg_catalog.concat(pg_catalog.count(*), ',', pg_catalog.sum(pg_catalog.hashtext({row}))) FROM pg_catalog.{from} WHERE {filter})"
        )
    }).collect();
    format!(
        "SELECT pg_catalog.pg_current_snapshot(), pg_catalog.pg_current_wal_insert_lsn() - '0/0'::pg_catalog.pg_lsn, \
         pg_catalog.concat_ws(' ', pg_catalog.pg_conf_load_time(), {}), {large}",
        small.join(", ")
    )
}

/// A question's text for [`cataloged`]: the fingerprint first, then what the catalogs hold in a later snapshot.
pub(crate) fn cataloging() -> String {
    let is_text = |line: &&str| !line.trim_start().starts_with("--");
    let text: Vec<&str> = include_str!("catalog.sql").lines().filter(is_text).map(str::trim).collect();
    let lists = include_str!("stable_functions.txt").lines().filter(|line| !line.starts_with('#'));
    let stable: Vec<&str> = lists.flat_map(str::split_whitespace).collect();
    format!("{}; {}", comparing(), text.join(" ").replace("{STABLE}", &format!("{{{}}}", stable.join(","))))
}

/// Reads the answer to [`sampling`]: the position, and the rest. None of a server that is in recovery, or for what is no answer.
pub(crate) fn sample(rows: &[Row]) -> Option<(u64, Seen)> {
    let position = ServerPosition::read(rows.get(..1)?)?;
    let lsn = position.lsn.filter(|_| !position.is_standby)?;
    Some((lsn, seen(rows.get(1)?)?.0))
}

/// Reads the answer to [`comparing`].
pub(crate) fn compared(rows: &[Row]) -> Option<(Seen, Box<str>)> {
    seen(rows.first()?)
}

fn seen(row: &Row) -> Option<(Seen, Box<str>)> {
    let text = |column: usize| std::str::from_utf8(row.get(column)?.as_deref()?).ok();
    let seen =
        Seen { snapshot: Snapshot::read(text(0)?)?, end: text(1)?.parse().ok()?, small: text(2)?.into() };
    Some((seen, text(3)?.into()))
}

/// Reads the answer to [`cataloging`].
pub(crate) fn cataloged(rows: &[Row]) -> Option<(Seen, Box<str>, Catalog)> {
    let (first, rest) = rows.split_first()?;
    let (seen, large) = seen(first)?;
    let (mut names, mut graph, mut is_whole) = (UncachedNames::default(), Graph::default(), false);
    for row in rest {
        let text = |column: usize| std::str::from_utf8(row.get(column)?.as_deref()?).ok();
        let lower = |column: usize| text(column).map(|name| name.to_ascii_lowercase().into_boxed_str());
        match text(0)? {
            "n" => _ = names.names.insert(lower(1)?),
            "o" if sql::is_implied_operator(text(1)?) => names.everything = true,
            "o" => _ = names.operators.insert(text(1)?.into()),
            "e" => names.everything = true,
            "m" => graph.add(lower(1)?, lower(2)?),
            "end" => is_whole = true,
            _ => return None,
        }
    }
    is_whole.then(|| (seen, large, Catalog { uncached: Arc::new(names), graph }))
}

#[cfg(test)]
#[path = "questions_tests.rs"]
mod tests;
