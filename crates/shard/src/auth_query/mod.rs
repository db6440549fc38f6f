//! Queries of Weir's own for a client that logs in (`auth_query`), and for the control thread.
//!
//! Owns on which shard a query runs, and that its result reaches those who asked. How it gets a server is `link`'s
//! (`internal_query`); what its rows mean is decided in `lookup` and `roles`.

pub(crate) mod lookup;
pub(crate) mod roles;

use messages::{Report, RequestId, ServerQuery, ServerQueryResult, ShardId, ShardMessage};
use wire::sqlstate;

use crate::auth_query::lookup::AuthQueryCache;
use crate::client::login::{PendingAuthQuery, Purpose};
use crate::client::login_times::LoginPart;
use crate::connections::Conn;
use crate::connections::kinds::{InternalClient, ReplyTo};
use crate::core::Core;
use crate::link::internal_query::{CONFIG_ERROR, no_answer};
use crate::link::{client_end, internal_query, opening, slow_login};
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

impl AuthQueries {
    /// Asks for a client that logs in here; [`AuthQueries::server_query_done`] follows, if the client is still there.
    pub(crate) fn request_query(
        &mut self,
        core: &mut Core,
        conn: ConnId,
        query: ServerQuery,
        purpose: Purpose,
    ) {
        let home = core.pool_registry.pool(&query.database, &query.user);
        let home = pools::shard_for(core, &home);
        let (from, now_us) = (core.id, core.now.mono_us);
        let Some(client) = core.client(conn) else { return };
        slow_login::begins(client, LoginPart::AuthQuery, now_us);
        let client::Phase::Login(login) = &mut client.phase else { return };
        login.asks = Some(PendingAuthQuery { home, purpose });
        let reply_to = ReplyTo { shard: from, id: client.id, conn: conn.0 };
        if home == from {
            return self.enqueue_query(core, reply_to, query);
        }
        let message =
            ShardMessage::RunServerQuery { from, conn: conn.0, id: reply_to.id, query: Box::new(query) };
        core.send_to_shard(home, message);
    }

    /// Asks for the control thread; it may be another shard that has the pool and answers.
    pub(crate) fn query_for_control(&mut self, core: &mut Core, request: RequestId, query: ServerQuery) {
        let home = core.pool_registry.pool(&query.database, &query.user);
        let home = pools::shard_for(core, &home);
        let (from, conn, id) = (ShardId::CONTROL, 0, request.0);
        if home == core.id {
            return self.enqueue_query(core, ReplyTo { shard: from, id, conn }, query);
        }
        core.send_to_shard(home, ShardMessage::RunServerQuery { from, conn, id, query: Box::new(query) });
    }

    /// The pool is here: take a server for the question, or wait for one.
    pub(crate) fn enqueue_query(&mut self, core: &mut Core, reply_to: ReplyTo, query: ServerQuery) {
        let now_us = core.now.mono_us;
        let Some(database) = core.config.database(&query.database) else {
            return self.deliver(core, &[reply_to], &no_answer(sqlstate::CONFIG_FILE_ERROR, CONFIG_ERROR));
        };
        let pool_id = pools::local_pool(core, &query.database, &query.user, &database);
        let conn = core.conns.reserve();
        let internal_client = InternalClient {
            local_pool: pool_id,
            query,
            reply_to: vec![reply_to],
            position: None,
            since_us: now_us,
            listens: false,
        };
        core.conns.place(conn, Conn::InternalClient(Box::new(internal_client)));
        core.conns.await_result(reply_to, conn);
        let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
        local_pool.last_used_us = now_us;
        internal_query::internal_client_waits(core, conn);
        opening::serve_or_open(core, pool_id);
    }

    pub(crate) fn deliver(&mut self, core: &mut Core, reply_to: &[ReplyTo], answer: &ServerQueryResult) {
        let here = core.id;
        for login in reply_to {
            if login.shard == here {
                self.server_query_done(core, ConnId(login.conn), login.id, answer.clone());
            } else if login.shard == ShardId::CONTROL {
                let (request, answer) = (RequestId(login.id), Box::new(answer.clone()));
                core.report(Report::ServerQueryDone { request, answer });
            } else {
                let message = ShardMessage::ServerQueryDone {
                    conn: login.conn,
                    id: login.id,
                    answer: Box::new(answer.clone()),
                };
                core.send_to_shard(login.shard, message);
            }
        }
    }

    /// The answer that a login here waits for.
    pub(crate) fn server_query_done(
        &mut self,
        core: &mut Core,
        conn: ConnId,
        id: u64,
        answer: ServerQueryResult,
    ) {
        let client = core.conns.find_client_mut(conn).filter(|client| client.id == id);
        let Some(client) = client else { return };
        slow_login::ends(client, core.now.mono_us);
        let client::Phase::Login(login) = &mut client.phase else { return };
        let Some(asks) = login.asks.take() else { return };
        match (answer, asks.purpose) {
            (ServerQueryResult::Failed { sqlstate, text }, _) => {
                client_end::fail_client(core, conn, &sqlstate, &text)
            }
            (ServerQueryResult::Rows(rows), Purpose::Secret) => self.secret_found(core, conn, &rows),
            (ServerQueryResult::Rows(rows), Purpose::Roles) => self.roles_found(core, conn, &rows),
        }
    }
}
