//! Statements under way: what each does, in slices, so that a cancel or a full pipe can come in between.
//!
//! Never decides whose turn it is: `session.rs` does.

use super::cluster_answers::READ_ONLY;
use super::extended::{Portal, Prepared};
use super::reply;
use super::session::{Progress, Session, SessionContext, Status};
use super::stream::Stream;
use crate::session_sql::SessionStatement;
use crate::sql::{Statement, Tag, Value};

/// Users whose names begin so cannot be looked up: the server has an error instead.
pub(crate) const UNREADABLE: &str = "unreadable";

/// A parameter that does not exist.
const NO_SUCH_PARAMETER: (&str, &str) = ("42704", "unrecognized configuration parameter");

/// Rows that are sent before the session looks up.
const SLICE_ROWS: u32 = 64;

/// A statement under way.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(super) statement: Statement,
    /// Whose it is.
    pub(super) tag: Option<Tag>,
    /// The value of `$1`.
    pub(super) parameter: Option<Vec<u8>>,
    /// Rows already sent in earlier executions of the same portal and in this one.
    pub(super) sent: u32,
    /// Rows sent in this execution.
    counted: u32,
    /// The most rows for this execution; 0 is no limit.
    limit: u32,
    /// The portal it belongs to, if it is the extended protocol's.
    portal: Option<Vec<u8>>,
    /// CopyInResponse has gone out.
    copying: bool,
    /// CopyBothResponse has gone out.
    pub(super) stream: Option<Stream>,
}

impl Running {
    /// A statement of a simple query.
    pub(super) fn new(statement: Statement, tag: Option<Tag>) -> Running {
        Running {
            statement,
            tag,
            parameter: None,
            sent: 0,
            counted: 0,
            limit: 0,
            portal: None,
            copying: false,
            stream: None,
        }
    }

    /// A portal's statement, of which this many rows were sent before.
    pub(super) fn of_portal(name: &[u8], portal: &Portal, limit: u32) -> Running {
        Running {
            parameter: portal.parameter.clone(),
            sent: portal.sent,
            limit,
            portal: Some(name.to_vec()),
            ..Running::new(portal.statement.clone(), portal.tag)
        }
    }

    /// Whether it waits for CopyData.
    pub(super) fn is_copying_in(&self) -> bool {
        self.copying
    }

    fn is_simple(&self) -> bool {
        self.portal.is_none()
    }
}

impl Session {
    /// Begins a statement: the checks that come before it runs, then the time it takes.
    pub(super) fn start(&mut self, running: Running, near: &mut SessionContext<'_>) -> Progress {
        near.ledger.statements += 1;
        self.note_client(running.tag, near);
        let (statement, tag) = (&running.statement, running.tag);
        if self.status == Status::Failed && !statement.ends_transaction() {
            return self.refuse("25P02", IN_FAILED, tag, near);
        }
        self.judge_on_standby(statement, tag, near);
        if statement.writes() && self.refuses_writes(near) {
            return self.refuse(READ_ONLY.0, READ_ONLY.1, tag, near);
        }
        self.sequences.note_statement(statement);
        if *statement == Statement::DivideByZero {
            return self.refuse("22012", "division by zero", tag, near);
        }
        if near.prng.chance(near.servers.chatter_per_million) && tag.is_some() {
            self.notice("NOTICE", "00000", "at work", tag);
        }
        if matches!(statement, Statement::Execute(_)) {
            return self.start_executed(running, near);
        }
        self.begin(running, near)
    }

    /// It runs from here on.
    fn begin(&mut self, running: Running, near: &mut SessionContext<'_>) -> Progress {
        let (statement, tag) = (&running.statement, running.tag);
        if running.is_simple() {
            // A query's statements run in the portal without a name, too; of one that fails in a block it is left.
            let failed = Portal::failed(statement.clone(), tag, self.savepoints.len());
            self.portals.insert(Vec::new(), failed);
        }
        if running.is_simple() && statement.returns_rows() && !matches!(statement, Statement::Show(_)) {
            reply::description(&mut self.out, statement.columns());
        }
        let slept = match statement {
            Statement::Sleep(_, us) => *us,
            Statement::Lookup => near.prng.below(near.servers.lookup_us),
            _ => 0,
        };
        let busy = slept + near.prng.below(near.servers.work_us);
        if let Some(work) = &mut self.work {
            work.running = Some(running);
        }
        if busy == 0 { Progress::Again } else { Progress::Busy(busy) }
    }

    /// Goes on with the statement under way.
    pub(super) fn run(&mut self, near: &mut SessionContext<'_>) -> Progress {
        let Some(running) = self.work.as_mut().and_then(|work| work.running.as_mut()) else {
            return Progress::Waiting;
        };
        match &running.statement {
            Statement::CopyIn => {
                running.copying = true;
                reply::copy_begins(&mut self.out, b'G');
                self.flush();
                return Progress::Waiting;
            }
            Statement::Stream(_) => {
                running.stream = Some(Stream::default());
                reply::stream_begins(&mut self.out);
                self.flush();
                return Progress::Waiting;
            }
            Statement::CopyOut(value, rows) => {
                let line = format!("{}\n", told(value, running.tag));
                let rows = *rows;
                self.copy_out(&line, rows, near);
                return Progress::Again;
            }
            Statement::Lookup => {
                let name = running.parameter.clone().unwrap_or_default();
                self.look_up(&name, near);
                return Progress::Again;
            }
            Statement::Session(SessionStatement::Question(question)) => {
                let question = question.clone();
                self.answer_question(&question, near);
                return Progress::Again;
            }
            Statement::Cluster(question) => {
                let question = *question;
                self.answer_cluster(question, near);
                return Progress::Again;
            }
            Statement::Session(SessionStatement::Relations) => {
                self.name_changing_relations(near);
                return Progress::Again;
            }
            statement
                if statement.returns_rows()
                    && !(running.is_simple() && matches!(statement, Statement::Show(_))) =>
            {
                return self.rows(near);
            }
            _ => (),
        }
        let (statement, tag) = (running.statement.clone(), running.tag);
        let parameter = running.parameter.clone();
        self.chatter(near);
        match self.command(&statement, tag, parameter.as_deref(), near) {
            Ok(word) => self.done(&word),
            Err((sqlstate, words)) => self.fail(sqlstate, words, tag, near),
        }
        Progress::Again
    }

    /// Everybody is known. What a client set must not be in force while the pooler asks.
    fn look_up(&mut self, name: &[u8], near: &mut SessionContext<'_>) {
        if !self.parameters.are_initial() {
            near.strange
                .push(("I1", "a question of the pooler's was asked under a client's parameters".to_owned()));
        }
        if !std::mem::take(&mut self.has_lookup_path) {
            near.strange
                .push(("I1", "a question of the pooler's was asked under a client's search_path".to_owned()));
        }
        if name.starts_with(UNREADABLE.as_bytes()) {
            return self.fail("XX001", "could not read block 7 of users", None, near);
        }
        let known = name.starts_with(crate::setup::USER.as_bytes());
        if known {
            reply::row(&mut self.out, &[name, near.servers.secret.as_bytes()]);
        }
        self.chatter(near);
        self.done(&format!("SELECT {}", u8::from(known)));
    }

    /// A message while COPY FROM STDIN waits for data.
    pub(super) fn copy_message(&mut self, kind: u8, body: &[u8], near: &mut SessionContext<'_>) -> Progress {
        let Some(running) = self.work.as_mut().and_then(|work| work.running.as_mut()) else {
            return Progress::Waiting;
        };
        let tag = running.tag;
        if kind == b'X' {
            return Progress::Ended;
        }
        if self.cancelled {
            self.cancelled = false;
            self.fail("57014", "canceling statement due to user request", tag, near);
            return Progress::Waiting;
        }
        match kind {
            b'd' => {
                for line in body.split_inclusive(|byte| *byte == b'\n') {
                    if line == b"\\N\n" {
                        self.fail("23502", "null value in column \"tag\"", tag, near);
                        return Progress::Waiting;
                    }
                    running.counted += 1;
                    if tag.is_some() && Tag::at_start(line).map(|of| of.client) != tag.map(|tag| tag.client) {
                        near.strange
                            .push(("I1", format!("a row for another COPY came into that of {tag:?}")));
                    }
                }
            }
            b'c' => {
                self.pending.extend(tag);
                let word = format!("COPY {}", running.counted);
                self.done(&word);
                return Progress::Again;
            }
            b'f' => self.fail("57014", "COPY from stdin failed: no more", tag, near),
            b'H' | b'S' => (),
            other => {
                let words = format!("unexpected message type 0x{other:02X} during COPY from stdin");
                reply::report(&mut self.out, b'E', "ERROR", "08P01", &words, tag);
                let words = "terminating connection because protocol synchronization was lost";
                return self.end_fatally("08P01", words);
            }
        }
        Progress::Waiting
    }

    fn refuse(
        &mut self,
        sqlstate: &'static str,
        words: &str,
        tag: Option<Tag>,
        near: &mut SessionContext<'_>,
    ) -> Progress {
        self.fail(sqlstate, words, tag, near);
        Progress::Waiting
    }

    /// Sends up to [`SLICE_ROWS`] rows.
    fn rows(&mut self, near: &mut SessionContext<'_>) -> Progress {
        let evaluated = match self.evaluate_first() {
            Ok(evaluated) => evaluated,
            Err((sqlstate, words)) => {
                let running = self.work.as_ref().and_then(|work| work.running.as_ref());
                self.fail(sqlstate, words, running.and_then(|running| running.tag), near);
                return Progress::Again;
            }
        };
        let Some(running) = self.work.as_mut().and_then(|work| work.running.as_mut()) else {
            return Progress::Waiting;
        };
        if running.sent == 0 && running.statement.reads_table() && near.replica.is_some() {
            near.reads.extend(running.tag);
        }
        let value = match &running.statement {
            Statement::Select(value, _) | Statement::Sleep(value, _) => match value {
                Value::Parameter => {
                    String::from_utf8_lossy(running.parameter.as_deref().unwrap_or(b"")).into_owned()
                }
                other => told(other, running.tag),
            },
            Statement::SelectNumber(number) => number.to_string(),
            Statement::SetConfig(_, value, _) => value.clone(),
            Statement::Show(name) => self.parameters.value(name).unwrap_or_default().to_owned(),
            Statement::Stamp(moment) => {
                let parameter = String::from_utf8_lossy(running.parameter.as_deref().unwrap_or(b""));
                format!("{parameter} {}", moment.unwrap_or_default())
            }
            _ => evaluated.unwrap_or_default(),
        };
        if let Statement::SetConfig(..) = running.statement
            && running.sent == 0
        {
            self.parameters.run(&running.statement);
        }
        let (application_name, time_zone) = self.parameters.in_rows();
        let text = match running.tag {
            Some(_) if matches!(running.statement, Statement::SetConfig(..) | Statement::Show(_)) => value,
            Some(_) => format!("{value}|{}|{application_name}|{time_zone}", self.number),
            None => value,
        };
        for _ in 0..SLICE_ROWS {
            let exhausted = running.sent == running.statement.rows();
            let limited = running.limit != 0 && running.counted == running.limit;
            if limited {
                self.suspend(near);
                return Progress::Again;
            }
            if exhausted {
                let shows = matches!(running.statement, Statement::Show(_));
                let word = if shows { "SHOW".to_owned() } else { format!("SELECT {}", running.counted) };
                self.chatter(near);
                self.done(&word);
                return Progress::Again;
            }
            running.sent += 1;
            running.counted += 1;
            reply::row(&mut self.out, &[text.as_bytes()]);
        }
        Progress::Again
    }

    fn copy_out(&mut self, line: &str, rows: u32, near: &mut SessionContext<'_>) {
        reply::copy_begins(&mut self.out, b'H');
        for _ in 0..rows {
            crate::protocol::message(&mut self.out, b'd', |body| body.extend_from_slice(line.as_bytes()));
        }
        self.chatter(near);
        reply::bare(&mut self.out, b'c');
        self.done(&format!("COPY {rows}"));
    }

    /// PortalSuspended: the rest of the rows waits for the next Execute.
    fn suspend(&mut self, near: &mut SessionContext<'_>) {
        self.chatter(near);
        reply::bare(&mut self.out, b's');
        let Some(running) = self.work.take().and_then(|work| work.running) else { return };
        self.pipelined = true;
        if let Some(portal) = running.portal.as_ref().and_then(|name| self.portals.get_mut(name)) {
            portal.sent = running.sent;
        }
    }

    /// CommandComplete; the statement is over.
    pub(super) fn done(&mut self, word: &str) {
        reply::complete(&mut self.out, word);
        let Some(work) = &mut self.work else { return };
        let running = work.running.take();
        self.pipelined |= running
            .as_ref()
            .is_some_and(|running| running.portal.is_some() && !running.statement.is_about_transactions());
        let portal = running.as_ref().and_then(|running| running.portal.as_ref());
        if running.as_ref().is_some_and(Running::is_simple) {
            self.portals.remove(&b""[..]);
        }
        if let Some(portal) = portal.and_then(|name| self.portals.get_mut(name)) {
            portal.sent = portal.statement.rows();
            portal.done = !portal.statement.returns_rows();
        }
        if !work.simple {
            self.work = None;
        }
    }

    /// Statements that answer with a tag and no rows (and SHOW). Returns the tag.
    fn command(
        &mut self,
        statement: &Statement,
        tag: Option<Tag>,
        parameter: Option<&[u8]>,
        near: &mut SessionContext<'_>,
    ) -> Result<String, (&'static str, &'static str)> {
        let word = match statement {
            Statement::Begin => self.begin_block(false),
            Statement::BeginReadOnly => self.begin_block(true),
            Statement::Commit => self.commit(near),
            Statement::Rollback => self.roll_back(near),
            Statement::Insert(Value::Null) => return Err(("23502", "null value in column \"tag\"")),
            Statement::Insert(Value::Parameter) => {
                self.pending.extend(parameter.and_then(Tag::at_start));
                "INSERT 0 1"
            }
            Statement::Insert(_) => {
                self.pending.extend(tag);
                "INSERT 0 1"
            }
            Statement::Set(name, value) => {
                if !self.parameters.set(name, value.as_deref()) {
                    return Err(NO_SUCH_PARAMETER);
                }
                "SET"
            }
            Statement::Reset(name) => {
                if !self.parameters.set(name, None) {
                    return Err(NO_SUCH_PARAMETER);
                }
                "RESET"
            }
            Statement::ResetAuthorization => "RESET",
            Statement::ResetAll => {
                self.parameters.reset_all();
                "RESET"
            }
            Statement::Show(name) => {
                let Some(value) = self.parameters.value(name) else { return Err(NO_SUCH_PARAMETER) };
                let simple = self.work.as_ref().is_some_and(|work| work.simple);
                if simple {
                    reply::description(&mut self.out, 1);
                }
                reply::row(&mut self.out, &[value.as_bytes()]);
                "SHOW"
            }
            Statement::DiscardAll => self.discard_all()?,
            Statement::DeallocateAll => {
                self.statements.retain(|name, _| name.is_empty());
                "DEALLOCATE ALL"
            }
            Statement::LookupPath => {
                self.has_lookup_path = true;
                "SELECT 0"
            }
            Statement::Notice(text) => {
                self.notice("NOTICE", "00000", text, tag);
                "DO"
            }
            Statement::Execute(name) => {
                let named = self.statements.get(name.as_bytes());
                return Ok(format!("SELECT {}", named.map_or(0, |named| named.statement.rows())));
            }
            _ => self.block_command(statement, tag)?,
        };
        Ok(word.to_owned())
    }

    /// Commands that differ within a transaction block, and those about statements by SQL.
    fn block_command(
        &mut self,
        statement: &Statement,
        tag: Option<Tag>,
    ) -> Result<&'static str, (&'static str, &'static str)> {
        Ok(match statement {
            Statement::SetLocal(name, value) => {
                if self.status == Status::Idle && !self.implicit && !self.is_among_others() {
                    self.warn("25P01", "SET LOCAL can only be used in transaction blocks");
                }
                if !self.parameters.set_local(name, value) {
                    return Err(NO_SUCH_PARAMETER);
                }
                "SET"
            }
            Statement::Savepoint(name) => self.savepoint(name)?,
            Statement::RollbackTo(name) => self.roll_back_to(name)?,
            Statement::Release(name) => self.release(name)?,
            Statement::Session(statement) => self.run_session_command(statement, tag)?,
            Statement::Prepare(name, statement) => self.prepare_by_sql(name, statement)?,
            Statement::Deallocate(name) => {
                if self.statements.remove(name.as_bytes()).is_none() {
                    return Err(("26000", "prepared statement does not exist"));
                }
                "DEALLOCATE"
            }
            _ => "",
        })
    }

    fn begin_block(&mut self, is_read_only: bool) -> &'static str {
        self.is_read_only |= is_read_only;
        if self.status == Status::Open {
            self.warn("25001", "there is already a transaction in progress");
        }
        self.status = Status::Open;
        "BEGIN"
    }

    fn commit(&mut self, near: &mut SessionContext<'_>) -> &'static str {
        let well = self.status != Status::Failed;
        if self.status == Status::Idle {
            self.warn("25P01", "there is no transaction in progress");
        }
        self.end_transaction(well, near);
        if well { "COMMIT" } else { "ROLLBACK" }
    }

    fn roll_back(&mut self, near: &mut SessionContext<'_>) -> &'static str {
        if self.status == Status::Idle {
            self.warn("25P01", "there is no transaction in progress");
        }
        self.end_transaction(false, near);
        "ROLLBACK"
    }

    /// One of several statements of a query, which are a block of their own.
    fn is_among_others(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.simple && work.several)
    }

    fn prepare_by_sql(
        &mut self,
        name: &str,
        statement: &Statement,
    ) -> Result<&'static str, (&'static str, &'static str)> {
        if self.statements.contains_key(name.as_bytes()) {
            return Err(("42P05", "prepared statement already exists"));
        }
        let text = self.work.as_ref().map_or_else(|| "".into(), |work| work.text.clone());
        let mut statement = statement.clone();
        self.read_constants(&mut statement);
        let prepared = Prepared::by_sql(statement, text, self.transactions);
        self.statements.insert(name.as_bytes().to_vec(), prepared);
        Ok("PREPARE")
    }

    /// EXECUTE: as what the name stands for.
    fn start_executed(&mut self, mut running: Running, near: &mut SessionContext<'_>) -> Progress {
        let Statement::Execute(name) = &running.statement else { return Progress::Again };
        let Some(prepared) = self.statements.get(name.as_bytes()) else {
            return self.refuse("26000", "prepared statement does not exist", running.tag, near);
        };
        if prepared.statement.has_parameter() {
            return self.refuse("42601", "wrong number of parameters", running.tag, near);
        }
        let statement = prepared.statement.clone();
        // A portal that had no result when it was made runs it, and shows none of its rows.
        if let Some(portal) = running.portal.as_ref().and_then(|name| self.portals.get_mut(name)) {
            if !portal.has_result {
                return self.begin(running, near);
            }
            portal.statement.clone_from(&statement);
        }
        running.statement = statement;
        self.begin(running, near)
    }

    fn discard_all(&mut self) -> Result<&'static str, (&'static str, &'static str)> {
        if self.status != Status::Idle || self.is_among_others() || self.pipelined {
            return Err(("25001", "DISCARD ALL cannot run inside a transaction block"));
        }
        self.parameters.reset_all();
        self.statements.clear();
        self.portals.clear();
        self.holdings.discard();
        self.sequences.discard();
        Ok("DISCARD ALL")
    }

    fn warn(&mut self, sqlstate: &'static str, words: &str) {
        self.notice("WARNING", sqlstate, words, None);
    }
}

/// PostgreSQL's words for anything but the end of a failed transaction.
pub(super) const IN_FAILED: &str =
    "current transaction is aborted, commands ignored until end of transaction block";

/// What a value is told as in a row; a tagged statement's own literal is its tag.
fn told(value: &Value, tag: Option<Tag>) -> String {
    match (value, tag) {
        (Value::Literal(text), _) => text.clone(),
        (_, Some(tag)) => tag.to_string(),
        _ => String::new(),
    }
}
