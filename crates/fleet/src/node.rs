//! One node of a fleet, as a state machine without clock, socket or entropy.

use crate::config::{Allowance, BackendsQuestion, Handover, NodeConfig, Usage};
use crate::status::FleetStatus;
use crate::{Backend, BudgetName, Event, Request, SessionId};

/// One node of a fleet. The caller gives it events and usage, carries out the requests that [`Node::poll`] gives out, and publishes allowances.
///
/// After each call of a `&mut self` method: [`Node::poll`] until it gives None, [`Node::next_allowance`] until it gives None, [`Node::backends_question`];
/// at [`Node::deadline_us`] at the latest again. `now_us` never decreases.
#[derive(Debug)]
pub struct Node {
    config: NodeConfig,
}

impl Node {
    /// A node that has not joined. `session` is a random number that no other life of any node has; those of later sessions are computed from it.
    #[must_use]
    pub fn new(config: NodeConfig, session: SessionId, now_us: u64) -> Node {
        let _ = (session, now_us);
        Node { config }
    }

    /// A node that goes on in place of the process that gave [`Node::hand_over`], with its server connections.
    #[must_use]
    pub fn resume(config: NodeConfig, from: Handover, now_us: u64) -> Node {
        let _ = (from, now_us);
        Node { config }
    }

    /// What the process that takes over needs. This node must send no request afterwards.
    #[must_use]
    pub fn hand_over(&self) -> Handover {
        Handover { session: SessionId(0), earlier: Vec::new(), sure_until_us: 0 }
    }

    /// An answer or a change.
    pub fn handle(&mut self, event: Event, now_us: u64) {
        let _ = (event, now_us);
    }

    /// The next request to the store, or None.
    pub fn poll(&mut self, now_us: u64) -> Option<Request> {
        let _ = now_us;
        None
    }

    /// When [`Node::poll`] has to be called at the latest, in microseconds; None if only an event can change anything.
    #[must_use]
    pub fn deadline_us(&self) -> Option<u64> {
        None
    }

    /// The limits of the budgets that this node has pools of: all of them. Those that are not among them any more are given back.
    pub fn set_budgets(&mut self, budgets: &[(BudgetName, u32)], now_us: u64) {
        let _ = (budgets, now_us);
    }

    /// `fleet_nodes` and `fleet_min_servers` after a RELOAD.
    pub fn set_division(&mut self, nodes: u32, min_servers: u32, now_us: u64) {
        self.config.nodes = nodes;
        self.config.min_servers = min_servers;
        let _ = now_us;
    }

    /// What the pools use of a budget; ignored if the budget is not known.
    pub fn set_usage(&mut self, budget: &BudgetName, usage: Usage, now_us: u64) {
        let _ = (budget, usage, now_us);
    }

    /// Client and server connections of the whole node, for its record: written with the next renewal.
    pub fn set_load(&mut self, clients: u32, servers: u32) {
        let _ = (clients, servers);
    }

    /// How many connections of the budget the node may have; none of a budget that is not known.
    #[must_use]
    pub fn allowance(&self, budget: &BudgetName, now_us: u64) -> Allowance {
        let _ = (budget, now_us);
        Allowance::default()
    }

    /// The next budget whose [`Allowance`] has changed in anything but `until_us` since it was given out here.
    pub fn next_allowance(&mut self, now_us: u64) -> Option<(BudgetName, Allowance)> {
        let _ = now_us;
        None
    }

    /// [`Allowance::until_us`] of all budgets.
    #[must_use]
    pub fn sure_until_us(&self) -> u64 {
        0
    }

    /// Asks for the node's own backends; each question is given out once.
    pub fn backends_question(&mut self) -> Option<BackendsQuestion> {
        None
    }

    /// Answers a [`BackendsQuestion`] with all backends that the node has, read after the question was given out; an answer to an older question is ignored.
    pub fn set_own_backends(&mut self, audit: u64, backends: &[Backend], now_us: u64) {
        let _ = (audit, backends, now_us);
    }

    /// Says in the node's record that it takes no new clients.
    pub fn drain(&mut self, now_us: u64) {
        let _ = now_us;
    }

    /// Says that it takes new clients again.
    pub fn undrain(&mut self, now_us: u64) {
        let _ = now_us;
    }

    /// Gives slots back as connections are closed, and leaves when none is left: [`crate::NodeState::Left`]. The caller need not wait for it.
    pub fn leave(&mut self, now_us: u64) {
        let _ = now_us;
    }

    /// For SHOW FLEET.
    #[must_use]
    pub fn status(&self, now_us: u64) -> FleetStatus {
        let _ = now_us;
        FleetStatus {
            id: self.config.id.clone(),
            session: SessionId(0),
            state: crate::NodeState::Joining,
            sure_until_us: 0,
            foreign: None,
            reclaim: crate::ReclaimStatus::Idle,
            nodes: Vec::new(),
            budgets: Vec::new(),
        }
    }
}
