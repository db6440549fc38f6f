//! One thread's whole pooler, without the thread.
//!
//! A [`Shard`] takes events ([`Shard::handle`]), returns actions ([`Shard::poll`]) and the time of its next timer
//! ([`Shard::deadline`]). It composes sessions, pools and authentication; it holds no socket, reads no clock, takes no
//! lock and starts no thread. Two callers drive it: the real driver and the simulator.
#![forbid(unsafe_code)]

pub mod action;
pub mod audit;
pub mod event;
pub mod takeover;

mod administration;
mod attempt;
mod auth_query;
mod cancel;
mod cancel_key;
mod client;
mod close_reason;
mod close_when_free;
mod commands;
mod connections;
mod console;
mod console_session;
mod core;
mod deferred_begin;
mod draining;
mod effects;
mod endpoint;
mod error_counts;
mod greeting;
mod link;
mod listing;
mod local_pools;
mod log_format;
mod login;
mod maintain;
mod outbox;
mod pending;
mod pools;
mod queries;
mod query_cache;
mod server;
mod servers;
mod state;
mod suspension;
mod time;
mod tls_layer;
mod transfer;

pub use action::{Action, Source};
pub use client::login::ClientMove;
pub use endpoint::{ConnId, ConnectFault, Peer, Target};
pub use event::Event;
pub use takeover::{Export, Import};
pub use time::Now;

use std::sync::Arc;

use auth::{Entropy, MockKey};
use connections::Conn;
use messages::ShardId;
use pool::{Pool, PoolRegistry};
use settings::Config;
use state::ShardState;
use tls_layer::TlsLayer;

use crate::cancel::peers;
use crate::link::{backpressure, internal_query, listener, pins, relay, server_end};
use crate::transfer::{export, import};

/// One pool on a shard.
#[derive(Clone, Copy, Debug)]
pub struct PoolState<'a> {
    /// Its database.
    pub database: &'a str,
    /// Its user.
    pub user: &'a str,
    /// Its host, if it is for reads on that alone.
    pub host: Option<&'a str>,
    /// Its queue, idle servers and limits.
    pub pool: &'a Pool,
}

/// One thread's pooler.
pub struct Shard {
    state: ShardState,
    tls_layer: TlsLayer,
}

impl Shard {
    /// A shard with nothing in it. `entropy` must be unguessable in production and seeded in the simulator.
    #[must_use]
    pub fn new(
        id: ShardId,
        config: Arc<Config>,
        pool_registry: Arc<dyn PoolRegistry>,
        entropy: Box<dyn Entropy>,
        mock: Arc<MockKey>,
    ) -> Shard {
        Shard {
            state: ShardState::new(id, config, pool_registry, entropy, mock),
            tls_layer: TlsLayer::default(),
        }
    }

    /// The user that reaches the console over a unix socket without a password: the one that the process runs as.
    pub fn trust_unix_user(&mut self, user_id: u32) {
        self.state.logins.trust_unix_user(user_id);
    }

    /// How many files the process may have open: what has not logged in never takes more than half of them.
    pub fn limit_files(&mut self, files_max: u64) {
        self.state.logins.limit_files(files_max);
    }

    /// Numbers what it names on servers so that no shard of an earlier process has used the number; `generation` counts
    /// the processes that have taken over from one another.
    pub fn follow(&mut self, generation: u64) {
        let shard = u64::from(self.state.core.id.0) << import::STATEMENTS_SHIFT;
        self.state.core.registry.number_from((generation << import::GENERATION_SHIFT) + shard);
    }

    /// Makes the pools that exist before their first client (`min_pool_size` with a forced user).
    pub fn start(&mut self, now: Now) {
        self.state.core.outbox.begin();
        self.state.core.now = now;
        pools::make_minimum_pools(&mut self.state.core);
        self.state.arm_tick();
    }

    /// A free connection id for a socket that the driver brings; taken by the [`Event::Accepted`] or [`Event::Adopted`]
    /// that must follow.
    pub fn allocate_id(&mut self) -> ConnId {
        self.state.core.conns.reserve()
    }

    /// Something happened. Take all actions with [`Shard::poll`] before the next call.
    #[inline]
    pub fn handle(&mut self, event: Event<'_>, now: Now) {
        self.state.core.outbox.begin();
        self.state.core.now = now;
        if !self.tls_layer.are_none() {
            return self.handle_secured(event);
        }
        let received = self.state.dispatch(event);
        if !self.state.core.tls.requests.is_empty() {
            return self.secure(received);
        }
        self.state.event_ends();
    }

    /// The same where a connection has TLS.
    #[inline(never)]
    fn handle_secured(&mut self, event: Event<'_>) {
        let received: &[u8] = if let Event::Received { bytes, .. } = &event { bytes } else { &[] };
        self.tls_layer.event(&mut self.state, event);
        self.secure(received);
    }

    /// Puts the record layer between the state and the driver, for what came of the event.
    #[inline(never)]
    fn secure(&mut self, received: &[u8]) {
        let Shard { state, tls_layer } = self;
        if !state.core.tls.requests.is_empty() {
            tls_layer.secure_all(state);
        }
        state.event_ends();
        if !tls_layer.are_none() {
            tls_layer.seal_all(state, received);
        }
    }

    /// The next thing to do.
    #[inline]
    pub fn poll(&mut self) -> Option<Action> {
        self.state.core.outbox.pop()
    }

    /// The bytes that [`Source::Written`] ranges point into.
    #[inline]
    #[must_use]
    pub fn written(&self) -> &[u8] {
        self.state.core.outbox.written()
    }

    /// When [`Event::Tick`] is due next, in microseconds of the monotonic clock; None while nothing is timed.
    #[inline]
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.state.deadline()
    }

    /// Waiting clients and idle servers of its pools, for checks over several shards.
    pub fn pools(&self) -> impl Iterator<Item = PoolState<'_>> {
        self.state.core.local_pools.iter().map(|(_, local_pool)| PoolState {
            database: &local_pool.database_name,
            user: &local_pool.user,
            host: local_pool.host(),
            pool: &local_pool.pool,
        })
    }

    /// Its tables counted from scratch, to check the cached counts.
    #[must_use]
    pub fn audit(&self) -> audit::Audit {
        self.state.audit()
    }

    /// The configuration in force (the driver takes socket options from it).
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.state.core.config
    }
}

impl ShardState {
    /// What is due after every event, whatever it was.
    #[inline]
    fn event_ends(&mut self) {
        if !self.core.effects.is_empty() {
            self.settle();
        }
        if self.core.exporting.is_some() {
            export::export_idle(&mut self.core);
        }
        self.arm_tick();
    }

    /// Deals with an event of a connection with TLS, or beside one.
    #[inline(never)]
    pub(crate) fn event(&mut self, event: Event<'_>) {
        self.dispatch(event);
    }

    /// Returns the bytes that came with it.
    #[inline(always)]
    fn dispatch<'a>(&mut self, event: Event<'a>) -> &'a [u8] {
        match event {
            Event::Received { conn, bytes, unsent } => {
                self.received(conn, bytes, unsent);
                return bytes;
            }
            Event::SendBufferFull { conn } => backpressure::send_buffer_full(&mut self.core, conn),
            Event::SendBufferEmpty { conn } => backpressure::send_buffer_empty(&mut self.core, conn),
            Event::WriteFailed { conn } => backpressure::write_failed(&mut self.core, conn),
            Event::HungUp { conn } => {
                backpressure::hung_up(&mut self.core, conn);
                cancel::close(&mut self.core, conn);
            }
            Event::HalfClosed { conn } => backpressure::half_closed(&mut self.core, conn),
            Event::Closed { conn } => self.closed(conn),
            Event::Accepted { conn, peer } => self.logins.accepted(&mut self.core, conn, peer),
            Event::Adopted { conn, client } => self.logins.adopt(&mut self.core, conn, *client),
            Event::Connected { conn, remote, local } => self.connected(conn, remote, local),
            Event::ConnectFailed { conn, fault } => {
                // A cancel request that cannot be delivered ends with its connection.
                if self.core.conns.find_server(conn).is_some() {
                    servers::connect_failed(&mut self.core, conn, &fault);
                }
            }
            Event::Answered { conn, answer } => self.answered(conn, answer),
            Event::FilesRanOut => self.logins.files_ran_out(&mut self.core),
            Event::Command(command) => self.command(command),
            Event::ShardMessage(message) => self.shard_message(message),
            Event::Busy { percent } => self.load.busy(&mut self.core, percent),
            Event::Import(what) => import::import(&mut self.core, *what),
            Event::Tick => self.tick(),
        }
        &[]
    }

    #[inline(always)]
    fn received(&mut self, conn: ConnId, bytes: &[u8], unsent: bool) {
        match self.core.conns.get_mut(conn) {
            Some(Conn::Client(client)) => match client.phase {
                client::Phase::Linked(server) if client.request.held.is_empty() => {
                    relay::linked_client_received(&mut self.core, conn, server, bytes);
                }
                client::Phase::Idle => relay::idle_client_input(&mut self.core, conn, bytes),
                _ => self.client_received(conn, bytes),
            },
            Some(Conn::Server(server)) => {
                server.unsent |= unsent;
                match server.phase {
                    server::Phase::Linked(client) => {
                        if server.attempt.is_open() {
                            relay::attempt_answered(&mut self.core, conn, client, bytes);
                        } else {
                            relay::linked_server_received(&mut self.core, conn, client, bytes);
                        }
                    }
                    _ => self.server_received(conn, bytes),
                }
            }
            // PostgreSQL answers a cancel request with nothing but its end of file.
            Some(Conn::Cancel(_)) => cancel::cancel_conn_received(&mut self.core, conn, bytes),
            Some(Conn::PeerCancel(_)) => peers::peer_cancel_conn_received(&mut self.core, conn, bytes),
            Some(Conn::InternalClient(_) | Conn::Reserved) | None => {}
        }
    }

    /// Bytes from a client that cannot be passed on as they are.
    #[inline(never)]
    fn client_received(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(client) = self.core.client(conn) else { return };
        match client.phase {
            client::Phase::Linked(server) => relay::send_more(&mut self.core, conn, server, bytes),
            client::Phase::Waiting(_) | client::Phase::Preparing(_) => {
                client.request.held.extend_from_slice(bytes)
            }
            client::Phase::PinRefused(_) => pins::refused_client_received(&mut self.core, conn, bytes),
            client::Phase::Startup { .. } => self.logins.startup(&mut self.core, conn, bytes),
            client::Phase::Login(_) => self.logins.login_message(&mut self.core, conn, bytes),
            client::Phase::AwaitingGreeting(_) => {
                relay::hold_while_awaiting_greeting(&mut self.core, conn, bytes)
            }
            client::Phase::Console { .. } => self.console.console_received(&mut self.core, conn, bytes),
            client::Phase::Handshake { .. }
            | client::Phase::CancelRequest(_)
            | client::Phase::Closing
            | client::Phase::Idle => {}
        }
    }

    /// Bytes from a server without a client.
    #[inline(never)]
    fn server_received(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(server) = self.core.server(conn) else { return };
        match server.phase {
            server::Phase::Login(_) => {
                servers::server_login_received(&mut self.core, &mut self.server_keys, conn, bytes);
            }
            server::Phase::InternalQuery(_) | server::Phase::Idle | server::Phase::AwaitingCancel => {
                internal_query::unlinked_server_received(&mut self.core, conn, bytes);
            }
            server::Phase::Listening => listener::received(&mut self.core, conn, bytes),
            server::Phase::AskedTls => servers::server_answers_tls(&mut self.core, conn, bytes),
            server::Phase::Connecting
            | server::Phase::Handshake
            | server::Phase::Linked(_)
            | server::Phase::Leaving { .. }
            | server::Phase::Closing => {}
        }
    }

    fn connected(
        &mut self,
        conn: ConnId,
        remote: Option<std::net::SocketAddr>,
        local: Option<std::net::SocketAddr>,
    ) {
        match self.core.conns.get(conn) {
            Some(Conn::Server(_)) => servers::server_connected(&mut self.core, conn, remote, local),
            Some(Conn::Cancel(_)) => cancel::cancel_conn_connected(&mut self.core, conn),
            Some(Conn::PeerCancel(_)) => peers::peer_cancel_conn_connected(&mut self.core, conn),
            _ => {}
        }
    }

    fn answered(&mut self, conn: ConnId, answer: auth::TaskResult) {
        match self.core.conns.get(conn) {
            Some(Conn::Client(_)) => self.logins.client_login_answered(&mut self.core, conn, answer),
            Some(Conn::Server(_)) => {
                servers::server_login_answered(&mut self.core, &mut self.server_keys, conn, answer)
            }
            _ => {}
        }
    }

    /// The id is free again.
    fn closed(&mut self, conn: ConnId) {
        match self.core.conns.remove(conn) {
            Some(Conn::Server(server)) => {
                server_end::server_closed(&mut self.core, &server);
                if !server.listens {
                    self.core.report_server(server.pool, false);
                }
            }
            Some(Conn::Cancel(cancel_conn)) => cancel::cancel_conn_closed(&mut self.core, &cancel_conn),
            Some(Conn::PeerCancel(peer_cancel_conn)) => {
                self.cancels.peer_cancel_conn_closed(&mut self.core, &peer_cancel_conn)
            }
            Some(Conn::Client(_)) => pending::paused_progress(&mut self.core),
            Some(Conn::InternalClient(_) | Conn::Reserved) | None => {}
        }
    }
}
