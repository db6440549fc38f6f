//! All budgets, by name and by object, and which of them have to be looked at now or later.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::budget::{BudgetName, Division};
use crate::ledger::{Context, Ledger, Plan, budget_of, object_of};
use crate::store::{CallId, NodeId, Object, ObjectName, Request, Revision, SessionId};

/// Budgets that only other nodes have pools of are followed up to this number.
const MOST_UNCONFIGURED: usize = 20_000;
/// Swaps that are under way at the same time.
const MOST_SWAPS: usize = 64;

/// A budget's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Index(usize);

#[derive(Debug)]
struct Slot {
    ledger: Ledger,
    is_dirty: bool,
    is_changed: bool,
    wake_us: Option<u64>,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Ledgers {
    slots: Vec<Option<Slot>>,
    empty: Vec<Index>,
    by_name: BTreeMap<BudgetName, Index>,
    by_object: BTreeMap<ObjectName, Index>,
    dirty: VecDeque<Index>,
    changed: VecDeque<Index>,
    timers: BTreeSet<(u64, Index)>,
    swaps: BTreeMap<CallId, Index>,
    /// Budgets that have orphaned slots, and since when.
    orphaned: BTreeMap<Index, u64>,
    /// Of budgets that are added, the floors may not be used.
    are_floors_withheld: bool,
    /// Budgets of which a part of the floor is withheld.
    withheld: BTreeSet<Index>,
    is_resumed: bool,
    is_sure: bool,
    is_stale: bool,
    unconfigured: usize,
    created: u64,
}

impl Ledgers {
    pub(crate) fn new(is_resumed: bool, are_floors_withheld: bool) -> Ledgers {
        Ledgers { is_resumed, are_floors_withheld, ..Ledgers::default() }
    }

    pub(crate) fn find(&self, name: &BudgetName) -> Option<Index> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn get(&self, at: Index) -> Option<&Ledger> {
        self.slots.get(at.0)?.as_ref().map(|slot| &slot.ledger)
    }

    pub(crate) fn get_mut(&mut self, at: Index) -> Option<&mut Ledger> {
        self.slots.get_mut(at.0)?.as_mut().map(|slot| &mut slot.ledger)
    }

    /// By name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Ledger> {
        self.by_name.values().filter_map(|at| self.get(*at))
    }

    pub(crate) fn indexes(&self) -> Vec<Index> {
        self.by_name.values().copied().collect()
    }

    /// Since when budgets have had orphaned slots.
    pub(crate) fn orphaned(&self) -> &BTreeMap<Index, u64> {
        &self.orphaned
    }

    /// Divides the limits of the budgets that this node has pools of.
    pub(crate) fn configure(&mut self, budgets: &BTreeMap<BudgetName, Division>) {
        for (name, division) in budgets {
            let at = match self.find(name) {
                Some(at) => at,
                None => self.add(name.clone(), object_of(name)),
            };
            self.set_division(at, Some(*division));
        }
        for at in self.indexes() {
            if self.get(at).is_some_and(|ledger| !budgets.contains_key(&ledger.name)) {
                self.set_division(at, None);
            }
        }
    }

    fn set_division(&mut self, at: Index, division: Option<Division>) {
        let Some(ledger) = self.get_mut(at) else { return };
        if ledger.division() == division {
            return;
        }
        let was = ledger.division().is_some();
        ledger.configure(division);
        let is_withheld = ledger.is_withheld();
        self.note_withheld(at, is_withheld);
        match (was, division.is_some()) {
            (true, false) => self.unconfigured += 1,
            (false, true) => self.unconfigured -= 1,
            _ => {}
        }
        self.touch(at);
    }

    fn add(&mut self, name: BudgetName, object: ObjectName) -> Index {
        let at = self.empty.pop().unwrap_or(Index(self.slots.len()));
        if at.0 == self.slots.len() {
            self.slots.push(None);
        }
        // No version is used twice for one name.
        self.created += 1;
        let version = self.created << 32;
        self.by_name.insert(name.clone(), at);
        self.by_object.insert(object.clone(), at);
        let mut ledger = Ledger::new(name, object, version, self.is_resumed, self.is_sure);
        if self.are_floors_withheld {
            ledger.set_suspects(u32::MAX);
        }
        if let Some(place) = self.slots.get_mut(at.0) {
            *place = Some(Slot { ledger, is_dirty: false, is_changed: false, wake_us: None });
        }
        self.unconfigured += 1;
        at
    }

    fn remove(&mut self, at: Index) {
        let Some(slot) = self.slots.get_mut(at.0).and_then(Option::take) else { return };
        self.by_name.remove(&slot.ledger.name);
        self.by_object.remove(&slot.ledger.object);
        self.orphaned.remove(&at);
        self.withheld.remove(&at);
        if let Some(wake_us) = slot.wake_us {
            self.timers.remove(&(wake_us, at));
        }
        self.dirty.retain(|other| *other != at);
        self.changed.retain(|other| *other != at);
        self.empty.push(at);
        self.unconfigured -= usize::from(slot.ledger.division().is_none());
    }

    fn note_withheld(&mut self, at: Index, is_withheld: bool) {
        if is_withheld {
            self.withheld.insert(at);
        } else {
            self.withheld.remove(&at);
        }
    }

    pub(crate) fn withheld(&self) -> Vec<Index> {
        self.withheld.iter().copied().collect()
    }

    pub(crate) fn has_withheld(&self) -> bool {
        !self.withheld.is_empty()
    }

    /// So much of a budget's floor may be used by connections of processes that are gone.
    pub(crate) fn set_suspects(&mut self, at: Index, suspects: u32) {
        let Some(ledger) = self.get_mut(at) else { return };
        let (has_changed, is_withheld) = (ledger.set_suspects(suspects), ledger.is_withheld());
        self.note_withheld(at, is_withheld);
        if has_changed {
            self.touch(at);
        }
    }

    /// No floor may be used.
    pub(crate) fn withhold_floors(&mut self) {
        self.set_all_suspects(u32::MAX);
    }

    /// All floors may be used.
    pub(crate) fn release_floors(&mut self) {
        self.set_all_suspects(0);
    }

    fn set_all_suspects(&mut self, suspects: u32) {
        self.are_floors_withheld = suspects > 0;
        for at in self.indexes() {
            self.set_suspects(at, suspects);
        }
    }

    /// Whether the process has no connection that counts.
    pub(crate) fn are_closed(&self) -> bool {
        self.all().all(Ledger::is_closed)
    }

    /// It is looked at by the next [`Ledgers::next_dirty`].
    pub(crate) fn touch(&mut self, at: Index) {
        let Some(slot) = self.slots.get_mut(at.0).and_then(Option::as_mut) else { return };
        if !slot.is_dirty {
            slot.is_dirty = true;
            self.dirty.push_back(at);
        }
        if !slot.is_changed {
            slot.is_changed = true;
            self.changed.push_back(at);
        }
    }

    pub(crate) fn touch_all(&mut self) {
        for at in self.indexes() {
            self.touch(at);
        }
    }

    /// Budgets whose allowance may have changed; each once.
    pub(crate) fn next_changed(&mut self) -> Option<Index> {
        let at = self.changed.pop_front()?;
        if let Some(slot) = self.slots.get_mut(at.0).and_then(Option::as_mut) {
            slot.is_changed = false;
        }
        Some(at)
    }

    pub(crate) fn deadline_us(&self) -> Option<u64> {
        self.timers.first().map(|(at_us, _)| *at_us)
    }

    fn set_timer(&mut self, at: Index, wake_us: Option<u64>) {
        let Some(slot) = self.slots.get_mut(at.0).and_then(Option::as_mut) else { return };
        if slot.wake_us == wake_us {
            return;
        }
        if let Some(before_us) = std::mem::replace(&mut slot.wake_us, wake_us) {
            self.timers.remove(&(before_us, at));
        }
        if let Some(wake_us) = wake_us {
            self.timers.insert((wake_us, at));
        }
    }

    /// The node is sure of its session, or is not any more.
    pub(crate) fn set_sure(&mut self, is_sure: bool, id: &NodeId, session: SessionId) {
        self.is_sure = is_sure;
        self.slots.iter_mut().flatten().for_each(|slot| slot.ledger.set_sure(is_sure, id, session));
        self.touch_all();
    }

    /// Whether a budget has slots of this process, or will soon.
    pub(crate) fn has_own(&self, context: &Context<'_>) -> bool {
        let is_own = |entry: &crate::text::Entry| context.is_present(entry) || context.is_earlier(entry);
        !self.swaps.is_empty() || self.all().any(|ledger| ledger.entries().iter().any(is_own))
    }

    /// Whether a swap has met a change that was not heard of in time: everything has to be read again.
    pub(crate) fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.is_stale)
    }

    /// A snapshot is asked for.
    pub(crate) fn before_snapshot(&mut self) {
        self.slots.iter_mut().flatten().for_each(|slot| slot.ledger.before_snapshot());
    }

    /// It has come, with this revision; its objects follow.
    pub(crate) fn at_snapshot(&mut self, revision: Revision) {
        self.slots.iter_mut().flatten().for_each(|slot| slot.ledger.at_snapshot(revision));
    }

    /// A snapshot has been read, in which these budgets had objects.
    pub(crate) fn after_snapshot(&mut self, present: &BTreeSet<Index>) {
        for at in self.indexes() {
            if let Some(ledger) = self.get_mut(at) {
                ledger.after_snapshot(present.contains(&at));
            }
        }
        self.is_resumed = false;
        self.touch_all();
    }

    /// The next swap that a budget needs.
    pub(crate) fn poll(
        &mut self,
        context: &Context<'_>,
        next_call: impl FnOnce() -> CallId,
    ) -> Option<Request> {
        while let Some((at_us, at)) =
            self.timers.first().copied().filter(|(at_us, _)| *at_us <= context.now_us)
        {
            self.timers.remove(&(at_us, at));
            if let Some(slot) = self.slots.get_mut(at.0).and_then(Option::as_mut) {
                slot.wake_us = None;
            }
            self.touch(at);
        }
        while self.swaps.len() < MOST_SWAPS {
            let at = self.dirty.pop_front()?;
            let Some(slot) = self.slots.get_mut(at.0).and_then(Option::as_mut) else { continue };
            slot.is_dirty = false;
            let decision = slot.ledger.decide(context);
            let is_blank = decision.swap.is_none() && slot.ledger.is_blank();
            self.is_stale |= decision.is_stale;
            self.set_timer(at, decision.wake_us);
            if let Some(plan) = decision.swap {
                return self.swap(at, plan, context, next_call());
            }
            if is_blank {
                self.remove(at);
            }
        }
        None
    }

    /// Writes a budget's object.
    pub(crate) fn swap(
        &mut self,
        at: Index,
        plan: Plan,
        context: &Context<'_>,
        call: CallId,
    ) -> Option<Request> {
        let ledger = self.get_mut(at)?;
        let (name, expected) = (ledger.object.clone(), plan.expected);
        let contents = crate::text::write_slots(plan.turn.as_ref(), &plan.entries);
        ledger.begin_swap(call, plan, context.id, context.session);
        self.swaps.insert(call, at);
        Some(Request::Swap { call, name, expected, contents })
    }

    /// The answer to a swap goes to its budget; false if it is not one of a budget.
    pub(crate) fn answered(&mut self, call: CallId, answer: impl FnOnce(&mut Ledger)) -> Option<Index> {
        let at = self.swaps.remove(&call)?;
        answer(self.get_mut(at)?);
        self.touch(at);
        Some(at)
    }

    /// An object of slots as the watch shows it. None: not an object of slots that is followed.
    pub(crate) fn heard(&mut self, object: &Object) -> Option<Index> {
        let at = match self.by_object.get(&object.name) {
            Some(at) => *at,
            None => {
                object.contents.as_ref()?;
                let name = budget_of(&object.name).filter(|_| self.unconfigured < MOST_UNCONFIGURED)?;
                self.add(name, object.name.clone())
            }
        };
        if self.get_mut(at)?.heard(object.revision, object.contents.as_deref()) {
            self.touch(at);
        }
        Some(at)
    }

    /// Takes note of whether a budget has orphaned slots.
    pub(crate) fn note_orphans(&mut self, at: Index, context: &Context<'_>) {
        let is_orphan = |entry: &crate::text::Entry| entry.slots > 0 && context.is_orphan(entry);
        if self.get(at).is_some_and(|ledger| ledger.entries().iter().any(is_orphan)) {
            self.orphaned.entry(at).or_insert(context.now_us);
        } else {
            self.orphaned.remove(&at);
        }
    }
}
