//! Queries of Weir's own on servers, for a client that logs in (`auth_query`): they wait in the pool's queue like clients.
//!
//! Owns a query's way: to the shard that has the pool, through the queue, onto a server with default state, and its rows
//! back to the login. The server is released at the one release point of `checkout`. Nothing that a client sent is in
//! force while the query runs, no object of a client is used by it, and its values are bound, never written into the
//! text. What rows mean is decided by the caller.

pub(crate) mod lookup;
pub(crate) mod roles;

use std::collections::BTreeMap;

use messages::{Report, RequestId, ServerQuery, ServerQueryResult, ShardId, ShardMessage};
use pool::QueuePosition;
use session::Row;
use telemetry::Level;
use wire::sqlstate;

use crate::ConnId;
use crate::auth_query::lookup::AuthQueryCache;
use crate::client;
use crate::client::login::{PendingAuthQuery, Purpose};
use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::connections::internal_client::{InternalClient, ReplyTo};
use crate::core::Core;
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::PoolId;
use crate::log_format::excerpt;
use crate::server::{self, InternalQuery, UsedBy};
use crate::state::ShardState;

/// The error that clients get when the query or its result is unusable: PgBouncer's text.
pub(crate) const CONFIG_ERROR: &str = "bouncer config error";

/// Makes a server that a client has had as it was after login, temporary tables included; `connect_query` follows.
const AS_FRESH: &str = "DISCARD ALL";

/// Says where names without a schema are looked up while a question is asked: in pg_catalog first, among temporary
/// objects last (without being named they come first), and between the two as the role and the connection have it, for
/// functions and tables of the administrator's own `auth_query`. Nothing here is looked up by that path itself, and no
/// row comes of it.
const SEARCH_PATH: &str = "SELECT WHERE pg_catalog.set_config('search_path', pg_catalog.concat_ws(', ', 'pg_catalog', \
    pg_catalog.substring(pg_catalog.current_setting('search_path'), '[^ ].*'), 'pg_temp'), true) IS NULL";

/// Queries of Weir's own on this shard, and what their results have shown.
#[derive(Default)]
pub(crate) struct AuthQueries {
    /// Internal clients, by the shard and the `id` of the client that waits for each.
    waiting: BTreeMap<(ShardId, u64), ConnId>,
    cache: AuthQueryCache,
}

impl AuthQueries {
    /// How many clients wait for a result.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Users that `auth_query` has found.
    pub(crate) fn cache(&self) -> &AuthQueryCache {
        &self.cache
    }
}

impl ShardState {
    /// Asks for a client that logs in here; [`ShardState::server_query_done`] follows, if the client is still there.
    pub(crate) fn request_query(&mut self, conn: ConnId, query: ServerQuery, purpose: Purpose) {
        let home = self.core.pool_registry.pool(&query.database, &query.user);
        let home = self.core.shard_for(&home);
        let from = self.core.id;
        let Some(client) = self.core.client(conn) else { return };
        let client::Phase::Login(login) = &mut client.phase else { return };
        login.asks = Some(PendingAuthQuery { home, purpose });
        let reply_to = ReplyTo { shard: from, id: client.id, conn: conn.0 };
        if home == from {
            return self.enqueue_query(reply_to, query);
        }
        let message =
            ShardMessage::RunServerQuery { from, conn: conn.0, id: reply_to.id, query: Box::new(query) };
        self.core.send_to_shard(home, message);
    }

    /// Asks for the control thread; it may be another shard that has the pool and answers.
    pub(crate) fn query_for_control(&mut self, request: RequestId, query: ServerQuery) {
        let home = self.core.pool_registry.pool(&query.database, &query.user);
        let home = self.core.shard_for(&home);
        let (from, conn, id) = (ShardId::CONTROL, 0, request.0);
        if home == self.core.id {
            return self.enqueue_query(ReplyTo { shard: from, id, conn }, query);
        }
        self.core
            .send_to_shard(home, ShardMessage::RunServerQuery { from, conn, id, query: Box::new(query) });
    }

    /// The pool is here: take a server for the question, or wait for one.
    pub(crate) fn enqueue_query(&mut self, reply_to: ReplyTo, query: ServerQuery) {
        let now_us = self.core.now.mono_us;
        let Some(database) = self.core.config.database(&query.database) else {
            return self.deliver(&[reply_to], &no_answer(sqlstate::CONFIG_FILE_ERROR, CONFIG_ERROR));
        };
        let pool_id = self.local_pool(&query.database, &query.user, &database);
        let conn = self.core.conns.reserve();
        let internal_client = InternalClient {
            local_pool: pool_id,
            query,
            reply_to: vec![reply_to],
            position: None,
            since_us: now_us,
        };
        self.core.conns.place(conn, Conn::InternalClient(Box::new(internal_client)));
        self.auth_queries.waiting.insert((reply_to.shard, reply_to.id), conn);
        let Some(local_pool) = self.core.local_pools.get_mut(pool_id) else { return };
        local_pool.last_used_us = now_us;
        self.core.internal_client_waits(conn);
        self.serve_or_open(pool_id);
    }

    /// A server for a query: reset first by DISCARD ALL, if a client has used it.
    pub(crate) fn serve_internal_client(&mut self, conn: ConnId, server_conn: ConnId) {
        let now_us = self.core.now.mono_us;
        self.answer_equal_queries(conn);
        let Some(internal_client) = self.core.conns.internal_client_mut(conn) else { return };
        internal_client.position = None;
        let waited_us = now_us.saturating_sub(internal_client.since_us);
        let Some(local_pool) = self.core.local_pools.get_mut(internal_client.local_pool) else { return };
        local_pool.assigned(waited_us);
        local_pool.last_used_us = now_us;
        let Some(server) = self.core.conns.server_mut(server_conn) else { return };
        server.request_us = now_us;
        server.query_us = now_us;
        if server.used_by != UsedBy::Client {
            return self.core.send_query(conn, server_conn);
        }
        server.phase = server::Phase::InternalQuery(InternalQuery::Freshen(conn));
        let protocol = &mut server.protocol;
        if let Some(at) = protocol.boundary() {
            self.core.outbox.write(server_conn, |out| protocol.send_internal_query(at, out, AS_FRESH));
        }
    }

    /// All that wait for the same query, and so were queued before it ran, get the same result: one query serves a
    /// storm of logins, and no login gets a result that is older than itself.
    fn answer_equal_queries(&mut self, conn: ConnId) {
        let Some(internal_client) = self.core.conns.internal_client(conn) else { return };
        let Some(local_pool) = self.core.local_pools.get(internal_client.local_pool) else { return };
        let alike = |other: &ServerQuery| *other == internal_client.query;
        let same = |other: &ConnId| {
            self.core.conns.find_internal_client(*other).is_some_and(|other| alike(&other.query))
        };
        let others: Vec<ConnId> =
            local_pool.pool.queue.shared().map(|waiter| ConnId(waiter.client)).filter(same).collect();
        for other in others.into_iter().filter(|other| *other != conn) {
            let Some(gone) = self.forget_internal_client(other) else { continue };
            for reply_to in &gone.reply_to {
                self.auth_queries.waiting.insert((reply_to.shard, reply_to.id), conn);
            }
            if let Some(internal_client) = self.core.conns.internal_client_mut(conn) {
                internal_client.reply_to.extend(gone.reply_to);
            }
        }
    }

    /// DISCARD ALL has ended, or failed.
    pub(crate) fn discard_all_done(&mut self, conn: ConnId, server_conn: ConnId, failed: bool) {
        if failed {
            return self.close_server(server_conn, CloseReason::NotFresh);
        }
        self.core.forget_unreported(server_conn);
        let Some(server) = self.core.conns.server_mut(server_conn) else { return };
        let connect_query = self
            .core
            .local_pools
            .get(server.pool)
            .and_then(|local_pool| local_pool.database.connect_query.as_deref());
        let Some(connect_query) = connect_query else { return self.core.send_query(conn, server_conn) };
        server.phase = server::Phase::InternalQuery(InternalQuery::ConnectQuery(conn));
        let protocol = &mut server.protocol;
        if let Some(at) = protocol.boundary() {
            self.core.outbox.write(server_conn, |out| protocol.send_internal_query(at, out, connect_query));
        }
    }

    /// The server has answered; it is released before the result is delivered.
    pub(crate) fn query_answered(&mut self, conn: ConnId, server_conn: ConnId, error: Option<&[u8]>) {
        let Some(server) = self.core.server(server_conn) else { return };
        let rows: Vec<Row> = server.protocol.take_internal_result().into_rows();
        server.phase = server::Phase::AwaitingCancel;
        let answer = match error {
            None => ServerQueryResult::Rows(rows),
            Some(error) => {
                let fields = wire::error::parse(error);
                let text =
                    |field: Option<&[u8]>| String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
                let (severity, message) = (excerpt(text(fields.severity())), excerpt(text(fields.message())));
                self.core.log_server(
                    server_conn,
                    Level::Warning,
                    &format!("own query failed: {severity} {message}"),
                );
                no_answer(sqlstate::CONFIG_FILE_ERROR, &message)
            }
        };
        self.release_or_close(server_conn);
        if let Some(internal_client) = self.forget_internal_client(conn) {
            // The server's message is for the operator; clients get PgBouncer's text.
            let is_refused = matches!(answer, ServerQueryResult::Failed { .. });
            let (control, clients): (Vec<_>, Vec<_>) =
                internal_client.reply_to.iter().partition(|reply_to| reply_to.shard == ShardId::CONTROL);
            self.deliver(&control, &answer);
            let refusal = is_refused.then(|| no_answer(sqlstate::CONFIG_FILE_ERROR, CONFIG_ERROR));
            self.deliver(&clients, refusal.as_ref().unwrap_or(&answer));
        }
    }

    /// The server that had the question is being closed.
    pub(crate) fn query_lost(&mut self, conn: ConnId) {
        self.refuse_internal_client(conn, sqlstate::CONNECTION_FAILURE, CONFIG_ERROR);
    }

    /// There will be no answer.
    pub(crate) fn refuse_internal_client(&mut self, conn: ConnId, code: &str, text: &str) {
        if let Some(internal_client) = self.forget_internal_client(conn) {
            self.deliver(&internal_client.reply_to, &no_answer(code, text));
        }
    }

    /// Refuses a client or an internal client that waits for a server of this pool.
    pub(crate) fn fail_waiter(&mut self, conn: ConnId, code: &str, text: &str) {
        match self.core.conns.get(conn) {
            Some(Conn::InternalClient(_)) => self.refuse_internal_client(conn, code, text),
            _ => self.fail_client(conn, code, text),
        }
    }

    /// A client that waited for a query has disconnected.
    pub(crate) fn withdraw_query(&mut self, asks: PendingAuthQuery, id: u64) {
        let from = self.core.id;
        if asks.home == from {
            return self.withdrawn(from, id);
        }
        self.core.send_to_shard(asks.home, ShardMessage::WithdrawServerQuery { from, id });
    }

    /// A queued query is dropped with the last one that waits for it; the result of a running one is dropped.
    pub(crate) fn withdrawn(&mut self, from: ShardId, id: u64) {
        let Some(conn) = self.auth_queries.waiting.remove(&(from, id)) else { return };
        let Some(internal_client) = self.core.conns.internal_client_mut(conn) else { return };
        internal_client.reply_to.retain(|login| (login.shard, login.id) != (from, id));
        if internal_client.reply_to.is_empty() && internal_client.position.is_some() {
            self.forget_internal_client(conn);
        }
    }

    /// Takes a question out of the tables and the queue.
    fn forget_internal_client(&mut self, conn: ConnId) -> Option<Box<InternalClient>> {
        self.core.conns.find_internal_client(conn)?;
        let Some(Conn::InternalClient(internal_client)) = self.core.conns.remove(conn) else {
            return None;
        };
        if let (Some(position), Some(local_pool)) =
            (internal_client.position, self.core.local_pools.get_mut(internal_client.local_pool))
        {
            leave(local_pool, position);
        }
        for reply_to in &internal_client.reply_to {
            self.auth_queries.waiting.remove(&(reply_to.shard, reply_to.id));
        }
        Some(internal_client)
    }

    fn deliver(&mut self, reply_to: &[ReplyTo], answer: &ServerQueryResult) {
        let here = self.core.id;
        for login in reply_to {
            if login.shard == here {
                self.server_query_done(ConnId(login.conn), login.id, answer.clone());
            } else if login.shard == ShardId::CONTROL {
                let (request, answer) = (RequestId(login.id), Box::new(answer.clone()));
                self.core.report(Report::ServerQueryDone { request, answer });
            } else {
                let message = ShardMessage::ServerQueryDone {
                    conn: login.conn,
                    id: login.id,
                    answer: Box::new(answer.clone()),
                };
                self.core.send_to_shard(login.shard, message);
            }
        }
    }

    /// The answer that a login here waits for.
    pub(crate) fn server_query_done(&mut self, conn: ConnId, id: u64, answer: ServerQueryResult) {
        let client = self.core.conns.find_client_mut(conn).filter(|client| client.id == id);
        let Some(client) = client else { return };
        let client::Phase::Login(login) = &mut client.phase else { return };
        let Some(asks) = login.asks.take() else { return };
        match (answer, asks.purpose) {
            (ServerQueryResult::Failed { sqlstate, text }, _) => self.fail_client(conn, &sqlstate, &text),
            (ServerQueryResult::Rows(rows), Purpose::Secret) => self.secret_found(conn, &rows),
            (ServerQueryResult::Rows(rows), Purpose::Roles) => self.roles_found(conn, &rows),
        }
    }
}

impl Core {
    fn internal_client_waits(&mut self, conn: ConnId) {
        let now_us = self.now.mono_us;
        let Some(internal_client) = self.conns.internal_client_mut(conn) else { return };
        let Some(local_pool) = self.local_pools.get_mut(internal_client.local_pool) else { return };
        internal_client.position = Some(local_pool.pool.queue.join(conn.0, now_us));
    }

    fn send_query(&mut self, conn: ConnId, server_conn: ConnId) {
        let Some((internal_client, server)) = self.conns.serving(conn, server_conn) else {
            return;
        };
        server.used_by = UsedBy::InternalQueries;
        server.phase = server::Phase::InternalQuery(InternalQuery::Ask(conn));
        let (protocol, query) = (&mut server.protocol, &internal_client.query);
        if let Some(at) = protocol.boundary() {
            self.outbox.write(server_conn, |out| {
                if query.simple {
                    return protocol.send_internal_simple_query(at, out, SEARCH_PATH, &query.sql);
                }
                protocol.send_internal_select(at, out, SEARCH_PATH, &query.sql, &query.values);
            });
        }
    }

    /// `connect_query` was run again: as at login, its error is logged and changes nothing else.
    pub(crate) fn connect_query_over(&mut self, conn: ConnId, server_conn: ConnId, error: Option<&[u8]>) {
        if let Some(error) = error {
            self.log_query_error(server_conn, "exec_on_query", error);
        }
        self.send_query(conn, server_conn);
    }

    /// The internal clients that wait for a server of this pool.
    pub(crate) fn internal_clients_of(&self, local_pool: PoolId) -> Vec<ConnId> {
        self.conns.ids(
            |conn| matches!(conn, Conn::InternalClient(internal_client) if internal_client.local_pool == local_pool && internal_client.position.is_some()),
        )
    }

    /// The result of the query that runs on this server is still needed.
    pub(crate) fn is_awaited(&self, conn: ConnId) -> bool {
        self.conns
            .find_internal_client(conn)
            .is_some_and(|internal_client| !internal_client.reply_to.is_empty())
    }
}

fn leave(local_pool: &mut LocalPool, position: QueuePosition) {
    local_pool.pool.queue.leave(position);
}

fn no_answer(sqlstate: &str, text: &str) -> ServerQueryResult {
    ServerQueryResult::Failed { sqlstate: sqlstate.to_owned(), text: text.to_owned() }
}
