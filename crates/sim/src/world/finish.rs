//! The end of a run: no client waits, nothing leaks, the table holds what clients were told.

use super::World;
use crate::client::session::Phase;
use crate::invariants::Violation;
use crate::model::replication::HostEvents;
use crate::pooler::Pooler;
use crate::steps::Steps;
use crate::tap::Purpose;

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What was broken, if anything.
    pub(crate) violation: Option<Violation>,
    /// The hash of all that happened.
    pub(crate) hash: u64,
    /// The lines of the trace, if they were kept.
    pub(crate) lines: Vec<String>,
    /// Statements that the servers ran.
    pub(crate) statements: u64,
    /// Transactions that the servers ended.
    pub(crate) transactions: u64,
    /// Reads of clients that standbys executed.
    pub(crate) standby_reads: u64,
    /// What happened to the hosts of a cluster.
    pub(crate) host_events: HostEvents,
    /// Events that happened.
    pub(crate) events: u64,
    /// Client sessions.
    pub(crate) sessions: usize,
    /// What it was made of.
    pub(crate) steps: Steps,
}

impl<P: Pooler> World<P> {
    /// After healing every session must have come to its end (I8), and FATAL is the end of a connection (I14).
    pub(super) fn expect_nobody_waiting(&mut self) {
        let Some(number) = self.slots.iter().flatten().copied().next() else { return };
        if !self.checker.has_objected() {
            let client = &self.clients[number as usize];
            if client.phase == Phase::Over {
                return self.checker.object("I14", format!("c{number} was told FATAL and never hung up on"));
            }
            let words = client.wait_in_words();
            self.checker.object("I8", format!("c{number} waits for ever; {words}"));
        }
    }

    pub(super) fn finish(mut self) -> Outcome {
        if !self.checker.has_objected() {
            self.expect_takeovers_over();
            self.expect_nothing_left();
            self.expect_commands_answered();
            self.expect_no_leftovers();
            self.expect_limits_in_force();
            self.checker.compare(&self.cluster.ledger);
        }
        let (statements, transactions) = (self.cluster.ledger.statements, self.cluster.ledger.transactions);
        let (events, sessions, standby_reads) = (self.events, self.clients.len(), self.cluster.standby_reads);
        let host_events = self.cluster.replication.as_ref().map(|hosts| hosts.events).unwrap_or_default();
        let (violation, trace, steps) = self.verdict();
        Outcome {
            violation,
            hash: trace.hash(),
            lines: trace.into_lines(),
            statements,
            transactions,
            standby_reads,
            host_events,
            events,
            sessions,
            steps,
        }
    }

    /// No client, no cancel request; as many servers as are counted.
    fn expect_nothing_left(&mut self) {
        let mut servers = std::collections::BTreeMap::new();
        let mut objections = Vec::new();
        for socket in self.shards.iter().flat_map(|shard| shard.sockets.iter().flatten()) {
            match socket.tap.as_ref().map(|tap| &tap.purpose) {
                Some(Purpose::Session { database, user, own: false }) => {
                    *servers.entry((database.clone(), user.clone())).or_insert(0) += 1;
                }
                other => objections.push(format!("{:?} ({other:?}) was left open", socket.spot)),
            }
        }
        for text in objections {
            self.checker.object("I8", text);
        }
        for database in (0..self.swarm.pooling.databases).map(crate::setup::database) {
            for user in (0..self.swarm.pooling.users).map(crate::setup::user) {
                let open = servers.get(&(database.clone(), user.clone())).copied().unwrap_or(0);
                let counted = self.names().servers(&database, &user);
                if self.counts_servers() && open != counted {
                    let text =
                        format!("{counted} servers are counted for {user} on {database}, {open} are open");
                    self.checker.object("I7", text);
                }
            }
        }
        let clients = self.names().counted().clients;
        if clients != 0 {
            self.checker.object("I7", format!("{clients} clients are counted and there are none"));
        }
    }

    /// Pools have shrunk to their sizes, and no server is at an address that its name has left.
    fn expect_limits_in_force(&mut self) {
        let pools = self.swarm.hosts.as_ref().map_or(1, |hosts| u32::from(hosts.count) + 1);
        let most = match self.config.global.default_pool_size {
            settings::PoolSize::Fixed(size) => size,
            settings::PoolSize::Auto => self.config.global.auto_pool_size_max,
        };
        let size = pools * (most + self.config.global.reserve_pool_size);
        let mut found = None;
        for ((database, user), servers) in &self.names().counted().permits {
            if self.pools && *servers > size {
                found = Some((
                    "I7",
                    format!("{servers} servers are left for {user} on {database}, pool_size is {size}"),
                ));
            }
        }
        for socket in self.shards.iter().flat_map(|shard| shard.sockets.iter().flatten()) {
            let moves =
                crate::setup::HOSTS.iter().map(|host| (host, self.addresses.get(host).copied().unwrap_or(1)));
            let replicas = self
                .swarm
                .hosts
                .iter()
                .flat_map(|hosts| (0..usize::from(hosts.count)).map(crate::setup::replica));
            let mut current = moves
                .map(|(host, moves)| crate::setup::address_of(host, moves))
                .chain(replicas.map(|host| crate::setup::address_of(&host, 1)));
            // One that was on its way from a process to another is not told of.
            let is_told = self.takeovers.is_empty();
            if is_told && socket.address.is_some_and(|address| !current.any(|current| current == address)) {
                found =
                    Some(("I15", format!("{:?} is at {:?}, which no name has", socket.spot, socket.address)));
            }
        }
        if let Some((invariant, text)) = found {
            self.checker.object(invariant, text);
        }
    }

    /// Whether the limits count it: a relay does not count.
    fn counts_servers(&self) -> bool {
        self.pools
    }
}
