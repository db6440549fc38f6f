//! What PostgreSQL alone would answer a client: a session of the model server that is the client's own and meets nothing
//! but what the client sends. Whatever a pooler does in between, the client must not be able to tell the difference.
//!
//! Owns what is expected and what of it PostgreSQL would have sent by now. Never knows what was received, but where the client may find one of
//! two things: which of them it was ([`Shadow::find`]).

use std::collections::{BTreeSet, VecDeque};

use crate::model::ledger::Ledger;
use crate::model::parameters::Parameters;
use crate::model::sequences::{AskedValue, Found};
use crate::model::session::{Notification, Progress, Session, SessionContext};
use crate::prng::Prng;
use crate::protocol::{Fields, Frames, HEADER_BYTES, Next};
use crate::sql::Tag;
use crate::swarm::Servers;

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) kind: u8,
    pub(crate) body: Vec<u8>,
    /// Rows that are known to be there once it has come.
    pub(crate) committed: Vec<Tag>,
    /// What has been reported by then, with ReadyForQuery.
    pub(crate) parameters: Option<[(&'static str, String); 4]>,
    /// What the session listens on by then, with ReadyForQuery.
    pub(crate) channels: BTreeSet<String>,
    /// What its own transactions have notified it of by then.
    pub(crate) own: Vec<Notification>,
    /// It tells the value of a sequence, or that there is none.
    pub(crate) asked: Option<AskedValue>,
}

impl Answer {
    fn new(kind: u8, body: &[u8]) -> Answer {
        Answer {
            kind,
            body: body.to_vec(),
            committed: Vec::new(),
            parameters: None,
            channels: BTreeSet::new(),
            own: Vec::new(),
            asked: None,
        }
    }
}

/// The parameters that clients change.
const REPORTED: [&str; 4] = ["application_name", "DateStyle", "IntervalStyle", "TimeZone"];

/// A client's own PostgreSQL.
#[derive(Clone, Debug)]
pub(crate) struct Shadow {
    session: Session,
    ended: bool,
    /// What it has committed.
    pub(crate) ledger: Ledger,
    servers: Servers,
    prng: Prng,
    /// Answers that have not come yet.
    answers: VecDeque<Answer>,
    /// How many have.
    popped: u64,
    /// How many of them PostgreSQL has sent; the others wait for a Flush.
    due: usize,
    /// Whether ParameterStatus is among the answers.
    keeps_reports: bool,
    /// What it has notified itself of since the last ReadyForQuery.
    own: Vec<Notification>,
    /// A COPY failed or a Sync came amidst its data: a pooler cannot always know which Syncs count.
    pub(crate) unclear: bool,
    /// Where it is not known yet what the client finds.
    branches: VecDeque<Branch>,
}

/// A message that asks for what a pooler may find otherwise than PostgreSQL alone.
#[derive(Clone, Debug)]
struct Branch {
    /// The last that it asks for.
    last: u64,
    /// What was there before it.
    before: Box<Shadow>,
    /// It, and what the client has sent since.
    sent: Vec<u8>,
}

impl Shadow {
    /// A session with these parameters, of PostgreSQL 18 or of 15.
    pub(crate) fn new(parameters: Parameters, modern: bool) -> Shadow {
        let servers = Servers {
            modern,
            work_us: 0,
            chatter_per_million: 0,
            ddl_per_million: 0,
            max_connections: 1_000,
            starting_us: 0,
            lookup_us: 0,
            secret: "",
            keeps_sessions: false,
            question_fails_per_million: 0,
        };
        Shadow {
            session: Session::new(0, parameters),
            ended: false,
            ledger: Ledger::default(),
            servers,
            prng: Prng::new(0),
            answers: VecDeque::new(),
            popped: 0,
            due: 0,
            keeps_reports: false,
            own: Vec::new(),
            unclear: false,
            branches: VecDeque::new(),
        }
    }

    /// The same, with ParameterStatus among its answers.
    pub(crate) fn with_reports(self) -> Shadow {
        Shadow { keeps_reports: true, ..self }
    }

    /// The client sends messages.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let (mut frames, mut body, mut at) = (Frames::default(), Vec::new(), 0);
        frames.push(bytes);
        while !self.ended
            && let Next::Frame(kind) = frames.next(&mut body)
        {
            let end = at + HEADER_BYTES + body.len();
            self.take_message(kind, &body, &bytes[at..end]);
            at = end;
        }
    }

    fn take_message(&mut self, kind: u8, body: &[u8], bytes: &[u8]) {
        let before = self.session.may_ask_for_values(kind, body).then(|| {
            let branches = std::mem::take(&mut self.branches);
            let before = Box::new(self.clone());
            self.branches = branches;
            before
        });
        let copied = self.session.is_copying_in();
        let mut strange = Vec::new();
        let Shadow { session, ledger, servers, prng, .. } = self;
        let mut near = SessionContext {
            prng,
            ledger,
            servers,
            strange: &mut strange,
            notified: &mut Vec::new(),
            replica: None,
            reads: &mut Vec::new(),
        };
        let mut progress = session.message(kind, body, &mut near);
        while session.is_working() && progress != Progress::Ended {
            progress = session.work(&mut near);
        }
        self.ended = progress == Progress::Ended;
        // A Sync or a failure amidst the data.
        self.unclear |= copied && (kind == b'S' || kind == b'd' && !self.session.is_copying_in());
        let asked = self.session.take_asked_values();
        if let (Some(before), Some(last)) = (before, asked.last()) {
            self.branches.push_back(Branch { last: last.number, before, sent: Vec::new() });
        }
        self.branches.iter_mut().for_each(|branch| branch.sent.extend_from_slice(bytes));
        self.collect(&asked);
    }

    fn collect(&mut self, asked: &[AskedValue]) {
        let before = self.answers.len();
        self.session.ends.clear();
        let (mut frames, mut body, mut at) = (Frames::default(), Vec::new(), 0);
        let (bytes, flushed) = self.session.take_all();
        let mut answer = |kind, body: &[u8]| {
            let mut answer = Answer::new(kind, body);
            answer.asked = asked.iter().find(|asked| asked.at == at).copied();
            at += HEADER_BYTES + body.len();
            answer
        };
        frames.push(&bytes[..flushed.unwrap_or(0)]);
        while let Next::Frame(kind) = frames.next(&mut body) {
            self.answers.push_back(answer(kind, &body));
        }
        if flushed.is_some() {
            self.due = self.answers.len();
        }
        frames.push(&bytes[flushed.unwrap_or(0)..]);
        while let Next::Frame(kind) = frames.next(&mut body) {
            self.answers.push_back(answer(kind, &body));
        }
        // Parameters are told by the next ReadyForQuery, wherever their own messages are.
        let kept = self.answers.split_off(before);
        for answer in kept {
            if answer.kind == b'A' {
                self.due = self.due.saturating_sub(1);
                self.own.extend(notification(&answer.body));
            } else if answer.kind == b'S' && !self.keeps_reports {
                self.due = self.due.saturating_sub(1);
            } else {
                self.answers.push_back(answer);
            }
        }
        let committed = self.ledger.take_new();
        let parameters = self.session.parameters();
        if let Some(last) = self.answers.back_mut() {
            last.committed.extend(committed);
            if last.kind == b'Z' {
                let value = |name| (name, parameters.value(name).unwrap_or_default().to_owned());
                last.parameters = Some(REPORTED.map(value));
                last.channels.clone_from(self.session.channels());
                last.own = std::mem::take(&mut self.own);
            }
        }
    }

    /// The client has asked for what it may find in one of two ways, and has not been told which.
    pub(crate) fn is_open(&self) -> bool {
        !self.branches.is_empty()
    }

    /// What the oldest answer that has not come yet tells is otherwise than in PostgreSQL alone: all that follows is as it would be then.
    pub(crate) fn find(&mut self, asked: AskedValue, found: Found) {
        let Some(branch) = self.branches.pop_front() else { return };
        let popped = self.popped;
        *self = *branch.before;
        self.session.assume_value(asked.number, found);
        self.take(&branch.sent);
        while self.popped < popped && self.pop().is_some() {}
    }

    /// Whether PostgreSQL has sent something that has not come yet.
    pub(crate) fn owes(&self) -> bool {
        self.due > 0 || self.ended
    }

    /// Whether PostgreSQL has closed the connection.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether ReadyForQuery was the last that it said.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.session.is_at_rest()
    }

    /// Whether its transaction has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.session.has_failed()
    }

    /// Whether it is in a transaction block.
    pub(crate) fn is_in_block(&self) -> bool {
        self.session.is_in_block()
    }

    /// Whether a statement has this name.
    pub(crate) fn has_statement(&self, name: &str) -> bool {
        self.session.has_statement(name.as_bytes())
    }

    /// Whether a transaction is open of which PostgreSQL says that it is not.
    pub(crate) fn is_left_open(&self) -> bool {
        self.session.is_left_open()
    }

    /// The oldest answer that has not come yet.
    pub(crate) fn front(&self) -> Option<&Answer> {
        self.answers.front()
    }

    /// It has come.
    pub(crate) fn pop(&mut self) -> Option<Answer> {
        self.due = self.due.saturating_sub(1);
        let answer = self.answers.pop_front()?;
        self.popped += 1;
        if let Some(asked) = answer.asked {
            self.branches.retain(|branch| branch.last != asked.number);
        }
        Some(answer)
    }

    /// Answers that PostgreSQL has sent, taken.
    pub(crate) fn take_due(&mut self) -> impl Iterator<Item = Answer> {
        self.answers.drain(..std::mem::take(&mut self.due))
    }
}

/// Reads a NotificationResponse.
pub(crate) fn notification(body: &[u8]) -> Option<Notification> {
    let mut fields = Fields(body);
    let process_id = fields.long()?;
    let mut readable = || Some(String::from_utf8_lossy(fields.text()?).into_owned());
    Some(Notification { process_id, channel: readable()?, payload: readable()? })
}
