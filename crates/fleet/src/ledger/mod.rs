//! One budget: its object in the store as far as this node knows it, and what follows for the node's own connections.
//!
//! Safety rests on one invariant. Call the connections of a process above its floor its *excess*, and the slots of all entries of its sessions its *cover*. Then
//! always, for every process, dead or alive: excess <= cover. As the sum of all entries is at most the shared part (every swap that raises an entry checks it), the
//! sum of all excesses is at most the shared part. What keeps it:
//! - A process opens connections above its floor only while it is sure of its session, and only up to `usable`: the slots of its entry of that session, and not more
//!   than any swap that may still be carried out would leave ([`Ledger::usable`]).
//! - It lowers its entry only to a value that its excess is known not to pass: [`Ledger::excess`] is an upper bound, which falls only by a usage that was read after
//!   the lower allowance had been published.
//! - Entries of sessions that are over are only lowered by the audit (`reclaim`), and it proves that there.
//! - Such an entry becomes the present session's by a swap, and is not used before that; so an audit prepared before it fails.

mod decide;

use crate::budget::{BudgetKind, BudgetName, Division};
use crate::config::{Allowance, Usage};
use crate::known::Known;
use crate::store::{CallId, NodeId, ObjectName, Revision, SessionId};
use crate::text::{Entry, Slots, read_slots};

pub(crate) use decide::Context;

/// After a swap that was not answered.
const RETRY_US: u64 = 1_000_000;

/// Contents that the node wants the object to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) expected: Revision,
    pub(crate) turn: Option<NodeId>,
    pub(crate) entries: Vec<Entry>,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) name: BudgetName,
    pub(crate) object: ObjectName,
    /// None: no pool of this node counts in it.
    config: Option<Division>,
    /// Of the last configuration, less `suspects`: other nodes count with it when this one has no pool any more.
    floor: u32,
    /// The connections of the floor that may be open and are of a process that is gone (`floors`).
    suspects: u32,

    known: Known,
    /// The highest revision that the watch has shown: it may still show those up to that which is known.
    shown: Revision,
    /// Which node has passed its turn last: it is the last of those equal, where there is not a slot for each.
    turn: Option<NodeId>,
    entries: Vec<Entry>,
    foreign: Option<String>,

    /// With the revision that was known when it was sent.
    swap: Option<(CallId, Plan, Revision)>,
    /// The fewest own slots that a swap of the expected revision would leave that is or was under way. One of ABSENT can be carried out later, too, whenever the object is
    /// absent again; it only raises the own entry then.
    unresolved: Option<u32>,
    retry_us: u64,
    written_us: Option<u64>,
    /// A swap failed and the change that it met has not been heard of yet: for how long that is waited for.
    stale_until_us: Option<u64>,

    usage: Usage,
    /// An upper bound of the open connections above the floor.
    excess: u32,
    /// Fewer slots than `usable` are allowed, so that the others can be given back.
    limit_to: Option<u32>,
    unused_since_us: Option<u64>,
    /// Since when this node keeps a slot of which another one has none, and it is its turn to pass it on.
    starving_since_us: Option<u64>,
    /// The own entry has to be rewritten before it is used: another process of this session may have a swap under way.
    must_claim: bool,

    is_sure: bool,
    /// Slots that the pooler may use: of them `leased` above the floor.
    slots: u32,
    leased: u32,
    version: u64,
    /// What was given out last.
    published: Option<(u32, u32, u64)>,
}

impl Ledger {
    pub(crate) fn new(
        name: BudgetName,
        object: ObjectName,
        version: u64,
        is_resumed: bool,
        is_sure: bool,
    ) -> Ledger {
        Ledger {
            name,
            object,
            config: None,
            floor: 0,
            suspects: 0,
            known: Known::default(),
            shown: Revision::ABSENT,
            turn: None,
            entries: Vec::new(),
            foreign: None,
            swap: None,
            unresolved: None,
            retry_us: 0,
            written_us: None,
            stale_until_us: None,
            usage: Usage::default(),
            excess: if is_resumed { u32::MAX } else { 0 },
            limit_to: None,
            unused_since_us: None,
            starving_since_us: None,
            must_claim: is_resumed,
            is_sure,
            slots: 0,
            leased: 0,
            version,
            published: None,
        }
    }

    pub(crate) fn configure(&mut self, division: Option<Division>) {
        self.config = division;
        // The excess is another one with another floor: a usage that was read before says too little of it.
        self.version += 1;
        if let Some(division) = division {
            self.set_floor(division.floor.saturating_sub(self.suspects));
        }
        self.set_leased(self.leased);
    }

    fn set_floor(&mut self, floor: u32) {
        // At most `floor + excess` connections are open. What is not known stays so.
        if self.excess != u32::MAX {
            self.excess = self.floor.saturating_add(self.excess).saturating_sub(floor);
        }
        self.floor = floor;
    }

    /// Less of the floor is withheld, or more; false if that changes nothing.
    pub(crate) fn set_suspects(&mut self, suspects: u32) -> bool {
        self.suspects = suspects;
        let whole = self.config.map_or(self.floor, |division| division.floor);
        let floor = whole.saturating_sub(suspects);
        if floor == self.floor {
            return false;
        }
        self.version += 1;
        self.set_floor(floor);
        self.set_leased(self.leased);
        true
    }

    /// Whether there is a floor that is not used to the full.
    pub(crate) fn is_withheld(&self) -> bool {
        self.config.is_some_and(|division| self.floor < division.floor)
    }

    /// Whether no connection is open, by a usage that was read after the present allowance had been published.
    pub(crate) fn is_closed(&self) -> bool {
        let is_present = self.config.is_none() || self.usage.version == self.version;
        self.usage.open == 0 && is_present
    }

    pub(crate) fn division(&self) -> Option<Division> {
        self.config
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn foreign(&self) -> Option<&str> {
        self.foreign.as_deref()
    }

    pub(crate) fn expected(&self) -> Revision {
        self.known.expected()
    }

    pub(crate) fn is_swapping(&self) -> bool {
        self.swap.is_some()
    }

    /// Whether nothing is lost with it. If the watch still has revisions to show that are known already, they would be taken for news later.
    pub(crate) fn is_blank(&self) -> bool {
        let is_unused = self.usage.open == 0 && matches!(self.excess, 0 | u32::MAX);
        let is_idle = self.swap.is_none() && self.unresolved.is_none() && is_unused;
        let is_known = self.shown >= self.known.seen() && self.foreign.is_none();
        self.config.is_none() && self.entries.is_empty() && is_known && is_idle
    }

    /// What the pooler may open, but for the time.
    pub(crate) fn allowance(&self, until_us: u64) -> Allowance {
        let floor = self.own_floor();
        Allowance { slots: self.slots, until_us, floor, version: self.version }
    }

    /// The allowance if it has changed since it was given out here.
    pub(crate) fn take_change(&mut self, until_us: u64) -> Option<Allowance> {
        let now = (self.slots, self.own_floor(), self.version);
        if self.published == Some(now) {
            return None;
        }
        self.published = Some(now);
        Some(self.allowance(until_us))
    }

    fn own_floor(&self) -> u32 {
        if self.config.is_some() { self.floor } else { 0 }
    }

    /// Takes note of a usage; false if it changes nothing.
    pub(crate) fn set_usage(&mut self, usage: Usage) -> bool {
        let is_new = usage != self.usage;
        self.usage = usage;
        let excess = if usage.version == self.version {
            self.leased.max(usage.open.saturating_sub(self.floor))
        } else {
            self.excess
        };
        let is_lower = excess != self.excess;
        self.excess = excess;
        is_new || is_lower
    }

    /// Whether all connections of this process are covered by its floor and its entry of the present session. Only then may its backends be reported.
    pub(crate) fn is_covered(&self, id: &NodeId, session: SessionId) -> bool {
        self.excess <= self.usable(id, session)
    }

    /// Slots of the entry of the present session that this process may count on.
    fn usable(&self, id: &NodeId, session: SessionId) -> u32 {
        if self.must_claim || self.foreign.is_some() {
            return 0;
        }
        let own = self.own_slots(id, session);
        self.unresolved.map_or(own, |least| own.min(least))
    }

    pub(crate) fn own_slots(&self, id: &NodeId, session: SessionId) -> u32 {
        let own = self.entries.iter().find(|entry| entry.node == *id && entry.session == session);
        own.map_or(0, |entry| entry.slots)
    }

    /// The node is sure of its session, or is not any more.
    pub(crate) fn set_sure(&mut self, is_sure: bool, id: &NodeId, session: SessionId) {
        self.is_sure = is_sure;
        if !is_sure {
            self.limit_to = None;
            self.unused_since_us = None;
        }
        self.update(id, session);
    }

    /// Computes the allowance anew.
    fn update(&mut self, id: &NodeId, session: SessionId) {
        let usable = if self.is_sure { self.usable(id, session) } else { 0 };
        self.set_leased(usable);
    }

    fn set_leased(&mut self, usable: u32) {
        let shared = self.config.map_or(0, |division| division.shared);
        let leased = usable.min(shared).min(self.limit_to.unwrap_or(u32::MAX));
        let slots = self.own_floor() + leased;
        if slots < self.slots || leased < self.leased {
            self.version += 1;
        }
        self.slots = slots;
        self.leased = leased;
        self.excess = self.excess.max(leased);
    }
}

/// What the store says.
impl Ledger {
    /// An object as the watch shows it; false if that is not new.
    pub(crate) fn heard(&mut self, revision: Revision, contents: Option<&[u8]>) -> bool {
        let before = self.known.expected();
        let is_new = self.known.hear(revision, contents.is_some());
        self.shown = if is_new { revision } else { self.shown.max(revision) };
        if is_new {
            self.learn(before, contents);
        }
        is_new
    }

    /// A watch is asked for: what is written from now on may be newer than its snapshot.
    pub(crate) fn before_snapshot(&mut self) {
        self.known.before_snapshot();
    }

    /// It has come, with this revision; its objects follow.
    pub(crate) fn at_snapshot(&mut self, revision: Revision) {
        self.known.at_snapshot(revision);
    }

    /// A snapshot that was asked for after [`Ledger::before_snapshot`] has been read; what it has of this object has been heard.
    pub(crate) fn after_snapshot(&mut self, is_present: bool) {
        self.stale_until_us = None;
        let before = self.known.expected();
        if self.known.after_snapshot(is_present) {
            self.shown = self.known.seen();
            if before != Revision::ABSENT {
                self.learn(before, None);
            }
        }
    }

    fn learn(&mut self, before: Revision, contents: Option<&[u8]>) {
        if before != self.known.expected() {
            // A swap of the former revision has made this one, or will not be carried out.
            self.unresolved = None;
        }
        self.stale_until_us = None;
        let read = contents.map_or(Ok(Slots::default()), read_slots);
        let (slots, foreign) = match read {
            Ok(slots) => (slots, None),
            Err(what) => (Slots::default(), Some(what)),
        };
        self.set_turn(slots.turn);
        (self.entries, self.foreign) = (slots.entries, foreign);
    }

    fn set_turn(&mut self, turn: Option<NodeId>) {
        if turn != self.turn {
            self.turn = turn;
            self.starving_since_us = None;
        }
    }

    pub(crate) fn turn(&self) -> Option<&NodeId> {
        self.turn.as_ref()
    }

    /// A swap is sent.
    pub(crate) fn begin_swap(&mut self, call: CallId, plan: Plan, id: &NodeId, session: SessionId) {
        let own = plan.entries.iter().find(|entry| entry.node == *id && entry.session == session);
        let own = own.map_or(0, |entry| entry.slots);
        self.unresolved = Some(self.unresolved.map_or(own, |least| least.min(own)));
        self.swap = Some((call, plan, self.known.seen()));
        self.update(id, session);
    }

    fn end_swap(&mut self, answered: CallId) -> Option<(Plan, Revision)> {
        match self.swap.take() {
            Some((call, plan, seen)) if call == answered => Some((plan, seen)),
            other => {
                self.swap = other;
                None
            }
        }
    }

    pub(crate) fn swapped(&mut self, call: CallId, revision: Revision, now_us: u64) {
        let Some((plan, _)) = self.end_swap(call) else { return };
        self.written_us = Some(now_us);
        self.must_claim = false;
        if self.known.wrote(revision, !plan.entries.is_empty()) {
            self.set_turn(plan.turn);
            self.entries = plan.entries;
            self.unresolved = None;
            self.stale_until_us = None;
        }
    }

    pub(crate) fn conflicted(&mut self, call: CallId, until_us: u64) {
        let Some((_, seen)) = self.end_swap(call) else { return };
        if seen == self.known.seen() {
            self.stale_until_us = Some(until_us);
        }
    }

    pub(crate) fn unanswered(&mut self, call: CallId, now_us: u64) {
        if self.end_swap(call).is_some() {
            self.retry_us = now_us + RETRY_US;
        }
    }
}

/// `["slots", kind, database, user, host]`.
pub(crate) fn object_of(name: &BudgetName) -> ObjectName {
    let kind = match name.kind {
        BudgetKind::Pool => "pool",
        BudgetKind::Database => "database",
        BudgetKind::User => "user",
    };
    ObjectName(["slots", kind, &name.database, &name.user, &name.host].map(str::to_owned).to_vec())
}

/// None: not the name of a budget's object.
pub(crate) fn budget_of(object: &ObjectName) -> Option<BudgetName> {
    let [first, kind, database, user, host] = object.0.as_slice() else { return None };
    let kind = match kind.as_str() {
        "pool" => BudgetKind::Pool,
        "database" => BudgetKind::Database,
        "user" => BudgetKind::User,
        _ => return None,
    };
    (first == "slots").then(|| BudgetName {
        kind,
        database: database.as_str().into(),
        user: user.as_str().into(),
        host: host.as_str().into(),
    })
}
