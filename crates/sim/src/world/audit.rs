//! Whether what is counted is what is there: the shards' tables among themselves and against the process's counts (I7),
//! and nothing left of those who have gone (I10).

use std::collections::BTreeMap;

use shard::audit::Audit;

use super::process::Process;
use super::{Owner, World};
use crate::client::session::Phase;
use crate::pooler::Pooler;
use crate::setup;

/// Events between two audits; a prime, so that it meets every kind of moment.
const EVERY: u64 = 13;

impl<P: Pooler> World<P> {
    /// After an event of a shard.
    pub(super) fn audit_now_and_then(&mut self) {
        if self.events.is_multiple_of(EVERY) {
            self.audit();
        }
    }

    /// Counts everything anew, process by process.
    pub(super) fn audit(&mut self) {
        self.expect_keys_apart();
        for number in 0..self.processes.len() {
            if !self.shards[self.processes[number].shards.start].ended {
                self.audit_process(number);
            }
        }
    }

    /// A cancel request names one client (I5), though servers' process ids are given to clients.
    fn expect_keys_apart(&mut self) {
        if !self.swarm.pooling.assign_at_login {
            return;
        }
        let open = self.clients.iter().filter(|client| client.phase == Phase::Open);
        let mut keys: Vec<(u32, u32)> = open.filter_map(|client| client.key).collect();
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        if keys.len() < count {
            self.checker.object("I5", "two clients have the same cancel key".to_owned());
        }
    }

    fn audit_process(&mut self, number: usize) {
        let Process { shards, names, .. } = &self.processes[number];
        let audits: Vec<Audit> =
            shards.clone().filter_map(|shard| self.shards[shard].pooler.audit()).collect();
        if audits.is_empty() {
            return;
        }
        let found = shards
            .clone()
            .zip(&audits)
            .find_map(|(shard, audit)| Some((shard, audit.contradiction.clone()?)));
        let kept = names.counted();
        if let Some((shard, text)) = found {
            return self.checker.object("I7", format!("shard {shard}: {text}"));
        }
        // Who is on the way from one shard to another is counted and in no table.
        if self.moving > 0 {
            return;
        }
        let found = sum(&audits);
        if let Some(text) = difference(&kept, &found) {
            return self.checker.object("I7", text);
        }
        let of_first_user = found.clients_of_users.get(&setup::user(0)).copied().unwrap_or(0);
        self.expect_quota_counts(number, of_first_user);
    }

    /// A server that no client has holds nothing that another one could not be given (I4).
    pub(super) fn expect_idle_servers_bare(&mut self, shard: usize) {
        if !self.swarm.pooling.keeps_sessions() {
            return;
        }
        let pools = self.shards[shard].pooler.pools();
        let idle: Vec<u32> =
            pools.iter().flat_map(|state| state.pool.idle().iter().map(|idle| idle.server)).collect();
        drop(pools);
        for server in idle {
            let socket = self.shards[shard].sockets.get(server as usize).and_then(Option::as_ref);
            let Some(end) = socket.and_then(|socket| socket.end) else { continue };
            if let Owner::Backend(number) = self.owner(end.peer())
                && self.cluster.backend(number).is_pinned()
            {
                let text = format!("on shard {shard} the idle server {number} holds what is a client's");
                return self.checker.object("I4", text);
            }
        }
    }

    /// All clients have gone, and with them the servers that they kept (I4).
    pub(super) fn expect_no_kept_servers(&mut self) {
        let kept = self.cluster.backends().find(|(_, backend)| backend.is_pinned());
        if let Some((number, _)) = kept.filter(|_| self.swarm.pooling.keeps_sessions()) {
            self.checker
                .object("I4", format!("server {number} holds what is a client's, and there are none"));
        }
    }

    /// Everybody has gone: nothing of them is left.
    pub(super) fn expect_no_leftovers(&mut self) {
        self.audit();
        self.expect_no_kept_servers();
        for shard in self.current_shards() {
            let Some(audit) = self.shards[shard].pooler.audit() else { continue };
            if audit.leftovers != shard::audit::Leftovers::default() {
                let text = format!("shard {shard} still has {:?} and no clients", audit.leftovers);
                self.checker.object("I10", text);
            }
        }
        let keys = self.names().cancel_keys();
        if keys > 0 {
            self.checker.object("I10", format!("{keys} cancel keys are known and there are no clients"));
        }
    }
}

/// What is kept otherwise than it is counted.
fn difference(kept: &Audit, found: &Audit) -> Option<String> {
    let unlike = |what: &str, kept: &dyn std::fmt::Debug, found: &dyn std::fmt::Debug| {
        Some(format!("{what} are kept as {kept:?} and counted as {found:?}"))
    };
    let alone = |audit: &Audit| (audit.clients, audit.unauthenticated);
    if alone(kept) != alone(found) {
        unlike("clients and logins", &alone(kept), &alone(found))
    } else if without_zeros(&kept.permits) != without_zeros(&found.permits) {
        unlike("servers", &kept.permits, &found.permits)
    } else if without_zeros(&kept.pins) != without_zeros(&found.pins) {
        unlike("pinned clients", &kept.pins, &found.pins)
    } else if without_zeros(&kept.clients_of_databases) != without_zeros(&found.clients_of_databases) {
        unlike("clients of databases", &kept.clients_of_databases, &found.clients_of_databases)
    } else if without_zeros(&kept.clients_of_users) != without_zeros(&found.clients_of_users) {
        unlike("clients of users", &kept.clients_of_users, &found.clients_of_users)
    } else {
        None
    }
}

fn without_zeros<K: Ord + Clone>(counts: &BTreeMap<K, u32>) -> BTreeMap<K, u32> {
    counts.iter().filter(|(_, count)| **count > 0).map(|(key, count)| (key.clone(), *count)).collect()
}

fn sum(audits: &[Audit]) -> Audit {
    let mut sum = Audit::default();
    for audit in audits {
        sum.clients += audit.clients;
        sum.unauthenticated += audit.unauthenticated;
        add(&mut sum.permits, &audit.permits);
        add(&mut sum.pins, &audit.pins);
        add(&mut sum.clients_of_databases, &audit.clients_of_databases);
        add(&mut sum.clients_of_users, &audit.clients_of_users);
    }
    sum
}

fn add<K: Ord + Clone>(sum: &mut BTreeMap<K, u32>, counts: &BTreeMap<K, u32>) {
    for (key, count) in counts {
        *sum.entry(key.clone()).or_default() += count;
    }
}
