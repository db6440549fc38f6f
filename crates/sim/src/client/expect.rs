//! What a client must be answered: the oldest unanswered request first, message by message (I1).
//!
//! Derived from the protocol chapter and the transaction's state alone; the corpus test holds the same rules against a
//! real PostgreSQL.

use std::collections::VecDeque;

use super::stream::Stream;
use super::view::View;
use crate::model::session::Status;
use crate::protocol::Fields;
use crate::sql::{Statement, Tag};

/// Which message a step answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One statement of a Query.
    Query,
    /// Parse.
    Parse,
    /// Bind.
    Bind,
    /// Describe of a statement.
    DescribeStatement,
    /// Describe of a portal.
    DescribePortal,
    /// Execute.
    Execute,
    /// Close.
    Close,
}

/// What a client sends into COPY FROM STDIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filling {
    /// This many rows.
    Rows(u32),
    /// This many rows, of which the middle one is refused: what follows comes too late.
    BadRow(u32),
    /// CopyFail.
    Failure,
}

/// The answer to one message.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Which message.
    pub(crate) kind: Kind,
    /// The statement it concerns.
    pub(crate) statement: Statement,
    /// The request.
    pub(crate) tag: Tag,
    /// The request that prepared the statement, if it was another one.
    pub(crate) prepared_by: Tag,
    /// The name that Parse gives.
    pub(crate) name: Option<String>,
    /// The most rows of an Execute; 0 is no limit.
    pub(crate) limit: u32,
    /// Rows that earlier executions of the portal have taken.
    pub(crate) taken: u32,
    /// What the client will send into COPY.
    pub(crate) filling: Filling,
    pub(super) begun: bool,
    /// Rows, or messages of a stream, that have come.
    pub(super) rows: u32,
    pub(super) stream: Stream,
}

/// What a message meant for a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// More must follow.
    More,
    /// The step is answered.
    Done,
    /// The server wants the rows of COPY.
    WantsRows,
    /// A stream runs both ways.
    Streams,
}

impl Step {
    /// A step without the rarer details.
    pub(crate) fn new(kind: Kind, statement: Statement, tag: Tag) -> Step {
        let prepared_by = tag;
        let (name, limit, taken, filling, begun, rows) = (None, 0, 0, Filling::Rows(0), false, 0);
        let stream = Stream::default();
        Step { kind, statement, tag, prepared_by, name, limit, taken, filling, begun, rows, stream }
    }

    /// Something of its answer has come.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun || self.rows > 0
    }

    /// Whether something with this tag may concern this step.
    pub(crate) fn is_of(&self, tag: Tag) -> bool {
        tag == self.tag || tag == self.prepared_by
    }

    /// The SQLSTATE that this step must be refused with, given the transaction's state.
    pub(crate) fn refusal(&self, status: Status) -> Option<&'static str> {
        let statement = &self.statement;
        // PostgreSQL lets Parse and Query of nothing through, but not Bind.
        let nothing = *statement == Statement::Empty && self.kind != Kind::Bind;
        let barred = status == Status::Failed && !statement.ends_transaction() && !nothing;
        match self.kind {
            Kind::Query | Kind::Parse if *statement == Statement::Unknown => Some("42601"),
            Kind::Close => None,
            Kind::DescribeStatement | Kind::DescribePortal => {
                (status == Status::Failed && statement.returns_rows()).then_some("25P02")
            }
            _ if barred => Some("25P02"),
            Kind::Query | Kind::Bind if *statement == Statement::DivideByZero => Some("22012"),
            Kind::Query | Kind::Execute => match statement {
                Statement::Insert(crate::sql::Value::Null) => Some("23502"),
                _ => None,
            },
            Kind::Parse | Kind::Bind => None,
        }
    }

    /// Whether a cancel may hit it.
    pub(crate) fn is_cancellable(&self) -> bool {
        matches!(self.kind, Kind::Query | Kind::Execute)
    }

    /// A message came (no error, nothing asynchronous): what it means, or why it is wrong.
    pub(crate) fn accept(&mut self, kind: u8, body: &[u8], view: &View) -> Result<Verdict, String> {
        // PgBouncer, too, answers the Parse of a statement that its server has already, whatever the transaction's state.
        let known = self.kind == Kind::Parse && self.name.is_some() && kind == b'1';
        if let Some(sqlstate) = self.refusal(view.status).filter(|sqlstate| *sqlstate != "25P02" || !known) {
            return Err(self.wrong(kind, &format!("an error {sqlstate}")));
        }
        match self.kind {
            Kind::Parse => self.only(kind, b'1'),
            Kind::Bind => self.only(kind, b'2'),
            Kind::Close => self.only(kind, b'3'),
            Kind::DescribeStatement if !self.begun => {
                self.begun = true;
                self.only(kind, b't').map(|_| Verdict::More)
            }
            Kind::DescribeStatement | Kind::DescribePortal => {
                self.only(kind, if self.statement.returns_rows() { b'T' } else { b'n' })
            }
            Kind::Query if !self.begun && self.statement.returns_rows() => {
                self.begun = true;
                self.only(kind, b'T').map(|_| Verdict::More)
            }
            Kind::Query if matches!(self.statement, Statement::Stream(_)) => self.accept_stream(kind, body),
            Kind::Query | Kind::Execute => self.accept_result(kind, body, view),
        }
    }

    fn accept_result(&mut self, kind: u8, body: &[u8], view: &View) -> Result<Verdict, String> {
        let copies_out = matches!(self.statement, Statement::CopyOut(..));
        match kind {
            b'I' if self.statement == Statement::Empty => Ok(Verdict::Done),
            b'G' if self.statement == Statement::CopyIn && !self.begun => {
                self.begun = true;
                Ok(Verdict::WantsRows)
            }
            b'H' if copies_out && !self.begun => {
                self.begun = true;
                Ok(Verdict::More)
            }
            b'd' if copies_out && self.begun => {
                self.rows += 1;
                if Tag::at_start(body) == Some(self.tag) {
                    Ok(Verdict::More)
                } else {
                    Err(self.wrong(kind, "its own row"))
                }
            }
            b'c' if copies_out && self.rows == self.statement.rows() => Ok(Verdict::More),
            b'D' if self.statement.returns_rows() => {
                self.rows += 1;
                let mut fields = Fields(body);
                fields.short();
                view.judge_row(&self.statement, self.tag, fields.value().unwrap_or(b""))?;
                if self.rows > self.due() {
                    Err(format!("{} got more than {} rows", self.tag, self.due()))
                } else {
                    Ok(Verdict::More)
                }
            }
            b's' if self.kind == Kind::Execute && self.limit != 0 && self.rows == self.limit => {
                Ok(Verdict::Done)
            }
            b'C' => {
                let word = self.word(view.status);
                let found = Fields(body).text().unwrap_or(b"");
                if found == word.as_bytes() { Ok(Verdict::Done) } else { Err(self.wrong(kind, &word)) }
            }
            _ => Err(self.wrong(kind, "its result")),
        }
    }

    /// Rows that this execution must give.
    fn due(&self) -> u32 {
        let left = self.statement.rows().saturating_sub(self.taken);
        if self.limit == 0 { left } else { left.min(self.limit) }
    }

    /// The text of CommandComplete.
    fn word(&self, status: Status) -> String {
        match &self.statement {
            Statement::Begin | Statement::BeginReadOnly => "BEGIN".to_owned(),
            Statement::Commit if status == Status::Failed => "ROLLBACK".to_owned(),
            Statement::Commit => "COMMIT".to_owned(),
            Statement::Rollback => "ROLLBACK".to_owned(),
            Statement::Set(..) => "SET".to_owned(),
            Statement::Reset(_) | Statement::ResetAll => "RESET".to_owned(),
            Statement::Show(_) => "SHOW".to_owned(),
            Statement::Insert(_) => "INSERT 0 1".to_owned(),
            Statement::CopyIn => match self.filling {
                Filling::Rows(rows) => format!("COPY {rows}"),
                Filling::BadRow(_) | Filling::Failure => "an error".to_owned(),
            },
            Statement::CopyOut(_, rows) => format!("COPY {rows}"),
            Statement::DiscardAll => "DISCARD ALL".to_owned(),
            Statement::DeallocateAll => "DEALLOCATE ALL".to_owned(),
            Statement::Notice(_) => "DO".to_owned(),
            _ => format!("SELECT {}", self.due()),
        }
    }

    fn only(&self, found: u8, wanted: u8) -> Result<Verdict, String> {
        if found == wanted {
            Ok(Verdict::Done)
        } else {
            Err(self.wrong(found, &format!("`{}`", char::from(wanted))))
        }
    }

    pub(super) fn wrong(&self, found: u8, wanted: &str) -> String {
        let Step { kind, statement, tag, .. } = self;
        format!("{tag} ({kind:?} of `{statement}`) got `{}` and waits for {wanted}", char::from(found))
    }
}

/// Messages that end with one ReadyForQuery.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    /// What is still to be answered.
    pub(crate) steps: VecDeque<Step>,
    /// Sync (or Query) was sent: ReadyForQuery will come.
    pub(crate) synced: bool,
    /// An error came: nothing but ReadyForQuery follows.
    pub(crate) failed: bool,
    /// A statement without a name goes before the one that has a name.
    pub(crate) led: bool,
    /// It holds something that only a server can answer.
    pub(crate) needs_server: bool,
    /// Commits or rolls back, as far as it was sent.
    pub(crate) ends_transaction: bool,
}
