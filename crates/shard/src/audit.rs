//! A shard's tables, counted from scratch: for tests and the simulator, which compare the result with the cached
//! counts after events. Never changes anything and is never called by the driver.

use std::collections::BTreeMap;

use session::Pin;
use settings::PoolMode;

use crate::connections::Conn;
use crate::core::Core;
use crate::link::pins;
use crate::local_pools::table::PoolId;
use crate::state::ShardState;
use crate::{ConnId, client, server};

/// Counts of one shard, made from its tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// A table contradicts another one.
    pub contradiction: Option<String>,
    /// Clients counted in the process.
    pub clients: u32,
    /// Clients counted in each database.
    pub clients_of_databases: BTreeMap<String, u32>,
    /// Clients counted in each user.
    pub clients_of_users: BTreeMap<String, u32>,
    /// Connections that have not logged in.
    pub unauthenticated: u32,
    /// Permits held for each pool (database, user): open servers, and those that the process being taken over still has.
    pub permits: BTreeMap<(String, String), u32>,
    /// Clients that count in `max_pinned`, for each pool (database, user).
    pub pins: BTreeMap<(String, String), u32>,
    /// What must not outlive its client: see [`Leftovers`].
    pub leftovers: Leftovers,
}

/// What a shard without clients must not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Connections that are no servers.
    pub connections: usize,
    /// Commands that are not answered yet.
    pub commands: usize,
    /// Internal queries.
    pub inquiries: usize,
    /// Bytes that logins have sent beyond what each may.
    pub login_bytes: u32,
    /// Uses of prepared statements by clients.
    pub statement_uses: u64,
}

impl ShardState {
    pub(crate) fn audit(&self) -> Audit {
        let mut audit = Audit::default();
        for (place, conn) in self.core.conns.iter() {
            audit_conn(&self.core, place, conn, &mut audit);
        }
        audit_pools(&self.core, &mut audit);
        audit.leftovers.commands = self.core.administration.pending().len();
        audit.leftovers.inquiries = self.core.conns.awaited();
        audit.leftovers.login_bytes = self.logins.bytes_spent();
        audit.leftovers.statement_uses = self.core.registry.uses();
        audit
    }
}

fn audit_conn(core: &Core, own: ConnId, conn: &Conn, audit: &mut Audit) {
    audit.leftovers.connections += usize::from(!matches!(conn, Conn::Server(_)));
    match conn {
        Conn::Client(client) => {
            audit_pin(core, own, client, audit);
            audit.clients += u32::from(client.counted.is_in_process());
            audit.unauthenticated += u32::from(client.counted.unauthenticated);
            if client.counted.is_user() {
                *audit.clients_of_users.entry(client.login_user.to_string()).or_default() += 1;
            }
            if let Some(local_pool) =
                core.local_pools.of(client.pool).filter(|_| client.counted.is_database())
            {
                *audit.clients_of_databases.entry(local_pool.database_name.to_string()).or_default() += 1;
            }
            if let Some(server) = client.server()
                && core.conns.find_server(server).is_none_or(|server| server.client() != Some(own))
            {
                audit
                    .contradict(format!("client {own:?} is linked to {server:?}, which is not linked to it"));
            }
        }
        Conn::Server(server) => {
            let Some(client) = server.client() else { return };
            let back = match core.conns.get(client) {
                Some(Conn::Client(client)) => client.server(),
                _ => None,
            };
            if back != Some(own) {
                audit
                    .contradict(format!("server {own:?} is linked to {client:?}, which is not linked to it"));
            }
            if stays_for_nothing(core, client, server) {
                audit.contradict(format!("server {own:?} stays with {client:?}, which wants nothing of it"));
            }
        }
        _ => {}
    }
}

/// Whether a client counts in `max_pinned` as its session holds what cannot move.
fn audit_pin(core: &Core, own: ConnId, client: &client::Client, audit: &mut Audit) {
    let server = client.server().and_then(|server| core.conns.find_server(server));
    let local_pool = core.local_pools.of(client.pool);
    let pins = server.map(|server| pins::lasting(local_pool, client, server)).unwrap_or_default();
    let since_us = client.pin.as_ref().and_then(|pin| pin.since_us());
    // What keeps values of sequences is known as soon as they are called, and counted when the server is quiet.
    let is_quiet = server.is_some_and(|server| server.protocol.is_quiet() && !server.unsent);
    let is_counted_later = !is_quiet && since_us.is_none();
    let pins = if is_counted_later { pins.without(Pin::Sequences) } else { pins };
    let is_linked = server.is_some_and(|server| matches!(server.phase, server::Phase::Linked(_)));
    let is_known = server.is_some_and(|server| server.protocol.session_is_known());
    let waits_for_server = matches!(client.phase, client::Phase::Waiting(position) if !position.is_for_pin());
    if client.pin.is_some() && server.is_none() && (since_us.is_some() || !waits_for_server) {
        audit.contradict(format!("client {own:?} is pinned and has no server"));
    } else if is_linked && is_known && since_us.is_some() == pins.is_empty() {
        let text = format!("client {own:?} is pinned since {since_us:?} and its session holds {pins:?}");
        audit.contradict(text);
    }
    if let (Some(_), Some(local_pool)) = (&client.pin, core.local_pools.of(client.pool)) {
        let key = (local_pool.database_name.to_string(), local_pool.user.to_string());
        *audit.pins.entry(key).or_default() += 1;
    }
}

/// Whether a server that should have been released is still linked to its client.
fn stays_for_nothing(core: &Core, client: ConnId, server: &server::Server) -> bool {
    let shares = core
        .local_pools
        .get(server.pool)
        .is_some_and(|local_pool| local_pool.pool.limits.mode != PoolMode::Session);
    let linked = matches!(server.phase, server::Phase::Linked(_)) && server.dedicated.is_none();
    let is_done = server.protocol.is_quiet() && !server.unsent && !server.protocol.keeps_client();
    let holds_nothing = core.conns.find_client(client).is_some_and(|client| client.request.held.is_empty());
    shares && linked && is_done && holds_nothing
}

fn audit_pools(core: &Core, audit: &mut Audit) {
    for (index, local_pool) in core.local_pools.iter() {
        let mut counted = Counted::default();
        for conn in core.conns.values() {
            counted.add(index, conn);
        }
        let pool = &local_pool.pool;
        let name = format_args!("{} on {}", local_pool.user, local_pool.database_name);
        let mut queued = 0;
        let waiting = pool.queue.shared().chain(pool.queue.dedicated()).chain(pool.queue.pins());
        for waiter in waiting {
            match core.conns.get(ConnId(waiter.client)) {
                Some(Conn::Client(client)) if client.served_by() == Some(index) && waits(client) => {
                    queued += 1;
                }
                Some(Conn::InternalClient(_)) => {}
                _ => audit.contradict(format!("{name}: {waiter:?} is queued and does not wait")),
            }
        }
        for idle in pool.idle() {
            match core.conns.get(ConnId(idle.server)) {
                Some(Conn::Server(server)) if server.pool == index && is_idle(server) => {}
                _ => audit.contradict(format!("{name}: {idle:?} is on the idle list and is not idle")),
            }
        }
        let cached = (local_pool.clients, pool.open(), pool.idle().len(), queued, local_pool.cancels_active);
        let found = (counted.clients, counted.open, counted.idle, counted.waiting, counted.cancels);
        if cached != found {
            let text = "clients, open, idle, waiting and cancels are kept as";
            audit.contradict(format!("{name}: {text} {cached:?} and counted as {found:?}"));
        }
        let key = (local_pool.database_name.to_string(), local_pool.user.to_string());
        let counted = audit.pins.get(&key).copied().unwrap_or_default();
        if counted > pool.shared().pinned() {
            audit.contradict(format!(
                "{name}: {counted} clients are pinned here alone, and fewer are counted"
            ));
        }
        *audit.permits.entry(key).or_default() += pool.open() + pool.external();
    }
}

fn waits(client: &client::Client) -> bool {
    matches!(client.phase, client::Phase::Waiting(_) | client::Phase::AwaitingGreeting(_))
}

fn is_idle(server: &server::Server) -> bool {
    matches!(server.phase, server::Phase::Idle)
}

impl Audit {
    fn contradict(&mut self, text: String) {
        self.contradiction.get_or_insert(text);
    }
}

/// What the connections of one pool add up to.
#[derive(Default)]
struct Counted {
    clients: u32,
    open: u32,
    idle: usize,
    waiting: usize,
    cancels: u32,
}

impl Counted {
    fn add(&mut self, index: PoolId, conn: &Conn) {
        match conn {
            Conn::Client(client) => {
                let is_of_pool = client.pool == Some(index);
                self.clients += u32::from(is_of_pool && client.counted.is_in_pool());
                self.waiting += usize::from(client.served_by() == Some(index) && waits(client));
            }
            Conn::Server(server) if server.pool == index => {
                self.open += u32::from(!server.listens);
                self.idle += usize::from(is_idle(server));
            }
            Conn::Cancel(cancel_conn) if cancel_conn.local_pool == index => {
                self.cancels += u32::from(cancel_conn.has_turn());
            }
            _ => {}
        }
    }
}
