//! The little SQL that the models speak: real PostgreSQL understands it too, so that the two can be compared.
//!
//! Every statement carries a [`Tag`] in a comment, a literal or a parameter, by which a row, an error or a notice says
//! whose it is. Never a full grammar: what is not known here is a syntax error.

use std::borrow::Cow;
use std::fmt;

use crate::cluster_sql::ClusterQuestion;
use crate::session_sql::SessionStatement;

/// What the pooler asks by `auth_query`, behind SELECT.
const LOOKUP: &str = "name, secret FROM users WHERE name = $1";

/// How the pooler's statement begins, behind SELECT, that says where the names in its question are looked up.
const LOOKUP_PATH: &str = "WHERE pg_catalog.set_config('search_path', ";

/// What names the moment that a constant stands for by the TimeZone in which it was parsed, behind SELECT.
const STAMP: &str = "$1 || ' ' || extract(epoch FROM timestamptz '2000-01-01')::bigint";

/// How a stream is asked for, before the place where it ends.
const STREAM: &str = "START_REPLICATION SLOT s LOGICAL 0/";

/// Whose request something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag {
    /// The client session's number; never used again in a run.
    pub(crate) client: u32,
    /// The session's request, counted from 1.
    pub(crate) request: u32,
}

impl fmt::Display for Tag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "c{}.{}", self.client, self.request)
    }
}

impl Tag {
    /// Reads `c3.17` at the beginning of something.
    pub(crate) fn at_start(text: &[u8]) -> Option<Tag> {
        let (client, rest) = number(text.strip_prefix(b"c")?)?;
        let (request, _) = number(rest.strip_prefix(b".")?)?;
        Some(Tag { client, request })
    }

    /// Finds the comment `/*c3.17*/`.
    pub(crate) fn in_comment(text: &[u8]) -> Option<Tag> {
        let is_start = |at: usize| text[at..].starts_with(b"/*c");
        let slashes = text.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
        let start = slashes.map(|(at, _)| at).find(|at| is_start(*at))?;
        Tag::at_start(&text[start + 2..])
    }

    /// Finds `[c3.17]`, as errors and notices carry it.
    pub(crate) fn in_brackets(text: &[u8]) -> Option<Tag> {
        let start = text.windows(2).rposition(|window| window == b"[c")?;
        Tag::at_start(&text[start + 1..])
    }
}

fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
    Some((value, &text[digits..]))
}

/// A value in a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// `'…'`.
    Literal(String),
    /// `$1`.
    Parameter,
    /// `NULL`.
    Null,
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Literal(text) => write!(formatter, "'{}'", text.replace('\'', "''")),
            Value::Parameter => formatter.write_str("$1"),
            Value::Null => formatter.write_str("NULL"),
        }
    }
}

/// One statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    /// Nothing at all.
    Empty,
    /// `BEGIN`.
    Begin,
    /// `BEGIN READ ONLY`.
    BeginReadOnly,
    /// `COMMIT`.
    Commit,
    /// `ROLLBACK`.
    Rollback,
    /// `SET name = 'value'`; without a value: `SET name TO DEFAULT`.
    Set(String, Option<String>),
    /// `RESET name`.
    Reset(String),
    /// `RESET ALL`.
    ResetAll,
    /// `RESET SESSION AUTHORIZATION` or `RESET ROLE`.
    ResetAuthorization,
    /// `SHOW name`.
    Show(String),
    /// `SELECT value FROM generate_series(1,rows)`; one row is written without FROM.
    Select(Value, u32),
    /// `SELECT value FROM pg_sleep(seconds)`, in microseconds here.
    Sleep(Value, u64),
    /// `SELECT 1/0`.
    DivideByZero,
    /// `SELECT name, secret FROM users WHERE name = $1`: the pooler's own question.
    Lookup,
    /// `SELECT WHERE pg_catalog.set_config('search_path', value, true) IS NULL`: what the pooler says before it.
    LookupPath,
    /// `SELECT $1 || ' ' || extract(epoch FROM timestamptz '2000-01-01')::bigint`; where it was parsed, with that moment.
    Stamp(Option<i64>),
    /// `SELECT 1` and other numbers.
    SelectNumber(u32),
    /// `INSERT INTO ledger VALUES (value)`; the column is NOT NULL.
    Insert(Value),
    /// `COPY ledger FROM STDIN`.
    CopyIn,
    /// `COPY (SELECT value FROM generate_series(1,rows)) TO STDOUT`.
    CopyOut(Value, u32),
    /// `START_REPLICATION SLOT s LOGICAL 0/messages`: that number of messages, unless the client ends the stream before. (A
    /// real WAL sender takes no comments.)
    Stream(u32),
    /// `DISCARD ALL`.
    DiscardAll,
    /// `DEALLOCATE ALL`.
    DeallocateAll,
    /// `DO 'BEGIN RAISE NOTICE ''value''; END'`.
    Notice(String),
    /// `SET LOCAL name = 'value'`.
    SetLocal(String, String),
    /// `SELECT set_config('name', 'value', local)`.
    SetConfig(String, String, bool),
    /// `SAVEPOINT name`.
    Savepoint(String),
    /// `ROLLBACK TO SAVEPOINT name`.
    RollbackTo(String),
    /// `RELEASE SAVEPOINT name`.
    Release(String),
    /// `PREPARE name AS statement`.
    Prepare(String, Box<Statement>),
    /// `EXECUTE name`.
    Execute(String),
    /// `DEALLOCATE name`.
    Deallocate(String),
    /// What Weir asks of a cluster's servers.
    Cluster(ClusterQuestion),
    /// What is about a session's state.
    Session(SessionStatement),
    /// Anything else.
    Unknown,
}

impl fmt::Display for Statement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Empty => Ok(()),
            Statement::Begin => formatter.write_str("BEGIN"),
            Statement::BeginReadOnly => formatter.write_str("BEGIN READ ONLY"),
            Statement::Commit => formatter.write_str("COMMIT"),
            Statement::Rollback => formatter.write_str("ROLLBACK"),
            Statement::Set(name, Some(value)) => write!(formatter, "SET {name} = '{value}'"),
            Statement::Set(name, None) => write!(formatter, "SET {name} TO DEFAULT"),
            Statement::Reset(name) => write!(formatter, "RESET {name}"),
            Statement::ResetAll => formatter.write_str("RESET ALL"),
            Statement::ResetAuthorization => formatter.write_str("RESET SESSION AUTHORIZATION"),
            Statement::Lookup => write!(formatter, "SELECT {LOOKUP}"),
            Statement::LookupPath => write!(formatter, "SELECT {LOOKUP_PATH}'pg_catalog', true) IS NULL"),
            Statement::Show(name) => write!(formatter, "SHOW {name}"),
            Statement::Select(value, 1) => write!(formatter, "SELECT {value}"),
            Statement::Select(value, rows) => {
                write!(formatter, "SELECT {value} FROM generate_series(1,{rows})")
            }
            Statement::Sleep(value, us) => {
                write!(formatter, "SELECT {value} FROM pg_sleep({})", *us as f64 / 1e6)
            }
            Statement::DivideByZero => formatter.write_str("SELECT 1/0"),
            Statement::Stamp(_) => write!(formatter, "SELECT {STAMP}"),
            Statement::SelectNumber(number) => write!(formatter, "SELECT {number}"),
            Statement::Insert(value) => write!(formatter, "INSERT INTO ledger VALUES ({value})"),
            Statement::CopyIn => formatter.write_str("COPY ledger FROM STDIN"),
            Statement::CopyOut(value, rows) => {
                write!(formatter, "COPY (SELECT {value} FROM generate_series(1,{rows})) TO STDOUT")
            }
            Statement::Stream(messages) => write!(formatter, "{STREAM}{messages:X}"),
            Statement::DiscardAll => formatter.write_str("DISCARD ALL"),
            Statement::DeallocateAll => formatter.write_str("DEALLOCATE ALL"),
            Statement::Notice(text) => write!(formatter, "DO 'BEGIN RAISE NOTICE ''{text}''; END'"),
            Statement::SetLocal(name, value) => write!(formatter, "SET LOCAL {name} = '{value}'"),
            Statement::SetConfig(name, value, local) => {
                write!(formatter, "SELECT set_config('{name}', '{value}', {local})")
            }
            Statement::Savepoint(name) => write!(formatter, "SAVEPOINT {name}"),
            Statement::RollbackTo(name) => write!(formatter, "ROLLBACK TO SAVEPOINT {name}"),
            Statement::Release(name) => write!(formatter, "RELEASE SAVEPOINT {name}"),
            Statement::Prepare(name, statement) => write!(formatter, "PREPARE {name} AS {statement}"),
            Statement::Execute(name) => write!(formatter, "EXECUTE {name}"),
            Statement::Deallocate(name) => write!(formatter, "DEALLOCATE {name}"),
            Statement::Cluster(question) => write!(formatter, "{question:?}"),
            Statement::Session(statement) => write!(formatter, "{statement}"),
            Statement::Unknown => formatter.write_str("SELEC"),
        }
    }
}

impl Statement {
    /// Reads one statement; comments must be gone.
    fn parse(text: &str) -> Statement {
        let text = text.trim();
        let mut words = text.split_ascii_whitespace();
        let verb = words.next().unwrap_or("").to_ascii_uppercase();
        let rest = text[verb.len().min(text.len())..].trim();
        let parsed = match verb.as_str() {
            "" => Some(Statement::Empty),
            "BEGIN" if rest == "READ ONLY" => Some(Statement::BeginReadOnly),
            "BEGIN" => Some(Statement::Begin),
            "COMMIT" => Some(Statement::Commit),
            "ROLLBACK" if rest.is_empty() => Some(Statement::Rollback),
            "ROLLBACK" => {
                rest.strip_prefix("TO SAVEPOINT ").map(|name| Statement::RollbackTo(name.to_owned()))
            }
            "SAVEPOINT" => Some(Statement::Savepoint(rest.to_owned())),
            "RELEASE" => rest.strip_prefix("SAVEPOINT ").map(|name| Statement::Release(name.to_owned())),
            "PREPARE" => parse_prepare(rest),
            "EXECUTE" => Some(Statement::Execute(rest.to_owned())),
            "SET" => parse_set(rest),
            "RESET" if rest.eq_ignore_ascii_case("all") => Some(Statement::ResetAll),
            "RESET" if matches!(rest, "SESSION AUTHORIZATION" | "session_authorization" | "ROLE") => {
                Some(Statement::ResetAuthorization)
            }
            "RESET" => Some(Statement::Reset(rest.replace('"', ""))),
            "SHOW" => Some(Statement::Show(rest.trim_matches('"').to_owned())),
            "SELECT" => parse_select(rest),
            "INSERT" => parse_insert(rest),
            "COPY" => parse_copy(rest),
            "START_REPLICATION" => parse_stream(text),
            "DISCARD" if rest.eq_ignore_ascii_case("all") => Some(Statement::DiscardAll),
            "DEALLOCATE" if rest.eq_ignore_ascii_case("all") => Some(Statement::DeallocateAll),
            "DEALLOCATE" => Some(Statement::Deallocate(rest.trim_matches('"').to_owned())),
            "DO" => parse_do(rest),
            _ => None,
        };
        let parsed = parsed.or_else(|| ClusterQuestion::parse(&verb, rest).map(Statement::Cluster));
        let about_session = || SessionStatement::parse(&verb, rest).map(Statement::Session);
        parsed.or_else(about_session).unwrap_or(Statement::Unknown)
    }

    /// Whether it ends a transaction, which is all that a failed one accepts.
    pub(crate) fn ends_transaction(&self) -> bool {
        matches!(self, Statement::Commit | Statement::Rollback | Statement::RollbackTo(_))
    }

    /// Whether it begins, ends or divides a transaction.
    pub(crate) fn is_about_transactions(&self) -> bool {
        use Statement::{Begin, BeginReadOnly, Release, Savepoint};
        self.ends_transaction() || matches!(self, Begin | BeginReadOnly | Savepoint(_) | Release(_))
    }

    /// Whether it has a result with columns.
    pub(crate) fn returns_rows(&self) -> bool {
        use Statement::{Cluster, DivideByZero, Lookup, Select, SelectNumber, SetConfig, Show, Sleep, Stamp};
        matches!(self, Statement::Session(statement) if statement.returns_rows())
            || matches!(
                self,
                Show(_)
                    | Cluster(_)
                    | Select(..)
                    | SetConfig(..)
                    | Sleep(..)
                    | DivideByZero
                    | Lookup
                    | SelectNumber(_)
                    | Stamp(_)
            )
    }

    /// How many rows, or messages of a stream, it returns.
    pub(crate) fn rows(&self) -> u32 {
        match self {
            Statement::Select(_, rows) | Statement::CopyOut(_, rows) | Statement::Stream(rows) => *rows,
            _ => u32::from(self.returns_rows()),
        }
    }

    /// How many columns its rows have.
    pub(crate) fn columns(&self) -> u16 {
        match self {
            Statement::Lookup => 2,
            Statement::Cluster(question) => question.columns(),
            Statement::Session(statement) => statement.columns(),
            _ => 1,
        }
    }

    /// Whether it has the parameter `$1`.
    pub(crate) fn has_parameter(&self) -> bool {
        use Statement::{Insert, Lookup, Select, Sleep, Stamp};
        let asks =
            matches!(self, Select(Value::Parameter, _) | Sleep(Value::Parameter, _) | Lookup | Stamp(_));
        asks || matches!(self, Insert(Value::Parameter))
    }
}

/// The seconds at which 2000 began, by the clocks of a TimeZone that clients use.
pub(crate) fn stamp(time_zone: &str) -> i64 {
    let hours = match time_zone {
        "Europe/Vienna" => 1,
        "Asia/Tokyo" => 9,
        _ => 0,
    };
    946_684_800 - hours * 3600
}

/// Cuts a text at its semicolons and reads each statement. Like PostgreSQL, empty ones are dropped; none at all gives
/// an empty list.
pub(crate) fn parse(text: &[u8]) -> Vec<Statement> {
    let text = readable(text);
    let bare = without_comments(&text);
    let mut statements = Vec::new();
    let (mut start, mut quoted) = (0, false);
    for (at, byte) in bare.bytes().enumerate() {
        match byte {
            b'\'' => quoted = !quoted,
            b';' if !quoted => {
                statements.push(Statement::parse(&bare[start..at]));
                start = at + 1;
            }
            _ => (),
        }
    }
    statements.push(Statement::parse(&bare[start..]));
    statements.retain(|statement| *statement != Statement::Empty);
    statements
}

/// What is no UTF-8 is replaced. Texts are long and hardly ever have any, which is found out faster by itself.
pub(crate) fn readable(text: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(text).map_or_else(|_| String::from_utf8_lossy(text), Cow::Borrowed)
}

fn without_comments(text: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        bare.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    bare.push_str(rest);
    bare
}

fn parse_prepare(rest: &str) -> Option<Statement> {
    let (name, inner) = rest.split_once(" AS ")?;
    Some(Statement::Prepare(name.to_owned(), Box::new(Statement::parse(inner))))
}

fn parse_set_config(rest: &str) -> Option<Statement> {
    let mut arguments = rest.strip_prefix("set_config(")?.strip_suffix(')')?.split("', ");
    let (name, value, local) = (arguments.next()?, arguments.next()?, arguments.next()?);
    let bare = |text: &str| text.trim_start_matches('\'').to_owned();
    Some(Statement::SetConfig(bare(name), bare(value), local == "true"))
}

fn parse_set(rest: &str) -> Option<Statement> {
    if let Some(rest) = rest.strip_prefix("LOCAL ") {
        return match parse_set(rest)? {
            Statement::Set(name, Some(value)) => Some(Statement::SetLocal(name, value)),
            _ => None,
        };
    }
    let rest = rest.strip_prefix("SESSION ").unwrap_or(rest);
    let name_end = rest.find(|letter: char| letter == '=' || letter.is_ascii_whitespace())?;
    let name = rest[..name_end].trim_matches('"').to_owned();
    let value = rest[name_end..].trim_start();
    let value = value
        .strip_prefix('=')
        .or_else(|| value.strip_prefix("TO "))
        .or_else(|| value.strip_prefix("to "))?;
    let value = value.trim();
    if value.eq_ignore_ascii_case("default") {
        return Some(Statement::Set(name, None));
    }
    let bare = literal(value).unwrap_or_else(|| value.to_owned());
    Some(Statement::Set(name, Some(bare)))
}

fn parse_select(rest: &str) -> Option<Statement> {
    if rest.starts_with("set_config(") {
        return parse_set_config(rest);
    }
    if rest == LOOKUP {
        return Some(Statement::Lookup);
    }
    if rest == STAMP {
        return Some(Statement::Stamp(None));
    }
    if rest.starts_with(LOOKUP_PATH) {
        return Some(Statement::LookupPath);
    }
    if rest == "1/0" {
        return Some(Statement::DivideByZero);
    }
    if let Ok(number) = rest.parse() {
        return Some(Statement::SelectNumber(number));
    }
    let (value, from) = rest.split_once(" FROM ").unwrap_or((rest, ""));
    let value = parse_value(value)?;
    if from.is_empty() {
        return Some(Statement::Select(value, 1));
    }
    if let Some(seconds) = from.strip_prefix("pg_sleep(").and_then(|rest| rest.strip_suffix(')')) {
        let span = std::time::Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
        return Some(Statement::Sleep(value, u64::try_from(span.as_micros()).ok()?));
    }
    Some(Statement::Select(value, series(from)?))
}

fn series(from: &str) -> Option<u32> {
    from.strip_prefix("generate_series(1,")?.strip_suffix(')')?.parse().ok()
}

fn parse_insert(rest: &str) -> Option<Statement> {
    let value = rest.strip_prefix("INTO ledger VALUES (")?.strip_suffix(')')?;
    Some(Statement::Insert(if value == "NULL" { Value::Null } else { parse_value(value)? }))
}

fn parse_copy(rest: &str) -> Option<Statement> {
    if rest == "ledger FROM STDIN" {
        return Some(Statement::CopyIn);
    }
    let inner = rest.strip_prefix("(SELECT ")?.strip_suffix(") TO STDOUT")?;
    let (value, from) = inner.split_once(" FROM ")?;
    Some(Statement::CopyOut(parse_value(value)?, series(from)?))
}

fn parse_stream(text: &str) -> Option<Statement> {
    u32::from_str_radix(text.strip_prefix(STREAM)?, 16).ok().map(Statement::Stream)
}

fn parse_do(rest: &str) -> Option<Statement> {
    let body = literal(rest)?;
    let text = body.strip_prefix("BEGIN RAISE NOTICE '")?.strip_suffix("'; END")?;
    Some(Statement::Notice(text.to_owned()))
}

fn parse_value(text: &str) -> Option<Value> {
    if text == "$1" { Some(Value::Parameter) } else { literal(text).map(Value::Literal) }
}

fn literal(text: &str) -> Option<String> {
    let inner = text.strip_prefix('\'')?.strip_suffix('\'')?;
    Some(inner.replace("''", "'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let literal = || Value::Literal("c3.17".to_owned());
        let statements = [
            Statement::Begin,
            Statement::BeginReadOnly,
            Statement::Commit,
            Statement::Rollback,
            Statement::Set("TimeZone".to_owned(), Some("Asia/Tokyo".to_owned())),
            Statement::Set("TimeZone".to_owned(), None),
            Statement::Reset("TimeZone".to_owned()),
            Statement::ResetAll,
            Statement::ResetAuthorization,
            Statement::Lookup,
            Statement::LookupPath,
            Statement::Show("DateStyle".to_owned()),
            Statement::Select(literal(), 1),
            Statement::Select(Value::Parameter, 12),
            Statement::Sleep(literal(), 20_000),
            Statement::DivideByZero,
            Statement::SelectNumber(2),
            Statement::Stamp(None),
            Statement::Insert(literal()),
            Statement::Insert(Value::Null),
            Statement::CopyIn,
            Statement::CopyOut(literal(), 3),
            Statement::Stream(300),
            Statement::DiscardAll,
            Statement::DeallocateAll,
            Statement::Notice("c1.2".to_owned()),
            Statement::SetLocal("DateStyle".to_owned(), "SQL, DMY".to_owned()),
            Statement::SetConfig("DateStyle".to_owned(), "SQL, DMY".to_owned(), true),
            Statement::Savepoint("a".to_owned()),
            Statement::RollbackTo("a".to_owned()),
            Statement::Release("a".to_owned()),
            Statement::Prepare("q0".to_owned(), Box::new(Statement::SelectNumber(7))),
            Statement::Execute("q0".to_owned()),
            Statement::Deallocate("q0".to_owned()),
            Statement::Unknown,
        ];
        for statement in statements {
            let text = format!("{statement} /*c3.17*/");
            assert_eq!(parse(text.as_bytes()), [statement], "{text}");
            assert_eq!(Tag::in_comment(text.as_bytes()), Some(Tag { client: 3, request: 17 }));
        }
    }

    #[test]
    fn several_statements_and_none() {
        assert_eq!(parse(b"BEGIN; COMMIT;"), [Statement::Begin, Statement::Commit]);
        assert_eq!(parse(b" ; /*c1.1*/"), []);
    }

    #[test]
    fn settings_are_read_in_every_spelling() {
        let expected = Statement::Set("application_name".to_owned(), Some("it's".to_owned()));
        for text in [
            "SET application_name='it''s'",
            "SET application_name TO 'it''s'",
            "SET SESSION application_name = 'it''s'",
        ] {
            assert_eq!(parse(text.as_bytes()), std::slice::from_ref(&expected), "{text}");
        }
    }

    #[test]
    fn tags_are_found() {
        let tag = Tag { client: 12, request: 3 };
        assert_eq!(Tag::at_start(b"c12.3|rest"), Some(tag));
        assert_eq!(Tag::in_brackets(b"division by zero [c12.3]"), Some(tag));
        assert_eq!(Tag::at_start(b"12.3"), None);
        assert_eq!(Tag::in_comment(b"SET a=1"), None);
    }
}
