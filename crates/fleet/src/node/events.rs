//! What events do to a node.

use std::collections::BTreeSet;

use super::{Node, context};
use crate::drains::Drains;
use crate::ledger::Context;
use crate::ledgers::Index;
use crate::membership::Turn;
use crate::store::{CallId, Event, NodeId, NodeRecord, Object, Revision};
use crate::text::Entry;

/// A swap met a change that the watch does not show: everything is read again after this.
const STALE_US: u64 = 3_000_000;

impl Node {
    /// An answer or a change.
    pub fn handle(&mut self, event: Event, now_us: u64) {
        if self.membership.advance(now_us) == Turn::Over {
            self.session_over();
        }
        match event {
            Event::Renewed { .. } | Event::IdTaken { .. } | Event::Expired { .. } | Event::Left { .. } => {
                self.handle_membership(&event, now_us);
            }
            Event::Unanswered { call, ref why } => {
                self.handle_membership(&event, now_us);
                self.not_swapped(call, Some(why), now_us);
                let _ = self.ledgers.answered(call, |ledger| ledger.unanswered(call, now_us));
            }
            Event::Conflict { call } => {
                self.not_swapped(call, None, now_us);
                let _ = self.ledgers.answered(call, |ledger| ledger.conflicted(call, now_us + STALE_US));
            }
            Event::Swapped { call, revision } => {
                match self.ledgers.answered(call, |ledger| ledger.swapped(call, revision, now_us)) {
                    Some(at) => self.ledgers.note_orphans(at, &context!(self, now_us)),
                    None if self.peers.swapped(call, revision) || self.floors.swapped(call, revision) => {}
                    None => {
                        self.drains.swapped(call, revision, &self.config.id);
                        self.pools.swapped(call, revision, &self.config.id);
                        self.shared.swapped(call, revision, &context!(self, now_us));
                        if let Some(audit) = self.reports.swapped(call, revision) {
                            self.reclaim.called(call, audit, now_us);
                            self.floors.called(call, audit, now_us);
                        }
                    }
                }
            }
            Event::Snapshot { call, revision, nodes, objects } if self.watch.has_read(call) => {
                self.at_snapshot(revision);
                self.snapshot(nodes, &objects, now_us);
            }
            Event::NodeSeen { watch, id, record } if self.watch.is_of(watch) => {
                self.node_seen(id, record, now_us);
            }
            Event::NodeGone { watch, id } if self.watch.is_of(watch) => self.node_gone(&id, now_us),
            Event::Changed { watch, object } if self.watch.is_of(watch) => {
                let _ = self.changed(&object, now_us);
            }
            Event::WatchLost { watch, ref why } if self.watch.lost(watch, why, now_us) => self.reclaim.stop(),
            Event::Backends { call, budgets } => {
                self.floors.listed(call, &budgets, &mut self.ledgers, now_us);
                self.reclaim.listed(call, budgets, now_us);
            }
            Event::Foreign { what } => self.foreign = Some(what),
            _ => {}
        }
    }

    fn handle_membership(&mut self, event: &Event, now_us: u64) {
        let taken = self.membership.taken().map(|record| record.session);
        let (turn, request) = self.membership.handle(event, self.calls.next(), now_us);
        self.outbox.extend(request);
        if let Some(by) = self.membership.taken() {
            self.floors.id_taken(by.session, &mut self.ledgers);
        }
        match turn {
            Turn::None => {}
            Turn::Joined => {
                if let Some(session) = taken {
                    self.reclaim.node_gone(&self.config.id, session, now_us);
                }
                self.session_begun(now_us);
            }
            Turn::Over => self.session_over(),
        }
    }

    fn not_swapped(&mut self, call: CallId, why: Option<&str>, now_us: u64) {
        self.reports.not_swapped(call, now_us);
        self.drains.not_swapped(call, why, now_us);
        self.pools.not_swapped(call, why, now_us);
        self.peers.not_swapped(call, now_us);
        self.shared.not_swapped(call, &context!(self, now_us));
        self.floors.not_swapped(call, why.is_some(), now_us);
    }

    /// A snapshot is asked for.
    pub(super) fn before_snapshot(&mut self) {
        self.ledgers.before_snapshot();
        self.reports.before_snapshot();
        self.drains.before_snapshot();
        self.peers.before_snapshot();
        self.pools.before_snapshot();
        self.shared.before_snapshot();
        self.floors.before_snapshot();
    }

    /// It has come.
    fn at_snapshot(&mut self, revision: Revision) {
        self.ledgers.at_snapshot(revision);
        self.reports.at_snapshot(revision);
        self.drains.at_snapshot(revision);
        self.peers.at_snapshot(revision);
        self.pools.at_snapshot(revision);
        self.shared.at_snapshot(revision);
        self.floors.at_snapshot(revision);
    }

    fn snapshot(&mut self, nodes: Vec<(NodeId, NodeRecord)>, objects: &[Object], now_us: u64) {
        let before = std::mem::take(&mut self.live);
        self.live = nodes.into_iter().collect();
        for (id, record) in &before {
            if self.live.get(id).is_none_or(|now| now.session != record.session) {
                self.reclaim.node_gone(id, record.session, now_us);
            }
        }
        self.foreign = None;
        let present: BTreeSet<Index> =
            objects.iter().filter_map(|object| self.changed(object, now_us)).collect();
        self.ledgers.after_snapshot(&present);
        self.reports.after_snapshot(objects);
        self.drains.after_snapshot(objects, &self.config.id);
        self.peers.after_snapshot(objects);
        self.pools.after_snapshot(objects);
        self.shared.after_snapshot(objects);
        self.shared.plan(&context!(self, now_us));
        self.floors.after_snapshot(objects);
        self.note_all_orphans(now_us);
    }

    fn node_seen(&mut self, id: NodeId, record: NodeRecord, now_us: u64) {
        let session = record.session;
        if self.live.get(&id).is_none_or(|before| before.address != record.address) {
            self.peers.touch();
        }
        let before = self.live.insert(id.clone(), record).map(|record| record.session);
        if before == Some(session) {
            return;
        }
        self.shared.touch();
        if let Some(before) = before {
            self.reclaim.node_gone(&id, before, now_us);
        }
        self.touch_entries_of(&id, now_us);
    }

    fn node_gone(&mut self, id: &NodeId, now_us: u64) {
        if let Some(record) = self.live.remove(id) {
            self.reclaim.node_gone(id, record.session, now_us);
            self.reports.node_gone();
            self.peers.touch();
            self.shared.touch();
            self.shared.plan(&context!(self, now_us));
            self.touch_entries_of(id, now_us);
        }
    }

    /// The budgets in which a node has entries, and those in which nodes that are gone have some, are looked at again.
    fn touch_entries_of(&mut self, id: &NodeId, now_us: u64) {
        for at in self.ledgers.indexes() {
            let context = context!(self, now_us);
            let is_concerned = |entry: &Entry| entry.node == *id || context.is_orphan(entry);
            if self.ledgers.get(at).is_some_and(|ledger| ledger.entries().iter().any(is_concerned)) {
                self.ledgers.note_orphans(at, &context);
                self.ledgers.touch(at);
            }
        }
    }

    fn note_all_orphans(&mut self, now_us: u64) {
        for at in self.ledgers.indexes() {
            self.ledgers.note_orphans(at, &context!(self, now_us));
        }
    }

    /// The budget whose object this is, if it is one of a budget.
    fn changed(&mut self, object: &Object, now_us: u64) -> Option<Index> {
        let (id, session) = (&self.config.id, self.membership.session());
        let drains = |drains: &mut Drains| drains.heard(object, id, session);
        let result = self.reports.heard(object).or_else(|| self.peers.heard(object));
        let result = result.or_else(|| self.pools.heard(object));
        let result = result.or_else(|| self.shared.heard(object));
        let result = result.or_else(|| self.floors.heard(object));
        if let Some(result) = result.or_else(|| drains(&mut self.drains)) {
            if let Err(what) = result {
                self.foreign = Some(format!("{}: {what}", object.name.0.join("/")));
            }
            return None;
        }
        let at = self.ledgers.heard(object)?;
        self.ledgers.note_orphans(at, &context!(self, now_us));
        if let Some(what) = self.ledgers.get(at).and_then(crate::ledger::Ledger::foreign) {
            self.foreign = Some(format!("{}: {what}", object.name.0.join("/")));
        }
        Some(at)
    }
}
