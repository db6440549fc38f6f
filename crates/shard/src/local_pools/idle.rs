//! Pools that nobody uses any more: forgotten after `pool_idle_timeout`, `autodb_idle_timeout`, or with their database.
//!
//! Owns when a part of a pool goes and what is kept of it: what was counted, as long as its database is there.

use std::sync::Arc;

use telemetry::{Counters, Level};

use crate::ConnId;
use crate::maintain::passed;
use crate::state::{Part, State};
use crate::time::micros;

/// What was counted in pools of a database that are forgotten.
#[derive(Default)]
pub(crate) struct Retired {
    pub(crate) counters: Counters,
    /// When the last of them was.
    since_us: u64,
}

/// Why a part is to be forgotten.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// Its database was removed, or came from `*` and is idle: nothing of it is kept.
    DatabaseGone,
    /// It has been idle for `pool_idle_timeout`.
    Idle,
}

impl State {
    /// Forgets a part that has no clients any more, once its servers are gone too.
    pub(crate) fn forget_unused_part(&mut self, part_index: usize) {
        let Some(part) = self.parts.get(part_index).filter(|part| part.is_unused()) else { return };
        let Some(reason) = self.reason_to_forget(part) else { return };
        let servers: Vec<ConnId> = part.pool.idle().iter().map(|idle| ConnId(idle.server)).collect();
        if part.pool.open() > 0 {
            return servers.into_iter().for_each(|server| self.close_server(server, "idle pool"));
        }
        if part.pool.external() > 0 {
            return; // A process before says when these servers are closed, and of which pool.
        }
        let Some(part) = self.parts.try_remove(part_index) else { return };
        let (database, user) = (part.database_name, part.user);
        self.part_of.remove(&(database.clone(), user.clone()));
        let has_others = self.parts.iter().any(|(_, part)| part.database_name == database);
        // Of one that came from `*` the first shard says that it goes.
        let goes = reason == Reason::DatabaseGone && !has_others;
        let says_so = goes && (!part.database.auto || part.pool.database().unregister());
        drop(part.pool);
        self.pool_registry.forget_pool(&database, &user);
        if reason == Reason::Idle {
            let retired = self.retired.entry(database.clone()).or_default();
            retired.counters.add(&part.counters);
            retired.since_us = self.now.mono_us;
            return self.log(Level::Log, format!("cleaning up idle pool: {database}/{user}"));
        }
        if goes {
            self.retired.remove(&database);
            self.errors.forget(&database);
        }
        if says_so {
            let text = format!(
                "dropping database '{database}' as it does not exist anymore or inactive auto-database"
            );
            self.log(Level::Warning, text);
        }
    }

    /// What idle pools counted is kept as long as their database is there: configured, or in use not long ago.
    pub(crate) fn forget_retired(&mut self) {
        let limit_us = micros(self.config.global.autodb_idle_timeout);
        let now_us = self.now.mono_us;
        let (parts, config) = (&self.parts, &self.config);
        let is_gone = |database: &Arc<str>, retired: &Retired| {
            passed(now_us, retired.since_us, limit_us)
                && !config.databases.contains_key(&**database)
                && !parts.iter().any(|(_, part)| part.database_name == *database)
        };
        let gone: Vec<Arc<str>> = self
            .retired
            .iter()
            .filter(|(name, kept)| is_gone(name, kept))
            .map(|(name, _)| name.clone())
            .collect();
        for database in gone {
            self.retired.remove(&database);
            self.errors.forget(&database);
            self.pool_registry.database(&database).unregister();
            self.pool_registry.forget_database(&database);
        }
    }

    fn reason_to_forget(&self, part: &Part) -> Option<Reason> {
        let (now_us, global) = (self.now.mono_us, &self.config.global);
        if self.config.database(&part.database_name).is_none() {
            return Some(Reason::DatabaseGone);
        }
        // What min_pool_size keeps open without a client is in use.
        if part.keeps_minimum() {
            return None;
        }
        let is_idle = passed(now_us, part.last_used_us, micros(global.pool_idle_timeout));
        let no_servers = part.pool.open() == 0;
        let outlived = no_servers && passed(now_us, part.last_used_us, micros(global.autodb_idle_timeout));
        // A name that no server has ever let in is one that somebody made up.
        let was_never_there = no_servers && part.met.is_none() && now_us >= part.pool.retry_at_us();
        if part.database.auto && (outlived || was_never_there) {
            return Some(Reason::DatabaseGone);
        }
        is_idle.then_some(Reason::Idle)
    }
}

impl Part {
    /// Nobody has it and nobody waits for it, not even for the end of a cancel.
    fn is_unused(&self) -> bool {
        self.clients == 0
            && self.pool.queue.is_empty()
            && self.cancels_active == 0
            && self.cancels_waiting.is_empty()
    }

    /// Servers of it are kept open: for its clients, or because its user is forced.
    pub(crate) fn keeps_minimum(&self) -> bool {
        self.pool.limits.min_pool_size > 0 && (self.clients > 0 || self.is_forced())
    }
}
