//! One connection to the model server: login, or a cancel request, then a session.
//!
//! Never touches the network: bytes come in by [`Backend::feed`] and wait in [`Backend::output`] to be taken.

use std::collections::VecDeque;

use super::parameters::Parameters;
use super::replication::Replica;
use super::reply;
use super::session::{Progress, Session, SessionContext};
use crate::network::End;
use crate::protocol::{Fields, Frames, Next, RequestEnd, message};

const PROTOCOL_3_0: u32 = 196_608;
const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

/// Why a server refuses every login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// It accepts logins.
    Open,
    /// It has just been started (57P03).
    Starting,
    /// It has as many sessions as it allows (53300).
    Full,
}

/// What a first packet asked for, beside logging in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Nothing that concerns other sessions.
    Nothing,
    /// To cancel what the session of this key does.
    Cancel {
        /// The session's process id.
        process_id: u32,
        /// Its secret.
        secret: u32,
    },
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Backend {
    /// Its end of the network.
    pub(crate) end: End,
    /// What waits to be written.
    pub(crate) output: VecDeque<u8>,
    /// It works until then and reads nothing.
    pub(crate) busy_until_us: Option<u64>,
    /// Process id and secret.
    pub(crate) key: (u32, u32),
    /// The place of its host in the cluster.
    pub(crate) place: usize,
    number: u32,
    frames: Frames,
    session: Option<Box<Session>>,
    database: String,
    ended: bool,
}

impl Backend {
    /// A connection that has just been accepted.
    pub(crate) fn new(number: u32, end: End, secret: u32, place: usize) -> Backend {
        Backend {
            end,
            output: VecDeque::new(),
            busy_until_us: None,
            key: (10_000 + number, secret),
            place,
            number,
            frames: Frames::default(),
            session: None,
            database: String::new(),
            ended: false,
        }
    }

    /// Bytes came.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.frames.push(bytes);
    }

    /// What becomes of each Query, FunctionCall and Sync that it has read since this was asked last.
    pub(crate) fn take_ends(&mut self) -> VecDeque<RequestEnd> {
        self.session.as_mut().map(|session| std::mem::take(&mut session.ends)).unwrap_or_default()
    }

    /// Whether it has logged in and not ended.
    pub(crate) fn is_session(&self) -> bool {
        self.session.is_some() && !self.ended
    }

    /// Whether its session holds what no other can be given.
    pub(crate) fn is_pinned(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_pinned()) && !self.ended
    }

    /// The session of this database, if it listens on this channel.
    pub(crate) fn listener(&mut self, database: &str, channel: &str) -> Option<&mut Session> {
        let session = self.session.as_deref_mut().filter(|_| !self.ended && self.database == database)?;
        session.listens_on(channel).then_some(session)
    }

    /// The database of its session.
    pub(crate) fn database(&self) -> &str {
        &self.database
    }

    /// The client whose statement came last.
    pub(crate) fn used_by(&self) -> Option<u32> {
        self.session.as_ref().and_then(|session| session.used_by)
    }

    /// No message waits: it says what it was notified of. False if there is nothing.
    pub(crate) fn deliver(&mut self) -> bool {
        let delivers = self.session.as_deref_mut().is_some_and(Session::deliver);
        self.collect();
        delivers
    }

    /// Whether nothing more comes from it than its output.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Goes on by one step: work, or one frame.
    pub(crate) fn step(&mut self, gate: Gate, near: &mut SessionContext<'_>) -> (Progress, Asked) {
        let mut body = Vec::new();
        let (progress, asked) = match &mut self.session {
            None => self.greet(gate, near),
            Some(session) if session.is_working() => (more(session.work(near)), Asked::Nothing),
            Some(session) => match self.frames.next(&mut body) {
                Next::Partial => return (Progress::Waiting, Asked::Nothing),
                Next::Malformed => (Progress::Ended, Asked::Nothing),
                Next::Frame(kind) => (more(session.message(kind, &body, near)), Asked::Nothing),
            },
        };
        self.collect();
        self.ended |= progress == Progress::Ended;
        (progress, asked)
    }

    /// No message waits: a stream says more of its own accord. How long until it does so again; None if there is none.
    pub(crate) fn stream_on(&mut self, near: &mut SessionContext<'_>) -> Option<u64> {
        let pause_us = self.session.as_mut()?.stream_on(near);
        self.collect();
        pause_us
    }

    /// A cancel request for it was processed. True if it is to be driven on.
    pub(crate) fn cancel(&mut self, near: &mut SessionContext<'_>) -> bool {
        let Some(session) = &mut self.session else { return false };
        let hit = session.cancel(near);
        if hit {
            self.busy_until_us = None;
            self.collect();
        }
        hit
    }

    /// The server ends it: with FATAL and this code, or (57P02) as when another process has crashed.
    pub(crate) fn terminate(&mut self, sqlstate: &'static str) {
        let Some(session) = &mut self.session else {
            self.ended = true;
            return;
        };
        if sqlstate == "57P02" {
            let words = "terminating connection because of crash of another server process";
            reply::report(&mut session.out, b'N', "WARNING", sqlstate, words, None);
            session.flush();
        } else {
            session.end_fatally(sqlstate, "terminating connection due to administrator command");
        }
        self.collect();
        self.ended = true;
        self.busy_until_us = None;
    }

    /// Its process is gone, and what it had not sent with it.
    pub(crate) fn kill(&mut self) {
        self.output.clear();
        self.ended = true;
        self.busy_until_us = None;
    }

    fn collect(&mut self) {
        if let Some(session) = &mut self.session {
            session.take_output(&mut self.output);
        }
    }

    fn greet(&mut self, gate: Gate, near: &mut SessionContext<'_>) -> (Progress, Asked) {
        let mut body = Vec::new();
        match self.frames.next_startup(&mut body) {
            Next::Partial => return (Progress::Waiting, Asked::Nothing),
            Next::Malformed => return (Progress::Ended, Asked::Nothing),
            Next::Frame(_) => (),
        }
        let mut fields = Fields(&body);
        match fields.long() {
            Some(SSL | GSS) => {
                self.output.push_back(b'N');
                (Progress::Again, Asked::Nothing)
            }
            Some(CANCEL) => {
                let asked = match (fields.long(), fields.long()) {
                    (Some(process_id), Some(secret)) => Asked::Cancel { process_id, secret },
                    _ => Asked::Nothing,
                };
                (Progress::Ended, asked)
            }
            Some(PROTOCOL_3_0) => (self.log_in(fields, gate, near), Asked::Nothing),
            _ => (Progress::Ended, Asked::Nothing),
        }
    }

    fn log_in(&mut self, fields: Fields<'_>, gate: Gate, near: &mut SessionContext<'_>) -> Progress {
        let mut database = String::new();
        let refusal = match (gate, asked_parameters(fields, &mut database)) {
            (Gate::Starting, _) => ("57P03", "the database system is starting up"),
            (Gate::Full, _) => ("53300", "sorry, too many clients already"),
            (Gate::Open, None) => ("42704", "unrecognized configuration parameter"),
            (Gate::Open, Some(parameters)) => {
                self.database = database;
                let mut session = Session::new(self.number, parameters);
                greeting(&mut session, self.key, near.replica);
                session.chatter(near);
                session.flush();
                self.session = Some(Box::new(session));
                return Progress::Again;
            }
        };
        let mut out = Vec::new();
        reply::report(&mut out, b'E', "FATAL", refusal.0, refusal.1, None);
        self.output.extend(out);
        Progress::Ended
    }
}

/// A session that waits for a message may have one already.
fn more(progress: Progress) -> Progress {
    if progress == Progress::Waiting { Progress::Again } else { progress }
}

/// The parameters of a startup packet; None if one of them does not exist.
fn asked_parameters(mut fields: Fields<'_>, database: &mut String) -> Option<Parameters> {
    let mut asked = Vec::new();
    while let Some(name) = fields.text().filter(|name| !name.is_empty()) {
        let value = fields.text()?;
        let (name, value) = (str::from_utf8(name).ok()?, str::from_utf8(value).ok()?);
        if name == "database" {
            *database = value.to_owned();
        }
        if !matches!(name, "user" | "database" | "replication" | "options") {
            asked.push((name, value));
        }
    }
    Parameters::new(asked.into_iter())
}

/// AuthenticationOk, the parameters, BackendKeyData, ReadyForQuery.
fn greeting(session: &mut Session, key: (u32, u32), replica: Option<Replica>) {
    let mut out = Vec::new();
    message(&mut out, b'R', |body| body.extend_from_slice(&[0; 4]));
    for (name, value) in
        [("server_version", "15.14"), ("server_encoding", "UTF8"), ("integer_datetimes", "on")]
    {
        reply::parameter(&mut out, name, value);
    }
    if let Some(replica) = replica {
        session.reported_standby = replica.is_standby;
        reply::parameter(&mut out, "in_hot_standby", if replica.is_standby { "on" } else { "off" });
        reply::parameter(&mut out, "default_transaction_read_only", "off");
    }
    for (name, value) in session.parameters.greeting() {
        reply::parameter(&mut out, name, value);
    }
    message(&mut out, b'K', |body| {
        body.extend_from_slice(&key.0.to_be_bytes());
        body.extend_from_slice(&key.1.to_be_bytes());
    });
    reply::ready(&mut out, b'I');
    session.out.extend(out);
}
