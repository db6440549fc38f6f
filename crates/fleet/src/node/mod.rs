//! One node of a fleet, as a state machine without clock, socket or entropy.

mod events;
mod status;
mod watch;

use std::collections::{BTreeMap, VecDeque};

use crate::budget::{BudgetName, Division};
use crate::config::{Allowance, BackendsQuestion, DrainError, DrainOrder, Handover, NodeConfig, Usage};
use crate::drains::Drains;
use crate::floors::{Floors, Leaving, Standing};
use crate::ledger::Context;
use crate::ledgers::Ledgers;
use crate::membership::{Membership, Turn};
use crate::peers::{PeerNumbers, Peers};
use crate::pools::{FleetPools, Pools, PoolsChange, PoolsResult, PoolsWait};
use crate::reclaim::Reclaim;
use crate::reports::Reports;
use crate::shared::{ExternalUsage, Shared, SharedUsage};
use crate::store::{Backend, CallId, NodeId, NodeRecord, PoolsInUse, Request, SessionId};
use watch::Watch;

/// Numbers for requests.
#[derive(Debug, Default)]
struct Calls(u64);

impl Calls {
    fn next(&mut self) -> CallId {
        self.0 += 1;
        CallId(self.0)
    }
}

/// One node of a fleet. The caller gives it events and usage, carries out the requests that [`Node::poll`] gives out, and publishes allowances.
///
/// After each call of a `&mut self` method: [`Node::poll`] until it gives None, [`Node::next_allowance`] until it gives None, [`Node::backends_question`];
/// at [`Node::deadline_us`] at the latest again. `now_us` never decreases. Usage is reported when it changes, and always when an allowance has got a new version.
#[derive(Debug)]
pub struct Node {
    config: NodeConfig,
    membership: Membership,
    watch: Watch,
    /// The nodes that have a record.
    live: BTreeMap<NodeId, NodeRecord>,
    limits: BTreeMap<BudgetName, u32>,
    ledgers: Ledgers,
    reports: Reports,
    reclaim: Reclaim,
    floors: Floors,
    drains: Drains,
    peers: Peers,
    pools: Pools,
    shared: Shared,
    calls: Calls,
    outbox: VecDeque<Request>,
    clients: u32,
    servers: u32,
    is_draining: bool,
    /// Which pools of all nodes it uses, and what of them it refuses.
    pools_in_use: PoolsInUse,
    is_leaving: bool,
    foreign: Option<String>,
}

/// Borrows what decisions depend on, apart from what they change.
macro_rules! context {
    ($node:ident, $now_us:expr) => {
        Context {
            id: &$node.config.id,
            session: $node.membership.session(),
            earlier: $node.membership.earlier(),
            live: &$node.live,
            can_swap: $node.membership.is_in() && $node.watch.is_on(),
            is_leaving: $node.is_leaving,
            now_us: $now_us,
        }
    };
}
use context;

impl Node {
    /// A node that has not joined. `session` is a random number that no other life of any node has; those of later sessions are computed from it.
    #[must_use]
    pub fn new(config: NodeConfig, session: SessionId, now_us: u64) -> Node {
        Node::begin(config, Membership::new(session, now_us), Floors::new(), false, now_us)
    }

    /// A node that goes on in place of the process that gave [`Node::hand_over`], with its server connections.
    #[must_use]
    pub fn resume(config: NodeConfig, from: Handover, now_us: u64) -> Node {
        let membership = Membership::resume(&from, now_us);
        let mut node = Node::begin(config, membership, Floors::resume(from.floors), true, now_us);
        node.session_begun(now_us);
        node
    }

    fn begin(
        config: NodeConfig,
        membership: Membership,
        floors: Floors,
        is_resumed: bool,
        now_us: u64,
    ) -> Node {
        Node {
            config,
            membership,
            watch: Watch::new(now_us),
            live: BTreeMap::new(),
            limits: BTreeMap::new(),
            ledgers: Ledgers::new(is_resumed, !floors.is_held()),
            reports: Reports::default(),
            reclaim: Reclaim::default(),
            floors,
            drains: Drains::default(),
            peers: Peers::default(),
            pools: Pools::default(),
            shared: Shared::default(),
            calls: Calls::default(),
            outbox: VecDeque::new(),
            clients: 0,
            servers: 0,
            is_draining: false,
            pools_in_use: PoolsInUse::default(),
            is_leaving: false,
            foreign: None,
        }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &NodeId {
        &self.config.id
    }

    /// What the process that takes over needs. This node must send no request afterwards.
    #[must_use]
    pub fn hand_over(&self) -> Handover {
        self.membership.hand_over(self.floors.hand_over())
    }

    /// The next request to the store, or None.
    pub fn poll(&mut self, now_us: u64) -> Option<Request> {
        if self.membership.advance(now_us) == Turn::Over {
            self.session_over();
        }
        let is_stale = self.ledgers.take_stale()
            | self.peers.take_stale()
            | self.floors.take_stale()
            | self.shared.take_stale();
        if is_stale && self.watch.is_on() {
            self.watch.again(now_us);
            self.reclaim.stop();
        }
        if let Some(request) = self.outbox.pop_front() {
            return Some(request);
        }
        if self.is_leaving
            && self.has_nothing(now_us)
            && !self.membership.has_left()
            && !self.membership.is_ending()
        {
            let (context, calls) = (context!(self, now_us), &mut self.calls);
            match self.floors.leave(&mut self.ledgers, &context, || calls.next()) {
                Leaving::Done => return self.membership.leave(self.calls.next()),
                Leaving::Send(request) => return Some(request),
                Leaving::Wait => {}
            }
        }
        self.poll_membership(now_us).or_else(|| self.poll_watch(now_us)).or_else(|| self.poll_objects(now_us))
    }

    fn poll_membership(&mut self, now_us: u64) -> Option<Request> {
        if !self.membership.is_due(now_us) {
            return None;
        }
        let config = &self.config;
        let (clients, servers, is_draining) = (self.clients, self.servers, self.is_draining);
        let pools = &self.pools_in_use;
        self.membership.poll(now_us, self.calls.next(), |session| NodeRecord {
            session,
            address: config.address.clone(),
            version: config.version.clone(),
            started_s: config.started_s,
            clients,
            servers,
            is_draining,
            pools: pools.clone(),
        })
    }

    fn poll_watch(&mut self, now_us: u64) -> Option<Request> {
        // Also while another session has the id: which backends are of live nodes is read there.
        let has_use = self.membership.is_in() || self.membership.taken().is_some();
        if !has_use || !self.watch.is_due(now_us) {
            return None;
        }
        let call = self.calls.next();
        self.watch.begin(call);
        self.before_snapshot();
        Some(Request::Watch { call })
    }

    fn poll_objects(&mut self, now_us: u64) -> Option<Request> {
        let context = context!(self, now_us);
        let standing = Standing::new(self.config.nodes, &self.membership, self.watch.is_on());
        let (lease_us, calls) = (self.membership.lease_us(), &mut self.calls);
        let request =
            self.floors.poll(&mut self.ledgers, &mut self.reports, &context, standing, || calls.next());
        if request.is_some() {
            return request;
        }
        if context.can_swap {
            let known = (&mut self.reports, &self.floors);
            let request = self.reclaim.poll(&mut self.ledgers, known, &context, lease_us, || calls.next());
            let request = request.or_else(|| self.reports.poll(&context, || calls.next()));
            let request = request.or_else(|| self.drains.poll(&context, || calls.next()));
            let request = request.or_else(|| self.peers.poll(&context, || calls.next()));
            let request = request.or_else(|| self.pools.poll(&context, || calls.next()));
            let request = request.or_else(|| self.shared.poll(&context, || calls.next()));
            if request.is_some() {
                return request;
            }
        }
        self.ledgers.poll(&context, || calls.next())
    }

    /// When [`Node::poll`] has to be called at the latest, in microseconds; None if only an event can change anything.
    #[must_use]
    pub fn deadline_us(&self) -> Option<u64> {
        let context = context!(self, 0);
        let mut deadlines = [None; 10];
        deadlines[0] = self.membership.deadline_us();
        deadlines[1] = self.ledgers.deadline_us();
        let standing = Standing::new(self.config.nodes, &self.membership, self.watch.is_on());
        if !self.is_leaving || self.has_nothing(0) {
            deadlines[9] = self.floors.deadline_us(&self.ledgers, &self.reports, &context, standing);
        }
        if self.membership.is_in() || self.membership.taken().is_some() {
            deadlines[2] = self.watch.deadline_us();
        }
        if context.can_swap {
            deadlines[3] = self.reclaim.deadline_us(&self.ledgers, &self.reports);
            deadlines[4] = self.reports.deadline_us(&context);
            deadlines[5] = self.drains.deadline_us(&context);
            deadlines[6] = self.peers.deadline_us(&context);
            deadlines[7] = self.pools.deadline_us();
            deadlines[8] = self.shared.deadline_us();
        }
        deadlines.into_iter().flatten().min()
    }

    /// The limits of the budgets that this node has pools of: all of them. Those that are not among them any more are given back, as far as [`Node::set_usage`] shows
    /// that their connections are closed.
    pub fn set_budgets(&mut self, budgets: &[(BudgetName, u32)], _now_us: u64) {
        self.limits = budgets.iter().cloned().collect();
        self.divide();
    }

    /// `fleet_nodes` and `fleet_min_servers` after a RELOAD.
    pub fn set_division(&mut self, nodes: u32, min_servers: u32, _now_us: u64) {
        self.config.nodes = nodes;
        self.config.min_servers = min_servers;
        self.divide();
    }

    fn divide(&mut self) {
        let NodeConfig { nodes, min_servers, .. } = self.config;
        let divisions =
            self.limits.iter().map(|(name, limit)| (name.clone(), Division::new(*limit, nodes, min_servers)));
        self.ledgers.configure(&divisions.collect());
        self.floors.configured(&mut self.ledgers);
    }

    /// What the pools use of a budget; ignored if the budget is not known.
    pub fn set_usage(&mut self, budget: &BudgetName, usage: Usage, _now_us: u64) {
        let Some(at) = self.ledgers.find(budget) else { return };
        if self.ledgers.get_mut(at).is_some_and(|ledger| ledger.set_usage(usage)) {
            self.ledgers.touch(at);
        }
    }

    /// Client and server connections of the whole node, for its record: written with the next renewal.
    pub fn set_load(&mut self, clients: u32, servers: u32) {
        self.clients = clients;
        self.servers = servers;
    }

    /// How many connections of the budget the node may have; none of a budget that is not known.
    #[must_use]
    pub fn allowance(&self, budget: &BudgetName) -> Allowance {
        let ledger = self.ledgers.find(budget).and_then(|at| self.ledgers.get(at));
        ledger.map(|ledger| ledger.allowance(self.sure_until_us())).unwrap_or_default()
    }

    /// The next budget whose [`Allowance`] has changed in anything but `until_us` since it was given out here.
    pub fn next_allowance(&mut self) -> Option<(BudgetName, Allowance)> {
        let until_us = self.sure_until_us();
        while let Some(at) = self.ledgers.next_changed() {
            let change =
                self.ledgers.get_mut(at).and_then(|ledger| Some((ledger.take_change(until_us)?, ledger)));
            if let Some((allowance, ledger)) = change {
                return Some((ledger.name.clone(), allowance));
            }
        }
        None
    }

    /// [`Allowance::until_us`] of all budgets: to be published before the allowances that [`Node::next_allowance`] gives out, when it falls, and
    /// after them, when it grows.
    #[must_use]
    pub fn sure_until_us(&self) -> u64 {
        self.membership.sure_until_us()
    }

    /// What this node uses of limits that hold for all nodes without slots; others learn of a change that matters to them about a second later.
    pub fn set_shared_usage(&mut self, usage: SharedUsage, now_us: u64) {
        self.shared.set(usage, &context!(self, now_us));
    }

    /// What all other nodes use of such limits, if that has changed since it was given out here; None before the store has been read. While this node has no lease,
    /// nothing of what others use at the moment is in it, and of what they have used in a period what was known last.
    pub fn next_external_usage(&mut self, now_us: u64) -> Option<ExternalUsage> {
        let is_in = self.membership.is_in();
        self.shared.next_external(&context!(self, now_us), is_in)
    }

    /// The numbers of nodes, if they, or nodes that have a record, have changed since they were given out here.
    pub fn next_peer_numbers(&mut self, now_us: u64) -> Option<PeerNumbers> {
        let context = context!(self, now_us);
        self.peers.next_numbers(&context)
    }

    /// The node's own number, if its present session has one.
    #[must_use]
    pub fn peer_number(&self, now_us: u64) -> Option<u32> {
        self.peers.own(&context!(self, now_us))
    }

    /// How many names keep their numbers before the number of one that is gone is given to another; 1,000 unless set.
    pub fn set_most_peer_names(&mut self, most: usize) {
        self.peers.set_most_names(most);
    }

    /// Asks for the node's own backends; each question is given out once.
    pub fn backends_question(&mut self, now_us: u64) -> Option<BackendsQuestion> {
        let context = context!(self, now_us);
        let audit = self.reports.question(&context)?;
        let is_open = |ledger: &&crate::ledger::Ledger| !ledger.is_covered(context.id, context.session);
        let except = self.ledgers.all().filter(is_open).map(|ledger| ledger.name.clone()).collect();
        Some(BackendsQuestion { audit, except })
    }

    /// Answers a [`BackendsQuestion`] with all backends that the node has, read after the question was given out; an answer to an older question is ignored.
    pub fn set_own_backends(&mut self, audit: u64, backends: &[Backend], _now_us: u64) {
        self.reports.answer(audit, self.membership.session(), backends);
    }

    /// Says in the node's record whether it takes new clients.
    pub fn set_draining(&mut self, is_draining: bool, now_us: u64) {
        if self.is_draining != is_draining {
            self.is_draining = is_draining;
            self.membership.renew_now(now_us);
        }
    }

    /// Orders another node to drain; [`Node::next_drain_result`] answers with the number.
    pub fn order_drain(&mut self, number: u64, node: NodeId, order: DrainOrder, now_us: u64) {
        self.drains.order(number, node, order, &context!(self, now_us));
    }

    /// Whether an order has been given: by its number.
    pub fn next_drain_result(&mut self) -> Option<(u64, Result<(), DrainError>)> {
        self.drains.next_result()
    }

    /// What another node has ordered this one; each order is given out once. [`Node::set_draining`] is to follow.
    pub fn take_drain_order(&mut self) -> Option<DrainOrder> {
        self.drains.take_ordered()
    }

    /// Changes the pools of all nodes; [`Node::next_pools_result`] answers. One change at a time.
    pub fn change_pools(&mut self, change: PoolsChange, now_us: u64) {
        self.pools.change(change, &context!(self, now_us));
    }

    /// What became of a change.
    pub fn next_pools_result(&mut self) -> Option<PoolsResult> {
        self.pools.next_result()
    }

    /// The pools of all nodes, when they have been read and whenever they have changed. [`Node::set_pools_in_use`] is to follow.
    pub fn take_pools(&mut self) -> Option<FleetPools> {
        self.pools.take()
    }

    /// Whether all nodes have done what is waited for: those that do not, and why. None while some have not yet, or nothing is known of others.
    #[must_use]
    pub fn pools_used(&self, revision: u64, wait: &PoolsWait, now_us: u64) -> Option<Vec<(NodeId, String)>> {
        let (of, is_resumed): (fn(&PoolsInUse) -> u64, _) = match wait {
            PoolsWait::InUse => (|pools| pools.revision, None),
            PoolsWait::Paused(what) => (|pools| pools.paused, Some(what)),
        };
        let is_without = |pools: &PoolsInUse| {
            pools.uses_none || is_resumed.is_some_and(|what| pools.resumed.contains(what))
        };
        let is_behind = |record: &NodeRecord| of(&record.pools) < revision;
        if !context!(self, now_us).can_swap || self.live.values().any(is_behind) {
            return None;
        }
        let without = self.live.iter().filter(|(_, record)| is_without(&record.pools));
        Some(without.map(|(id, record)| (id.clone(), record.pools.refused.clone())).collect())
    }

    /// The revision of the pools that there are; None while that is not known.
    #[must_use]
    pub fn pools_revision(&self) -> Option<u64> {
        self.pools.revision()
    }

    /// Says in the node's record which pools it uses.
    pub fn set_pools_in_use(&mut self, pools: PoolsInUse, now_us: u64) {
        if self.pools_in_use != pools {
            self.pools_in_use = pools;
            self.membership.renew_now(now_us);
        }
    }

    /// Gives slots back as connections are closed, and leaves when none is left: [`crate::NodeState::Left`]. The caller need not wait for it.
    pub fn leave(&mut self, _now_us: u64) {
        self.is_leaving = true;
        self.ledgers.touch_all();
    }

    /// Whether the node can leave: it has no session, or no slots.
    fn has_nothing(&self, now_us: u64) -> bool {
        let context = context!(self, now_us);
        !self.membership.is_in() || context.can_swap && !self.ledgers.has_own(&context)
    }

    fn session_begun(&mut self, now_us: u64) {
        self.peers.touch();
        self.shared.touch();
        self.ledgers.set_sure(true, &self.config.id, self.membership.session());
        self.watch.hurry(now_us);
    }

    fn session_over(&mut self) {
        self.peers.touch();
        self.shared.touch();
        self.ledgers.set_sure(false, &self.config.id, self.membership.session());
        self.reclaim.stop();
    }
}
