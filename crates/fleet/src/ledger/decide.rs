//! What a budget needs: whether slots are taken, given back or asked for, and when that is looked at again.

use std::collections::BTreeMap;

use super::{Ledger, Plan};
use crate::fair::divide;
use crate::store::{NodeId, NodeRecord, SessionId};
use crate::text::Entry;

/// Slots that are not used are kept for so long.
const UNUSED_US: u64 = 1_000_000;
/// Between two swaps that give back slots which others want.
const GIVE_US: u64 = 100_000;
/// A node that keeps one of too few slots passes it on after so long.
const TURN_US: u64 = 1_000_000;
/// Between two swaps that only change what is wanted.
const WANTED_US: u64 = 1_000_000;

/// What a decision depends on besides the budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) id: &'a NodeId,
    pub(crate) session: SessionId,
    /// Earlier sessions of this process.
    pub(crate) earlier: &'a [SessionId],
    /// The nodes with a record.
    pub(crate) live: &'a BTreeMap<NodeId, NodeRecord>,
    /// It has a session and a watch.
    pub(crate) can_swap: bool,
    pub(crate) is_leaving: bool,
    pub(crate) now_us: u64,
}

impl Context<'_> {
    pub(crate) fn is_present(&self, entry: &Entry) -> bool {
        entry.node == *self.id && entry.session == self.session
    }

    /// Of an earlier session of this process.
    pub(crate) fn is_earlier(&self, entry: &Entry) -> bool {
        entry.node == *self.id && self.earlier.contains(&entry.session)
    }

    /// No live node has a smaller id.
    pub(crate) fn is_first(&self) -> bool {
        self.live.keys().next().is_none_or(|id| id >= self.id)
    }

    fn is_live(&self, entry: &Entry) -> bool {
        self.is_present(entry)
            || self.live.get(&entry.node).is_some_and(|record| record.session == entry.session)
    }

    /// Its session is over, or this process does not know better, and it is not of this process.
    pub(crate) fn is_orphan(&self, entry: &Entry) -> bool {
        !self.is_live(entry) && !self.is_earlier(entry)
    }
}

/// What to do now, and when to look again if nothing happens before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) swap: Option<Plan>,
    pub(crate) wake_us: Option<u64>,
    /// The object has been changed long ago, and the watch has not shown it.
    pub(crate) is_stale: bool,
}

/// How the slots of a budget are distributed, and how they should be.
#[derive(Clone, Copy, Debug, Default)]
struct Balance {
    own: u32,
    /// Of the own entry in the store.
    written: u32,
    /// Slots that no entry has.
    free: u32,
    /// Another live node wants more than it has, or more slots are leased than there are.
    is_short: bool,
    /// The own part of a fair division.
    target: u32,
    /// Slots that the others need of this node.
    give: u32,
    /// Another live node wants slots and is to have none, and this one is the first of those that have one.
    is_turn: bool,
}

/// Leased slots that the node would use.
#[derive(Clone, Copy, Debug, Default)]
struct Need {
    /// Idle connections included.
    open: u32,
    /// What counts while slots are short.
    in_use: u32,
}

impl Ledger {
    /// Looks at the budget: sets the allowance, and decides whether to write.
    pub(crate) fn decide(&mut self, context: &Context<'_>) -> Decision {
        let mut decision = Decision::default();
        if context.can_swap && self.foreign.is_none() {
            let need = self.need(context.is_leaving);
            let mut turn = self.turn.clone();
            let mut balance = self.balance(context, need, turn.as_ref());
            if self.passes_turn(context, balance, &mut decision) {
                turn = Some(context.id.clone());
                balance = self.balance(context, need, turn.as_ref());
            }
            self.limit_to = self.limit(context, need, balance, &mut decision);
            self.update(context.id, context.session);
            if self.may_write(context.now_us, &mut decision) {
                self.write(context, need, balance, turn, &mut decision);
            }
        } else {
            self.update(context.id, context.session);
        }
        decision
    }

    fn may_write(&self, now_us: u64, decision: &mut Decision) -> bool {
        if self.swap.is_some() {
            return false;
        }
        if let Some(until_us) = self.stale_until_us {
            if now_us < until_us {
                decision.wake_at(until_us);
            } else {
                decision.is_stale = true;
            }
            return false;
        }
        if now_us < self.retry_us {
            decision.wake_at(self.retry_us);
            return false;
        }
        true
    }

    /// Whether the node passes a slot on because others have none at all, and has kept it for long enough.
    fn passes_turn(&mut self, context: &Context<'_>, balance: Balance, decision: &mut Decision) -> bool {
        if !balance.is_turn {
            self.starving_since_us = None;
            return false;
        }
        let until_us = *self.starving_since_us.get_or_insert(context.now_us) + TURN_US;
        if context.now_us < until_us {
            decision.wake_at(until_us);
        }
        context.now_us >= until_us
    }

    fn write(
        &self,
        context: &Context<'_>,
        need: Need,
        balance: Balance,
        turn: Option<NodeId>,
        decision: &mut Decision,
    ) {
        let has_earlier = self.entries.iter().any(|entry| context.is_earlier(entry));
        let must_claim = self.must_claim && self.entries.iter().any(|entry| context.is_present(entry));
        let own = if has_earlier || must_claim {
            // All slots of this process's sessions become the present one's.
            let is_own = |entry: &&Entry| context.is_earlier(entry) || context.is_present(entry);
            Some(self.entries.iter().filter(is_own).map(|entry| entry.slots).sum())
        } else {
            self.give_back(context.now_us, balance, decision)
                .or_else(|| self.take(need, balance))
                .or_else(|| self.unresolved.filter(|least| *least < balance.own).map(|_| balance.own))
                .or_else(|| self.say_wanted(context, need, balance, decision))
                .or_else(|| self.has_empty_orphan(context).then_some(balance.own))
        };
        decision.swap = own.map(|own| self.plan(context, own, need.in_use, turn));
    }

    /// Whether there is an entry to be removed that needs no audit. The first of the live nodes does it.
    fn has_empty_orphan(&self, context: &Context<'_>) -> bool {
        let is_empty = |entry: &Entry| entry.slots == 0 && context.is_orphan(entry);
        self.entries.iter().any(is_empty) && context.is_first()
    }

    fn need(&self, is_leaving: bool) -> Need {
        let Some(division) = self.config.filter(|_| !is_leaving) else { return Need::default() };
        let leased = |connections: u32| connections.saturating_sub(self.floor).min(division.shared);
        let usage = self.usage;
        Need {
            open: leased(usage.open.saturating_add(usage.waiting)),
            in_use: leased(usage.in_use.saturating_add(usage.waiting)),
        }
    }

    /// The shared part that all nodes agree on: the smallest.
    pub(crate) fn effective_shared(&self, context: &Context<'_>) -> u32 {
        let others = self.entries.iter().filter(|entry| !context.is_present(entry) && context.is_live(entry));
        let own = self.config.map(|division| division.shared);
        others.map(|entry| entry.shared).chain(own).min().unwrap_or(0)
    }

    fn balance(&self, context: &Context<'_>, need: Need, turn: Option<&NodeId>) -> Balance {
        let own_entry = self.entries.iter().find(|entry| context.is_present(entry));
        let own = own_entry.map_or(0, |entry| entry.slots);
        let written = own_entry.map_or(0, |entry| entry.wanted);
        let is_rival = |entry: &&Entry| !context.is_present(entry) && context.is_live(entry);
        let total: u32 = self.entries.iter().map(|entry| entry.slots).fold(0, u32::saturating_add);
        let effective = self.effective_shared(context);
        let free = effective.saturating_sub(total);
        let is_wanted = self.entries.iter().filter(is_rival).any(|entry| entry.wanted > entry.slots);
        let mut balance =
            Balance { own, written, free, is_short: is_wanted || total > effective, ..Balance::default() };
        if !balance.is_short {
            balance.target = need.in_use;
            return balance;
        }
        // By id, the own entry in its place; where there is not a slot for each, behind the one that has passed its turn last.
        let mut rivals: Vec<(&NodeId, u32, u32)> = self
            .entries
            .iter()
            .filter(is_rival)
            .map(|entry| (&entry.node, entry.slots, entry.wanted))
            .collect();
        let place = rivals.partition_point(|(node, ..)| *node < context.id);
        rivals.insert(place, (context.id, own, need.in_use));
        let leased: u32 = rivals.iter().map(|(_, slots, _)| *slots).sum();
        let capacity = effective.saturating_sub(total - leased);
        let takers = rivals.iter().filter(|(_, _, wanted)| *wanted > 0).count();
        let has_floor = self.config.is_none_or(|division| division.floor > 0);
        let is_starving = !has_floor && u32::try_from(takers).unwrap_or(u32::MAX) > capacity;
        let turn = turn.filter(|_| is_starving);
        let first = turn.map_or(0, |turn| rivals.partition_point(|(node, ..)| *node <= turn));
        rivals.rotate_left(first);
        let place = (place + rivals.len() - first) % rivals.len();
        let wants: Vec<u32> = rivals.iter().map(|(_, _, wanted)| *wanted).collect();
        let targets = divide(capacity, &wants);
        let holder = rivals.iter().position(|(_, slots, _)| *slots > 0);
        balance.is_turn = is_starving && holder == Some(place);
        let mut missing: u32 =
            rivals.iter().zip(&targets).map(|((_, slots, _), to)| to.saturating_sub(*slots)).sum();
        missing = missing.saturating_add(total.saturating_sub(effective)).saturating_sub(free);
        // Those that have too many give in their order until nothing is missing.
        for (at, ((_, slots, _), target)) in rivals.iter().zip(&targets).enumerate() {
            let give = slots.saturating_sub(*target).min(missing);
            missing -= give;
            if at == place {
                balance.target = *target;
                balance.give = give;
                break;
            }
        }
        balance
    }

    /// To how many leased slots the node limits itself, if it has too many.
    fn limit(
        &mut self,
        context: &Context<'_>,
        need: Need,
        balance: Balance,
        decision: &mut Decision,
    ) -> Option<u32> {
        let Some(division) = self.config.filter(|_| !context.is_leaving) else { return Some(0) };
        if balance.give > 0 {
            return Some(balance.own - balance.give);
        }
        let keep = division.round_up(need.open).min(balance.own);
        if keep == balance.own {
            self.unused_since_us = None;
            return None;
        }
        let since_us = *self.unused_since_us.get_or_insert(context.now_us);
        if context.now_us < since_us + UNUSED_US {
            decision.wake_at(since_us + UNUSED_US);
            return None;
        }
        Some(keep)
    }

    /// How many own slots remain, if some can be given back.
    fn give_back(&self, now_us: u64, balance: Balance, decision: &mut Decision) -> Option<u32> {
        let to = self.limit_to?.max(self.excess);
        if to >= balance.own {
            return None;
        }
        let due_us = self.written_us.map_or(0, |written_us| written_us + GIVE_US);
        if now_us < due_us {
            decision.wake_at(due_us);
            return None;
        }
        Some(to)
    }

    /// How many own slots there are to be, if more can be taken.
    fn take(&self, need: Need, balance: Balance) -> Option<u32> {
        let division = self.config?;
        if self.limit_to.is_some() {
            return None;
        }
        let wanted =
            if balance.is_short { need.in_use.min(balance.target) } else { division.round_up(need.open) };
        let own = wanted.min(balance.own.saturating_add(balance.free));
        (own > balance.own && need.open > balance.own).then_some(own)
    }

    /// The own slots as they are, if what is wanted has to be written.
    fn say_wanted(
        &self,
        context: &Context<'_>,
        need: Need,
        balance: Balance,
        decision: &mut Decision,
    ) -> Option<u32> {
        let is_short = balance.is_short || need.in_use > balance.own || balance.written > balance.own;
        let own_entry = self.entries.iter().find(|entry| context.is_present(entry));
        let shared = self.config.map(|division| division.shared);
        let has_other_shared = own_entry.zip(shared).is_some_and(|(entry, shared)| entry.shared != shared);
        if !(is_short && need.in_use != balance.written || has_other_shared) {
            return None;
        }
        let due_us = self.written_us.map_or(0, |written_us| written_us + WANTED_US);
        if context.now_us < due_us {
            decision.wake_at(due_us);
            return None;
        }
        Some(balance.own)
    }

    /// The entries with `own` slots of the present session. Those of others that are over and have no slots are left out.
    fn plan(&self, context: &Context<'_>, own: u32, wanted: u32, turn: Option<NodeId>) -> Plan {
        let is_kept = |entry: &&Entry| {
            let is_own = context.is_present(entry) || context.is_earlier(entry);
            !is_own && (entry.slots > 0 || context.is_live(entry))
        };
        let mut entries: Vec<Entry> = self.entries.iter().filter(is_kept).cloned().collect();
        if own > 0 || wanted > 0 {
            let (node, session) = (context.id.clone(), context.session);
            let place = entries.partition_point(|entry| (&entry.node, entry.session) < (&node, session));
            let before = self.entries.iter().find(|entry| entry.node == node).map(|entry| entry.shared);
            // Without a pool of its own it has no opinion any more.
            let shared = self.config.map(|division| division.shared).or(before).unwrap_or(0);
            entries.insert(place, Entry { node, session, slots: own, wanted, shared });
        }
        Plan { expected: self.known.expected(), turn, entries }
    }
}

impl Decision {
    fn wake_at(&mut self, at_us: u64) {
        self.wake_us = Some(self.wake_us.map_or(at_us, |before_us| before_us.min(at_us)));
    }
}
