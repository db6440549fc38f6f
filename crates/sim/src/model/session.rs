//! One logged-in session of the model server: what a message does to it and what it answers.
//!
//! Owns transaction state, what is skipped until Sync, and when output is flushed. Statements are run in
//! `statement.rs`, the extended protocol's own messages are in `extended.rs`. Never knows a connection or a clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::extended::{Portal, Prepared};
use super::holdings::{HeldBefore, Holdings};
use super::ledger::Ledger;
use super::parameters::{Parameters, Snapshot};
use super::replication::Replica;
use super::reply::{self, Sqlstate};
use super::sequences::Sequences;
use super::statement::{IN_FAILED, Running};
use crate::prng::Prng;
use crate::protocol::{Fields, RequestEnd, message, text};
use crate::sql::{self, Statement, Tag};
use crate::swarm::Servers;

/// The function that the model knows.
pub(crate) const INT4PL: u32 = 177;

/// What a session needs of the world while it works.
pub(crate) struct SessionContext<'a> {
    /// Chance.
    pub(crate) prng: &'a mut Prng,
    /// The table.
    pub(crate) ledger: &'a mut Ledger,
    /// How servers are.
    pub(crate) servers: &'a Servers,
    /// What must never happen and did.
    pub(crate) strange: &'a mut Vec<(&'static str, String)>,
    /// What transactions that have committed notify of: channels and payloads.
    pub(crate) notified: &'a mut Vec<(String, String)>,
    /// What its host is, if it is one of a cluster.
    pub(crate) replica: Option<Replica>,
    /// Requests that read the table now.
    pub(crate) reads: &'a mut Vec<Tag>,
}

/// What a session does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits for a message.
    Waiting,
    /// It works for this many microseconds and wants [`Session::work`] then.
    Busy(u64),
    /// It wants [`Session::work`] at once.
    Again,
    /// It ends.
    Ended,
}

/// A transaction's state, as ReadyForQuery tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// `I`.
    Idle,
    /// `T`.
    Open,
    /// `E`.
    Failed,
}

impl Status {
    /// The byte of ReadyForQuery.
    pub(crate) fn byte(self) -> u8 {
        match self {
            Status::Idle => b'I',
            Status::Open => b'T',
            Status::Failed => b'E',
        }
    }
}

/// What a session is in the middle of.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    /// Statements that follow; they are a simple query's.
    pub(super) rest: VecDeque<Statement>,
    /// The statement under way.
    pub(super) running: Option<Running>,
    /// Whether ReadyForQuery follows.
    pub(super) simple: bool,
    /// Whether it began with more than one statement.
    pub(super) several: bool,
    /// Whose it is.
    pub(super) tag: Option<Tag>,
    /// The text that the client has sent.
    pub(super) text: Arc<str>,
}

impl Work {
    /// A simple query's.
    fn new(rest: VecDeque<Statement>, tag: Option<Tag>, text: Arc<str>) -> Work {
        Work { several: rest.len() > 1, rest, running: None, simple: true, tag, text }
    }

    /// A FunctionCall's.
    fn of_function() -> Work {
        Work::new(VecDeque::new(), None, "".into())
    }
}

/// What a session is notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    /// The sender's.
    pub(crate) process_id: u32,
    pub(crate) channel: String,
    pub(crate) payload: String,
}

/// A savepoint.
#[derive(Clone, Debug)]
pub(super) struct Savepoint {
    pub(super) name: String,
    /// Rows of the transaction that came before it.
    pub(super) rows: usize,
    pub(super) parameters: Snapshot,
    pub(super) held: HeldBefore,
}

/// A session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The server process's number; never used again in a run.
    pub(super) number: u32,
    pub(super) status: Status,
    /// Transactions that have ended, implicit ones too.
    pub(super) transactions: u64,
    pub(super) parameters: Parameters,
    pub(super) statements: BTreeMap<Vec<u8>, Prepared>,
    pub(super) portals: BTreeMap<Vec<u8>, Portal>,
    /// An extended query failed: everything is ignored until Sync.
    pub(super) skipping: bool,
    /// The pooler has said in this transaction where names in its question are looked up.
    pub(super) has_lookup_path: bool,
    pub(super) work: Option<Work>,
    /// Rows of the open transaction.
    pub(super) pending: Vec<Tag>,
    pub(super) savepoints: Vec<Savepoint>,
    /// What only this session has.
    pub(super) holdings: Holdings,
    /// What `nextval` has left in it.
    pub(super) sequences: Sequences,
    /// Notifications that it has not delivered yet.
    inbox: VecDeque<Notification>,
    /// ReadyForQuery was the last that it said, and nothing was read behind it.
    is_at_rest: bool,
    /// The client whose statement came last.
    pub(super) used_by: Option<u32>,
    /// Statements of the extended protocol were executed since the last Sync.
    pub(super) pipelined: bool,
    /// PostgreSQL 18: commands behind those are in a block of their own until Sync.
    pub(super) implicit: bool,
    /// PostgreSQL 18: the last command of that block was a Query or FunctionCall. A Sync right behind it says idle and leaves
    /// the transaction open.
    paused: bool,
    /// PostgreSQL 18: it did; the next command fails for it.
    left_open: bool,
    /// What becomes of each Query, FunctionCall and Sync that was read.
    pub(crate) ends: VecDeque<RequestEnd>,
    /// A cancel came while COPY was waiting for data.
    pub(super) cancelled: bool,
    /// The transaction may not write.
    pub(super) is_read_only: bool,
    /// It has said that its server is in recovery.
    pub(super) reported_standby: bool,
    /// Answers; the first `flushed` bytes may be sent.
    pub(super) out: Vec<u8>,
    flushed: usize,
    has_flushed: bool,
}

impl Session {
    /// A session that has just logged in.
    pub(crate) fn new(number: u32, parameters: Parameters) -> Session {
        Session {
            number,
            status: Status::Idle,
            transactions: 0,
            parameters,
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            skipping: false,
            has_lookup_path: false,
            work: None,
            pending: Vec::new(),
            savepoints: Vec::new(),
            holdings: Holdings::default(),
            sequences: Sequences::default(),
            inbox: VecDeque::new(),
            is_at_rest: true,
            used_by: None,
            pipelined: false,
            implicit: false,
            paused: false,
            left_open: false,
            ends: VecDeque::new(),
            cancelled: false,
            is_read_only: false,
            reported_standby: false,
            out: Vec::new(),
            flushed: 0,
            has_flushed: false,
        }
    }

    /// Moves what may be sent to the end of `into`.
    pub(crate) fn take_output(&mut self, into: &mut VecDeque<u8>) {
        // A backend's own buffer holds 8 KiB; what does not fit goes out unasked.
        if self.out.len() > 8192 {
            self.flushed = self.out.len();
        }
        into.extend(self.out.drain(..self.flushed));
        self.flushed = 0;
    }

    /// Whether a message begins a command of a transaction, or goes on with one.
    fn begins_command(&self, kind: u8, body: &[u8]) -> bool {
        let mut fields = Fields(body);
        match kind {
            b'P' | b'D' | b'Q' | b'F' => true,
            b'B' => {
                fields.text();
                fields.text().is_some_and(|name| self.statements.contains_key(name))
            }
            b'E' => {
                let portal = fields.text().and_then(|name| self.portals.get(name));
                portal.is_some_and(|portal| portal.statement != Statement::Empty)
            }
            _ => false,
        }
    }

    /// Takes all that was said, and how many bytes of it may be sent, if anything was flushed since.
    pub(crate) fn take_all(&mut self) -> (Vec<u8>, Option<usize>) {
        let flushed = std::mem::take(&mut self.has_flushed).then_some(std::mem::take(&mut self.flushed));
        (std::mem::take(&mut self.out), flushed)
    }

    /// The parameters' values.
    pub(crate) fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Whether a transaction is open of which ReadyForQuery said that it is not.
    pub(crate) fn is_left_open(&self) -> bool {
        self.left_open
    }

    /// Whether a statement has this name.
    pub(crate) fn has_statement(&self, name: &[u8]) -> bool {
        self.statements.contains_key(name)
    }

    /// Whether a transaction block is open.
    pub(crate) fn is_in_block(&self) -> bool {
        self.status != Status::Idle
    }

    /// ReadyForQuery was the last that it said, outside of a transaction, and nothing was read behind it.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.is_at_rest
    }

    /// Whether a transaction has failed and is still open.
    pub(crate) fn has_failed(&self) -> bool {
        self.status == Status::Failed
    }

    /// A message came; only to be called while the session is [`Progress::Waiting`].
    pub(crate) fn message(&mut self, kind: u8, body: &[u8], near: &mut SessionContext<'_>) -> Progress {
        self.is_at_rest = false;
        if matches!(kind, b'Q' | b'F' | b'S') {
            self.ends.push_back(self.end_of_request(kind));
        }
        if self.is_copying_in() {
            return self.copy_message(kind, body, near);
        }
        self.sequences.note_message(kind);
        if !self.skipping && self.begins_command(kind, body) {
            self.implicit |= near.servers.modern && self.pipelined && self.status == Status::Idle;
            self.paused = false;
            if std::mem::take(&mut self.left_open) {
                let simple = matches!(kind, b'Q' | b'F');
                self.work = simple.then(Work::of_function);
                self.fail("XX000", "StartTransactionCommand: unexpected state STARTED", None, near);
                return Progress::Waiting;
            }
        }
        if self.is_streaming() {
            return self.stream_message(kind, body, near);
        }
        match kind {
            b'X' => return Progress::Ended,
            b'S' => self.sync(near),
            b'P' | b'B' | b'D' | b'E' | b'C' | b'H' | b'Q' | b'F' if self.skipping => (),
            b'Q' => return self.query(body, near),
            b'P' => self.parse(body, near),
            b'B' => self.bind(body, near),
            b'D' => self.describe(body, near),
            b'E' => return self.execute(body, near),
            b'C' => self.close(body, near),
            b'H' => self.flush(),
            b'F' => self.call_function(body, near),
            // Copy messages outside COPY are ignored: the COPY may have failed while they were on their way.
            b'd' | b'c' | b'f' => (),
            _ => return self.end_fatally("08P01", &format!("invalid frontend message type {kind}")),
        }
        Progress::Waiting
    }

    /// Goes on with a statement after [`Progress::Busy`] or [`Progress::Again`].
    pub(crate) fn work(&mut self, near: &mut SessionContext<'_>) -> Progress {
        let Some(work) = &mut self.work else { return Progress::Waiting };
        if work.running.is_some() {
            return self.run(near);
        }
        let (tag, next) = (work.tag, work.rest.pop_front());
        match next {
            Some(statement) => self.start(Running::new(statement, tag), near),
            None if work.simple => {
                let several = work.several;
                self.work = None;
                self.paused = self.implicit && !several;
                if !self.paused {
                    self.end_implicit(near);
                }
                self.ready(near);
                Progress::Waiting
            }
            None => {
                self.work = None;
                Progress::Waiting
            }
        }
    }

    /// A cancel request reached this session.
    pub(crate) fn cancel(&mut self, near: &mut SessionContext<'_>) -> bool {
        if self.is_copying_in() {
            self.cancelled = true;
            return false;
        }
        // After CommandComplete nothing is left that could be interrupted.
        let Some(work) = self.work.as_ref().filter(|work| work.running.is_some() || !work.rest.is_empty())
        else {
            return false;
        };
        let tag = work.running.as_ref().and_then(|running| running.tag).or(work.tag);
        self.fail("57014", "canceling statement due to user request", tag, near);
        true
    }

    /// The server ends this session with a last word.
    pub(crate) fn end_fatally(&mut self, sqlstate: Sqlstate, words: &str) -> Progress {
        reply::report(&mut self.out, b'E', "FATAL", sqlstate, words, None);
        self.flush();
        Progress::Ended
    }

    /// Whether a statement is under way that takes no message.
    pub(crate) fn is_working(&self) -> bool {
        self.work.is_some() && !self.is_copying_in() && !self.is_streaming()
    }

    pub(crate) fn is_copying_in(&self) -> bool {
        self.work.as_ref().and_then(|work| work.running.as_ref()).is_some_and(Running::is_copying_in)
    }

    fn query(&mut self, body: &[u8], near: &mut SessionContext<'_>) -> Progress {
        let text = Fields(body).text().unwrap_or(body);
        let tag = Tag::in_comment(text);
        self.statements.remove(&b""[..]);
        let rest: VecDeque<Statement> = sql::parse(text).into();
        let unknown = rest.contains(&Statement::Unknown);
        if rest.is_empty() {
            self.chatter(near);
            reply::bare(&mut self.out, b'I');
        }
        self.work = Some(Work::new(rest, tag, sql::readable(text).into()));
        if unknown {
            self.fail("42601", "syntax error at or near \"SELEC\"", tag, near);
            return Progress::Waiting;
        }
        Progress::Again
    }

    /// FunctionCall: the model knows int4pl(1, 2) alone.
    fn call_function(&mut self, body: &[u8], near: &mut SessionContext<'_>) {
        self.work = Some(Work::of_function());
        if self.status == Status::Failed {
            return self.fail("25P02", IN_FAILED, None, near);
        }
        if Fields(body).long() != Some(INT4PL) {
            return self.fail("42883", "function does not exist", None, near);
        }
        self.work = None;
        self.chatter(near);
        message(&mut self.out, b'V', |body| body.extend_from_slice(b"\0\0\0\x013"));
        self.paused = self.implicit;
        if !self.paused {
            self.end_implicit(near);
        }
        self.ready(near);
    }

    fn sync(&mut self, near: &mut SessionContext<'_>) {
        self.skipping = false;
        self.pipelined = false;
        self.has_lookup_path = false;
        if std::mem::take(&mut self.paused) {
            (self.implicit, self.left_open) = (false, true);
        } else if !self.left_open {
            self.end_implicit(near);
        }
        self.ready(near);
    }

    /// An error: the transaction fails, and the rest of the query or of the pipeline is not done.
    pub(super) fn fail(
        &mut self,
        sqlstate: Sqlstate,
        words: &str,
        tag: Option<Tag>,
        near: &mut SessionContext<'_>,
    ) {
        self.chatter(near);
        // Errors and notices are flushed at once (`send_message_to_frontend`).
        reply::report(&mut self.out, b'E', "ERROR", sqlstate, words, tag);
        self.flush();
        self.abort();
        match self.work.take() {
            Some(Work { simple: true, .. }) => self.ready(near),
            _ => self.skipping = true,
        }
    }

    /// What an error undoes. In a block savepoints and portals stay until that ends, and what was set is undone to where the
    /// innermost savepoint is.
    fn abort(&mut self) {
        if self.status == Status::Open {
            self.status = Status::Failed;
        }
        (self.pipelined, self.implicit, self.paused, self.left_open) = (false, false, false, false);
        if self.status == Status::Failed {
            let level = self.savepoints.len();
            self.portals
                .values_mut()
                .filter(|portal| portal.level >= level)
                .for_each(|portal| portal.done = true);
            return self.undo_to_savepoint();
        }
        self.pending.clear();
        self.portals.clear();
        self.parameters.roll_back();
        self.holdings.roll_back(true);
        self.sequences.end_transaction();
    }

    pub(super) fn undo_to_savepoint(&mut self) {
        match self.savepoints.last() {
            Some(savepoint) => {
                self.pending.truncate(savepoint.rows);
                self.parameters.restore(&savepoint.parameters);
                self.holdings.restore(&savepoint.held);
            }
            None => {
                self.pending.clear();
                self.parameters.roll_back();
                self.holdings.roll_back(false);
            }
        }
    }

    /// Ends the transaction: well, or with nothing done.
    pub(super) fn end_transaction(&mut self, well: bool, near: &mut SessionContext<'_>) {
        self.status = Status::Idle;
        self.is_read_only = false;
        self.savepoints.clear();
        (self.pipelined, self.implicit, self.paused, self.left_open) = (false, false, false, false);
        self.transactions += 1;
        near.ledger.transactions += 1;
        if well {
            near.ledger.commit(&mut self.pending);
            self.parameters.commit();
            self.holdings.commit();
            for (channel, payload) in self.holdings.take_notifications() {
                if self.listens_on(&channel) {
                    let process_id = 10_000 + self.number;
                    self.hear(Notification {
                        process_id,
                        channel: channel.clone(),
                        payload: payload.clone(),
                    });
                }
                near.notified.push((channel, payload));
            }
        }
        self.abort();
    }

    /// Statements outside a block commit when their query or their pipeline ends.
    fn end_implicit(&mut self, near: &mut SessionContext<'_>) {
        if self.status == Status::Idle {
            self.end_transaction(true, near);
        }
    }

    fn ready(&mut self, near: &mut SessionContext<'_>) {
        for (name, value) in self.parameters.report() {
            reply::parameter(&mut self.out, name, &value);
        }
        // A standby that is promoted says so with its next answer.
        let was_promoted = near.replica.is_some_and(|replica| !replica.is_standby);
        if was_promoted && std::mem::take(&mut self.reported_standby) {
            reply::parameter(&mut self.out, "in_hot_standby", "off");
        }
        self.chatter(near);
        let status = if self.implicit { Status::Open } else { self.status };
        let own = 10_000 + self.number;
        // Its own ones are there by now; those of others may be.
        if status == Status::Idle
            && !self.left_open
            && !self.inbox.is_empty()
            && (self.inbox.iter().any(|one| one.process_id == own) || near.prng.chance(500_000))
        {
            self.give_notifications();
        }
        self.is_at_rest = status == Status::Idle && !self.left_open;
        reply::ready(&mut self.out, status.byte());
        self.chatter(near);
        self.flush();
    }

    /// Whether transactions that are over listen on this channel.
    pub(crate) fn listens_on(&self, channel: &str) -> bool {
        self.holdings.channels().contains(channel)
    }

    /// The channels that it listens on.
    pub(crate) fn channels(&self) -> &BTreeSet<String> {
        self.holdings.channels()
    }

    /// A transaction has committed that notifies it.
    pub(crate) fn hear(&mut self, one: Notification) {
        self.inbox.push_back(one);
    }

    /// What it was notified of meanwhile is said, if it is idle. False if there is nothing.
    pub(crate) fn deliver(&mut self) -> bool {
        let delivers = self.is_at_rest && !self.inbox.is_empty();
        if delivers {
            self.give_notifications();
            self.flush();
        }
        delivers
    }

    fn give_notifications(&mut self) {
        while let Some(one) = self.inbox.pop_front() {
            if self.listens_on(&one.channel) {
                message(&mut self.out, b'A', |body| {
                    body.extend_from_slice(&one.process_id.to_be_bytes());
                    text(body, one.channel.as_bytes());
                    text(body, one.payload.as_bytes());
                });
            }
        }
    }

    pub(super) fn flush(&mut self) {
        self.flushed = self.out.len();
        self.has_flushed = true;
    }

    pub(super) fn notice(&mut self, severity: &str, sqlstate: Sqlstate, words: &str, tag: Option<Tag>) {
        reply::report(&mut self.out, b'N', severity, sqlstate, words, tag);
        self.flush();
    }

    /// Servers say things unasked, between any two messages.
    pub(super) fn chatter(&mut self, near: &mut SessionContext<'_>) {
        if !near.prng.chance(near.servers.chatter_per_million) {
            return;
        }
        if near.prng.chance(500_000) {
            self.notice("NOTICE", "00000", "the weather is fine", None);
        } else if near.replica.is_none() {
            let value = near.prng.pick(&["on", "off"]);
            reply::parameter(&mut self.out, "in_hot_standby", value);
        }
    }
}
