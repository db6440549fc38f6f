//! A look at a server before the first run: its version and settings, how many connections it has left for this
//! role, whether pgbench's tables are there. Two or three questions; changes nothing.

use std::collections::BTreeMap;

use super::{Address, Found, Psql};
use crate::error::{LabError, Result};
use crate::record::{Database, ServerRecord};

/// Settings that matter for the figures.
const SETTINGS: &str = "max_connections,superuser_reserved_connections,reserved_connections,shared_buffers,fsync,\
    synchronous_commit,full_page_writes,max_wal_size,random_page_cost,max_parallel_workers_per_gather";

/// pgbench's tables; the first is the largest.
const TABLES: [&str; 4] = ["pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history"];

/// Rows of pgbench's largest table for one unit of its scale.
const ACCOUNTS_PER_SCALE: u64 = 100_000;

/// Which server and database answers at the end of a connection: equal for two ways to the same one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    started: String,
    database: String,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// `server_version`.
    pub version: String,
    /// Settings that matter, as SHOW says them.
    pub settings: BTreeMap<String, String>,
    /// Connections of others.
    pub others: u32,
    /// Bytes of the database on disk.
    pub bytes: u64,
    /// Whether the role is a superuser: then nothing is reserved from it.
    pub superuser: bool,
    /// How many connections the role and the database may have, where that is limited.
    pub limits: Vec<u32>,
    /// Which server this is.
    pub behind: Behind,
    /// pgbench's tables.
    pub tables: Found,
}

impl Inspection {
    /// Looks.
    ///
    /// # Errors
    /// [`LabError::Peer`] when the server cannot be reached, refuses, or is not PostgreSQL.
    pub fn look(psql: &Psql, address: &Address) -> Result<Self> {
        let mut found = Self::read(&psql.rows(address, &facts())?);
        if found.version.is_empty() {
            return Err(LabError::Peer(format!(
                "{address}: what answers there is not PostgreSQL 10 or later"
            )));
        }
        let present = psql.rows(address, &presence())?;
        let present: Vec<&str> =
            TABLES.into_iter().filter(|table| present.iter().any(|row| row[0] == *table)).collect();
        if !present.is_empty() {
            let counts = psql.rows(address, &counts(&present));
            found.tables = counts
                .map_or_else(|error| Found::Odd { why: error.to_string() }, |rows| judge(&present, &rows));
        }
        Ok(found)
    }

    /// Connections of others.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub fn others(psql: &Psql, address: &Address) -> Result<u32> {
        Ok(Self::read(&psql.rows(address, &format!("{OTHERS};"))?).others)
    }

    /// Whether the server is in recovery.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub fn is_standby(psql: &Psql, address: &Address) -> Result<bool> {
        let rows = psql.rows(address, "SELECT pg_is_in_recovery()")?;
        Ok(rows.first().and_then(|row| row.first()).is_some_and(|value| value == "t"))
    }

    /// Which server and database answers at an address: behind a pooler, too.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub fn behind(psql: &Psql, address: &Address) -> Result<Behind> {
        Ok(Self::read(&psql.rows(address, &format!("{BEHIND};"))?).behind)
    }

    fn read(rows: &[Vec<String>]) -> Self {
        let mut found = Self::default();
        for row in rows {
            let [kind, name, value] = row.as_slice() else { continue };
            let limit = value.parse::<u32>().ok(); // -1 is no limit
            match (kind.as_str(), name.as_str()) {
                ("setting", name) => drop(found.settings.insert(name.to_owned(), value.clone())),
                (_, "version") => found.version.clone_from(value),
                (_, "others") => found.others = limit.unwrap_or(0),
                (_, "bytes") => found.bytes = value.parse().unwrap_or(0),
                (_, "superuser") => found.superuser = value == "true",
                (_, "limit") => found.limits.extend(limit),
                (_, "started") => found.behind.started.clone_from(value),
                (_, "database") => found.behind.database.clone_from(value),
                _ => {}
            }
        }
        found
    }

    /// How many connections the server has left for this role.
    #[must_use]
    pub fn room(&self) -> Option<u32> {
        let number = |name: &str| self.settings.get(name).and_then(|value| value.parse::<u32>().ok());
        let reserved = number("superuser_reserved_connections").unwrap_or(0)
            + number("reserved_connections").unwrap_or(0);
        let reserved = if self.superuser { 0 } else { reserved };
        let free = number("max_connections")?.saturating_sub(reserved + self.others);
        Some(self.limits.iter().copied().fold(free, u32::min))
    }

    /// What to say before the first run when `needed` connections at once are more than the server has left.
    #[must_use]
    pub fn shortage(&self, needed: u32) -> Option<String> {
        let room = self.room().filter(|room| *room < needed)?;
        let maximum = self.settings.get("max_connections").map_or("?", String::as_str);
        Some(format!(
            "{needed} connections at once are wanted, and the server has room for {room} (max_connections {maximum}, \
             less what is reserved, limited, or open already: {}): the others will be refused",
            self.others
        ))
    }

    /// The record of this server.
    #[must_use]
    pub fn record(&self, address: &Address, embedded: bool) -> ServerRecord {
        let scale = if let Found::Filled { scale } = self.tables { Some(scale) } else { None };
        ServerRecord {
            version: self.version.clone(),
            embedded,
            same_machine: address.is_local(),
            place: address.to_string(),
            settings: self.settings.clone(),
            standbys: Vec::new(),
            others: self.others,
            database: Database { bytes: self.bytes, scale, made: embedded },
        }
    }
}

/// Rows of kind, name and value that say which server and database this is.
const BEHIND: &str = "SELECT 'fact', 'started', pg_postmaster_start_time()::text \
    UNION ALL SELECT 'fact', 'database', current_database()::text";

/// A row with the number of connections of others.
const OTHERS: &str = "SELECT 'fact', 'others', count(*)::text FROM pg_stat_activity \
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

fn facts() -> String {
    let database =
        "SELECT 'fact', 'limit', datconnlimit::text FROM pg_database WHERE datname = current_database()";
    let role = "SELECT 'fact', 'limit', rolconnlimit::text FROM pg_roles WHERE rolname = current_user \
        UNION ALL SELECT 'fact', 'superuser', rolsuper::text FROM pg_roles WHERE rolname = current_user";
    let settings = format!(
        "SELECT 'setting', name, current_setting(name) FROM pg_settings WHERE name = ANY ('{{{SETTINGS}}}')"
    );
    let version = "SELECT 'fact', 'version', current_setting('server_version')";
    let bytes = "SELECT 'fact', 'bytes', pg_database_size(current_database())::text";
    [BEHIND, OTHERS, database, role, &settings, version, bytes].join(" UNION ALL ") + ";"
}

fn presence() -> String {
    let one = |table| format!("SELECT '{table}' WHERE to_regclass('{table}') IS NOT NULL");
    TABLES.map(one).join(" UNION ALL ") + ";"
}

/// Rows of table and number: rows of branches, the highest key of accounts, whether there is a row of the others.
fn counts(present: &[&str]) -> String {
    let one = |table: &&str| {
        let number = match *table {
            "pgbench_branches" => "count(*)".to_owned(),
            "pgbench_accounts" => "coalesce(max(aid), 0)".to_owned(),
            _ => return format!("SELECT '{table}', count(*) FROM (SELECT 1 FROM {table} LIMIT 1) AS first"),
        };
        format!("SELECT '{table}', {number} FROM {table}")
    };
    present.iter().map(one).collect::<Vec<_>>().join(" UNION ALL ") + ";"
}

fn judge(present: &[&str], counts: &[Vec<String>]) -> Found {
    let number = |table: &str| {
        let row = counts.iter().find(|row| row.first().is_some_and(|name| name == table))?;
        row.get(1)?.parse::<u64>().ok()
    };
    if present.iter().all(|table| number(table) == Some(0)) {
        return Found::Empty;
    }
    let scale = number("pgbench_branches").unwrap_or(0);
    let is_whole = present.len() == TABLES.len() && scale > 0;
    match u32::try_from(scale) {
        Ok(scale)
            if is_whole && number("pgbench_accounts") == Some(u64::from(scale) * ACCOUNTS_PER_SCALE) =>
        {
            Found::Filled { scale }
        }
        _ => Found::Odd {
            why: format!(
                "{} with {scale} branches and accounts up to {} are not what pgbench -i makes",
                present.join(", "),
                number("pgbench_accounts").unwrap_or(0)
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|value| (*value).to_owned()).collect()).collect()
    }

    fn sample(superuser: &str, limit: &str) -> Inspection {
        Inspection::read(&rows(&[
            &["setting", "max_connections", "100"],
            &["setting", "superuser_reserved_connections", "3"],
            &["setting", "reserved_connections", "2"],
            &["fact", "others", "5"],
            &["fact", "superuser", superuser],
            &["fact", "limit", "-1"],
            &["fact", "limit", limit],
            &["fact", "version", "18.6"],
            &["odd"],
        ]))
    }

    #[test]
    fn room_is_what_is_left_for_this_role() {
        assert_eq!(sample("false", "-1").room(), Some(90));
        assert_eq!(sample("true", "-1").room(), Some(95));
        assert_eq!(sample("false", "20").room(), Some(20));
        assert_eq!(Inspection::default().room(), None);
    }

    #[test]
    fn a_shortage_is_said_with_its_reasons() {
        let found = sample("false", "-1");
        assert_eq!(found.shortage(90), None);
        let said = found.shortage(150).unwrap();
        assert!(
            said.contains("150 connections")
                && said.contains("room for 90")
                && said.contains("open already: 5"),
            "{said}"
        );
    }

    #[test]
    fn tables_are_judged_by_their_rows() {
        let whole = |branches: &str, accounts: &str, history: &str| {
            let counts = rows(&[
                &[TABLES[0], accounts],
                &[TABLES[1], branches],
                &[TABLES[2], branches],
                &[TABLES[3], history],
            ]);
            judge(&TABLES, &counts)
        };
        assert_eq!(whole("3", "300000", "0"), Found::Filled { scale: 3 });
        assert_eq!(whole("0", "0", "0"), Found::Empty);
        assert!(matches!(whole("3", "299999", "1"), Found::Odd { .. }));
        assert!(matches!(whole("0", "0", "1"), Found::Odd { .. }));
        let part = judge(&TABLES[..1], &rows(&[&[TABLES[0], "100000"]]));
        assert!(matches!(part, Found::Odd { .. }), "{part:?}");
    }
}
