//! The extended protocol's own messages: Parse, Bind, Describe, Execute, Close (protocol chapter, "Extended Query").
//!
//! Checks stand in PostgreSQL's order, because a pooler's client is promised PostgreSQL's own error.

use std::sync::Arc;

use super::reply;
use super::session::{Progress, Session, SessionContext, Status, Work};
use super::statement::{IN_FAILED, Running};
use crate::protocol::{Fields, RequestEnd, message};
use crate::sql::{self, Statement, Tag};

/// A prepared statement.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(super) statement: Statement,
    /// Whose text it is; None for a text that several share.
    tag: Option<Tag>,
    /// The transaction in which it was last parsed or bound: that holds a lock, and no DDL gets by.
    locked_in: u64,
    /// DDL has changed its result.
    spoilt: bool,
    /// As the catalog shows it.
    text: Arc<str>,
    /// PREPARE made it.
    is_of_sql: bool,
    /// It had a result when it was parsed; what EXECUTE names may be another one since.
    has_result: bool,
}

/// A portal.
#[derive(Clone, Debug)]
pub(crate) struct Portal {
    pub(super) statement: Statement,
    pub(super) tag: Option<Tag>,
    pub(super) parameter: Option<Vec<u8>>,
    /// Rows that earlier executions have sent.
    pub(super) sent: u32,
    /// It is run, and cannot be again.
    pub(super) done: bool,
    /// How many savepoints there were when it was made.
    pub(super) level: usize,
    pub(super) text: Arc<str>,
    /// It had a result when it was made, likewise.
    pub(super) has_result: bool,
}

/// Why a message is refused: SQLSTATE, words, whose it was.
type Refusal = (&'static str, &'static str, Option<Tag>);

const UNREADABLE: Refusal = ("08P01", "invalid message format", None);
const NO_STATEMENT: Refusal = ("26000", "prepared statement does not exist", None);
const NO_PORTAL: Refusal = ("34000", "portal does not exist", None);

impl Session {
    /// What becomes of this Query, FunctionCall or Sync, which comes now.
    pub(super) fn end_of_request(&self, kind: u8) -> RequestEnd {
        if self.is_copying_in() || self.is_streaming() {
            let is_simple = self.work.as_ref().is_some_and(|work| work.simple);
            RequestEnd::Ignored { awaits_sync: !is_simple }
        } else if self.skipping && kind != b'S' {
            RequestEnd::Ignored { awaits_sync: true }
        } else {
            RequestEnd::Answered
        }
    }

    pub(super) fn parse(&mut self, body: &[u8], near: &mut SessionContext<'_>) {
        match self.try_parse(body) {
            Ok(()) => self.say(b'1', near),
            Err((sqlstate, words, tag)) => self.fail(sqlstate, words, tag, near),
        }
    }

    pub(super) fn bind(&mut self, body: &[u8], near: &mut SessionContext<'_>) {
        self.suffer_ddl(body, near);
        match self.try_bind(body) {
            Ok(()) => self.say(b'2', near),
            Err((sqlstate, words, tag)) => self.fail(sqlstate, words, tag, near),
        }
    }

    pub(super) fn describe(&mut self, body: &[u8], near: &mut SessionContext<'_>) {
        self.chatter(near);
        if let Err((sqlstate, words, tag)) = self.try_describe(body) {
            self.fail(sqlstate, words, tag, near);
        }
    }

    pub(super) fn execute(&mut self, body: &[u8], near: &mut SessionContext<'_>) -> Progress {
        let mut fields = Fields(body);
        let (Some(name), Some(limit)) = (fields.text(), fields.long()) else {
            self.fail(UNREADABLE.0, UNREADABLE.1, None, near);
            return Progress::Waiting;
        };
        let Some(portal) = self.portals.get(name) else {
            self.fail(NO_PORTAL.0, NO_PORTAL.1, None, near);
            return Progress::Waiting;
        };
        if portal.statement == Statement::Empty {
            self.say(b'I', near);
            return Progress::Waiting;
        }
        if portal.done && (self.status != Status::Failed || portal.statement.ends_transaction()) {
            self.fail("55000", "portal cannot be run", portal.tag, near);
            return Progress::Waiting;
        }
        let running = Running::of_portal(name, portal, limit);
        let tag = running.tag;
        let (rest, text) = ([].into(), portal.text.clone());
        self.work = Some(Work { rest, running: None, simple: false, several: false, tag, text });
        self.start(running, near)
    }

    pub(super) fn close(&mut self, body: &[u8], near: &mut SessionContext<'_>) {
        if let Some((kind, name)) = kind_and_name(body) {
            if kind == b'S' {
                self.statements.remove(name);
            } else {
                self.portals.remove(name);
            }
        }
        self.say(b'3', near);
    }

    /// DDL, or another client's DEALLOCATE, may have come since the statement was used last.
    fn suffer_ddl(&mut self, bind: &[u8], near: &mut SessionContext<'_>) {
        let mut fields = Fields(bind);
        let (Some(_), Some(name)) = (fields.text(), fields.text()) else { return };
        let now = self.transactions;
        let Some(prepared) = self.statements.get_mut(name) else { return };
        if name.is_empty() || prepared.locked_in == now || !near.prng.chance(near.servers.ddl_per_million) {
            return;
        }
        if near.prng.chance(700_000) {
            prepared.spoilt = true;
        } else {
            self.statements.remove(name);
        }
    }

    fn say(&mut self, kind: u8, near: &mut SessionContext<'_>) {
        self.chatter(near);
        reply::bare(&mut self.out, kind);
    }

    fn try_parse(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let mut fields = Fields(body);
        let name = fields.text().ok_or(UNREADABLE)?;
        let text = fields.text().ok_or(UNREADABLE)?;
        let tag = Tag::in_comment(text);
        if name.is_empty() {
            self.statements.remove(name);
        }
        let mut found = sql::parse(text);
        if found.len() > 1 {
            return Err(("42601", "cannot insert multiple commands into a prepared statement", tag));
        }
        let mut statement = found.pop().unwrap_or(Statement::Empty);
        self.read_constants(&mut statement);
        if statement == Statement::Unknown {
            return Err(("42601", "syntax error at or near \"SELEC\"", tag));
        }
        if self.is_barred(&statement) && statement != Statement::Empty {
            return Err(("25P02", IN_FAILED, tag));
        }
        if !name.is_empty() && self.statements.contains_key(name) {
            return Err(("42P05", "prepared statement already exists", tag));
        }
        let (locked_in, has_result) = (self.transactions, self.has_result(&statement));
        let text = sql::readable(text).into();
        let made = Prepared { statement, tag, locked_in, spoilt: false, text, is_of_sql: false, has_result };
        self.statements.insert(name.to_vec(), made);
        Ok(())
    }

    /// A constant stands for what it means by the settings under which it is parsed.
    pub(super) fn read_constants(&self, statement: &mut Statement) {
        if let Statement::Stamp(moment) = statement {
            *moment = self.parameters.value("TimeZone").map(sql::stamp);
        }
    }

    /// Whether a statement returns rows; EXECUTE does if what it names does now.
    fn has_result(&self, statement: &Statement) -> bool {
        match statement {
            Statement::Execute(name) => {
                self.statements.get(name.as_bytes()).is_some_and(|named| named.statement.returns_rows())
            }
            statement => statement.returns_rows(),
        }
    }

    fn try_bind(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let mut fields = Fields(body);
        let portal = fields.text().ok_or(UNREADABLE)?;
        let name = fields.text().ok_or(UNREADABLE)?;
        let formats = fields.short().ok_or(UNREADABLE)?;
        fields.bytes(usize::from(formats) * 2).ok_or(UNREADABLE)?;
        let parameters = fields.short().ok_or(UNREADABLE)?;
        let values: Option<Vec<&[u8]>> = (0..parameters).map(|_| fields.value()).collect();
        let parameter = values.ok_or(UNREADABLE)?.first().map(|value| value.to_vec());
        let own = parameter.as_deref().and_then(Tag::at_start);
        let prepared = self.statements.get(name).ok_or(("26000", NO_STATEMENT.1, own))?.clone();
        let tag = own.or(prepared.tag);
        if u16::from(prepared.statement.has_parameter()) != parameters {
            return Err(("08P01", "bind message supplies another number of parameters", tag));
        }
        if self.is_barred(&prepared.statement) {
            return Err(("25P02", IN_FAILED, tag));
        }
        if !portal.is_empty() && self.portals.contains_key(portal) {
            return Err(("42P03", "cursor already exists", tag));
        }
        if prepared.spoilt {
            return Err(("0A000", "cached plan must not change result type", tag));
        }
        if prepared.statement == Statement::DivideByZero {
            return Err(("22012", "division by zero", tag));
        }
        if let Some(prepared) = self.statements.get_mut(name) {
            prepared.locked_in = self.transactions;
        }
        let made = Portal {
            has_result: self.has_result(&prepared.statement),
            text: prepared.text,
            statement: prepared.statement,
            tag,
            parameter,
            sent: 0,
            done: false,
            level: self.savepoints.len(),
        };
        self.portals.insert(portal.to_vec(), made);
        Ok(())
    }

    fn try_describe(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let (kind, name) = kind_and_name(body).ok_or(UNREADABLE)?;
        let (statement, has_result, tag) = if kind == b'S' {
            let prepared = self.statements.get(name).ok_or(NO_STATEMENT)?;
            (prepared.statement.clone(), prepared.has_result, prepared.tag)
        } else {
            let portal = self.portals.get(name).ok_or(NO_PORTAL)?;
            (portal.statement.clone(), portal.has_result, portal.tag)
        };
        if self.status == Status::Failed && has_result {
            return Err(("25P02", IN_FAILED, tag));
        }
        if kind == b'S' {
            message(&mut self.out, b't', |body| {
                let count = u16::from(statement.has_parameter());
                body.extend_from_slice(&count.to_be_bytes());
                body.extend_from_slice(&25_u32.to_be_bytes()[..4 * usize::from(count)]);
            });
        }
        if has_result {
            reply::description(&mut self.out, statement.columns());
        } else {
            reply::bare(&mut self.out, b'n');
        }
        Ok(())
    }

    /// Whether a failed transaction refuses it (Parse of nothing is let through, Bind of nothing is not).
    fn is_barred(&self, statement: &Statement) -> bool {
        self.status == Status::Failed && !statement.ends_transaction()
    }
}

impl Portal {
    /// One that can never be run.
    pub(super) fn failed(statement: Statement, tag: Option<Tag>, level: usize) -> Portal {
        let (text, has_result) = ("".into(), statement.returns_rows());
        Portal { statement, tag, parameter: None, sent: 0, done: true, level, text, has_result }
    }
}

impl Prepared {
    /// What PREPARE makes, of this text.
    pub(super) fn by_sql(statement: Statement, text: Arc<str>, locked_in: u64) -> Prepared {
        let has_result = statement.returns_rows();
        Prepared { statement, tag: None, locked_in, spoilt: false, text, is_of_sql: true, has_result }
    }

    /// Whether PREPARE made it.
    pub(super) fn is_of_sql(&self) -> bool {
        self.is_of_sql
    }

    /// As the catalog shows it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

fn kind_and_name(body: &[u8]) -> Option<(u8, &[u8])> {
    let mut fields = Fields(body);
    let kind = *fields.bytes(1)?.first()?;
    Some((kind, fields.text()?))
}
