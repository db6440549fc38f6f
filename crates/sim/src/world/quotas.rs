//! Quotas of the first user: what was used is collected as a process does, and connections are counted as they are (I23).
//!
//! That who came too late is served nothing, its client looks for (`client/answers.rs`).

use super::World;
use crate::client::context::QuotaContext;
use crate::pooler::Pooler;
use crate::setup;
use crate::swarm::Quotas;

/// How the quota of queries stands.
#[derive(Debug, Default)]
pub(super) struct QuotaWatch {
    has_refused: bool,
    refuses_since_us: Option<u64>,
    is_over: bool,
}

impl QuotaWatch {
    /// Nothing is limited any more, of which shards are told; or another process counts anew.
    pub(super) fn end(&mut self) {
        (self.is_over, self.refuses_since_us) = (true, None);
    }

    /// What a client of this user has to know.
    pub(super) fn of(&self, quotas: Quotas, user: &str) -> Option<QuotaContext> {
        (quotas.limit_anything() && user == setup::user(0)).then_some(QuotaContext {
            limits_connections: quotas.connections > 0,
            has_refused: self.has_refused,
            refuses_since_us: self.refuses_since_us,
        })
    }
}

impl<P: Pooler> World<P> {
    /// A shard of this process has looked at its clock.
    pub(super) fn collect_quotas(&mut self, process: usize) {
        if !self.swarm.pooling.quotas.limit_anything() {
            return;
        }
        let (wall_s, mono_us) = (self.clock.wall_us() / 1_000_000, self.clock.now_us());
        let names = &self.processes[process].names;
        names.collect_quotas(quota::Instant { wall_s, mono_us });
        let refuses = names.refuses_queries_of(&setup::user(0));
        self.quotas.has_refused |= refuses;
        // While two processes count, each of them has its own figures.
        let counts_alone = self.processes.len() == 1 && !self.quotas.is_over;
        self.quotas.refuses_since_us = match self.quotas.refuses_since_us {
            Some(since_us) if refuses && counts_alone => Some(since_us),
            _ => (refuses && counts_alone).then_some(mono_us),
        };
    }

    /// As many connections of the first user are counted in its quota as it has (of `found` clients).
    pub(super) fn expect_quota_counts(&mut self, process: usize, found: u32) {
        let Some(kept) = self.processes[process].names.quota_connections_of(&setup::user(0)) else { return };
        if kept != u64::from(found) {
            let text = format!("{kept} connections are counted in a quota, and there are {found}");
            return self.checker.object("I23", text);
        }
        let most = self.swarm.pooling.quotas.connections;
        if process == 0 && most > 0 && found > most {
            self.checker.object("I23", format!("{found} connections are open, and a quota allows {most}"));
        }
    }
}
