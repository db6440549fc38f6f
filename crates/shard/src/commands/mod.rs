//! Commands of the control thread: PAUSE, RESUME, KILL, RECONNECT, SHUTDOWN, a new configuration.
//!
//! Owns how each is carried out here and when it counts as done. What a command means to a user is the control thread's.

use std::sync::Arc;

use messages::{CacheNews, Command, RequestId, ShardId, ShardMessage, ShutdownMode};
use settings::{Config, Database, HostChange, PoolMode, TargetSessionAttrs};
use tls::TlsConfig;
use wire::sqlstate;

use crate::administration::PendingKind;
use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::connections::kinds::{CancelRequester, ReplyTo};
use crate::link::{
    checkout, client_end, fair, fleet, greet, identity, internal_query, opening, permits, pins, quotas,
    server_end, server_waits, shares,
};
use crate::local_pools::local_pool::limits;
use crate::local_pools::serves::Split;
use crate::local_pools::table::PoolId;
use crate::pools::standbys;
use crate::servers::hosts;
use crate::state::ShardState;
use crate::transfer::export;
use crate::{ConnId, cancel, client, draining, pending, pools, queries, suspension};

impl ShardState {
    pub(crate) fn command(&mut self, command: Command) {
        match command {
            Command::List { request, subject } => self.list(request, subject),
            Command::Configure(config) => self.configure(config),
            Command::Pause { request, database } => self.pause(request, database),
            Command::Resume { database } => self.resume(database.as_deref()),
            Command::Disable { database, disabled } => self.disable(database, disabled),
            Command::Drain(order) => draining::drain(&mut self.core, order),
            Command::Detach { request, database, host, detached } => {
                let pools = standbys::set_detached(&mut self.core, &database, &host, detached);
                pending::done(&mut self.core, request, pools as u64);
            }
            Command::Suspend { request } => suspension::suspend(&mut self.core, request),
            Command::WaitClose { request, database } => self.wait_close(request, database),
            Command::Reconnect { database } => self.reconnect(database.as_deref()),
            Command::Kill { request, database } => self.kill(request, database),
            Command::KillClient { request, id } => self.kill_client(request, id),
            Command::CancelClient { request, id } => self.cancel_client(request, id),
            Command::ResetQueries { database } => self.reset_queries(database.as_deref()),
            Command::Shutdown { request, mode } => self.shut_down(request, mode),
            Command::Export { round } => export::begin_export(&mut self.core, round),
            Command::AbortExport => {
                export::abort_export(&mut self.core);
                self.configure(Arc::clone(&self.core.config));
            }
            Command::Cancel { key } => cancel::cancel_for_takeover(&mut self.core, &key),
            Command::CacheNews(news) => self.cache_news(news),
            Command::ServerWaits(sample) => server_waits::sampled(&mut self.core, &sample),
            Command::SlotsChanged => fleet::slots_changed(&mut self.core),
            Command::ListBackends { audit } => fleet::list_backends(&mut self.core, audit),
            Command::Reply(reply) => self.console.console_reply(&mut self.core, reply),
            Command::RunServerQuery { request, query } => {
                self.auth_queries.query_for_control(&mut self.core, request, *query)
            }
            Command::WithdrawServerQuery { request } => {
                internal_query::withdrawn(&mut self.core, ShardId::CONTROL, request.0)
            }
        }
    }

    pub(crate) fn shard_message(&mut self, message: ShardMessage) {
        match message {
            ShardMessage::Cancel { from, conn, id, key } => {
                cancel::cancel_for_shard(&mut self.core, CancelRequester::Remote(from, conn, id), &key);
            }
            ShardMessage::Cancelled { conn, id } => {
                cancel::cancel_over(&mut self.core, CancelRequester::Local(ConnId(conn), id));
            }
            ShardMessage::CancelTimedOut { conn, id } => {
                cancel::log_cancel_timeout(&mut self.core, CancelRequester::Local(ConnId(conn), id));
            }
            ShardMessage::HostMoved { host, gone } => hosts::host_moved(&mut self.core, &host, &gone),
            ShardMessage::RunServerQuery { from, conn, id, query } => {
                self.auth_queries.enqueue_query(&mut self.core, ReplyTo { shard: from, id, conn }, *query);
            }
            ShardMessage::WithdrawServerQuery { from, id } => {
                internal_query::withdrawn(&mut self.core, from, id)
            }
            ShardMessage::ServerQueryDone { conn, id, answer } => {
                self.auth_queries.server_query_done(&mut self.core, ConnId(conn), id, *answer)
            }
            ShardMessage::RequestPermit { limit, has_waited_long, database, user, host, .. } => {
                let pool = (&*database, &*user, host.as_deref());
                permits::permit_requested(&mut self.core, limit, pool, has_waited_long);
            }
            ShardMessage::PermitFreed { database, user, host } => {
                permits::permit_freed(&mut self.core, &database, &user, host.as_deref())
            }
            ShardMessage::BudgetFreed { limit, name } => {
                shares::budget_freed(&mut self.core, limit, &name, None)
            }
        }
    }

    fn cache_news(&mut self, news: CacheNews) {
        let pool_registry = Arc::clone(&self.core.pool_registry);
        if self.core.config.database(&news.database).is_some_and(|entry| entry.query_cache > 0) {
            self.core.query_caches.note(news, |database| pool_registry.database(database));
        }
    }

    fn pause(&mut self, request: RequestId, database: Option<String>) {
        self.set_paused(database.as_deref(), true);
        self.core.administration.answer_when(request, PendingKind::Paused(database));
        pending::paused_progress(&mut self.core);
    }

    /// The whole and single databases are paused apart: a database that was paused by its name stays so when all resume.
    fn set_paused(&mut self, database: Option<&str>, paused: bool) {
        self.core.administration.set_paused(database, paused);
        let now_us = self.core.now.mono_us;
        for index in pending::pools_of(&self.core, database) {
            let Some(local_pool) = self.core.local_pools.get_mut(index) else { continue };
            local_pool.paused_by_command = self.core.administration.is_paused(&local_pool.database_name);
            local_pool.pool.paused = local_pool.paused_by_command;
            local_pool.forget_unavailability();
            local_pool.pool.is_able_since(now_us);
            if paused {
                server_end::close_idle_servers(&mut self.core, index, CloseReason::Paused);
            }
        }
    }

    fn resume(&mut self, database: Option<&str>) {
        // Commands that RESUME undoes are not answered: the control thread has already answered their clients.
        self.core.administration.retain_pending(|pending| match &pending.what {
            PendingKind::Paused(paused) | PendingKind::Killed(paused) => paused.as_deref() != database,
            PendingKind::Suspended => database.is_some(),
            PendingKind::ObsoleteClosed(_) | PendingKind::Shutdown(_) => true,
        });
        if database.is_none() {
            suspension::stand_no_more(&mut self.core);
        }
        self.set_paused(database, false);
        for index in pending::pools_of(&self.core, database) {
            if let Some(local_pool) = self.core.local_pools.get_mut(index) {
                local_pool.pool.forget_failure();
            }
            opening::serve_or_open(&mut self.core, index);
        }
    }

    fn reconnect(&mut self, database: Option<&str>) {
        for local_pool in pending::pools_of(&self.core, database) {
            // What the role or the database sets for new sessions may be another thing than what stored answers were made with.
            if let Some(name) =
                self.core.local_pools.get(local_pool).map(|pool| Arc::clone(&pool.database_name))
            {
                self.core.query_caches.note_other_servers(&name, false);
            }
            self.forget_cluster(local_pool);
            self.renew_servers(local_pool, CloseReason::ClusterForgotten);
        }
    }

    /// The entry's servers may be those of another cluster from here on.
    fn forget_cluster(&mut self, local_pool: PoolId) {
        if let Some((_, cluster)) = self.core.local_pools.with_cluster(local_pool) {
            cluster.forget();
        }
        if let Some(local_pool) = self.core.local_pools.get_mut(local_pool) {
            local_pool.forget_cluster();
        }
    }

    /// Idle servers go now, the others when they are free.
    fn renew_servers(&mut self, local_pool: PoolId, reason: CloseReason<'static>) {
        for conn in self.core.servers_of(local_pool) {
            if let Some(server) = self.core.server(conn) {
                server.close_when_free.set(reason);
            }
        }
        server_end::close_idle_servers(&mut self.core, local_pool, reason);
        if let Some(local_pool) = self.core.local_pools.get_mut(local_pool) {
            local_pool.pool.forget_failure();
        }
    }

    fn kill(&mut self, request: RequestId, database: Option<String>) {
        self.set_paused(database.as_deref(), true);
        for local_pool in pending::pools_of(&self.core, database.as_deref()) {
            self.close_clients_of(local_pool, "database was killed");
            for conn in self.core.servers_of(local_pool) {
                server_end::close_server(&mut self.core, conn, CloseReason::DatabaseKilled);
            }
        }
        self.core.administration.answer_when(request, PendingKind::Killed(database));
        pending::paused_progress(&mut self.core);
    }

    fn close_clients_of(&mut self, local_pool: PoolId, reason: &str) {
        let clients = self
            .core
            .conns
            .ids(|conn| matches!(conn, Conn::Client(client) if client.pool == Some(local_pool)));
        for conn in clients {
            client_end::fail_client(&mut self.core, conn, sqlstate::ADMIN_SHUTDOWN, reason);
        }
        for internal_client in internal_query::internal_clients_of(&self.core, local_pool) {
            internal_query::refuse_internal_client(
                &mut self.core,
                internal_client,
                sqlstate::ADMIN_SHUTDOWN,
                reason,
            );
        }
    }

    fn kill_client(&mut self, request: RequestId, id: u64) {
        let found = self
            .core
            .conns
            .ids(|conn| matches!(conn, Conn::Client(client) if client.id == id && client.is_settled()));
        let count = found.len() as u64;
        for conn in found {
            client_end::fail_client(
                &mut self.core,
                conn,
                sqlstate::ADMIN_SHUTDOWN,
                "admin forced disconnect",
            );
        }
        pending::done(&mut self.core, request, count);
    }

    /// Like a cancel request of the client itself, without a connection that waits for its end.
    fn cancel_client(&mut self, request: RequestId, id: u64) {
        let servers: Vec<ConnId> = self
            .core
            .conns
            .iter()
            .filter_map(|(_, conn)| match conn {
                Conn::Client(client) if client.id == id => match client.phase {
                    client::Phase::Linked(server) => Some(server),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        let requester = CancelRequester::Operator;
        let sent = servers
            .into_iter()
            .filter(|server| cancel::cancel_on(&mut self.core, requester, *server))
            .count();
        pending::done(&mut self.core, request, sent as u64);
    }

    fn shut_down(&mut self, request: RequestId, mode: ShutdownMode) {
        self.core.administration.shut_down(mode);
        if mode == ShutdownMode::WaitForServers {
            let local_pools = self.core.local_pools.ids();
            for local_pool in local_pools {
                if let Some(local_pool) = self.core.local_pools.get_mut(local_pool) {
                    local_pool.pool.paused = true;
                }
                server_end::close_idle_servers(&mut self.core, local_pool, CloseReason::ShuttingDown);
            }
            // An idle client may stay until it asks for a server (`client_must_disconnect`), or the process ends.
            let waiting = self.core.conns.ids(|conn| {
                matches!(conn, Conn::Client(client) if matches!(client.phase,
                client::Phase::Waiting(_) | client::Phase::AwaitingGreeting(_) | client::Phase::Login(_)))
            });
            for conn in waiting {
                client_end::fail_client(
                    &mut self.core,
                    conn,
                    sqlstate::ADMIN_SHUTDOWN,
                    "server shutting down",
                );
            }
        }
        self.core.administration.answer_when(request, PendingKind::Shutdown(mode));
        pending::paused_progress(&mut self.core);
    }

    /// RELOAD or SET: limits hold at once, changed databases get new servers, removed ones lose their clients.
    pub(crate) fn configure(&mut self, config: Arc<Config>) {
        if self.core.exporting.is_some() {
            return; // It is the next process's now.
        }
        let old = std::mem::replace(&mut self.core.config, config);
        self.logins.configure(&self.core.config);
        self.track_as_configured();
        let administrators = |config: &Config| {
            let global = &config.global;
            (global.admin_users.clone(), global.stats_users.clone())
        };
        if self.core.config.quotas != old.quotas || administrators(&self.core.config) != administrators(&old)
        {
            quotas::configured(&mut self.core);
        }
        let caches =
            |database: &str| self.core.config.database(database).is_some_and(|entry| entry.query_cache > 0);
        self.core.query_caches.retain(caches);
        let new_server_terms = self.configure_tls();
        let local_pools = self.core.local_pools.ids();
        for index in local_pools {
            self.configure_pool(index, &old);
            if new_server_terms {
                self.renew_tls_servers(index);
            }
        }
        pools::make_minimum_pools(&mut self.core);
    }

    /// The setting may have changed: what was counted is kept as long as it is on.
    pub(crate) fn track_as_configured(&mut self) {
        match (queries::tracks(&self.core.config), &self.core.statistics.tracking) {
            (true, None) => self.core.statistics.tracking = Some(Box::default()),
            (false, Some(_)) => {
                self.core.statistics.tracking = None;
                for conn in self.core.conns.values_mut() {
                    if let Conn::Client(client) = conn {
                        client.query_tracker = None;
                    }
                }
            }
            _ => {}
        }
        // The figures of a deleted database would be taken for those of a new one of the same name.
        if let Some(tracking) = &mut self.core.statistics.tracking {
            tracking.keep_databases(|name| self.core.config.database(name).is_some());
        }
    }

    /// Counting begins anew, of one database or of all.
    pub(crate) fn reset_queries(&mut self, database: Option<&str>) {
        if let Some(tracking) = &mut self.core.statistics.tracking {
            tracking.keep_databases(|name| database.is_some_and(|reset| reset != name));
        }
    }

    /// Puts changed settings of TLS in force for new connections; true if servers are concerned. Invalid
    /// settings change nothing: the control thread has reported them.
    fn configure_tls(&mut self) -> bool {
        if self.core.tls.settings.is_built_from(&self.core.config) {
            return false;
        }
        let Ok(terms) = TlsConfig::new(&self.core.config) else { return false };
        let servers_differ = !terms.has_same_servers(&self.core.tls.settings);
        self.core.tls.settings = terms;
        servers_differ
    }

    /// Servers on TCP were asked for TLS in another way.
    fn renew_tls_servers(&mut self, local_pool: PoolId) {
        let is_inet =
            |conn: &ConnId| self.core.conns.find_server(*conn).is_some_and(|server| server.host().is_some());
        if self.core.servers_of(local_pool).iter().any(is_inet) {
            self.renew_servers(local_pool, CloseReason::ConfigurationChanged);
        }
    }

    fn configure_pool(&mut self, index: PoolId, old: &Config) {
        let Some(local_pool) = self.core.local_pools.get_mut(index) else { return };
        let Some(database) = self.core.config.database(&local_pool.database_name) else {
            local_pool.pool.limits.min_pool_size = 0;
            self.close_clients_of(index, "database removed");
            standbys::remove(&mut self.core, index);
            self.renew_servers(index, CloseReason::DatabaseRemoved);
            return;
        };
        let Some(database) = self.own_entry(index, database) else { return };
        let Some(local_pool) = self.core.local_pools.get_mut(index) else { return };
        let password_changed =
            self.core.config.secrets.get(&*local_pool.user) != old.secrets.get(&*local_pool.user);
        let hosts = HostChange::between(&local_pool.database, &database);
        let renewed = reason_to_renew(&local_pool.database, &database, hosts);
        local_pool.hosts_changed(hosts);
        if renewed.is_some() {
            let is_other = hosts == HostChange::Others || local_pool.database.dbname != database.dbname;
            self.core.query_caches.note_other_servers(&local_pool.database_name, is_other);
        }
        let leader_changed = local_pool.database.leader != database.leader || hosts != HostChange::None;
        let limits = limits(&self.core.config, &database, &local_pool.user);
        let mode_changed = (limits.mode == PoolMode::Session)
            != (local_pool.pool.limits.mode == PoolMode::Session)
            || limits.follows_sessions != local_pool.pool.limits.follows_sessions;
        let follows_sessions = limits.follows_sessions;
        let queue_changed = (limits.fair, limits.queue_burst_us)
            != (local_pool.pool.limits.fair, local_pool.pool.limits.queue_burst_us)
            || limits.fair.is_some() && database.queue_weights != local_pool.database.queue_weights;
        local_pool.set_limits(limits);
        local_pool.pool.sharing_changed(self.core.id.0);
        local_pool.database = database;
        local_pool.relations.expire();
        if leader_changed {
            local_pool.try_leader_first(self.core.now.mono_us);
            local_pool.pool.forget_failure();
        }
        if password_changed {
            (local_pool.keys, local_pool.password, local_pool.found) = (None, None, None);
        }
        if let Some(reason) = renewed {
            local_pool.server_greeting = None;
            self.renew_servers(index, reason);
            identity::require_of_all(&mut self.core, index);
        } else if mode_changed {
            // What clients of one mode leave on a server is not for those of the other. It is the same with `session_state`.
            self.renew_servers(index, CloseReason::ModeChanged);
            pins::release_all(&mut self.core, index);
            self.release_servers(index, follows_sessions);
        } else if password_changed && let Some(local_pool) = self.core.local_pools.get_mut(index) {
            local_pool.pool.forget_failure();
        }
        if hosts == HostChange::Members {
            hosts::leave_removed(&mut self.core, index);
            hosts::note_known_primary(&mut self.core, index);
        }
        standbys::follow_entry(&mut self.core, index);
        if queue_changed {
            fair::configured(&mut self.core, index);
        }
        greet::send_greetings(&mut self.core, index);
        pins::serve(&mut self.core, index);
        opening::serve_or_open(&mut self.core, index);
    }

    /// The entry as this pool has it: another one, where reads and writes are split. None if the pool is for reads and ends.
    fn own_entry(&mut self, index: PoolId, database: Arc<Database>) -> Option<Arc<Database>> {
        let local_pool = self.core.local_pools.get(index)?;
        if let Some(standby) = local_pool.serves.standby() {
            let place = standby.primary.map(|_| standby.place)?;
            return standbys::entry_of_standby(&database, place);
        }
        let user = self.core.config.user(&local_pool.user).map(|user| &**user);
        let judges = self.core.config.judges_reads(&database, user);
        let splits = self.core.config.splits_reads(&database, user);
        let is_other = |split: &Split| {
            let cluster = self.core.local_pools.cluster(split.cluster);
            !judges
                || split.standbys.is_empty() == splits
                || cluster.is_some_and(|cluster| !cluster.is_of(&database))
        };
        if local_pool.serves.split().is_some_and(is_other) {
            standbys::remove(&mut self.core, index);
        }
        if !judges {
            return Some(database);
        }
        if self.core.local_pools.get(index)?.serves.split().is_none() {
            standbys::make(&mut self.core, index, &database);
        }
        Some(standbys::entry_of_primary(&database))
    }

    /// Servers that were kept for their clients' sessions are not any more.
    fn release_servers(&mut self, local_pool: PoolId, follows_sessions: bool) {
        for conn in self.core.servers_of(local_pool) {
            if let Some(server) = self.core.server(conn).filter(|_| !follows_sessions) {
                server.protocol.follow_session(false);
            }
            checkout::release(&mut self.core, conn);
        }
    }

    /// New clients of this database are refused, or not any more.
    pub(crate) fn disable(&mut self, database: String, disabled: bool) {
        self.core.administration.set_disabled(database, disabled);
    }

    /// WAIT_CLOSE: done when what is obsolete is gone.
    pub(crate) fn wait_close(&mut self, request: RequestId, database: Option<String>) {
        self.core.administration.answer_when(request, PendingKind::ObsoleteClosed(database));
        pending::paused_progress(&mut self.core);
    }
}

/// Why the servers of an altered entry are replaced, if they are. Where no server was asked what it is, nothing is known of their cluster.
fn reason_to_renew(old: &Database, new: &Database, hosts: HostChange) -> Option<CloseReason<'static>> {
    let asks = |entry: &Database| entry.target_session_attrs != TargetSessionAttrs::Any;
    if hosts == HostChange::Others || asks(new) && !asks(old) {
        return Some(CloseReason::ClusterForgotten);
    }
    needs_new_servers(old, new).then_some(CloseReason::ConfigurationChanged)
}

/// The servers of an altered entry are on another database, or logged in as another user.
fn needs_new_servers(old: &Database, new: &Database) -> bool {
    (old.target_session_attrs, &old.dbname, &old.user, &old.password, &old.connect_query)
        != (new.target_session_attrs, &new.dbname, &new.user, &new.password, &new.connect_query)
        || (&old.client_encoding, &old.datestyle, &old.timezone, &old.application_name)
            != (&new.client_encoding, &new.datestyle, &new.timezone, &new.application_name)
}
