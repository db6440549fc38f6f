//! The slots of nodes that are gone: taken back when PostgreSQL itself shows that their connections are.
//!
//! A round: (1) note the orphaned entries of budgets, (2) list the backends that count in them, (3) write a new audit, upon which every live
//! node writes down its backends, (4) when all have: `unknown` = backends of the list that no live node has; each orphaned entry may be lowered to what of
//! `unknown` a floor does not cover, if it was an orphan at (1) and is still there.
//!
//! Why the invariant of `ledger` (excess <= cover, for each process) is kept. Let E be an entry that the round lowers, S its session, P the process of S.
//! - At (1) S was over: it had joined before it wrote E, and the store's nodes did not have it any more. A session does not come
//!   back. P may still run: stopped, cut off, or joined with a later session. P opens connections above its floor only by an entry of a present session.
//! - If P has rewritten E for a later session, there is no such entry any more, or the swap fails. If P has not, E covers nothing that P opens from then on; also if a swap
//!   of P's that is as old as S has raised E since.
//! - So what E has to cover are connections that P opened while S was sure, and as the lease's margin has passed since and the round waits a second at first, they
//!   are in the list or closed. The backends of P that are in the list and open are each either in `unknown`, or in the report of P itself in a later session S'. P
//!   leaves out of its reports all backends of budgets in which its excess may pass the cover by its entry of S' (`Ledger::is_covered`): so if one is in the report,
//!   P needs no cover by E at all. Otherwise all are in `unknown`: P's excess is at most `unknown` less its floor, and P's other entries are lowered by the same
//!   rule, each as if it were the only one. Several orphaned entries may thus be kept for the same backends; that is cautious, and ends when the backends do.
//! - A process's floor covers backends only once: where a live session has the node's id, that one uses the floor, and nothing is subtracted. Nor is it of a process that holds
//!   no floors (`floors`): another one may begin in its place and use them. If the line is removed by one that begins, all that P has are suspects there.
//! - The list is older than the reports: a backend of a live node that is in the list and not in its report has been closed, or its process id is not known yet. Then
//!   it counts as unknown. A backend whose process id was used again in between is gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::budget::BudgetName;
use crate::floors::Floors;
use crate::ledger::{Context, Plan};
use crate::ledgers::{Index, Ledgers};
use crate::reports::Reports;
use crate::status::ReclaimStatus;
use crate::store::{Backend, CallId, NodeId, Request, SessionId};
use crate::text::Entry;

/// From the moment when an orphan is seen to the first round, and between rounds.
const PAUSE_US: u64 = 1_000_000;
/// While there are orphans for which it is too early.
const LOOK_US: u64 = 250_000;
/// Between rounds that changed nothing, at most.
const LONGEST_PAUSE_US: u64 = 8_000_000;
/// A node whose id is the second waits for so long more than the first, and so on.
const RANK_US: u64 = 3_000_000;
/// For an answer of PostgreSQL, and for the reports of all nodes.
const LIST_US: u64 = 15_000_000;
const REPORTS_US: u64 = 2_000_000;
/// Budgets of one round.
const MOST_BUDGETS: usize = 256;
/// Nodes of which it is remembered that they were seen to go.
const MOST_GONE: usize = 1_024;

/// A budget, its orphans before the list, and the list.
#[derive(Clone, Debug)]
struct Listed {
    at: Index,
    name: BudgetName,
    orphans: Vec<(NodeId, SessionId)>,
    backends: Vec<Backend>,
}

#[derive(Clone, Debug, Default)]
enum Round {
    #[default]
    Idle,
    Listing {
        call: CallId,
        budgets: Vec<Listed>,
        until_us: u64,
    },
    /// The audit has to be written; `call` does it. One that was sent before the list does not count.
    Calling {
        call: Option<CallId>,
        budgets: Vec<Listed>,
        until_us: u64,
    },
    Waiting {
        budgets: Vec<Listed>,
        audit: u64,
        until_us: u64,
    },
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    round: Round,
    next_us: u64,
    pause_us: u64,
    plans: Vec<(Index, Plan)>,
    /// Sessions whose records were seen to vanish, by node.
    gone: BTreeMap<NodeId, SessionId>,
    status: ReclaimStatus,
}

impl Reclaim {
    pub(crate) fn status(&self) -> ReclaimStatus {
        match self.round {
            Round::Idle => self.status.clone(),
            _ => ReclaimStatus::Running,
        }
    }

    /// A record has vanished.
    pub(crate) fn node_gone(&mut self, id: &NodeId, session: SessionId, now_us: u64) {
        if self.gone.len() < MOST_GONE || self.gone.contains_key(id) {
            self.gone.insert(id.clone(), session);
        }
        self.pause_us = PAUSE_US;
        self.next_us = self.next_us.min(now_us + PAUSE_US);
    }

    /// The session or the watch is over: so is the round.
    pub(crate) fn stop(&mut self) {
        self.round = Round::Idle;
        self.plans.clear();
    }

    pub(crate) fn deadline_us(&self, ledgers: &Ledgers, reports: &Reports) -> Option<u64> {
        match &self.round {
            Round::Idle => (!ledgers.orphaned().is_empty()).then_some(self.next_us),
            Round::Calling { until_us, .. } => {
                Some(reports.call_due_us().map_or(*until_us, |due_us| due_us.min(*until_us)))
            }
            Round::Listing { until_us, .. } | Round::Waiting { until_us, .. } => Some(*until_us),
        }
    }

    /// When the first round for a budget may begin.
    fn due_us(
        &self,
        ledgers: &Ledgers,
        context: &Context<'_>,
        at: Index,
        since_us: u64,
        lease_us: u64,
    ) -> u64 {
        let rank = context.live.keys().filter(|id| *id < context.id).count();
        let rank = u64::try_from(rank).unwrap_or(u64::MAX);
        let is_unseen =
            |entry: &Entry| context.is_orphan(entry) && self.gone.get(&entry.node) != Some(&entry.session);
        let is_unseen = ledgers.get(at).is_some_and(|ledger| ledger.entries().iter().any(is_unseen));
        // A session that was never seen with a record may be one whose record is still to come.
        let lease_us = if is_unseen { lease_us } else { 0 };
        since_us + PAUSE_US + lease_us + RANK_US.saturating_mul(rank)
    }

    /// The next request of a round.
    pub(crate) fn poll(
        &mut self,
        ledgers: &mut Ledgers,
        (reports, floors): (&mut Reports, &Floors),
        context: &Context<'_>,
        lease_us: u64,
        mut next_call: impl FnMut() -> CallId,
    ) -> Option<Request> {
        self.expire(reports, context);
        self.evaluate(ledgers, reports, floors, context);
        while let Some((at, plan)) = self.plans.pop() {
            let is_same = ledgers
                .get(at)
                .is_some_and(|ledger| ledger.expected() == plan.expected && !ledger.is_swapping());
            if is_same {
                return ledgers.swap(at, plan, context, next_call());
            }
        }
        match std::mem::take(&mut self.round) {
            Round::Idle if context.now_us >= self.next_us => {
                self.begin(ledgers, context, lease_us, next_call)
            }
            Round::Calling { mut call, budgets, until_us } => {
                let request = reports.call(context, next_call);
                if let Some(Request::Swap { call: asked, .. }) = &request {
                    call = Some(*asked);
                }
                self.round = Round::Calling { call, budgets, until_us };
                request
            }
            round => {
                self.round = round;
                None
            }
        }
    }

    fn begin(
        &mut self,
        ledgers: &Ledgers,
        context: &Context<'_>,
        lease_us: u64,
        mut next_call: impl FnMut() -> CallId,
    ) -> Option<Request> {
        let mut budgets = Vec::new();
        for (at, since_us) in ledgers.orphaned() {
            if self.due_us(ledgers, context, *at, *since_us, lease_us) <= context.now_us
                && budgets.len() < MOST_BUDGETS
            {
                let ledger = ledgers.get(*at)?;
                let orphans = ledger.entries().iter().filter(|entry| context.is_orphan(entry));
                let orphans = orphans.map(|entry| (entry.node.clone(), entry.session)).collect();
                budgets.push(Listed { at: *at, name: ledger.name.clone(), orphans, backends: Vec::new() });
            }
        }
        if budgets.is_empty() {
            self.next_us = context.now_us + LOOK_US;
            return None;
        }
        let (call, names) = (next_call(), budgets.iter().map(|listed| listed.name.clone()).collect());
        self.round = Round::Listing { call, budgets, until_us: context.now_us + LIST_US };
        Some(Request::ListBackends { call, budgets: names })
    }

    /// PostgreSQL's answer.
    pub(crate) fn listed(&mut self, call: CallId, lists: Vec<(BudgetName, Vec<Backend>)>, now_us: u64) {
        let (mut budgets, until_us) = match std::mem::take(&mut self.round) {
            Round::Listing { call: asked, budgets, .. } if asked == call => {
                (budgets, now_us + 2 * REPORTS_US)
            }
            round => {
                self.round = round;
                return;
            }
        };
        let asked = budgets.len();
        let mut lists: BTreeMap<BudgetName, Vec<Backend>> = lists.into_iter().collect();
        budgets.retain_mut(|listed| match lists.remove(&listed.name) {
            Some(backends) => {
                listed.backends = backends;
                true
            }
            None => false,
        });
        if budgets.is_empty() {
            self.fail(ReclaimStatus::Unlisted(asked), now_us);
        } else {
            self.round = Round::Calling { call: None, budgets, until_us };
        }
    }

    /// An audit of this node has been written by this call.
    pub(crate) fn called(&mut self, by: CallId, audit: u64, now_us: u64) {
        self.round = match std::mem::take(&mut self.round) {
            Round::Calling { call, budgets, .. } if call == Some(by) => {
                Round::Waiting { budgets, audit, until_us: now_us + REPORTS_US }
            }
            round => round,
        };
    }

    /// The round has failed.
    fn fail(&mut self, status: ReclaimStatus, now_us: u64) {
        self.round = Round::Idle;
        self.status = status;
        self.pause(now_us, false);
    }

    fn pause(&mut self, now_us: u64, has_changed: bool) {
        let longer_us = (self.pause_us * 2).clamp(PAUSE_US, LONGEST_PAUSE_US);
        self.pause_us = if has_changed { PAUSE_US } else { longer_us };
        self.next_us = now_us + self.pause_us;
    }

    fn expire(&mut self, reports: &Reports, context: &Context<'_>) {
        let now_us = context.now_us;
        match &self.round {
            Round::Listing { until_us, budgets, .. } if now_us >= *until_us => {
                self.fail(ReclaimStatus::Unlisted(budgets.len()), now_us);
            }
            Round::Calling { until_us, .. } if now_us >= *until_us => {
                self.fail(ReclaimStatus::Unreported(vec![context.id.clone()]), now_us);
            }
            Round::Waiting { until_us, audit, .. } if now_us >= *until_us => {
                let missing = reports.missing(*audit, context);
                if !missing.is_empty() {
                    self.fail(ReclaimStatus::Unreported(missing), now_us);
                }
            }
            _ => {}
        }
    }

    fn evaluate(&mut self, ledgers: &Ledgers, reports: &Reports, floors: &Floors, context: &Context<'_>) {
        let Round::Waiting { budgets, audit, .. } = &self.round else { return };
        if !reports.missing(*audit, context).is_empty() {
            return;
        }
        let known = reports.backends(*audit, context);
        let (mut plans, mut still) = (Vec::new(), 0);
        for listed in budgets {
            let is_unknown =
                |backend: &&Backend| !known.contains(&(Arc::clone(&backend.server), backend.pid));
            let unknown = listed.backends.iter().filter(is_unknown).count();
            let unknown = u32::try_from(unknown).unwrap_or(u32::MAX);
            let Some(ledger) = ledgers.get(listed.at) else { continue };
            let floor = ledger.division().map_or(0, |division| division.floor);
            let floor = |node: &NodeId| if floors.has_holder(node) { floor } else { 0 };
            let entries: Vec<Entry> = ledger
                .entries()
                .iter()
                .filter_map(|entry| lowered(entry, listed, unknown, floor(&entry.node), context))
                .collect();
            still += entries
                .iter()
                .filter(|entry| context.is_orphan(entry))
                .map(|entry| u64::from(entry.slots))
                .sum::<u64>();
            if entries != ledger.entries() {
                let turn = ledger.turn().cloned();
                plans.push((listed.at, Plan { expected: ledger.expected(), turn, entries }));
            }
        }
        self.round = Round::Idle;
        self.status =
            if still == 0 { ReclaimStatus::Idle } else { ReclaimStatus::StillOpen { slots: still } };
        self.pause(context.now_us, !plans.is_empty());
        self.plans = plans;
    }
}

/// An entry as the round leaves it: see the module's head.
fn lowered(entry: &Entry, listed: &Listed, unknown: u32, floor: u32, context: &Context<'_>) -> Option<Entry> {
    let was_orphan =
        listed.orphans.iter().any(|(node, session)| (node, *session) == (&entry.node, entry.session));
    if !was_orphan || !context.is_orphan(entry) {
        return Some(entry.clone());
    }
    let has_floor = entry.node != *context.id && !context.live.contains_key(&entry.node);
    let uncovered = if has_floor { unknown.saturating_sub(floor) } else { unknown };
    let slots = entry.slots.min(uncovered);
    (slots > 0).then(|| Entry { slots, ..entry.clone() })
}
