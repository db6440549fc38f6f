//! Scripts of clients that send any message in any state, and of drivers with habits of their own.
//!
//! Writes messages and never reads an answer: what PostgreSQL answers to them is the shadow's business (`shadow`). The same scripts are put to a real PostgreSQL (`record`).

mod statements;

use std::collections::VecDeque;

use super::message::Message;
use super::session_choice::SessionChoice;
use crate::model::session::INT4PL;
use crate::prng::Prng;
use crate::session_sql::SessionStatement;
use crate::sql::{Statement, Tag, Value};

/// Who a script imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Any message at any time.
    Chaos,
    /// One request at a time, each answered before the next (libpq).
    OneByOne,
    /// Many requests before one Sync (libpq's pipeline mode, Npgsql's batches).
    Pipeline,
    /// Unnamed five times, then named; savepoints around statements; rows by portions (pgjdbc).
    Portions,
    /// Parse, Describe, Flush; Bind, Execute, Sync (asyncpg).
    Describes,
    /// Extended and simple in one write (Postgrex).
    Both,
    /// Parse, Describe, Flush; Bind, Execute, Flush; Sync (node-postgres under Sequelize).
    Flushes,
    /// One request at a time, most of them about its session.
    Keeper,
    /// One request at a time, most of them about sequences, and none that leaves anything else in its session; now and then it sleeps.
    Counter,
}

impl Habit {
    /// All of them; chaos as often as the others together.
    const ALL: [Habit; 12] = [
        Habit::Chaos,
        Habit::Chaos,
        Habit::Chaos,
        Habit::Chaos,
        Habit::Chaos,
        Habit::Chaos,
        Habit::OneByOne,
        Habit::Pipeline,
        Habit::Portions,
        Habit::Describes,
        Habit::Both,
        Habit::Flushes,
    ];

    /// Somebody's.
    pub(crate) fn draw(keeps_sessions: bool, prng: &mut Prng) -> Habit {
        if keeps_sessions && prng.chance(500_000) {
            return if prng.chance(300_000) { Habit::Counter } else { Habit::Keeper };
        }
        prng.pick(&Habit::ALL)
    }
}

/// What a script may contain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TlsConfig {
    /// Statements keep their names over a server's change.
    pub(crate) named: bool,
    /// A server changes hands between transactions: the statement without a name lives no longer than its segment.
    pub(crate) pooled: bool,
    /// SQL may prepare statements under names.
    pub(crate) by_sql: bool,
    /// Whatever it leaves in its session is there in its next transaction.
    pub(crate) keeps_session: bool,
    /// How often a statement fails, copies and sets, per million.
    pub(crate) fail_per_million: u32,
    /// See above.
    pub(crate) copy_per_million: u32,
    /// See above.
    pub(crate) set_per_million: u32,
}

/// What a script does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Send(Message),
    /// It goes on once all answers are there that it can expect.
    Wait,
}

/// A script that writes itself.
#[derive(Debug)]
pub(crate) struct Script {
    habit: Habit,
    terms: TlsConfig,
    client: u32,
    requests: u32,
    queue: VecDeque<Item>,
    /// A COPY from the client may be under way.
    copying: bool,
    /// A block may be open.
    open: bool,
    /// Which statement stands under a name, as far as nothing failed.
    names: Vec<(String, Statement)>,
    /// The statement without a name was parsed since the last Sync.
    unnamed: bool,
    /// How often pgjdbc has executed its statement.
    executed: u32,
    session: SessionChoice,
}

const NAMES: &[&str] = &["s0", "s1", "s2", "s3"];
const SQL_NAMES: &[&str] = &["q0", "q1"];
const SAVEPOINTS: &[&str] = &["a", "b"];

impl Script {
    /// The script of a client of this number.
    pub(crate) fn new(client: u32, habit: Habit, terms: TlsConfig) -> Script {
        let (queue, names) = (VecDeque::new(), Vec::new());
        Script {
            habit,
            terms,
            client,
            requests: 0,
            queue,
            copying: false,
            open: false,
            unnamed: false,
            names,
            executed: 0,
            session: SessionChoice::new(client),
        }
    }

    /// What comes next.
    pub(crate) fn next(&mut self, prng: &mut Prng) -> Item {
        loop {
            if let Some(item) = self.queue.pop_front() {
                return item;
            }
            match self.habit {
                _ if self.copying => self.fill_copy(prng),
                Habit::Chaos => self.anything(prng),
                Habit::OneByOne | Habit::Keeper | Habit::Counter => self.one_by_one(prng),
                Habit::Pipeline => self.pipeline(prng),
                Habit::Portions => self.portions(prng),
                Habit::Describes => self.describes(prng),
                Habit::Both => self.both(prng),
                Habit::Flushes => self.flushes(prng),
            }
        }
    }

    /// Who it imitates.
    pub(crate) fn habit(&self) -> Habit {
        self.habit
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u32 {
        self.requests
    }

    fn send(&mut self, message: Message) {
        let uses_unnamed = match &message {
            Message::Bind(_, name, _) | Message::Describe(b'S', name) => name.is_empty(),
            _ => false,
        };
        if self.terms.pooled && uses_unnamed && !self.unnamed {
            self.parse_again();
        }
        match &message {
            Message::Parse(name, _) if name.is_empty() => self.unnamed = true,
            Message::Sync | Message::Function(_) => self.unnamed = false,
            Message::Query(_) if !self.terms.named => self.unnamed = false,
            _ => {}
        }
        self.queue.push_back(Item::Send(message));
    }

    /// The statement without a name, as it was or is thought to have been.
    fn parse_again(&mut self) {
        let known = self.names.iter().find(|(name, _)| name.is_empty());
        let statement = known.map_or(Statement::SelectNumber(0), |(_, statement)| statement.clone());
        self.send(Message::Parse(String::new(), statement.to_string()));
    }

    fn next_tag(&mut self) -> Tag {
        self.requests += 1;
        Tag { client: self.client, request: self.requests }
    }

    /// Data for a COPY, its end, and what does not belong there.
    fn fill_copy(&mut self, prng: &mut Prng) {
        let tag = Tag { client: self.client, request: self.requests };
        match prng.below(100) {
            0..60 => {
                let bad = prng.chance(50_000);
                let rows =
                    if bad { "\\N\n".to_owned() } else { format!("{tag}\n").repeat(1 + prng.index(3)) };
                self.send(Message::CopyData(rows));
            }
            60..76 => {
                self.copying = false;
                self.send(Message::CopyDone);
                self.end_segment(prng);
            }
            76..82 => {
                self.copying = false;
                self.send(Message::CopyFail);
                self.end_segment(prng);
            }
            82..90 => self.send(Message::Sync),
            90..93 => self.send(Message::Flush),
            93..98 => self.queue.push_back(Item::Wait),
            _ => {
                self.copying = false; // It is another message's turn, and may be the last.
                if prng.chance(800_000) {
                    self.send(Message::Sync);
                }
            }
        }
    }

    fn end_segment(&mut self, prng: &mut Prng) {
        if prng.chance(850_000) {
            self.send(Message::Sync);
        }
        if prng.chance(500_000) {
            self.queue.push_back(Item::Wait);
        }
    }

    fn anything(&mut self, prng: &mut Prng) {
        match prng.below(1000) {
            0..140 => self.query(prng),
            140..270 => self.parse_some(prng),
            270..400 => self.bind_some(prng),
            400..530 => {
                let (portal, limit) = (self.portal(prng), self.limit(prng));
                self.send(Message::Execute(portal, limit));
            }
            530..590 => {
                let (kind, name) = self.target(prng);
                self.send(Message::Describe(kind, name));
            }
            590..650 => {
                let (kind, name) = self.target(prng);
                self.send(Message::Close(kind, name));
                // A name that is closed and given anew at once.
                if kind == b'S' && prng.chance(400_000) {
                    self.parse_as(&self.target_name(), prng);
                }
            }
            650..770 => self.send(Message::Sync),
            770..800 => self.send(Message::Flush),
            800..830 => self.stray_copy(prng),
            830..850 => self.send(Message::Function(if prng.chance(700_000) { INT4PL } else { 1 })),
            850..851 => self.send(Message::Unknown(prng.pick(b"yz!"))),
            851..900 => self.queue.push_back(Item::Wait),
            _ => {
                self.request("", "", prng);
                self.end_segment(prng);
            }
        }
    }

    fn target_name(&self) -> String {
        match self.queue.back() {
            Some(Item::Send(Message::Close(_, name))) => name.clone(),
            _ => String::new(),
        }
    }

    /// CopyData and its ends outside COPY: PostgreSQL ignores them.
    fn stray_copy(&mut self, prng: &mut Prng) {
        let tag = Tag { client: self.client, request: self.requests };
        let stray = match prng.below(3) {
            0 => Message::CopyData(format!("{tag}\n")),
            1 => Message::CopyDone,
            _ => Message::CopyFail,
        };
        self.send(stray);
    }

    fn portal(&self, prng: &mut Prng) -> String {
        prng.pick(&["", "", "", "p0", "p1"]).to_owned()
    }

    fn limit(&self, prng: &mut Prng) -> u32 {
        if prng.chance(300_000) { u32::try_from(prng.between(1, 4)).unwrap_or(1) } else { 0 }
    }

    fn name(&self, prng: &mut Prng) -> String {
        if !self.terms.named || prng.chance(400_000) {
            return String::new();
        }
        if self.terms.by_sql && prng.chance(150_000) {
            return prng.pick(SQL_NAMES).to_owned();
        }
        prng.pick(NAMES).to_owned()
    }

    fn target(&self, prng: &mut Prng) -> (u8, String) {
        if prng.chance(500_000) { (b'P', self.portal(prng)) } else { (b'S', self.name(prng)) }
    }

    fn parse_some(&mut self, prng: &mut Prng) {
        let name = self.name(prng);
        self.parse_as(&name, prng);
    }

    fn parse_as(&mut self, name: &str, prng: &mut Prng) {
        let statement =
            if SQL_NAMES.contains(&name) { self.choose_to_share(prng) } else { self.choose(true, prng) };
        self.parse(name, statement, prng);
    }

    fn parse(&mut self, name: &str, mut statement: Statement, prng: &mut Prng) {
        let tag = self.next_tag();
        // EXECUTE under a name has the description of what it named when it was parsed.
        if !name.is_empty() && matches!(statement, Statement::Execute(_)) {
            statement = Statement::SelectNumber(3);
        }
        // A text without a tag may be shared; one that inserts by itself must not be executed twice under one tag.
        let shared = statement == Statement::CopyIn || !name.is_empty() && prng.chance(500_000);
        // The tag is the value of a sequence.
        let shared = shared && !matches!(statement, Statement::Session(SessionStatement::Sequence(_)));
        let words = if shared { statement.to_string() } else { format!("{statement} /*{tag}*/") };
        self.names.retain(|(known, _)| known != name);
        self.names.push((name.to_owned(), statement));
        self.send(Message::Parse(name.to_owned(), words));
    }

    fn bind_some(&mut self, prng: &mut Prng) {
        let (portal, name) = (self.portal(prng), self.name(prng));
        self.bind(&portal, &name, prng);
    }

    fn bind(&mut self, portal: &str, name: &str, prng: &mut Prng) {
        let known = self.names.iter().find(|(known, _)| known == name).map(|(_, statement)| statement);
        let wants = known.is_some_and(Statement::has_parameter) != prng.chance(10_000);
        let value = wants.then(|| self.next_tag().to_string());
        self.send(Message::Bind(portal.to_owned(), name.to_owned(), value));
    }

    /// Parse, Bind, perhaps Describe, Execute.
    fn request(&mut self, name: &str, portal: &str, prng: &mut Prng) {
        let statement = self.choose(true, prng);
        self.parse(name, statement.clone(), prng);
        self.bind_and_execute(name, portal, &statement, prng);
    }

    fn bind_and_execute(&mut self, name: &str, portal: &str, statement: &Statement, prng: &mut Prng) {
        self.bind(portal, name, prng);
        if prng.chance(500_000) {
            self.send(Message::Describe(b'P', portal.to_owned()));
        }
        let limit = self.limit(prng);
        self.execute(portal, limit, statement);
        if limit > 0 && prng.chance(700_000) {
            self.execute(portal, 0, statement);
        }
    }

    fn execute(&mut self, portal: &str, limit: u32, statement: &Statement) {
        self.send(Message::Execute(portal.to_owned(), limit));
        self.copying |= *statement == Statement::CopyIn;
    }

    fn query(&mut self, prng: &mut Prng) {
        let count = if prng.chance(250_000) { prng.between(2, 4) } else { 1 };
        let tag = self.next_tag();
        let (mut words, mut inserts, mut sets) = (Vec::new(), false, false);
        for _ in 0..count {
            let mut statement = self.choose(false, prng);
            let is_insert = matches!(statement, Statement::Insert(Value::Literal(_)) | Statement::CopyIn);
            // What stands behind a reset in the same string runs with the server's own values.
            let alone =
                matches!(statement, Statement::Reset(_) | Statement::ResetAll | Statement::Set(_, None))
                    || matches!(statement, Statement::DiscardAll);
            if (is_insert && std::mem::replace(&mut inserts, true)) || (alone && count > 1) {
                statement = Statement::SelectNumber(2);
            }
            self.copying |= statement == Statement::CopyIn;
            sets |= matches!(statement, Statement::Set(..) | Statement::SetConfig(..));
            words.push(statement.to_string());
        }
        // A text without a tag comes again, from other clients too.
        let plain = sets && count == 1 && self.terms.keeps_session && prng.chance(700_000);
        let words = words.join("; ");
        self.send(Message::Query(if plain { words } else { format!("{words} /*{tag}*/") }));
        if prng.chance(300_000) {
            self.queue.push_back(Item::Wait);
        }
    }

    fn one_by_one(&mut self, prng: &mut Prng) {
        let uses_sql_names = self.terms.keeps_session && self.terms.by_sql && self.habit != Habit::Counter;
        if uses_sql_names && prng.chance(150_000) {
            self.use_sql_name(prng);
        } else if prng.chance(500_000) {
            self.query(prng);
        } else {
            self.request("", "", prng);
            if !self.copying {
                self.send(Message::Sync);
            }
        }
        self.queue.push_back(Item::Wait);
    }

    /// By the protocol, a name that SQL may have given, or may use.
    fn use_sql_name(&mut self, prng: &mut Prng) {
        let name = prng.pick(SQL_NAMES);
        match prng.below(10) {
            0..5 => {
                self.bind("", name, prng);
                if prng.chance(500_000) {
                    self.send(Message::Describe(b'P', String::new()));
                }
                self.send(Message::Execute(String::new(), 0));
            }
            5 => self.send(Message::Describe(b'S', name.to_owned())),
            6..9 => self.parse_as(name, prng),
            _ => self.send(Message::Close(b'S', name.to_owned())),
        }
        self.send(Message::Sync);
    }

    fn pipeline(&mut self, prng: &mut Prng) {
        for _ in 0..prng.between(1, 5) {
            self.request("", "", prng);
            if self.copying {
                return;
            }
            if prng.chance(100_000) {
                self.send(Message::Flush);
            }
        }
        self.send(Message::Sync);
        if prng.chance(400_000) {
            self.queue.push_back(Item::Wait);
        }
    }

    fn portions(&mut self, prng: &mut Prng) {
        let savepoint = self.open && prng.chance(500_000);
        if savepoint {
            self.by_extended(Statement::Savepoint("PGJDBC_AUTOSAVE".to_owned()), prng);
        }
        let named = self.terms.named && self.executed >= 5;
        self.executed += 1;
        let (name, portal) = (if named { "S_1" } else { "" }, if named { "C_1" } else { "" });
        let rows = Statement::Select(Value::Parameter, 5);
        if !named || self.executed == 6 {
            self.parse(name, rows.clone(), prng);
        }
        self.bind(portal, name, prng);
        self.send(Message::Describe(b'P', portal.to_owned()));
        self.send(Message::Execute(portal.to_owned(), 2));
        self.send(Message::Sync);
        self.queue.push_back(Item::Wait);
        if self.open && prng.chance(700_000) {
            self.send(Message::Execute(portal.to_owned(), 2));
            self.send(Message::Sync);
            self.queue.push_back(Item::Wait);
        }
        if named {
            self.send(Message::Close(b'P', portal.to_owned()));
        }
        self.send(Message::Sync);
        if savepoint {
            let end = prng.pick(&[true, false]);
            let name = "PGJDBC_AUTOSAVE".to_owned();
            let end = if end { Statement::Release(name) } else { Statement::RollbackTo(name) };
            self.by_extended(end, prng);
        }
        let other = self.choose(true, prng);
        self.by_extended(other, prng);
    }

    fn by_extended(&mut self, statement: Statement, prng: &mut Prng) {
        self.parse("", statement.clone(), prng);
        self.bind("", "", prng);
        self.execute("", 0, &statement);
        if !self.copying {
            self.send(Message::Sync);
            self.queue.push_back(Item::Wait);
        }
    }

    fn describes(&mut self, prng: &mut Prng) {
        let name = if self.terms.named && prng.chance(500_000) { prng.pick(NAMES) } else { "" };
        if !name.is_empty() && prng.chance(500_000) {
            self.send(Message::Close(b'S', name.to_owned()));
        }
        let statement = self.choose(true, prng);
        self.parse(name, statement.clone(), prng);
        self.send(Message::Describe(b'S', name.to_owned()));
        self.send(Message::Flush);
        self.queue.push_back(Item::Wait);
        self.bind("", name, prng);
        self.execute("", 0, &statement);
        if !self.copying {
            self.send(Message::Sync);
            self.queue.push_back(Item::Wait);
        }
    }

    fn both(&mut self, prng: &mut Prng) {
        self.request("", "", prng);
        if self.copying {
            return;
        }
        if prng.chance(700_000) {
            self.send(Message::Sync);
        }
        self.query(prng);
        if !self.copying {
            self.request("", "", prng);
        }
        if !self.copying {
            self.send(Message::Sync);
            self.queue.push_back(Item::Wait);
        }
    }

    fn flushes(&mut self, prng: &mut Prng) {
        let statement = self.choose(true, prng);
        self.parse("", statement.clone(), prng);
        self.send(Message::Describe(b'S', String::new()));
        self.send(Message::Flush);
        self.queue.push_back(Item::Wait);
        self.bind("", "", prng);
        self.execute("", 0, &statement);
        if !self.copying {
            self.send(Message::Flush);
            self.queue.push_back(Item::Wait);
            self.send(Message::Sync);
        }
    }
}
