//! Weir's own queries on servers for the panel: a server's properties, and EXPLAIN of a statement without values and without
//! running it. Each goes through one of the server's pools, in that pool's queue like a client.
//! Owns the texts of the queries and the parsing of their rows. Never sends ANALYZE.

use std::collections::BTreeSet;

use messages::{Command, RequestId, ServerQuery, ServerQueryResult, ServerQueryRow, ShardId};

use crate::interface::{ExplainRequest, Output};
use crate::machine::Control;
use crate::pools::ServerInfo;

/// The most databases, and the most roles.
const MAX_NAMES: usize = 10_000;

/// A row for each database that lets clients in, and for each role that may log in.
const SERVER_QUERY: &str = "(SELECT pg_catalog.current_setting('max_connections'), \
    pg_catalog.current_setting('superuser_reserved_connections'), \
    coalesce(pg_catalog.current_setting('reserved_connections', true), '0'), \
    pg_catalog.current_setting('server_version'), datname, NULL \
    FROM pg_catalog.pg_database WHERE datallowconn AND NOT datistemplate ORDER BY datname LIMIT 10000) UNION ALL \
    (SELECT NULL, NULL, NULL, NULL, NULL, rolname FROM pg_catalog.pg_roles WHERE rolcanlogin LIMIT 10000)";

impl Control {
    /// Queries a server through the pool of an entry and a user. A shard forwards it to the one that has the pool.
    pub(crate) fn query_server(&mut self, id: u64, database: String, user: String) {
        if self.is_ending() || self.hands_over || self.config.database(&database).is_none() {
            return self.push(Output::ServerReply { id, facts: None });
        }
        let query = Box::new(ServerQuery {
            database,
            user,
            sql: SERVER_QUERY.to_owned(),
            values: Vec::new(),
            simple: false,
        });
        let command = Command::RunServerQuery { request: RequestId(id), query };
        self.push(Output::Tell { shard: ShardId(0), command });
    }

    /// That request was abandoned.
    pub(crate) fn cancel_server_query(&mut self, id: u64) {
        self.explains.remove(&id);
        self.broadcast(&Command::WithdrawServerQuery { request: RequestId(id) });
    }

    /// The result of a query, or None.
    pub(crate) fn server_answered(&mut self, id: u64, answer: &ServerQueryResult) {
        if self.explains.remove(&id) {
            return self.explained(id, answer);
        }
        let facts = match answer {
            ServerQueryResult::Rows(rows) => read(rows),
            ServerQueryResult::Failed { .. } => None,
        };
        self.push(Output::ServerReply { id, facts });
    }

    /// Explains a statement on a server through the pool of an entry and a user; [`Output::Explained`] answers.
    pub(crate) fn explain(&mut self, request: ExplainRequest) {
        let ExplainRequest { id, database, user, statement, generic } = request;
        if self.is_ending() || self.hands_over || self.config.database(&database).is_none() {
            let outcome = Err("the pool cannot be asked now".to_owned());
            return self.push(Output::Explained { id, outcome });
        }
        if statement.contains(';') {
            let outcome = Err("the text may be more than one statement".to_owned());
            return self.push(Output::Explained { id, outcome });
        }
        // Options stand in parentheses: ANALYZE as the first word of the statement is a syntax error behind them.
        let options = if generic { "GENERIC_PLAN" } else { "COSTS" };
        let sql = format!("EXPLAIN ({options}) {statement}");
        self.explains.insert(id);
        let query = Box::new(ServerQuery { database, user, sql, values: Vec::new(), simple: true });
        let command = Command::RunServerQuery { request: RequestId(id), query };
        self.push(Output::Tell { shard: ShardId(0), command });
    }

    /// A server has answered, or there is no answer.
    pub(crate) fn explained(&mut self, id: u64, answer: &ServerQueryResult) {
        let line = |row: &ServerQueryRow| {
            let text = row.first().and_then(Option::as_deref).unwrap_or_default();
            String::from_utf8_lossy(text).into_owned()
        };
        let outcome = match answer {
            ServerQueryResult::Rows(rows) => Ok(rows.iter().map(line).collect()),
            ServerQueryResult::Failed { text, .. } => Err(text.clone()),
        };
        self.push(Output::Explained { id, outcome });
    }
}

fn read(rows: &[ServerQueryRow]) -> Option<ServerInfo> {
    let text = |row: &ServerQueryRow, column: usize| {
        row.get(column)?.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    let first = rows.iter().find(|row| text(row, 0).is_some())?;
    let number = |column| text(first, column)?.parse::<u32>().ok();
    let users: BTreeSet<String> = rows.iter().filter_map(|row| text(row, 5)).collect();
    Some(ServerInfo {
        max_connections: number(0)?,
        reserved: number(1)?.saturating_add(number(2)?),
        version: text(first, 3)?,
        databases: rows.iter().filter_map(|row| text(row, 4)).collect(),
        users: if users.len() < MAX_NAMES { users } else { BTreeSet::new() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: [&str; 5]) -> ServerQueryRow {
        cells.iter().map(|cell| Some(cell.as_bytes().to_vec())).collect()
    }

    #[test]
    fn rows_are_read_or_say_nothing() {
        let mut role = vec![None; 5];
        role.push(Some(b"ann".to_vec()));
        let rows = [
            role,
            row(["100", "3", "2", "18.6 (Debian)", "app"]),
            row(["100", "3", "2", "18.6 (Debian)", "x"]),
        ];
        let facts = read(&rows).unwrap_or_default();
        assert_eq!((facts.max_connections, facts.reserved, facts.databases.len()), (100, 5, 2));
        assert_eq!(facts.users, BTreeSet::from(["ann".to_owned()]));
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[row(["many", "3", "2", "18", "app"])]), None);
        assert_eq!(read(&[vec![None]]), None);
    }
}
