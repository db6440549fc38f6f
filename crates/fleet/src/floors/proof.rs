//! Which backends of PostgreSQL may be connections of processes that were gone when this one began: its *suspects*, by budget.
//!
//! The first list of a budget's backends has all of them, as such a process opens no more connections; each later list can only leave some out that are closed by then.
//! So does the report of a live node: what it has is not of a process that is gone. (A process id that is used again, in a list, is taken for the old one: that is
//! cautious; in a report the old one is gone.) Nothing of this needs the store, but without the reports those of live nodes remain among the suspects until they are closed.
//! Connections of other programs remain, too, if they were there at first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::budget::BudgetName;
use crate::ledger::Context;
use crate::ledgers::Ledgers;
use crate::reports::Reports;
use crate::store::{Backend, CallId, NodeId, Request};

/// Between rounds, at first and at most.
const PAUSE_US: (u64, u64) = (250_000, 2_000_000);
/// Between audits, at most: another one helps only where a node could not report all that it has.
const LONGEST_CALL_PAUSE_US: u64 = 60_000_000;
/// For an answer of PostgreSQL, for the writing of the audit, and for the reports of all nodes.
const LIST_US: u64 = 15_000_000;
const CALL_US: u64 = 4_000_000;
const REPORTS_US: u64 = 2_000_000;
/// Budgets of one round.
const MOST_BUDGETS: usize = 256;
/// Budgets whose suspects are remembered although nothing counts in them any more.
const MOST_KEPT: usize = 10_000;

#[derive(Clone, Debug, Default)]
enum Round {
    #[default]
    Idle,
    Listing {
        call: CallId,
        until_us: u64,
    },
    /// The audit has to be written; `call` does it. One that was sent before the list does not count.
    Calling {
        call: Option<CallId>,
        until_us: u64,
    },
    Waiting {
        audit: u64,
        until_us: u64,
    },
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Proof {
    round: Round,
    next_us: u64,
    pause_us: u64,
    /// The same of audits.
    next_call_us: u64,
    call_pause_us: u64,
    suspects: BTreeMap<BudgetName, BTreeSet<Backend>>,
    /// Of the last round: budgets for which PostgreSQL could not be asked, and nodes without a report.
    pub(super) unlisted: usize,
    pub(super) unreported: Vec<NodeId>,
}

impl Proof {
    /// A process that goes on as another one, which had proven these.
    pub(super) fn of(proven: Vec<BudgetName>) -> Proof {
        let suspects = proven.into_iter().map(|name| (name, BTreeSet::new())).collect();
        Proof { suspects, ..Proof::default() }
    }

    /// Budgets without suspects.
    pub(super) fn proven(&self) -> Vec<BudgetName> {
        self.suspects
            .iter()
            .filter(|(_, backends)| backends.is_empty())
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Backends that withhold floors.
    pub(super) fn all_suspects(&self) -> usize {
        self.suspects.values().flatten().collect::<BTreeSet<_>>().len()
    }

    /// The same, each as often as there are budgets in which it counts.
    fn suspects(&self) -> usize {
        self.suspects.values().map(BTreeSet::len).sum()
    }

    /// Another budget waits for its floor.
    pub(super) fn hurry(&mut self) {
        self.next_us = 0;
    }

    /// Sets the floors by what is known.
    pub(super) fn apply(&self, ledgers: &mut Ledgers) {
        for at in ledgers.withheld() {
            let Some(backends) = ledgers.get(at).and_then(|ledger| self.suspects.get(&ledger.name)) else {
                continue;
            };
            ledgers.set_suspects(at, u32::try_from(backends.len()).unwrap_or(u32::MAX));
        }
    }

    pub(super) fn deadline_us(&self, ledgers: &Ledgers, reports: &Reports) -> Option<u64> {
        match &self.round {
            Round::Idle => ledgers.has_withheld().then_some(self.next_us),
            Round::Calling { until_us, .. } => {
                Some(reports.call_due_us().map_or(*until_us, |due_us| due_us.min(*until_us)))
            }
            Round::Listing { until_us, .. } | Round::Waiting { until_us, .. } => Some(*until_us),
        }
    }

    /// The next request. `can_call`: the store is watched, so that nodes can be asked for reports.
    pub(super) fn poll(
        &mut self,
        ledgers: &mut Ledgers,
        reports: &mut Reports,
        context: &Context<'_>,
        can_call: bool,
        mut next_call: impl FnMut() -> CallId,
    ) -> Option<Request> {
        let now_us = context.now_us;
        match &mut self.round {
            Round::Idle if now_us >= self.next_us => self.begin(ledgers, now_us, next_call()),
            Round::Idle => None,
            Round::Listing { until_us, .. } => {
                if now_us >= *until_us {
                    self.unlisted = ledgers.withheld().len();
                    self.pause(now_us, false);
                }
                None
            }
            Round::Calling { until_us, .. } if !can_call || now_us >= *until_us => {
                self.pause(now_us, false);
                None
            }
            Round::Calling { call, .. } => {
                let request = reports.call(context, next_call);
                if let Some(Request::Swap { call: asked, .. }) = &request {
                    *call = Some(*asked);
                }
                request
            }
            Round::Waiting { audit, until_us } => {
                let (audit, is_late) = (*audit, now_us >= *until_us);
                let missing = missing(reports, audit, context);
                if missing.is_empty() || is_late {
                    self.unreported = missing;
                    self.reported(ledgers, &reports.backends(audit, context), now_us);
                }
                None
            }
        }
    }

    fn begin(&mut self, ledgers: &Ledgers, now_us: u64, call: CallId) -> Option<Request> {
        if self.suspects.len() > MOST_KEPT {
            self.suspects.retain(|name, _| ledgers.find(name).is_some());
        }
        // Those that were not asked for yet come first.
        let names = ledgers.withheld().into_iter().filter_map(|at| Some(ledgers.get(at)?.name.clone()));
        let (known, mut budgets): (Vec<_>, Vec<_>) = names.partition(|name| self.suspects.contains_key(name));
        budgets.extend(known);
        budgets.truncate(MOST_BUDGETS);
        if budgets.is_empty() {
            return None;
        }
        self.round = Round::Listing { call, until_us: now_us + LIST_US };
        Some(Request::ListBackends { call, budgets })
    }

    /// PostgreSQL's answer.
    pub(super) fn listed(
        &mut self,
        answered: CallId,
        lists: &[(BudgetName, Vec<Backend>)],
        ledgers: &mut Ledgers,
        now_us: u64,
    ) {
        if !matches!(self.round, Round::Listing { call, .. } if call == answered) {
            return;
        }
        let before = self.suspects();
        for (name, backends) in lists {
            let listed: BTreeSet<Backend> = backends.iter().cloned().collect();
            match self.suspects.get_mut(name) {
                Some(suspects) => suspects.retain(|backend| listed.contains(backend)),
                None => {
                    self.suspects.insert(name.clone(), listed);
                    self.next_call_us = now_us;
                }
            }
        }
        self.apply(ledgers);
        let is_unlisted = |at: &crate::ledgers::Index| {
            ledgers.get(*at).is_some_and(|ledger| !lists.iter().any(|(name, _)| *name == ledger.name))
        };
        let withheld = ledgers.withheld();
        self.unlisted = withheld.iter().filter(|at| is_unlisted(at)).count();
        if self.unlisted < withheld.len() && now_us >= self.next_call_us {
            self.round = Round::Calling { call: None, until_us: now_us + CALL_US };
        } else {
            self.pause(now_us, self.suspects() != before);
        }
    }

    /// An audit of this node has been written by this call.
    pub(super) fn called(&mut self, by: CallId, audit: u64, now_us: u64) {
        if matches!(self.round, Round::Calling { call: Some(call), .. } if call == by) {
            self.round = Round::Waiting { audit, until_us: now_us + REPORTS_US };
        }
    }

    /// These backends are of live nodes.
    fn reported(&mut self, ledgers: &mut Ledgers, known: &BTreeSet<(Arc<str>, u32)>, now_us: u64) {
        let before = self.suspects();
        let is_unknown = |backend: &Backend| !known.contains(&(Arc::clone(&backend.server), backend.pid));
        self.suspects.values_mut().for_each(|backends| backends.retain(is_unknown));
        self.apply(ledgers);
        let (shortest_us, longest_us) = (PAUSE_US.0, LONGEST_CALL_PAUSE_US);
        let is_useful = self.suspects() != before || !self.unreported.is_empty();
        self.call_pause_us =
            if is_useful { shortest_us } else { (self.call_pause_us * 2).clamp(shortest_us, longest_us) };
        self.next_call_us = now_us + self.call_pause_us;
        self.pause(now_us, self.suspects() != before);
    }

    fn pause(&mut self, now_us: u64, has_changed: bool) {
        let (shortest_us, longest_us) = PAUSE_US;
        self.pause_us =
            if has_changed { shortest_us } else { (self.pause_us * 2).clamp(shortest_us, longest_us) };
        self.next_us = now_us + self.pause_us;
        self.round = Round::Idle;
    }
}

/// Nodes whose reports are still to come; the own one only comes while the node is a member.
fn missing(reports: &Reports, audit: u64, context: &Context<'_>) -> Vec<NodeId> {
    let mut missing = reports.missing(audit, context);
    missing.retain(|id| context.can_swap || id != context.id);
    missing
}
