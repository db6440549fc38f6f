//! What SHOW FLEET shows of a node.

use std::collections::BTreeMap;

use super::{Node, context};
use crate::ledger::{Context, Ledger};
use crate::status::{BudgetStatus, FleetStatus, NodeState, NodeStatus, PeerState};
use crate::store::NodeId;

impl Node {
    /// For SHOW FLEET.
    #[must_use]
    pub fn status(&self, now_us: u64) -> FleetStatus {
        let sure_until_us = self.sure_until_us();
        let is_sure = now_us < sure_until_us;
        FleetStatus {
            id: self.config.id.clone(),
            session: self.membership.session(),
            state: self.state(now_us),
            clients: self.clients,
            servers: self.servers,
            is_draining: self.is_draining,
            pools: self.pools_in_use.clone(),
            sure_until_us: if is_sure { sure_until_us } else { 0 },
            unread: self.watch.lost_because().map(str::to_owned),
            foreign: self.foreign.clone(),
            reclaim: self.reclaim.status(),
            unshared: self.shared.left_out(),
            floors: self.floors.status(&self.ledgers),
            nodes: self.peers(now_us),
            budgets: self.ledgers.all().filter_map(|ledger| self.budget(ledger, now_us)).collect(),
        }
    }

    fn state(&self, now_us: u64) -> NodeState {
        if self.membership.has_left() {
            return NodeState::Left;
        }
        if self.is_leaving {
            return NodeState::Leaving;
        }
        if self.membership.is_in() {
            let since_us = self.sure_until_us();
            if now_us >= since_us {
                return NodeState::Alone { since_us, why: "the lease was not renewed in time".to_owned() };
            }
            return NodeState::Joined { is_watching: self.watch.is_on() };
        }
        if let Some(by) = self.membership.taken() {
            return NodeState::IdTaken { by: by.clone() };
        }
        match self.membership.alone() {
            Some((since_us, why)) => NodeState::Alone { since_us: *since_us, why: why.clone() },
            None => NodeState::Joining,
        }
    }

    fn peers(&self, now_us: u64) -> Vec<NodeStatus> {
        let context = context!(self, now_us);
        let mut slots: BTreeMap<&NodeId, (u64, u64)> = self.live.keys().map(|id| (id, (0, 0))).collect();
        for entry in self.ledgers.all().flat_map(Ledger::entries) {
            let (leased, wanted) = slots.entry(&entry.node).or_default();
            *leased += u64::from(entry.slots);
            *wanted += if context.is_orphan(entry) { 0 } else { u64::from(entry.wanted) };
        }
        let status = |(id, (slots_leased, slots_wanted)): (&NodeId, (u64, u64))| {
            let state = match self.live.get(id) {
                Some(record) if record.is_draining => PeerState::Draining(record.clone()),
                Some(record) => PeerState::Up(record.clone()),
                None => PeerState::Gone,
            };
            NodeStatus { id: id.clone(), state, slots_leased, slots_wanted }
        };
        slots.into_iter().map(status).collect()
    }

    fn budget(&self, ledger: &Ledger, now_us: u64) -> Option<BudgetStatus> {
        let context = context!(self, now_us);
        let division = ledger.division()?;
        let sum = |numbers: &mut dyn Iterator<Item = u32>| numbers.fold(0, u32::saturating_add);
        let (orphans, others): (Vec<_>, Vec<_>) =
            ledger.entries().iter().partition(|entry| context.is_orphan(entry));
        let orphaned = sum(&mut orphans.iter().map(|entry| entry.slots));
        let allowance = ledger.allowance(0);
        let leased_here = allowance.slots.saturating_sub(allowance.floor);
        Some(BudgetStatus {
            name: ledger.name.clone(),
            limit: division.limit,
            floor: division.floor,
            withheld: division.floor.saturating_sub(allowance.floor),
            shared: ledger.effective_shared(&context),
            leased_here,
            leased: orphaned.saturating_add(sum(&mut others.iter().map(|entry| entry.slots))),
            wanted: sum(&mut others.iter().map(|entry| entry.wanted)),
            orphaned,
            foreign: ledger.foreign().map(str::to_owned),
        })
    }
}
