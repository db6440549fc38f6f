//! What this shard holds, as rows.
//!
//! Owns reading its own tables for SHOW. Never adds shards up and never makes text of a table: that is the control
//! thread's.

mod caches;
mod cancels;
mod clusters;
pub(crate) mod internals;
mod pinned;
mod pool_sizes;
mod queues;

use std::collections::BTreeMap;
use std::sync::Arc;

use messages::{
    DatabaseRow, HistogramRow, Listing, PoolRow, Report, RequestId, SLICE_ROWS, ShardRow, SocketRow, SpanRow,
    Subject, UserRow,
};
use session::parameters::APPLICATION_NAME;
use telemetry::spans::Span;

use crate::cancel::peers;
use crate::client::Client;
use crate::connections::Conn;
use crate::core::{CONSOLE, Core};
use crate::link::pins;
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::{PoolId, Retired};
use crate::server::{InternalQuery, Server};
use crate::state::ShardState;
use crate::time::micros;
use crate::{ConnId, Peer, client, server};

impl ShardState {
    pub(crate) fn list(&mut self, request: RequestId, subject: Subject) {
        match subject {
            Subject::Clients => {
                let rows = client_rows(&self.core);
                send_slices(&mut self.core, request, rows, Listing::Sockets)
            }
            Subject::Servers => {
                let rows = server_rows(&self.core);
                send_slices(&mut self.core, request, rows, Listing::Sockets)
            }
            Subject::Pools => {
                let rows = self.pool_rows();
                send_slices(&mut self.core, request, rows, Listing::Pools)
            }
            Subject::Databases => {
                let rows = database_rows(&self.core);
                send_slices(&mut self.core, request, rows, Listing::Databases)
            }
            Subject::Users => {
                let rows = self.user_rows();
                send_slices(&mut self.core, request, rows, Listing::Users)
            }
            Subject::Shards => {
                let rows = vec![self.shard_row()];
                send_slices(&mut self.core, request, rows, Listing::Shards)
            }
            Subject::Descriptors => {
                let rows = internals::descriptor_rows(&self.core);
                send_slices(&mut self.core, request, rows, Listing::Descriptors)
            }
            Subject::Memory => {
                let rows = internals::memory_rows(&self.core);
                send_slices(&mut self.core, request, rows, Listing::Memory)
            }
            Subject::PeerPools => {
                let rows = peers::peer_pool_rows(&self.core);
                send_slices(&mut self.core, request, rows, Listing::PeerPools)
            }
            Subject::Histograms => {
                let rows = histogram_rows(&self.core);
                send_slices(&mut self.core, request, rows, Listing::Histograms)
            }
            Subject::Queries => {
                let rows = self
                    .core
                    .statistics
                    .tracking
                    .as_ref()
                    .map(|tracking| tracking.rows())
                    .unwrap_or_default();
                send_slices(&mut self.core, request, rows, Listing::Queries)
            }
            Subject::Spans => {
                let rows = span_rows(&self.core);
                send_slices(&mut self.core, request, rows, Listing::Spans)
            }
            Subject::Errors | Subject::Clusters | Subject::Caches | Subject::Queues | Subject::PoolSizes => {
                self.list_of_databases(request, subject)
            }
            // The process's, not a shard's.
            Subject::Listeners
            | Subject::Hosts
            | Subject::Zones
            | Subject::Quotas
            | Subject::ProbedHosts
            | Subject::FleetNodes
            | Subject::FleetBudgets
            | Subject::FleetLimits => {}
        }
    }

    /// What is kept of databases.
    fn list_of_databases(&mut self, request: RequestId, subject: Subject) {
        match subject {
            Subject::Errors => {
                let rows = self.core.statistics.errors.rows();
                send_slices(&mut self.core, request, rows, Listing::Errors)
            }
            Subject::Clusters => {
                let rows = clusters::rows(&self.core);
                send_slices(&mut self.core, request, rows, Listing::Clusters)
            }
            Subject::Caches => {
                let rows = caches::rows(&self.core);
                send_slices(&mut self.core, request, rows, Listing::Caches)
            }
            Subject::Queues => {
                let rows = queues::rows(&self.core);
                send_slices(&mut self.core, request, rows, Listing::Queues)
            }
            Subject::PoolSizes => {
                let rows = pool_sizes::rows(&self.core);
                send_slices(&mut self.core, request, rows, Listing::PoolSizes)
            }
            _ => {}
        }
    }

    fn pool_rows(&self) -> Vec<PoolRow> {
        let mut rows: BTreeMap<Option<PoolId>, PoolRow> = self
            .core
            .local_pools
            .iter()
            .map(|(pool, local_pool)| (Some(pool), empty_pool_row(&self.core, local_pool)))
            .collect();
        rows.insert(None, self.console_row()); // Of the clients without a pool, only those of the console are counted.
        for conn in self.core.conns.values() {
            match conn {
                Conn::Client(client) => {
                    if let Some(row) = rows.get_mut(&client.pool) {
                        count_client(row, client);
                        count_pin(row, client, &self.core);
                    }
                }
                Conn::Server(server) => {
                    if let Some(row) = rows.get_mut(&Some(server.pool)) {
                        count_server(row, server, is_used(&self.core, server));
                    }
                }
                Conn::Cancel(cancel_conn) => {
                    if let Some(row) = rows.get_mut(&Some(cancel_conn.local_pool)) {
                        let sent = u64::from(cancel_conn.has_turn());
                        row.client_active_cancel += sent;
                        row.server_active_cancel += sent;
                        row.client_waiting_cancel += 1 - sent;
                    }
                }
                Conn::InternalClient(internal_client) => {
                    if let (Some(row), Some(_)) =
                        (rows.get_mut(&Some(internal_client.local_pool)), internal_client.position)
                    {
                        row.client_waiting += internal_client.clients().count() as u64;
                    }
                }
                Conn::PeerCancel(_) | Conn::Reserved => {}
            }
        }
        let retired = |(database, kept): (&Arc<str>, &Retired)| PoolRow {
            database: database.to_string(),
            retired: true,
            counters: kept.counters,
            ..PoolRow::default()
        };
        rows.into_values().chain(self.core.local_pools.retired().map(retired)).collect()
    }

    fn console_row(&self) -> PoolRow {
        PoolRow {
            database: CONSOLE.to_owned(),
            user: CONSOLE.to_owned(),
            mode: Some(settings::PoolMode::Statement),
            counters: self.console.counters(),
            ..PoolRow::default()
        }
    }

    fn user_rows(&self) -> Vec<UserRow> {
        let mut rows: BTreeMap<&str, UserRow> = BTreeMap::new();
        for local_pool in self.core.local_pools.values() {
            let row = rows
                .entry(&local_pool.user)
                .or_insert_with(|| UserRow { name: local_pool.user.to_string(), ..UserRow::default() });
            row.servers += u64::from(local_pool.pool.open());
        }
        for conn in self.core.conns.values() {
            // Those of the console count in no limit, and are shown all the same.
            if let Conn::Client(client) = conn
                && (client.counted.is_user() || matches!(client.phase, client::Phase::Console(_)))
            {
                rows.entry(&client.login_user)
                    .or_insert_with(|| UserRow { name: client.login_user.to_string(), ..UserRow::default() })
                    .clients += 1;
            }
        }
        for name in &self.auth_queries.cache().found {
            rows.entry(name).or_insert_with(|| UserRow { name: name.clone(), ..UserRow::default() });
        }
        rows.into_values().collect()
    }

    fn shard_row(&self) -> ShardRow {
        let mut row = ShardRow {
            shard: self.core.id.0,
            pools: self.core.local_pools.len() as u64,
            busy_percent: u64::from(self.load.percent()),
            transactions: self
                .core
                .local_pools
                .values()
                .map(|local_pool| local_pool.counters.xact_count)
                .sum(),
            listener_losses: self.core.statistics.listener_losses,
            ..ShardRow::default()
        };
        for conn in self.core.conns.values() {
            match conn {
                Conn::Client(client) if client.is_settled() => row.clients += 1,
                Conn::Client(client) if !matches!(client.phase, client::Phase::Closing) => row.logins += 1,
                Conn::Server(_) => row.servers += 1,
                _ => {}
            }
        }
        row
    }
}

fn send_slices<Row: Clone>(
    core: &mut Core,
    request: RequestId,
    rows: Vec<Row>,
    wrap: fn(Vec<Row>) -> Listing,
) {
    let shard = core.id;
    let count = rows.chunks(SLICE_ROWS).count().max(1);
    for index in 0..count {
        let slice = rows.chunks(SLICE_ROWS).nth(index).unwrap_or_default().to_vec();
        let report = Report::Listing { request, shard, rows: wrap(slice), last: index + 1 == count };
        core.report(report);
    }
}

fn client_rows(core: &Core) -> Vec<SocketRow> {
    core.conns
        .iter()
        .filter_map(|(_, conn)| match conn {
            Conn::Client(client) if client.is_settled() => Some(client_row(core, client)),
            Conn::Cancel(cancel_conn) => cancels::requester_row(core, cancel_conn),
            _ => None,
        })
        .collect()
}

pub(crate) fn client_row(core: &Core, client: &Client) -> SocketRow {
    let local_pool = core.local_pools.of(client.pool);
    let (address, port, local_address, local_port, remote_pid) = match client.peer {
        Peer::Inet { remote, local } => {
            (remote.ip().to_string(), remote.port(), local.ip().to_string(), local.port(), 0)
        }
        Peer::Unix { process_id, port, .. } => ("unix".to_owned(), port, "unix".to_owned(), port, process_id),
    };
    let waits = matches!(client.phase, client::Phase::Waiting(_) | client::Phase::AwaitingGreeting(_));
    let wait_us = if waits { core.now.mono_us.saturating_sub(client.request_us) } else { 0 };
    SocketRow {
        id: client.id,
        shard: core.id.0,
        user: client.login_user.to_string(),
        database: local_pool
            .map_or_else(|| CONSOLE.to_owned(), |local_pool| local_pool.database_name.to_string()),
        state: client.state(),
        address,
        port,
        local_address,
        local_port,
        connect_time_us: client.since_wall_us,
        request_time_us: wall(core, client.request_us),
        wait_us,
        login_us: client.login_us.into(),
        waits: client.query_tracker.as_ref().map(|query_tracker| *query_tracker.waits()),
        server_waits: client.query_tracker.as_ref().map(|query_tracker| *query_tracker.server_waits()),
        close_needed: false,
        replication: client
            .dedicated_request
            .as_ref()
            .map_or("none", |dedicated_request| dedicated_request.kind().name()),
        pinned: pinned::pinned_client(core, client),
        pins: pins::names(pinned::session_pins(core, client)),
        server_pid: pinned::server_pid(core, client),
        pinned_since_us: pinned_since(client).map_or(0, |since_us| wall(core, since_us)),
        pinned_us: pinned_since(client).map_or(0, |since_us| core.now.mono_us.saturating_sub(since_us)),
        link: client.server().and_then(|server| id_of(core, server)).unwrap_or(0),
        remote_pid,
        tls: client.tls.as_ref().map(|agreed| agreed.summary()).unwrap_or_default(),
        application_name: client.parameters.text(APPLICATION_NAME).map(str::to_owned).unwrap_or_default(),
        is_server: false,
        held_bytes: client.request.held.len() as u64,
        remaining_bytes: 0,
        prepared_statements: client.request.statements.as_ref().map_or(0, |names| names.count() as u64),
    }
}

fn server_rows(core: &Core) -> Vec<SocketRow> {
    core.conns
        .iter()
        .filter_map(|(_, conn)| match conn {
            Conn::Server(server) => server_row(core, server),
            Conn::Cancel(cancel_conn) => cancels::cancel_conn_row(core, cancel_conn),
            _ => None,
        })
        .collect()
}

fn server_row(core: &Core, server: &Server) -> Option<SocketRow> {
    let local_pool = core.local_pools.get(server.pool)?;
    let (address, port) = crate::log_format::server_address(server, &local_pool.database);
    let (local_address, local_port) = crate::log_format::address(server.local);
    Some(SocketRow {
        id: server.id,
        shard: core.id.0,
        user: local_pool.user.to_string(),
        database: local_pool.database_name.to_string(),
        state: server.state(is_used(core, server)),
        address,
        port,
        local_address,
        local_port,
        connect_time_us: server.since_wall_us,
        request_time_us: wall(core, server.request_us),
        wait_us: 0,
        login_us: 0,
        waits: None,
        server_waits: None,
        close_needed: server.close_when_free.is_set(),
        replication: server.dedicated.as_ref().map_or("none", |dedicated| dedicated.kind.name()),
        pinned: pinned::pinned_server(core, server),
        pinned_since_us: pinned::client_of(core, server)
            .and_then(pinned_since)
            .map_or(0, |since_us| wall(core, since_us)),
        pins: String::new(),
        pinned_us: 0,
        server_pid: 0,
        link: server.client().and_then(|client| id_of(core, client)).unwrap_or(0),
        remote_pid: server.key.as_ref().map_or(0, |key| key.0),
        tls: server.tls.as_ref().map(|agreed| agreed.summary()).unwrap_or_default(),
        application_name: server
            .protocol
            .parameters
            .text(APPLICATION_NAME)
            .map(str::to_owned)
            .unwrap_or_default(),
        is_server: true,
        held_bytes: 0,
        remaining_bytes: server.protocol.remaining_bytes().into(),
        prepared_statements: server.protocol.statements.count() as u64,
    })
}

/// Idle longer than `server_check_delay`: it will be checked before it is used.
fn is_used(core: &Core, server: &Server) -> bool {
    let delay_us = micros(core.config.global.server_check_delay);
    core.now.mono_us.saturating_sub(server.request_us) > delay_us
}

fn id_of(core: &Core, conn: ConnId) -> Option<u64> {
    match core.conns.get(conn)? {
        Conn::Client(client) => Some(client.id),
        Conn::Server(server) => Some(server.id),
        _ => None,
    }
}

/// The wall clock of a monotonic time.
pub(crate) fn wall(core: &Core, mono_us: u64) -> u64 {
    core.now.wall_us.saturating_sub(core.now.mono_us.saturating_sub(mono_us))
}

/// What waits there is a question of the control thread's: no client waits for its answer.
fn is_own_question(core: &Core, conn: u32) -> bool {
    core.conns
        .find_internal_client(ConnId(conn))
        .is_some_and(|internal_client| internal_client.clients().next().is_none())
}

fn empty_pool_row(core: &Core, local_pool: &LocalPool) -> PoolRow {
    let queue = &local_pool.pool.queue;
    let shared = queue.shared().find(|waiter| !is_own_question(core, waiter.client));
    let others = queue.front_dedicated().into_iter().chain(queue.front_pin());
    let oldest = shared.into_iter().chain(others).min_by_key(|waiter| waiter.since_us);
    PoolRow {
        database: local_pool.database_name.to_string(),
        user: local_pool.user.to_string(),
        max_wait_us: oldest.map_or(0, |waiter| core.now.mono_us.saturating_sub(waiter.since_us)),
        mode: Some(local_pool.pool.limits.mode),
        server_error: local_pool.server_error.as_deref().cloned(),
        counters: local_pool.counters,
        pins: local_pool.pins,
        pinned_us: local_pool.pins.ended_us,
        ..PoolRow::default()
    }
}

fn span_rows(core: &Core) -> Vec<SpanRow> {
    let Some(tracking) = &core.statistics.tracking else { return Vec::new() };
    let row = |(number, span): (u64, &Span)| SpanRow { shard: core.id.0, number, span: span.clone() };
    tracking.spans().map(row).collect()
}

fn histogram_rows(core: &Core) -> Vec<HistogramRow> {
    let row = |local_pool: &LocalPool| {
        Some(HistogramRow {
            database: local_pool.database_name.to_string(),
            user: local_pool.user.to_string(),
            histograms: local_pool.histograms.clone()?,
        })
    };
    core.local_pools.values().filter_map(row).collect()
}

fn database_rows(core: &Core) -> Vec<DatabaseRow> {
    let mut rows: BTreeMap<&str, DatabaseRow> = BTreeMap::new();
    for local_pool in core.local_pools.values() {
        let row = rows.entry(&local_pool.database_name).or_insert_with(|| DatabaseRow {
            name: local_pool.database_name.to_string(),
            paused: local_pool.paused_by_command,
            auto: local_pool.database.auto,
            ..DatabaseRow::default()
        });
        row.servers += u64::from(local_pool.pool.open());
        row.clients += u64::from(local_pool.clients);
    }
    rows.into_values().collect()
}

fn count_client(row: &mut PoolRow, client: &Client) {
    match client.phase {
        client::Phase::Waiting(_) | client::Phase::AwaitingGreeting(_) => row.client_waiting += 1,
        client::Phase::Idle
        | client::Phase::PinRefused(_)
        | client::Phase::Linked(_)
        | client::Phase::Preparing(_)
        | client::Phase::Console(_) => row.client_active += 1,
        _ => {}
    }
}

fn count_pin(row: &mut PoolRow, client: &Client, core: &Core) {
    if let client::Phase::Waiting(position) = client.phase {
        row.waiting_for_pin += u64::from(position.is_for_pin());
    }
    if let Some(since_us) = pinned_since(client) {
        row.pinned += 1;
        row.pinned_us += core.now.mono_us.saturating_sub(since_us);
        for pin in pinned::session_pins(core, client).iter() {
            *row.pinned_by_reason.entry(pin.name()).or_default() += 1;
        }
    }
}

/// Since when its session holds what cannot move.
fn pinned_since(client: &Client) -> Option<u64> {
    client.pin.as_ref().and_then(|pin| pin.since_us())
}

fn count_server(row: &mut PoolRow, server: &Server, used: bool) {
    let counter = match server.phase {
        server::Phase::Connecting
        | server::Phase::AskedTls
        | server::Phase::Handshake
        | server::Phase::Login(_) => &mut row.server_login,
        server::Phase::Linked(_)
        | server::Phase::InternalQuery(
            InternalQuery::Apply(_)
            | InternalQuery::Statements(_)
            | InternalQuery::Restore(_)
            | InternalQuery::Sequences(_)
            | InternalQuery::SessionState { .. }
            | InternalQuery::Identity(Some(_))
            | InternalQuery::HandOver(_)
            | InternalQuery::Freshen(_)
            | InternalQuery::ConnectQuery(_)
            | InternalQuery::Ask(_),
        ) => &mut row.server_active,
        server::Phase::InternalQuery(_) => &mut row.server_tested,
        server::Phase::Idle if used => &mut row.server_used,
        server::Phase::Idle => &mut row.server_idle,
        server::Phase::AwaitingCancel => &mut row.server_being_cancelled,
        server::Phase::Listening | server::Phase::Leaving { .. } | server::Phase::Closing => return,
    };
    *counter += 1;
}
