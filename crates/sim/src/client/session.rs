//! One client session from its first packet to its end.
//!
//! Owns its state, and what can be said of its rows when it breaks off. What to send next is `script.rs`; what comes back
//! is taken in `answers.rs`.

use std::collections::{BTreeMap, VecDeque};

use super::context::ClientContext;
use super::expect::{Group, Step};
use super::login::Login;
use super::shadowed::Wild;
use super::view::View;
use crate::invariants::Claim;
use crate::model::session::Status;
use crate::network::Ending;
use crate::protocol::{Frames, Next, untyped};
use crate::sql::{Statement, Tag};

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
    /// It dies in this way after this many more bytes were written.
    pub(crate) doom: Option<(usize, Ending)>,
    /// When the world wakes it next.
    pub(crate) wakes_at_us: Option<u64>,
    /// The most that it writes at a time, with a pause behind it; 0 is all that there is room for.
    pub(crate) piece_most: u64,
    /// It reads nothing until then.
    pub(crate) deaf_until_us: u64,
    /// It sleeps since then, and holds nothing but values of sequences.
    pub(crate) sleeps_since_us: Option<u64>,
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
    pub(super) login: Login,
    pub(super) style: Style,
    pub(super) requests: u32,
    /// What it has planned: whether it will be in a transaction block once all is answered.
    pub(super) planned_open: bool,
    /// That will be one that is declared READ ONLY.
    pub(super) planned_read_only: bool,
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
    /// A Parse of the pipeline under way may have been refused by a failed transaction, or skipped.
    pub(super) was_refused: bool,
    /// Since when it is logged in.
    pub(super) open_since_us: u64,
    /// It does as a script says, and is answered as by PostgreSQL alone.
    pub(super) wild: Option<Box<Wild>>,
    /// After this many more bytes it stands still for a while.
    pub(crate) stands_at: Option<(usize, u64)>,
    /// It writes nothing until then.
    pub(crate) silent_until_us: u64,
    /// Rows of the open transaction.
    pub(super) rows: Vec<Tag>,
    frames: Frames,
}

impl Client {
    /// A session that begins: its first packet is in the output.
    pub(crate) fn new(number: u32, user: &str, database: &str, context: &mut ClientContext<'_>) -> Client {
        let styles = [Style::Simple, Style::Extended, Style::Named, Style::Describer, Style::Mixed];
        let mut client = Client {
            number,
            phase: Phase::LoggingIn,
            output: VecDeque::new(),
            doom: None,
            wakes_at_us: None,
            piece_most: 0,
            deaf_until_us: 0,
            sleeps_since_us: None,
            thinks_until_us: 0,
            key: None,
            cancels: 0,
            wants_cancel: false,
            wants_close: None,
            disturbed: false,
            waiting_since_us: Some(context.now_us),
            budget: context.prng.between(1, context.client_mix.requests),
            replicates: context.prng.chance(context.client_mix.replicate_per_million),
            login: Login::draw(user, database, context),
            style: context.prng.pick(&styles),
            requests: 0,
            planned_open: false,
            planned_read_only: false,
            groups: VecDeque::new(),
            view: View::new(),
            prepared: BTreeMap::new(),
            described: None,
            describes: context.prng.chance(600_000),
            has_described: false,
            gives_up_at_us: None,
            was_refused: false,
            open_since_us: 0,
            wild: Wild::draw(number, context),
            stands_at: None,
            silent_until_us: 0,
            rows: Vec::new(),
            frames: Frames::default(),
        };
        client.replicates &= client.wild.is_none();
        if context.prng.chance(context.client_mix.slow_per_million) {
            client.piece_most = context.prng.log_between(1, 200);
        }
        if context.client_mix.ask_for_tls && context.prng.chance(500_000) {
            client.phase = Phase::AskedForTls;
            client.send(|out| untyped(out, |body| body.extend_from_slice(&80_877_103_u32.to_be_bytes())));
        } else {
            client.send_startup(context);
        }
        client.grow_tired(context);
        client
    }

    /// Bytes came from the pooler.
    pub(crate) fn receive(&mut self, bytes: &[u8], context: &mut ClientContext<'_>) {
        self.frames.push(bytes);
        if self.phase == Phase::AskedForTls {
            match self.frames.peek_byte() {
                Some(b'N') => {
                    self.frames.skip_byte();
                    self.phase = Phase::LoggingIn;
                    self.send_startup(context);
                }
                // Its login has lasted too long before the request was read.
                Some(b'E') => self.phase = Phase::LoggingIn,
                None => return,
                other => self.object("I1", format!("SSLRequest was answered {other:?}"), context),
            }
        }
        let mut body = Vec::new();
        while self.phase != Phase::Over && !context.checker.has_objected() {
            match self.frames.next(&mut body) {
                Next::Partial => return,
                Next::Malformed => return self.object("I1", "got a malformed frame".to_owned(), context),
                Next::Frame(kind) => self.take(kind, &body, context),
            }
        }
    }

    /// The pooler (or the network) has closed the connection.
    pub(crate) fn hung_up(&mut self, context: &mut ClientContext<'_>) {
        if self.phase != Phase::Over {
            let asked_for_it = self.wild.as_ref().is_some_and(|wild| wild.asked_for_it());
            // Refused in a transaction that the pooler has begun for it, by words that did not reach it.
            let is_overload = context.refuses && context.defers;
            let is_refused = is_overload || context.quota.is_some() || self.awaits_refusal();
            if context.fair && !self.disturbed && !asked_for_it && !is_refused {
                self.object("unfair", format!("was hung up on while {:?}", self.phase), context);
            }
            self.leave(context);
        }
    }

    /// The session breaks off here, for any reason.
    pub(crate) fn leave(&mut self, context: &mut ClientContext<'_>) {
        if self.phase == Phase::Over {
            return;
        }
        self.phase = Phase::Over;
        self.waiting_since_us = None;
        if let Some(wild) = self.wild.take() {
            return self.leave_wild(&wild, context);
        }
        self.settle_rows(context);
    }

    /// Whether it has answers to wait for.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting_since_us.is_some()
    }

    /// Whether it has logged in and not gone.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether it was told that it is in a transaction block.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.view.status != Status::Idle
    }

    /// Whether what it sends now belongs to what it has begun: a transaction, or messages that no Sync has ended.
    pub(crate) fn goes_on(&self) -> bool {
        let is_amidst = match &self.wild {
            Some(wild) => wild.goes_on(),
            None => self.planned_open || self.groups.back().is_some_and(|group| !group.synced),
        };
        is_amidst || self.is_in_transaction()
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

    /// What it sent last, in words.
    pub(super) fn last_in_words(&self) -> String {
        let Some(group) = self.groups.back() else { return "sends something else".to_owned() };
        let step = |step: &Step| format!("{:?} of `{}`", step.kind, step.statement);
        let steps: Vec<String> = group.steps.iter().map(step).collect();
        format!("sends {}{}", steps.join(", "), if group.synced { "" } else { ", Flush" })
    }

    /// Writes something to the output.
    pub(super) fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        write(&mut out);
        self.output.extend(out);
    }

    pub(super) fn claim_rows(&mut self, claim: Claim, context: &mut ClientContext<'_>) {
        for tag in self.rows.drain(..) {
            context.checker.claim(tag, claim);
        }
    }

    /// The session is over: what can be said of rows whose fate it was not told?
    fn settle_rows(&mut self, context: &mut ClientContext<'_>) {
        let open = self.view.status != Status::Idle;
        let ends = self.groups.iter().any(|group| group.ends_transaction);
        let synced = self.groups.iter().any(|group| group.synced);
        let hopeless = if open { !ends } else { !synced };
        let claim = if hopeless { Claim::NotApplied } else { Claim::Unknown };
        let left = self.groups.iter().flat_map(|group| group.steps.iter());
        let inserts = left.filter(|step| matches!(step.statement, Statement::Insert(_) | Statement::CopyIn));
        for step in inserts {
            context.checker.claim(step.tag, claim);
        }
        self.claim_rows(claim, context);
    }

    pub(super) fn oldest(&self) -> Option<&Step> {
        self.groups.front().and_then(|group| group.steps.front())
    }

    pub(super) fn object(&mut self, invariant: &'static str, text: String, context: &mut ClientContext<'_>) {
        context.checker.object(invariant, format!("c{} {text}", self.number));
    }
}
