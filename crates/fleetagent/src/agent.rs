//! The thread's loop: events of the store, orders of the process and the passing of time go to the node, and what the node decides is carried out.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fleet::{
    BackendsQuestion, CallId, DrainError, DrainOrder, Event, Handover, Node, NodeConfig, NodeState,
    NumberedNode, Request, SessionId, Usage,
};
use fleetstore::Store;
use messages::{Command, Drain, RequestId};
use settings::{Config, FleetPeer, FleetPeers};
use telemetry::Level;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{sleep, timeout};

use crate::audit::Audit;
use crate::closing::Closing;
use crate::counters::Counters;
use crate::pools::Pools;
use crate::rows::{Rows, own_detail};
use crate::shared_limits::SharedLimits;
use crate::{FleetNews, Inbox, Order, Outside, log};

/// The counters are looked at so often at least.
const LOOK_US: u64 = 250_000;

/// And no more often than this, however often slots are wanted.
const LEAST_LOOK_US: u64 = 2_000;

/// The rows of views are made anew so often at most.
const ROWS_US: u64 = 400_000;

/// How long the store has to remove the node's record at its end.
const LEAVE: Duration = Duration::from_millis(300);

/// How long PostgreSQL has before that to end the backends of its connections, and the store to remove all that is the node's.
const CLEAN_LEAVE: Duration = Duration::from_millis(500);

/// Between two looks at that.
const LIST_PAUSE: Duration = Duration::from_millis(10);

/// The numbers of requests that no node has made.
const LAST_CALL: CallId = CallId(u64::MAX);
const LAST_LIST: CallId = CallId(u64::MAX - 1);

/// The number of an audit that no node has asked for.
const LAST_AUDIT: u64 = u64::MAX;

pub(crate) struct Agent {
    node: Node,
    store: Store,
    counters: Counters,
    shared_limits: SharedLimits,
    outside: Outside,
    orders: UnboundedReceiver<Order>,
    wanted: Arc<Notify>,
    rows: Arc<Mutex<Rows>>,
    audit: Option<Audit>,
    /// Another process goes on as this node.
    is_handed_over: bool,
    closing: Closing,
    /// Waits for `closing`, with the number of connections that there are.
    close_done: Option<(u32, SyncSender<()>)>,
    /// Nothing is opened any more.
    is_closing: bool,
    looked_us: u64,
    /// When limits without slots were looked at.
    shared_us: u64,
    /// Slots are wanted, or allowances have changed.
    is_look_due: bool,
    rows_us: u64,
    pools: Pools,
    /// The node's own, as logged last; 0 for none.
    number: u32,
    /// As logged last.
    logged: (Level, String),
}

impl Agent {
    #[allow(clippy::too_many_arguments, reason = "each is a part of the thread, and it is called once")]
    pub(crate) fn new(
        node_config: NodeConfig,
        session: SessionId,
        from: Option<Handover>,
        store: Store,
        config: &Arc<Config>,
        outside: Outside,
        inbox: Inbox,
        rows: Arc<Mutex<Rows>>,
    ) -> Agent {
        let now_us = (outside.monotonic_us)();
        let node = match from {
            Some(from) => Node::resume(node_config, from, now_us),
            None => Node::new(node_config, session, now_us),
        };
        let counters = Counters::new(Arc::clone(&outside.counts), Arc::clone(config));
        let shared_limits = SharedLimits::new(Arc::clone(&outside.counts), Arc::clone(config));
        Agent {
            node,
            store,
            counters,
            shared_limits,
            outside,
            orders: inbox.orders,
            wanted: inbox.wanted,
            rows,
            audit: None,
            is_handed_over: false,
            closing: Closing::default(),
            close_done: None,
            is_closing: false,
            looked_us: 0,
            shared_us: 0,
            is_look_due: true,
            rows_us: 0,
            pools: Pools::default(),
            number: 0,
            logged: (Level::Log, String::new()),
        }
    }

    /// Runs until the process ends.
    pub(crate) async fn run(mut self) {
        loop {
            self.work();
            let wait = Duration::from_micros(self.due_us().saturating_sub(self.now_us()));
            tokio::select! {
                event = self.store.next() => self.event(event),
                order = self.orders.recv() => match order {
                    Some(Order::Stop(done)) => {
                        self.leave().await;
                        let _ = done.send(());
                        return;
                    }
                    Some(order) => self.order(order),
                    None => return,
                },
                () = self.wanted.notified() => self.is_look_due = true,
                () = sleep(wait) => {}
            }
        }
    }

    fn now_us(&self) -> u64 {
        (self.outside.monotonic_us)()
    }

    /// When there is something to do by itself.
    fn due_us(&self) -> u64 {
        let look_us = self.looked_us + if self.is_look_due { LEAST_LOOK_US } else { LOOK_US };
        match self.node.deadline_us() {
            Some(deadline_us) if !self.is_handed_over => look_us.min(deadline_us),
            _ => look_us,
        }
    }

    /// Also while another process goes on as this node: if it does not, this one has missed nothing.
    fn event(&mut self, event: Event) {
        self.node.handle(event, self.now_us());
    }

    fn order(&mut self, order: Order) {
        let now_us = self.now_us();
        match order {
            Order::Configure(config) => {
                self.node.set_division(config.global.fleet_nodes, config.global.fleet_min_servers, now_us);
                self.store.configure(&config, config.global.fleet_user.clone());
                self.counters.configure(Arc::clone(&config));
                self.shared_limits.configure(config);
                self.is_look_due = true;
            }
            Order::Backends { audit, shard, backends } => {
                let Some(asked) = self.audit.as_mut().filter(|asked| asked.number() == audit) else { return };
                if let Some(all) = asked.take(shard, backends) {
                    match self.close_done.take() {
                        Some((servers, done)) => {
                            self.closing = Closing::of(all, servers);
                            let _ = done.send(());
                        }
                        None => self.node.set_own_backends(audit, all, now_us),
                    }
                    self.audit = None;
                }
            }
            Order::Drain { request, node, order } => self.order_drain(request, &node, order, now_us),
            Order::Draining(is_draining) => {
                // From here on its clients become fewer: what others see of them must not be older.
                self.look(now_us);
                self.node.set_draining(is_draining, now_us);
                self.rows_us = 0; // Its own row is not to be older than what the others see.
            }
            Order::ChangePools { base, pools } => Pools::change(&mut self.node, base, pools, now_us),
            Order::PoolsInUse(in_use) => {
                Pools::use_them(&mut self.node, in_use, now_us);
                self.rows_us = 0;
            }
            Order::AwaitPools { request, revision, wait } => self.pools.wait(request, revision, wait),
            Order::ForgetPools(request) => self.pools.forget(request),
            Order::HandOver(answer) => {
                self.is_handed_over = true;
                self.pools.hand_over().into_iter().for_each(|news| (self.outside.tell)(news));
                let _ = answer.send(self.node.hand_over());
            }
            Order::TakeBack => self.is_handed_over = false,
            Order::Close(done) => {
                self.is_closing = true;
                self.close_done = Some((self.counters.close(), done));
                (self.outside.command)(&Command::ListBackends { audit: LAST_AUDIT });
                let question = BackendsQuestion { audit: LAST_AUDIT, except: Vec::new() };
                self.audit = Some(Audit::new(question, self.outside.shards));
            }
            Order::Stop(_) => {}
        }
    }

    fn order_drain(&mut self, request: RequestId, node: &str, order: Drain, now_us: u64) {
        if **self.node.id() == *node {
            (self.outside.tell)(FleetNews::Drain(order));
            (self.outside.tell)(FleetNews::DrainOrdered { request, result: Ok(()) });
        } else {
            let order = match order {
                Drain::Off => DrainOrder::Resume,
                Drain::NewClients => DrainOrder::NewClients,
                Drain::AllClients => DrainOrder::AllClients,
            };
            self.node.order_drain(request.0, node.into(), order, now_us);
        }
    }

    fn tell_of_drains(&mut self) {
        if let Some(order) = self.node.take_drain_order() {
            (self.outside.tell)(FleetNews::Drain(match order {
                DrainOrder::Resume => Drain::Off,
                DrainOrder::NewClients => Drain::NewClients,
                DrainOrder::AllClients => Drain::AllClients,
            }));
        }
        while let Some((request, result)) = self.node.next_drain_result() {
            let result = result.map_err(|why| match why {
                DrainError::NoStore => "this node has no lease in the store (SHOW FLEET)".to_owned(),
                DrainError::NoSuchNode => "no node of this name is up (SHOW FLEET)".to_owned(),
                DrainError::Contended => {
                    "the order could not be written: others write it, too, or something else is in its place"
                        .to_owned()
                }
                DrainError::Unanswered(why) => {
                    format!("the store has not answered, the order may have been given: {why}")
                }
            });
            (self.outside.tell)(FleetNews::DrainOrdered { request: RequestId(request), result });
        }
    }

    /// Carries out what the node has decided, and looks at the counters where that is due.
    fn work(&mut self) {
        let now_us = self.now_us();
        self.carry_out(now_us);
        self.tell_of_drains();
        if !self.is_handed_over {
            self.pools.news(&mut self.node, now_us).into_iter().for_each(|news| (self.outside.tell)(news));
        }
        let waited_us = now_us.saturating_sub(self.looked_us);
        if waited_us >= LOOK_US || self.is_look_due && waited_us >= LEAST_LOOK_US {
            self.look(now_us);
            if now_us.saturating_sub(self.shared_us) >= LOOK_US {
                self.shared_us = now_us;
                self.shared_limits.look(&mut self.node, now_us, (self.outside.wall_s)());
            }
            self.carry_out(now_us);
        }
        if now_us.saturating_sub(self.rows_us) >= ROWS_US {
            self.rows_us = now_us;
            self.show(now_us);
        }
    }

    fn look(&mut self, now_us: u64) {
        (self.looked_us, self.is_look_due) = (now_us, false);
        if self.is_closing {
            return;
        }
        let servers = self.counters.look(&mut self.node, now_us);
        self.node.set_load(self.outside.counts.clients(), servers);
        let mut has_changed = false;
        while self.node.next_allowance().is_some() {
            has_changed = true;
        }
        if has_changed {
            // What was set before it changed is set anew; shards look at it then.
            self.counters.look(&mut self.node, now_us);
            (self.outside.command)(&Command::SlotsChanged);
        }
    }

    fn carry_out(&mut self, now_us: u64) {
        if self.is_handed_over {
            return;
        }
        while let Some(request) = self.node.poll(now_us) {
            self.store.submit(request);
        }
        self.pass_on_peers(now_us);
        if self.is_closing {
            return;
        }
        if let Some(question) = self.node.backends_question(now_us) {
            (self.outside.command)(&Command::ListBackends { audit: question.audit });
            self.audit = Some(Audit::new(question, self.outside.shards));
        }
        while self.node.next_allowance().is_some() {
            self.is_look_due = true;
        }
    }

    /// Cancel requests are forwarded by the numbers of nodes.
    fn pass_on_peers(&mut self, now_us: u64) {
        let Some(numbers) = self.node.next_peer_numbers(now_us) else { return };
        let node = |node: NumberedNode| (node.number, FleetPeer::new(node.id, node.address.as_deref()));
        let nodes = numbers.nodes.into_iter().map(node).collect();
        let peers = FleetPeers { own: numbers.own.unwrap_or_default(), nodes };
        (self.outside.tell)(FleetNews::Peers(peers));
        if let Some(own) = numbers.own.filter(|own| *own != self.number) {
            log(&self.outside.log, Level::Log, format!("this node has the number {own} in cancel keys"));
            self.number = own;
        }
    }

    /// Makes the rows of views, and logs what has changed of the node's state.
    fn show(&mut self, now_us: u64) {
        let status = self.node.status(now_us);
        let state = match &status.state {
            NodeState::Joined { is_watching: true } => (Level::Log, format!("node {} has joined", status.id)),
            NodeState::Joining | NodeState::Joined { .. } => (Level::Log, String::new()),
            NodeState::Leaving | NodeState::Left => (Level::Log, format!("node {} leaves", status.id)),
            NodeState::Alone { .. } | NodeState::IdTaken { .. } => {
                (Level::Warning, format!("node {}: {}", status.id, own_detail(&status)))
            }
        };
        if !state.1.is_empty() && state != self.logged && !self.is_handed_over {
            log(&self.outside.log, state.0, state.1.clone());
            self.logged = state;
        }
        *self.rows.lock().unwrap_or_else(PoisonError::into_inner) =
            Rows::of(&status, self.shared_limits.rows());
    }

    /// The process ends. If PostgreSQL has none of its connections any more, nothing of it stays in the store; otherwise the other nodes, and the process that begins
    /// in its place, find out.
    async fn leave(&mut self) {
        if self.is_handed_over {
            return;
        }
        if matches!(self.node.status(self.now_us()).state, NodeState::Joined { .. }) {
            let _ = timeout(CLEAN_LEAVE, self.leave_clean()).await;
            if self.node.status(self.now_us()).state == NodeState::Left {
                return;
            }
        }
        self.store.submit(Request::Leave { call: LAST_CALL, session: self.node.hand_over().session });
        let left = async {
            loop {
                match self.store.next().await {
                    Event::Left { call } | Event::Unanswered { call, .. } if call == LAST_CALL => return,
                    _ => {}
                }
            }
        };
        let _ = timeout(LEAVE, left).await;
    }

    /// Waits until PostgreSQL has none of the connections, and gives back all that the node has.
    async fn leave_clean(&mut self) {
        let budgets = self.counters.known();
        if !matches!(self.closing, Closing::Own(_)) {
            return;
        }
        while !budgets.is_empty() {
            self.store.submit(Request::ListBackends { call: LAST_LIST, budgets: budgets.clone() });
            let lists = loop {
                match self.store.next().await {
                    Event::Backends { call, budgets } if call == LAST_LIST => break budgets,
                    event => self.event(event),
                }
            };
            if self.closing.is_over(&budgets, &lists) {
                break;
            }
            sleep(LIST_PAUSE).await;
        }
        self.node.leave(self.now_us());
        loop {
            let now_us = self.now_us();
            for name in &budgets {
                let version = self.node.allowance(name).version;
                self.node.set_usage(name, Usage { version, ..Usage::default() }, now_us);
            }
            while let Some(request) = self.node.poll(now_us) {
                self.store.submit(request);
            }
            if self.node.status(now_us).state == NodeState::Left {
                return;
            }
            tokio::select! {
                event = self.store.next() => self.event(event),
                () = sleep(LIST_PAUSE) => {}
            }
        }
    }
}
