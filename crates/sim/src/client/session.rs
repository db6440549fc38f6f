//! One client session from its first packet to its end: it sends, checks every answer, and sometimes dies.
//!
//! Owns the client's side of the protocol. What to send next is `script.rs`; what must come back is `expect.rs`.

use std::collections::{BTreeMap, VecDeque};

use super::expect::{Filling, Group, Kind, Step, Verdict};
use super::view::View;
use crate::invariants::{Claim, Referee};
use crate::model::session::Status;
use crate::network::Ending;
use crate::prng::Prng;
use crate::protocol::{Fields, Frames, Next, error_field, message, text, untyped};
use crate::sql::{Statement, Tag};
use crate::swarm::Crowd;

/// How long a client may be idle: longer than anybody may have to wait for a server.
const SIESTA_US: u64 = 150 * crate::clock::SECOND_US;

/// What a client needs of the world while it acts.
pub(crate) struct Scene<'a> {
    /// Chance.
    pub(crate) prng: &'a mut Prng,
    /// The judge.
    pub(crate) referee: &'a mut Referee,
    /// How clients are.
    pub(crate) crowd: &'a Crowd,
    /// Monotonic microseconds.
    pub(crate) now_us: u64,
    /// Nothing may go wrong for a client that does nothing wrong.
    pub(crate) fair: bool,
    /// Statements keep their names when servers change.
    pub(crate) named: bool,
    /// What DDL does to prepared statements is mended where it can be.
    pub(crate) mends: bool,
    /// A client outside a transaction holds no server.
    pub(crate) shares: bool,
    /// The faults are still on: bad manners are allowed.
    pub(crate) chaos: bool,
}

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// SSLRequest was sent.
    AskedForTls,
    /// The startup packet was sent.
    LoggingIn,
    /// Logged in.
    Open,
    /// Terminate was sent, or the session has broken off: nothing more is expected.
    Over,
}

/// What a session is by character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Query messages.
    Simple,
    /// Parse, Bind, Execute, Sync with the unnamed statement.
    Extended,
    /// Parse once, Bind many times.
    Named,
    /// Parse, Describe, Flush; Bind, Execute, Sync once those are answered.
    Describer,
    /// Each of these.
    Mixed,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its number; never used again in a run.
    pub(crate) number: u32,
    /// Where it stands.
    pub(crate) phase: Phase,
    /// What waits to be written.
    pub(crate) output: VecDeque<u8>,
    /// It dies in this way after so many more bytes were written.
    pub(crate) doom: Option<(usize, Ending)>,
    /// When the world wakes it next.
    pub(crate) wakes_at_us: Option<u64>,
    /// The most that it writes at a time, with a pause behind it; 0 is all that there is room for.
    pub(crate) piece_most: u64,
    /// It reads nothing until then.
    pub(crate) deaf_until_us: u64,
    /// It does nothing of its own accord until then.
    pub(crate) thinks_until_us: u64,
    /// Its key for cancel requests.
    pub(crate) key: Option<(u32, u32)>,
    /// Cancel requests that were made for it.
    pub(crate) cancels: u32,
    /// It wants one to be made now.
    pub(crate) wants_cancel: bool,
    /// It wants to close now.
    pub(crate) wants_close: Option<Ending>,
    /// It has sent nonsense, or the network broke its connection: whatever follows is its own fault.
    pub(crate) disturbed: bool,
    /// When the oldest unanswered request was sent.
    pub(crate) waiting_since_us: Option<u64>,
    /// Requests until it leaves.
    pub(crate) budget: u64,
    /// It replicates: its server is its own.
    pub(crate) replicates: bool,
    /// User and database.
    login: (String, String),
    pub(super) style: Style,
    pub(super) requests: u32,
    /// What it has planned: whether it will be in a transaction block once all is answered.
    pub(super) planned_open: bool,
    pub(super) groups: VecDeque<Group>,
    pub(super) view: View,
    /// Names it has prepared and been told so.
    pub(super) prepared: BTreeMap<String, (Statement, Tag)>,
    /// What the describer has parsed and had described.
    pub(super) described: Option<(Statement, Tag)>,
    /// It asks for descriptions of results now and then.
    pub(super) describes: bool,
    /// It has asked for one.
    pub(super) has_described: bool,
    /// It has sent nonsense and waits for the consequences until then.
    pub(super) gives_up_at_us: Option<u64>,
    /// A failed transaction has refused something of the pipeline under way.
    was_refused: bool,
    /// Rows of the open transaction.
    rows: Vec<Tag>,
    frames: Frames,
}

impl Client {
    /// A session that begins: its first packet is in the output.
    pub(crate) fn new(number: u32, user: &str, database: &str, scene: &mut Scene<'_>) -> Client {
        let styles = [Style::Simple, Style::Extended, Style::Named, Style::Describer, Style::Mixed];
        let mut client = Client {
            number,
            phase: Phase::LoggingIn,
            output: VecDeque::new(),
            doom: None,
            wakes_at_us: None,
            piece_most: 0,
            deaf_until_us: 0,
            thinks_until_us: 0,
            key: None,
            cancels: 0,
            wants_cancel: false,
            wants_close: None,
            disturbed: false,
            waiting_since_us: Some(scene.now_us),
            budget: scene.prng.between(1, scene.crowd.requests),
            replicates: scene.prng.chance(scene.crowd.replicate_per_million),
            login: (user.to_owned(), database.to_owned()),
            style: scene.prng.pick(&styles),
            requests: 0,
            planned_open: false,
            groups: VecDeque::new(),
            view: View::new(),
            prepared: BTreeMap::new(),
            described: None,
            describes: scene.prng.chance(600_000),
            has_described: false,
            gives_up_at_us: None,
            was_refused: false,
            rows: Vec::new(),
            frames: Frames::default(),
        };
        if scene.prng.chance(scene.crowd.slow_per_million) {
            client.piece_most = scene.prng.log_between(1, 200);
        }
        if scene.crowd.ask_for_tls && scene.prng.chance(500_000) {
            client.phase = Phase::AskedForTls;
            client.send(|out| untyped(out, |body| body.extend_from_slice(&80_877_103_u32.to_be_bytes())));
        } else {
            client.send_startup(scene);
        }
        client
    }

    /// Bytes came from the pooler.
    pub(crate) fn receive(&mut self, bytes: &[u8], scene: &mut Scene<'_>) {
        self.frames.push(bytes);
        if self.phase == Phase::AskedForTls {
            match self.frames.take_byte() {
                Some(b'N') => {
                    self.phase = Phase::LoggingIn;
                    self.send_startup(scene);
                }
                None => return,
                other => self.object("I1", format!("SSLRequest was answered {other:?}"), scene),
            }
        }
        let mut body = Vec::new();
        while self.phase != Phase::Over && !scene.referee.has_objected() {
            match self.frames.next(&mut body) {
                Next::Partial => return,
                Next::Malformed => return self.object("I1", "got a malformed frame".to_owned(), scene),
                Next::Frame(kind) => self.take(kind, &body, scene),
            }
        }
    }

    /// The pooler (or the network) has closed the connection.
    pub(crate) fn hung_up(&mut self, scene: &mut Scene<'_>) {
        if self.phase != Phase::Over {
            if scene.fair && !self.disturbed {
                self.object("unfair", format!("was hung up on while {:?}", self.phase), scene);
            }
            self.leave(scene);
        }
    }

    /// The session breaks off here, whoever's doing it is.
    pub(crate) fn leave(&mut self, scene: &mut Scene<'_>) {
        if self.phase == Phase::Over {
            return;
        }
        self.phase = Phase::Over;
        self.waiting_since_us = None;
        self.settle_rows(scene);
    }

    /// Whether it has answers to wait for.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting_since_us.is_some()
    }

    /// Whether it has sent nonsense and will not stay.
    pub(crate) fn gives_up(&self) -> bool {
        self.gives_up_at_us.is_some() && self.phase != Phase::Over
    }

    /// When it wants to act again.
    pub(crate) fn acts_next_us(&self, now_us: u64) -> u64 {
        self.gives_up_at_us.unwrap_or(self.thinks_until_us).max(now_us + 1)
    }

    /// What it waits for, in words.
    pub(crate) fn wait_in_words(&self) -> String {
        let step = self.groups.front().and_then(|group| group.steps.front());
        let groups = self.groups.len();
        match step {
            Some(step) => format!(
                "{:?}: {} ({:?} of `{}`), {groups} groups",
                self.phase, step.tag, step.kind, step.statement
            ),
            None => format!("{:?}: {groups} groups", self.phase),
        }
    }

    /// Writes something to the output.
    pub(super) fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        write(&mut out);
        self.output.extend(out);
    }

    fn send_startup(&mut self, scene: &mut Scene<'_>) {
        let (user, database) = self.login.clone();
        let name = format!("app{}", scene.prng.below(3));
        let zone = scene.prng.pick(super::script::TIME_ZONES);
        let says_zone = scene.prng.chance(300_000);
        let replicates = self.replicates;
        if replicates {
            scene.referee.wants_own_server(self.number);
        }
        self.send(|out| {
            untyped(out, |body| {
                body.extend_from_slice(&196_608_u32.to_be_bytes());
                let mut pairs =
                    vec![("user", user.as_str()), ("database", &database), ("application_name", &name)];
                if says_zone {
                    pairs.push(("TimeZone", zone));
                }
                if replicates {
                    pairs.push(("replication", "database"));
                }
                for (name, value) in pairs {
                    text(body, name.as_bytes());
                    text(body, value.as_bytes());
                }
                body.push(0);
            });
        });
    }

    fn take(&mut self, kind: u8, body: &[u8], scene: &mut Scene<'_>) {
        match (kind, self.phase) {
            (b'S', _) => {
                let mut fields = Fields(body);
                if let (Some(name), Some(value)) = (fields.text(), fields.text()) {
                    self.view.tell(name, value);
                }
            }
            (b'N', _) => self.take_notice(body, scene),
            (b'E', _) => self.take_error(body, scene),
            (b'R', Phase::LoggingIn) => (),
            (b'K', Phase::LoggingIn) => {
                let mut fields = Fields(body);
                self.key = fields.long().zip(fields.long());
            }
            (b'Z', Phase::LoggingIn) => {
                self.phase = Phase::Open;
                self.waiting_since_us = None;
            }
            (b'Z', _) => self.take_ready(body, scene),
            _ => self.take_answer(kind, body, scene),
        }
    }

    fn take_notice(&mut self, body: &[u8], scene: &mut Scene<'_>) {
        let Some(tag) = error_field(body, b'M').and_then(Tag::in_brackets) else { return };
        let fits = self.oldest().is_some_and(|step| step.is_of(tag));
        if !fits {
            self.object("I1", format!("got a notice of {tag}"), scene);
        }
    }

    fn take_error(&mut self, body: &[u8], scene: &mut Scene<'_>) {
        let sqlstate = String::from_utf8_lossy(error_field(body, b'C').unwrap_or(b"")).into_owned();
        let words = error_field(body, b'M').unwrap_or(b"");
        let readable = String::from_utf8_lossy(words).into_owned();
        if error_field(body, b'S') != Some(b"ERROR") {
            if scene.fair && !self.disturbed {
                self.object("unfair", format!("got FATAL {sqlstate} {readable}"), scene);
            }
            return self.leave(scene);
        }
        let Some(step) = self.oldest() else {
            return self.object(
                "I1",
                format!("got the error {sqlstate} {readable} and waits for nothing"),
                scene,
            );
        };
        let expected = step.refusal(self.view.status) == Some(sqlstate.as_str());
        // A server gets its Parse from the pooler with the Bind; in a failed transaction it refuses the Parse, and
        // what was sent behind it meets no statement.
        let refused = self.view.status == Status::Failed || self.was_refused;
        let lost = sqlstate == "26000" && step.kind == Kind::Bind && refused;
        let cancelled = sqlstate == "57014" && step.is_cancellable() && self.cancels > 0;
        let asked = step.statement == Statement::CopyIn
            && match step.filling {
                Filling::Rows(_) => false,
                Filling::BadRow(_) => sqlstate == "23502",
                Filling::Failure => sqlstate == "57014",
            };
        let own = Tag::in_brackets(words).is_none_or(|tag| step.is_of(tag));
        let spoilt = step.kind == Kind::Bind && matches!(&*sqlstate, "0A000" | "26000") && !lost;
        if spoilt && self.must_be_spared(&sqlstate, scene) {
            let step = format!("{} ({:?} of `{}`)", step.tag, step.kind, step.statement);
            return self.object("I15", format!("{step} got {sqlstate}, of which it must not hear"), scene);
        }
        let expected = expected || spoilt;
        if !own || !(expected || lost || cancelled || asked) {
            let step = format!("{} ({:?} of `{}`)", step.tag, step.kind, step.statement);
            let invariant = if sqlstate == "57014" { "I5" } else { "I1" };
            return self.object(invariant, format!("{step} got the error {sqlstate} {readable}"), scene);
        }
        self.was_refused |= sqlstate == "25P02";
        self.view.fail();
        self.claim_rows(Claim::NotApplied, scene);
        let Some(group) = self.groups.front_mut() else { return };
        for step in group.steps.drain(..) {
            if matches!(step.statement, Statement::Insert(_) | Statement::CopyIn) && !group.ends_transaction {
                scene.referee.claim(step.tag, Claim::NotApplied);
            }
        }
        group.failed = true;
        if !group.synced {
            self.send_sync();
        }
    }

    /// Whether the pooler can have its request said again: nothing of it was done, nothing comes behind it, and the
    /// client does not read results by an old description. (Its Bind may be cut off from its Describe, so that only of
    /// those who never ask it is known.)
    fn must_be_spared(&self, sqlstate: &str, scene: &Scene<'_>) -> bool {
        let keeps_description = sqlstate == "0A000" && self.has_described;
        let alone = self.groups.len() == 1;
        scene.mends && alone && self.view.status == Status::Idle && !keeps_description
    }

    fn take_ready(&mut self, body: &[u8], scene: &mut Scene<'_>) {
        let status = body.first().copied().unwrap_or(0);
        let Some(group) = self.groups.front().filter(|group| group.synced) else {
            return self.object("I1", "got ReadyForQuery and waits for none".to_owned(), scene);
        };
        if let Some(step) = group.steps.front() {
            let text = format!("{} ({:?}) was passed over by ReadyForQuery", step.tag, step.kind);
            return self.object("I1", text, scene);
        }
        if group.needs_server {
            scene.referee.client_was_answered(self.number);
        }
        if status != self.view.status.byte() {
            let text =
                format!("was told status {}, which should be {:?}", char::from(status), self.view.status);
            return self.object("I1", text, scene);
        }
        if self.view.status == Status::Idle {
            self.claim_rows(Claim::Applied, scene);
        }
        self.view.unsettled = false;
        self.groups.pop_front();
        self.waiting_since_us = (!self.groups.is_empty()).then_some(scene.now_us);
        if self.groups.is_empty() {
            self.was_refused = false;
            self.planned_open = self.view.status != Status::Idle;
            let naps = !self.planned_open && scene.shares && scene.chaos;
            let siesta = naps && scene.prng.chance(scene.crowd.siesta_per_million);
            let pause = if siesta { SIESTA_US } else { scene.prng.below(scene.crowd.think_us) };
            self.thinks_until_us = scene.now_us + pause;
        }
    }

    fn take_answer(&mut self, kind: u8, body: &[u8], scene: &mut Scene<'_>) {
        let Some(step) = self.groups.front_mut().and_then(|group| group.steps.front_mut()) else {
            return self.object(
                "I1",
                format!("got `{}` and waits for no such thing", char::from(kind)),
                scene,
            );
        };
        match step.accept(kind, body, &self.view) {
            Err(text) => {
                let invariant =
                    if text.contains(" ran with ") || text.contains("SHOW ") { "I4" } else { "I1" };
                self.object(invariant, text, scene);
            }
            Ok(Verdict::More) => (),
            Ok(Verdict::WantsRows) => {
                let (tag, filling) = (step.tag, step.filling);
                self.send_rows(tag, filling);
            }
            Ok(Verdict::Done) => self.finish_step(scene),
        }
    }

    fn finish_step(&mut self, scene: &mut Scene<'_>) {
        let Some(step) = self.groups.front_mut().and_then(|group| group.steps.pop_front()) else { return };
        if let Some(name) = step.name {
            self.prepared.insert(name, (step.statement.clone(), step.tag));
        }
        if !step.kind.runs() {
            return;
        }
        match step.statement {
            Statement::Insert(_) | Statement::CopyIn => self.rows.push(step.tag),
            Statement::Commit if self.view.status != Status::Failed => self.claim_rows(Claim::Applied, scene),
            Statement::Commit | Statement::Rollback => self.claim_rows(Claim::NotApplied, scene),
            Statement::DiscardAll | Statement::DeallocateAll => self.prepared.clear(),
            _ => (),
        }
        self.view.advance(&step.statement);
    }

    /// Answers CopyInResponse.
    fn send_rows(&mut self, tag: Tag, filling: Filling) {
        if self.gives_up() {
            return;
        }
        let simple =
            self.groups.front().is_some_and(|group| group.steps.front().is_some_and(Step::is_simple));
        self.send(|out| {
            let (rows, bad) = match filling {
                Filling::Failure => return message(out, b'f', |body| text(body, b"no more")),
                Filling::Rows(rows) => (rows, None),
                Filling::BadRow(rows) => (rows, Some(rows / 2)),
            };
            for row in 0..rows {
                let line = if bad == Some(row) { "\\N\n".to_owned() } else { format!("{tag}\n") };
                message(out, b'd', |body| body.extend_from_slice(line.as_bytes()));
            }
            message(out, b'c', |_| ());
        });
        // The server ignored the Sync that may have been sent with Execute, as libpq does; it needs another.
        if !simple {
            self.send_sync();
        }
    }

    pub(super) fn send_sync(&mut self) {
        if self.gives_up() {
            return;
        }
        self.send(|out| message(out, b'S', |_| ()));
        if let Some(group) = self.groups.front_mut() {
            group.synced = true;
        }
    }

    fn claim_rows(&mut self, claim: Claim, scene: &mut Scene<'_>) {
        for tag in self.rows.drain(..) {
            scene.referee.claim(tag, claim);
        }
    }

    /// The session is over: what can be said of rows whose fate it was not told?
    fn settle_rows(&mut self, scene: &mut Scene<'_>) {
        let open = self.view.status != Status::Idle;
        let ends = self.groups.iter().any(|group| group.ends_transaction);
        let synced = self.groups.iter().any(|group| group.synced);
        let hopeless = if open { !ends } else { !synced };
        let claim = if hopeless { Claim::NotApplied } else { Claim::Unknown };
        let left = self.groups.iter().flat_map(|group| group.steps.iter());
        let inserts = left.filter(|step| matches!(step.statement, Statement::Insert(_) | Statement::CopyIn));
        for step in inserts {
            scene.referee.claim(step.tag, claim);
        }
        self.claim_rows(claim, scene);
    }

    fn oldest(&self) -> Option<&Step> {
        self.groups.front().and_then(|group| group.steps.front())
    }

    fn object(&mut self, invariant: &'static str, text: String, scene: &mut Scene<'_>) {
        scene.referee.object(invariant, format!("c{} {text}", self.number));
    }
}
