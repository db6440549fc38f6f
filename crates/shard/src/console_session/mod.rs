//! The protocol state of a console client: its statements, its portals, and what it waits for.
//!
//! Owns the extended protocol's bookkeeping (PostgreSQL chapter 55.2.3) and its bounds. Never sends and never knows a
//! command.

pub(crate) mod answer;

use std::collections::{BTreeMap, VecDeque};

use messages::{Cell, ReplyPart, Role};
use wire::bind::bind_rest;
use wire::frontend::Found;
use wire::{frontend, sqlstate};

use crate::console_session::answer::{Formats, parameter};

/// The most bytes that statements and portals may hold together.
const KEPT_BYTES: usize = 4 * 1024 * 1024;

/// A prepared statement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statement {
    pub(crate) sql: String,
    types: Vec<u32>,
}

/// A statement with values.
#[derive(Clone, Debug)]
pub(crate) struct Portal {
    pub(crate) sql: String,
    pub(crate) values: Values,
    pub(crate) formats: Formats,
    /// What it gave and has not been fetched; None until it was run.
    pub(crate) left: Option<RemainingRows>,
}

/// What a portal has left.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemainingRows {
    pub(crate) rows: VecDeque<Vec<Cell>>,
    /// What ends it.
    pub(crate) end: Option<ReplyPart>,
}

/// Which answer is awaited from the control thread.
#[derive(Clone, Debug, Default)]
pub(crate) enum PendingStatement {
    #[default]
    Nothing,
    /// To a simple query.
    Simple,
    /// To Describe: the types that the client gave a statement's parameters (None for a portal), and formats.
    Description(Option<Vec<u32>>, Formats),
    /// To Execute of this portal, with its limit.
    Execution(Vec<u8>, u32),
}

/// A console client's session.
pub(crate) struct ConsoleSession {
    pub(crate) role: Role,
    pub(crate) asked: PendingStatement,
    /// An error was sent; everything up to Sync is ignored.
    pub(crate) skipping: bool,
    statements: BTreeMap<Vec<u8>, Statement>,
    pub(crate) portals: BTreeMap<Vec<u8>, Portal>,
    kept_bytes: usize,
}

/// The values of a statement's parameters, as text.
pub(crate) type Values = Vec<Option<String>>;

/// Why a message is refused: SQLSTATE and text.
pub(crate) type Refused = (&'static str, String);

fn malformed() -> Refused {
    (sqlstate::PROTOCOL_VIOLATION, "invalid message format".to_owned())
}

fn no_statement(name: &[u8]) -> Refused {
    let text = format!("prepared statement \"{}\" does not exist", String::from_utf8_lossy(name));
    (sqlstate::UNDEFINED_PREPARED, text)
}

fn no_portal(name: &[u8]) -> Refused {
    (sqlstate::UNDEFINED_CURSOR, format!("portal \"{}\" does not exist", String::from_utf8_lossy(name)))
}

impl ConsoleSession {
    pub(crate) fn new(role: Role) -> ConsoleSession {
        ConsoleSession {
            role,
            asked: PendingStatement::Nothing,
            skipping: false,
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            kept_bytes: 0,
        }
    }

    /// It waits for an answer, or has prepared what it will ask for by name.
    pub(crate) fn has_state(&self) -> bool {
        let named = self.statements.keys().any(|name| !name.is_empty());
        !matches!(self.asked, PendingStatement::Nothing) || self.skipping || named || !self.portals.is_empty()
    }

    /// Parse.
    pub(crate) fn parse(&mut self, body: &[u8]) -> Result<(), Refused> {
        let Found::Yes((name, rest)) = frontend::parse_name(body) else { return Err(malformed()) };
        let rest = body.get(rest..).and_then(frontend::parse_rest);
        let (sql, types) = rest.ok_or_else(malformed)?;
        if !name.is_empty() && self.statements.contains_key(name) {
            let text = format!("prepared statement \"{}\" already exists", String::from_utf8_lossy(name));
            return Err((sqlstate::DUPLICATE_PREPARED, text));
        }
        self.keep(body.len())?;
        let statement = Statement { sql: String::from_utf8_lossy(sql).into_owned(), types: types.collect() };
        self.statements.insert(name.to_vec(), statement);
        self.recount();
        Ok(())
    }

    /// Bind.
    pub(crate) fn bind(&mut self, body: &[u8]) -> Result<(), Refused> {
        let Found::Yes((portal, name, rest)) = frontend::bind_names(body) else {
            return Err(malformed());
        };
        let bound = body.get(rest..).and_then(bind_rest).ok_or_else(malformed)?;
        let statement = self.statements.get(name).ok_or_else(|| no_statement(name))?.clone();
        let mut values = Vec::new();
        for (index, (value, binary)) in bound.values.iter().enumerate() {
            let type_oid = statement.types.get(index).copied().unwrap_or(0);
            let Some(value) = value else {
                values.push(None);
                continue;
            };
            let text = parameter(value, *binary, type_oid).ok_or_else(|| {
                let text = format!("binary parameter ${} has a type that is not understood", index + 1);
                (sqlstate::FEATURE_NOT_SUPPORTED, text)
            })?;
            values.push(Some(text));
        }
        self.keep(body.len() + statement.sql.len())?;
        let formats = Formats(bound.result_formats);
        self.portals.insert(portal.to_vec(), Portal { sql: statement.sql, values, formats, left: None });
        self.recount();
        Ok(())
    }

    /// Describe: what is to be asked, the statement's values (none for a statement itself) and how to answer.
    pub(crate) fn describe(
        &self,
        body: &[u8],
    ) -> Result<(String, Option<Values>, PendingStatement), Refused> {
        match frontend::target(body).complete() {
            Some((b'S', name)) => {
                let statement = self.statements.get(name).ok_or_else(|| no_statement(name))?;
                Ok((
                    statement.sql.clone(),
                    None,
                    PendingStatement::Description(Some(statement.types.clone()), Formats::default()),
                ))
            }
            Some((_, name)) => {
                let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
                let asked = PendingStatement::Description(None, portal.formats.clone());
                Ok((portal.sql.clone(), Some(portal.values.clone()), asked))
            }
            None => Err(malformed()),
        }
    }

    /// Execute: the portal's name and the limit of rows.
    pub(crate) fn execute(&self, body: &[u8]) -> Result<(Vec<u8>, u32), Refused> {
        let (name, limit) = frontend::execute(body).ok_or_else(malformed)?;
        let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
        if portal.left.as_ref().is_some_and(|left| left.end.is_none()) {
            let text = format!("portal \"{}\" cannot be run", String::from_utf8_lossy(name));
            return Err((sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, text));
        }
        Ok((name.to_vec(), limit))
    }

    /// Close; what is not there is closed already.
    pub(crate) fn close(&mut self, body: &[u8]) -> Result<(), Refused> {
        match frontend::target(body).complete() {
            Some((b'S', name)) => drop(self.statements.remove(name)),
            Some((_, name)) => drop(self.portals.remove(name)),
            None => return Err(malformed()),
        }
        self.recount();
        Ok(())
    }

    /// Sync (and a simple query) ends the transaction, and with it every portal.
    pub(crate) fn sync(&mut self) {
        self.skipping = false;
        self.portals.clear();
        self.recount();
    }

    /// Whether so much more may be kept.
    fn keep(&self, bytes: usize) -> Result<(), Refused> {
        if self.kept_bytes + bytes > KEPT_BYTES {
            return Err((sqlstate::PROGRAM_LIMIT, "too many prepared statements".to_owned()));
        }
        Ok(())
    }

    fn recount(&mut self) {
        let statements = self.statements.iter().map(|(name, statement)| name.len() + statement.sql.len());
        let portals = self.portals.iter().map(|(name, portal)| name.len() + portal.sql.len());
        self.kept_bytes = statements.chain(portals).sum();
    }
}

impl RemainingRows {
    /// The next rows, at most `limit` (0: all), and what ends them: the command's own end once all are out.
    pub(crate) fn fetch(&mut self, limit: u32) -> (Vec<Vec<Cell>>, Option<ReplyPart>) {
        let count = if limit == 0 { self.rows.len() } else { self.rows.len().min(limit as usize) };
        let rows = self.rows.drain(..count).collect();
        let end = if self.rows.is_empty() { self.end.take() } else { None };
        (rows, end)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn statements_are_bound_described_and_closed_by_name() {
        let mut session = ConsoleSession::new(Role::Admin);
        session.parse(b"s\0KILL_CLIENT $1\0\0\x01\0\0\0\x17").unwrap();
        assert_eq!(session.parse(b"s\0x\0\0\0").unwrap_err().0, "42P05");
        session.bind(b"p\0s\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x09\0\0").unwrap();
        assert_eq!(session.portals[&b"p"[..]].values, [Some("9".to_owned())]);
        assert!(
            matches!(session.describe(b"Ss\0"), Ok((_, None, PendingStatement::Description(Some(types), _))) if types == [23])
        );
        assert!(matches!(
            session.describe(b"Pp\0"),
            Ok((_, Some(_), PendingStatement::Description(None, _)))
        ));
        assert_eq!(session.execute(b"p\0\0\0\0\x05").unwrap(), (b"p".to_vec(), 5));
        session.sync();
        assert_eq!(session.execute(b"p\0\0\0\0\0").unwrap_err().0, "34000");
        session.close(b"Ss\0").unwrap();
        assert_eq!(session.bind(b"\0s\0\0\0\0\0\0\0").unwrap_err().0, "26000");
        assert_eq!(session.kept_bytes, 0);
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let mut session = ConsoleSession::new(Role::Stats);
        let sql = "x".repeat(1024 * 1024);
        let parse = |name: usize| format!("{name}\0{sql}\0\0\0").into_bytes();
        let refused = (0..9).find_map(|name| session.parse(&parse(name)).err());
        assert_eq!(refused.unwrap().0, "54000");
        for bad in [&b""[..], b"x", b"x\0", b"\0\0\0\0\0\0"] {
            assert_eq!(ConsoleSession::new(Role::Stats).bind(bad).unwrap_err().0, "08P01", "{bad:?}");
        }
    }

    #[test]
    fn rows_are_fetched_by_the_limit() {
        let rows = (0..5).map(|number| vec![Cell::Number(number)]).collect();
        let mut left = RemainingRows { rows, end: Some(ReplyPart::Complete("SHOW")) };
        assert!(matches!(left.fetch(2), (rows, None) if rows.len() == 2));
        assert!(matches!(left.fetch(0), (rows, Some(ReplyPart::Complete("SHOW"))) if rows.len() == 3));
    }
}
