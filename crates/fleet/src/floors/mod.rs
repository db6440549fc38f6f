//! Whether this process may use the floors of its node.
//!
//! A floor is used without asking, so that no lease ends it. But PostgreSQL may go on for minutes with connections of a process that was killed, while another one
//! begins in its place, under its name or another. A process *holds* its floors if there is one of `fleet_nodes` places for it beside all that may have
//! connections; otherwise the floor of each budget is smaller by the connections that may be those of processes that were gone before it (`proof`).
//!
//! Why connections stay within the limit, as long as no more than `fleet_nodes` processes are alive (running, stopped or cut off). A process that is gone is *left
//! over* while it has connections open, at most a floor of them in a budget beside those that slots cover (`ledger`); but not if a process that began later has
//! its floors smaller by all of them. Then the living and the left over are never more than the lines of `["floors"]`, or than `fleet_nodes`:
//! - A process that begins adds a line where there are fewer than `fleet_nodes`, and is one more of both.
//! - Where there are more it adds its line, too, removes others until there are `fleet_nodes`, and lists PostgreSQL's backends: the connections of all that
//!   are left over are among them, so that none is left over any more. The living are `fleet_nodes` at most; it does not matter whose lines they are.
//! - A process that is alive and finds its line gone adds it again. A line is also removed by its process, without connections and floors, at its end.
//! - Without the store a process that begins proves its floors all the same, but has no line until it has joined. That is the exception: if it is one of the living that
//!   have no line, another process that begins meanwhile may find a place that is not there.

mod holders;
mod proof;

use crate::budget::BudgetName;
use crate::config::HeldFloors;
use crate::ledger::Context;
use crate::ledgers::Ledgers;
use crate::reports::Reports;
use crate::status::FloorStatus;
use crate::store::{Backend, CallId, NodeId, Object, Request, Revision, SessionId};
use holders::Holders;
use proof::Proof;

/// How the node stands to the store, apart from the [`Context`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// `fleet_nodes`.
    pub(crate) nodes: u32,
    pub(crate) is_in: bool,
    pub(crate) is_watching: bool,
    /// Another session has the node's id.
    is_taken: bool,
    /// The store cannot be reached, or has ended the session.
    is_alone: bool,
}

impl Standing {
    pub(crate) fn new(nodes: u32, membership: &crate::membership::Membership, is_watching: bool) -> Standing {
        let (is_taken, is_alone) = (membership.taken().is_some(), membership.alone().is_some());
        Standing { nodes, is_in: membership.is_in(), is_watching, is_taken, is_alone }
    }
}

/// What is left to do before the node can leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    Wait,
    Send(Request),
    Done,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Floors {
    holders: Holders,
    proof: Proof,
    /// Of all budgets.
    is_held: bool,
    /// It has had a line.
    had_line: bool,
    /// Its line may have been written in place of others: what it does not hold has to be proven.
    follows: bool,
    /// `follows` before the write under way.
    followed: bool,
    /// The live nodes have all floors.
    has_none: bool,
    /// The session that has the node's id, which this process used before.
    lost_to: Option<SessionId>,
    /// The node leaves, and uses them no more.
    is_withdrawn: bool,
}

impl Floors {
    pub(crate) fn new() -> Floors {
        Floors {
            holders: Holders::default(),
            proof: Proof::default(),
            is_held: false,
            had_line: false,
            follows: false,
            followed: false,
            has_none: false,
            lost_to: None,
            is_withdrawn: false,
        }
    }

    pub(crate) fn resume(held: HeldFloors) -> Floors {
        match held {
            HeldFloors::All => Floors { is_held: true, had_line: true, ..Floors::new() },
            HeldFloors::Of(proven) => Floors { follows: true, proof: Proof::of(proven), ..Floors::new() },
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Whether a process of this name may have connections by its floors.
    pub(crate) fn has_holder(&self, node: &NodeId) -> bool {
        self.holders.has_node(node)
    }

    pub(crate) fn hand_over(&self) -> HeldFloors {
        if self.is_held { HeldFloors::All } else { HeldFloors::Of(self.proof.proven()) }
    }

    pub(crate) fn heard(&mut self, object: &Object) -> Option<Result<(), String>> {
        self.holders.heard(object)
    }

    pub(crate) fn before_snapshot(&mut self) {
        self.holders.before_snapshot();
    }

    /// It has come, with this revision; its objects follow.
    pub(crate) fn at_snapshot(&mut self, revision: Revision) {
        self.holders.at_snapshot(revision);
    }

    pub(crate) fn after_snapshot(&mut self, objects: &[Object]) {
        self.holders.after_snapshot(objects);
    }

    /// There are other budgets, or their floors are others.
    pub(crate) fn configured(&mut self, ledgers: &mut Ledgers) {
        if ledgers.has_withheld() && !self.is_withdrawn {
            self.proof.apply(ledgers);
            self.proof.hurry();
        }
    }

    /// Another session has the node's id: its process will use the floors.
    pub(crate) fn id_taken(&mut self, by: SessionId, ledgers: &mut Ledgers) {
        if self.lost_to != Some(by) {
            self.lost_to = Some(by);
            if self.had_line {
                (self.is_held, self.follows) = (false, true);
                self.proof = Proof::default();
                ledgers.withhold_floors();
            }
        }
    }

    /// The next request.
    pub(crate) fn poll(
        &mut self,
        ledgers: &mut Ledgers,
        reports: &mut Reports,
        context: &Context<'_>,
        standing: Standing,
        mut next_call: impl FnMut() -> CallId,
    ) -> Option<Request> {
        if self.is_withdrawn || context.is_leaving {
            return None;
        }
        if self.holders.has_own(context) {
            self.had_line = true;
            if !self.follows && !self.is_held {
                self.is_held = true;
                ledgers.release_floors();
            }
        }
        if self.may_join(context, standing) && context.now_us >= self.holders.retry_us() {
            let claim = self.holders.claim(context, standing.nodes, self.had_line);
            self.has_none = claim.is_none();
            if let Some((lines, has_removed)) = claim {
                self.followed = self.follows;
                self.follows |= has_removed;
                return Some(self.holders.write(lines, next_call()));
            }
        }
        if !self.may_prove(standing) {
            return None;
        }
        self.proof.poll(ledgers, reports, context, standing.is_watching, next_call)
    }

    fn may_join(&self, context: &Context<'_>, standing: Standing) -> bool {
        let can_write = context.can_swap || standing.is_taken && standing.is_watching;
        let is_free = can_write && !self.holders.is_writing() && !self.holders.is_foreign();
        is_free && !self.holders.has_own(context)
    }

    fn may_prove(&self, standing: Standing) -> bool {
        let has_line = self.had_line && self.follows || self.holders.is_foreign();
        let is_due = if standing.is_in || standing.is_taken { has_line } else { standing.is_alone };
        is_due && !self.is_held
    }

    /// PostgreSQL's answer.
    pub(crate) fn listed(
        &mut self,
        call: CallId,
        lists: &[(BudgetName, Vec<Backend>)],
        ledgers: &mut Ledgers,
        now_us: u64,
    ) {
        if !self.is_held && !self.is_withdrawn {
            self.proof.listed(call, lists, ledgers, now_us);
        }
    }

    /// An audit of this node has been written by this call.
    pub(crate) fn called(&mut self, call: CallId, audit: u64, now_us: u64) {
        self.proof.called(call, audit, now_us);
    }

    /// Whether this call was one of its own; it has been written.
    pub(crate) fn swapped(&mut self, call: CallId, revision: Revision) -> bool {
        self.holders.swapped(call, revision)
    }

    /// A write has failed, or, if `is_unknown`, it is not known whether it has.
    pub(crate) fn not_swapped(&mut self, call: CallId, is_unknown: bool, now_us: u64) {
        if self.holders.not_swapped(call, now_us) && !is_unknown {
            self.follows = self.followed;
        }
    }

    /// The watch does not show what the store has.
    pub(crate) fn take_stale(&mut self) -> bool {
        self.holders.take_stale()
    }

    /// The node has no slots any more and is going to leave.
    pub(crate) fn leave(
        &mut self,
        ledgers: &mut Ledgers,
        context: &Context<'_>,
        next_call: impl FnOnce() -> CallId,
    ) -> Leaving {
        let has_line = self.holders.is_writing() || self.holders.has_own(context);
        // Beside the withheld part of its floors others may still have connections: its line stands for them, too.
        if !context.can_swap || !has_line || !self.is_held {
            return Leaving::Done;
        }
        if self.holders.is_writing() || !ledgers.are_closed() {
            return Leaving::Wait;
        }
        if !self.is_withdrawn {
            self.is_withdrawn = true;
            ledgers.withhold_floors();
        }
        // Once more, now that no more can be opened.
        if !ledgers.are_closed() || context.now_us < self.holders.retry_us() {
            return Leaving::Wait;
        }
        Leaving::Send(self.holders.leave(context, next_call()))
    }

    /// When something is tried again.
    pub(crate) fn deadline_us(
        &self,
        ledgers: &Ledgers,
        reports: &Reports,
        context: &Context<'_>,
        standing: Standing,
    ) -> Option<u64> {
        if context.is_leaving {
            let is_left = !context.can_swap || self.holders.is_writing() || !self.holders.has_own(context);
            let is_due = self.is_held && !is_left && self.is_withdrawn && ledgers.are_closed();
            return is_due.then_some(self.holders.retry_us());
        }
        let can_join = self.may_join(context, standing) && !self.has_none;
        let join_us = can_join.then_some(self.holders.retry_us());
        let proof_us = self.may_prove(standing).then(|| self.proof.deadline_us(ledgers, reports)).flatten();
        join_us.into_iter().chain(proof_us).min()
    }

    /// For SHOW FLEET.
    pub(crate) fn status(&self, ledgers: &Ledgers) -> FloorStatus {
        let withheld = if self.is_withdrawn { 0 } else { ledgers.withheld().len() };
        FloorStatus {
            withheld,
            has_none: self.has_none && !self.is_held,
            suspects: self.proof.all_suspects(),
            unlisted: self.proof.unlisted,
            unreported: self.proof.unreported.clone(),
        }
    }
}
