//! The counters of shared limits: what the node may have is set there, and what is used is read there.
//!
//! Owns which limits are shared, and what each is by the configuration.

use std::collections::HashMap;
use std::sync::Arc;

use fleet::{BudgetKind, BudgetName, Node, Usage};
use pool::{Counted, FleetCounts, Lease, SharedPool, SlotCounter};
use settings::Config;

/// All counters of the process.
pub(crate) struct Counters {
    counts: Arc<dyn FleetCounts>,
    config: Arc<Config>,
    /// The limits that the node knows.
    known: Vec<(BudgetName, u32)>,
}

/// What the pools of a database or a user have in common.
#[derive(Clone, Copy, Default)]
struct Sum {
    waiting: u32,
    unused: u32,
}

/// One look at all counters.
struct Look<'a> {
    node: &'a mut Node,
    config: &'a Config,
    now_us: u64,
    databases: HashMap<Arc<str>, Sum>,
    users: HashMap<Arc<str>, Sum>,
    seen: Vec<(BudgetName, u32)>,
    servers: u32,
}

impl Counters {
    pub(crate) fn new(counts: Arc<dyn FleetCounts>, config: Arc<Config>) -> Counters {
        Counters { counts, config, known: Vec::new() }
    }

    /// A new configuration is in force: other limits may be shared.
    pub(crate) fn configure(&mut self, config: Arc<Config>) {
        self.config = config;
    }

    /// No connection is opened any more. Returns how many there are.
    pub(crate) fn close(&self) -> u32 {
        let none = Some(Lease { slots: 0, floor: 0, until_us: 0 });
        let mut servers = 0_u32;
        self.counts.each(&mut |counted| match counted {
            Counted::Pool { shared, .. } => drop(shared.servers.set_lease(none)),
            Counted::Database { counts, .. } => {
                servers = servers.saturating_add(counts.servers.set_lease(none));
            }
            Counted::User { counts, .. } => drop(counts.servers.set_lease(none)),
        });
        servers
    }

    /// The limits that the node knows.
    pub(crate) fn known(&self) -> Vec<BudgetName> {
        self.known.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Sets what the node may have and tells it what is used. Returns how many server connections there are.
    pub(crate) fn look(&mut self, node: &mut Node, now_us: u64) -> u32 {
        let (seen, servers) = self.pass(node, now_us);
        if seen == self.known {
            return servers;
        }
        node.set_budgets(&seen, now_us);
        self.known = seen;
        self.pass(node, now_us).1
    }

    fn pass(&self, node: &mut Node, now_us: u64) -> (Vec<(BudgetName, u32)>, u32) {
        let mut look = Look {
            node,
            config: &self.config,
            now_us,
            databases: HashMap::new(),
            users: HashMap::new(),
            seen: Vec::with_capacity(self.known.len()),
            servers: 0,
        };
        self.counts.each(&mut |counted| look.at(counted));
        (look.seen, look.servers)
    }
}

impl Look<'_> {
    fn at(&mut self, counted: Counted<'_>) {
        match counted {
            Counted::Pool { database, user, host, shared } => self.at_pool(database, user, host, shared),
            Counted::Database { name, counts } => {
                let limit =
                    self.config.database(name).map_or(0, |entry| self.config.max_db_connections(&entry));
                let sum = self.databases.get(name).copied().unwrap_or_default();
                self.servers = self.servers.saturating_add(counts.servers.taken());
                self.limit(budget(BudgetKind::Database, name, "", ""), limit, &counts.servers, sum);
            }
            Counted::User { name, counts } => {
                let user = self.config.user(name).map(|user| &**user);
                let limit = self.config.max_user_connections(user);
                let sum = self.users.get(name).copied().unwrap_or_default();
                self.limit(budget(BudgetKind::User, "", name, ""), limit, &counts.servers, sum);
            }
        }
    }

    fn at_pool(&mut self, database: &str, user: &str, host: Option<&str>, shared: &SharedPool) {
        let limit = self.pool_limit(database, user);
        let room = match limit {
            0 => u32::MAX,
            limit => limit.saturating_sub(shared.servers.taken()),
        };
        let sum = Sum { waiting: shared.waiting().min(room), unused: shared.unused() };
        let name = budget(BudgetKind::Pool, database, user, host.unwrap_or_default());
        for (sums, key) in [(&mut self.databases, &name.database), (&mut self.users, &name.user)] {
            let total = sums.entry(Arc::clone(key)).or_default();
            total.waiting = total.waiting.saturating_add(sum.waiting);
            total.unused = total.unused.saturating_add(sum.unused);
        }
        self.limit(name, limit, &shared.servers, sum);
    }

    /// `pool_size`, at its largest, and the reserve; 0 is no limit.
    fn pool_limit(&self, database: &str, user: &str) -> u32 {
        let Some(entry) = self.config.database(database) else { return 0 };
        let user = self.config.user(user).map(|user| &**user);
        match self.config.pool_size(&entry, user).largest() {
            0 => 0,
            size => size.saturating_add(self.config.reserve_pool_size(&entry, user)),
        }
    }

    fn limit(&mut self, name: BudgetName, limit: u32, counter: &SlotCounter, sum: Sum) {
        let allowance = self.node.allowance(&name);
        if limit == 0 {
            // It may have had one: its slots are given back once its connections are closed.
            let usage =
                Usage { open: counter.set_lease(None), version: allowance.version, ..Usage::default() };
            return self.node.set_usage(&name, usage, self.now_us);
        }
        let lease = Lease { slots: allowance.slots, floor: allowance.floor, until_us: allowance.until_us };
        // From here on no more are taken than that, so that what is counted is what there is at most.
        let open = counter.set_lease(Some(lease));
        let usage = Usage {
            open,
            in_use: open.saturating_sub(sum.unused),
            waiting: sum.waiting,
            version: allowance.version,
        };
        self.node.set_usage(&name, usage, self.now_us);
        self.seen.push((name, limit));
    }
}

/// The name of a limit.
pub(crate) fn budget(kind: BudgetKind, database: &str, user: &str, host: &str) -> BudgetName {
    BudgetName { kind, database: database.into(), user: user.into(), host: host.into() }
}
