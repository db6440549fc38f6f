//! Queries of Weir's own on servers, for a client that logs in (`auth_query`): they wait in the pool's queue like clients.
//!
//! Owns a query's way: to the shard that has the pool, through the queue, onto a server with default state, and its rows
//! back to the login. The server is released at the one release point of `checkout`. Nothing that a client sent is in
//! force while the query runs, no object of a client is used by it, and its values are bound, never written into the
//! text. What rows mean is decided by the caller.

pub(crate) mod lookup;
pub(crate) mod roles;

use messages::{Report, RequestId, ServerQuery, ServerQueryResult, ShardId, ShardMessage};
use wire::sqlstate;

use crate::auth_query::lookup::AuthQueryCache;
use crate::client::login::{PendingAuthQuery, Purpose};
use crate::connections::Conn;
use crate::connections::internal_client::{InternalClient, ReplyTo};
use crate::link::internal_query::{CONFIG_ERROR, no_answer};
use crate::link::{client_end, internal_query, opening};
use crate::state::ShardState;
use crate::{ConnId, client, pools};

/// Queries of Weir's own on this shard, and what their results have shown.
#[derive(Default)]
pub(crate) struct AuthQueries {
    cache: AuthQueryCache,
}

impl AuthQueries {
    /// Users that `auth_query` has found.
    pub(crate) fn cache(&self) -> &AuthQueryCache {
        &self.cache
    }
}

impl ShardState {
    /// Asks for a client that logs in here; [`ShardState::server_query_done`] follows, if the client is still there.
    pub(crate) fn request_query(&mut self, conn: ConnId, query: ServerQuery, purpose: Purpose) {
        let home = self.core.pool_registry.pool(&query.database, &query.user);
        let home = pools::shard_for(&mut self.core, &home);
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
        let home = pools::shard_for(&mut self.core, &home);
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
        let pool_id = pools::local_pool(&mut self.core, &query.database, &query.user, &database);
        let conn = self.core.conns.reserve();
        let internal_client = InternalClient {
            local_pool: pool_id,
            query,
            reply_to: vec![reply_to],
            position: None,
            since_us: now_us,
        };
        self.core.conns.place(conn, Conn::InternalClient(Box::new(internal_client)));
        self.core.conns.await_result(reply_to, conn);
        let Some(local_pool) = self.core.local_pools.get_mut(pool_id) else { return };
        local_pool.last_used_us = now_us;
        internal_query::internal_client_waits(&mut self.core, conn);
        opening::serve_or_open(&mut self.core, pool_id);
    }

    pub(crate) fn deliver(&mut self, reply_to: &[ReplyTo], answer: &ServerQueryResult) {
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
            (ServerQueryResult::Failed { sqlstate, text }, _) => {
                client_end::fail_client(&mut self.core, conn, &sqlstate, &text)
            }
            (ServerQueryResult::Rows(rows), Purpose::Secret) => self.secret_found(conn, &rows),
            (ServerQueryResult::Rows(rows), Purpose::Roles) => self.roles_found(conn, &rows),
        }
    }
}
