//! Whether what is counted is what is there: the shards' tables among themselves and against the process's counts (I7),
//! and nothing left of those who have gone (I10).

use std::collections::BTreeMap;

use shard::audit::Audit;

use super::World;
use super::process::Process;
use crate::pooler::Pooler;

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
        for number in 0..self.processes.len() {
            if !self.shards[self.processes[number].shards.start].ended {
                self.audit_process(number);
            }
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
        if let Some(text) = difference(&kept, &sum(&audits)) {
            self.checker.object("I7", text);
        }
    }

    /// Everybody has gone: nothing of them is left.
    pub(super) fn expect_no_leftovers(&mut self) {
        self.audit();
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
