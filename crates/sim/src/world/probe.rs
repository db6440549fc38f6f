//! The thread that asks hosts what they are (`host_probe_interval`), which tells of a new primary although no connection for clients leads there.
//!
//! Owns what a process was told by it; which entries are told what follows is as in `hostprobe::known_hosts`.

use std::collections::BTreeMap;

use pool::{ProbedCluster, ProbedPrimary};

use super::{What, World};
use crate::clock::SECOND_US;
use crate::model::cluster::Attempt;
use crate::model::replication::SYSTEM;
use crate::pooler::Pooler;
use crate::setup;

/// The longest that an answer takes, and when it counts as none.
const ANSWERS_US: u64 = 50_000;
const UNANSWERED_US: u64 = SECOND_US;

/// What came of a question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    process: usize,
    place: usize,
    asked_us: u64,
    /// Whether there is an answer, and the timeline of a primary in it.
    said: Option<Option<u32>>,
}

/// What is known of a host.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    asked_us: u64,
    /// The timeline that it writes, if it has said last that it is a primary.
    primary: Option<u32>,
    /// When it was asked to which it has answered last.
    identified_us: Option<u64>,
}

/// What was answered, by process and place of the host.
#[derive(Debug, Default)]
pub(super) struct Probes {
    known: BTreeMap<(usize, usize), Known>,
    /// Since when the cluster of an entry may be another one (RECONNECT), by process and database.
    forgotten: BTreeMap<(usize, String), u64>,
}

impl Probes {
    fn told(&self, process: usize, database: &str, hosts: usize) -> ProbedCluster {
        let since_us = self.forgotten.get(&(process, database.to_owned())).copied();
        let counts = |asked_us: u64| since_us.is_none_or(|since_us| asked_us > since_us);
        let known = || self.known.range((process, 0)..(process + 1, 0)).map(|(_, known)| known);
        let identified = known().filter_map(|known| known.identified_us).filter(|us| counts(*us)).count();
        let primaries = known().filter(|known| counts(known.asked_us)).filter_map(|known| known.primary);
        ProbedCluster {
            majority: if identified * 2 > hosts { SYSTEM } else { 0 },
            primary: primaries.max().map(|timeline| ProbedPrimary { system: SYSTEM, timeline }),
        }
    }
}

impl<P: Pooler> World<P> {
    /// A process asks each host.
    pub(super) fn begin_probing_hosts(&mut self, process: usize) {
        let Some(hosts) = self.swarm.hosts.as_ref().filter(|hosts| hosts.probe_us > 0) else { return };
        for place in 0..usize::from(hosts.count) {
            self.clock.after(0, What::Probe(process, place));
        }
    }

    /// A process asks a host.
    pub(super) fn probe_host(&mut self, process: usize, place: usize) {
        if self.shards[self.processes[process].shards.start].ended {
            return;
        }
        let now_us = self.clock.now_us();
        let takes_us = self.prng.log_between(100, ANSWERS_US);
        let attempt = self.cluster.attempt(place, now_us);
        let Some(hosts) = &mut self.cluster.replication else { return };
        let (said, after_us) = match attempt {
            Attempt::Accepted => {
                let replica = hosts.replica(place, now_us);
                (Some((!replica.is_standby).then_some(replica.at.timeline)), takes_us)
            }
            Attempt::Unanswered => (None, UNANSWERED_US),
            Attempt::Refused | Attempt::NoFile => (None, takes_us),
        };
        self.clock.after(after_us, What::Probed(Answer { process, place, asked_us: now_us, said }));
    }

    /// A process hears what came of it, and asks again later.
    pub(super) fn host_probed(&mut self, answer: Answer) {
        let Answer { process, place, asked_us, said } = answer;
        let Some(hosts) = &self.swarm.hosts else { return };
        let (count, interval_us) = (usize::from(hosts.count), hosts.probe_us);
        let known = self.probes.known.entry((process, place)).or_default();
        (known.asked_us, known.primary) = (asked_us, said.flatten());
        if said.is_some() {
            known.identified_us = Some(asked_us);
        }
        for database in (0..self.swarm.pooling.databases).map(setup::database) {
            if self.operator.removed.contains(&database) {
                self.probes.forgotten.insert((process, database.clone()), self.clock.now_us());
            }
            let told = self.probes.told(process, &database, count);
            self.processes[process].names.note_probed(&database, told);
            // What is told while no server was used counts once one is.
            let known = self.processes[process].names.known_timeline(&database);
            if let Some(timeline) = told.primary.map(|primary| primary.timeline).filter(|_| known.is_some()) {
                self.note_shown(process, &database, timeline);
            }
        }
        self.clock.after(interval_us, What::Probe(process, place));
    }

    /// RECONNECT, before the shards hear of it: the cluster of a database, or of all, may be another one.
    pub(super) fn forget_probed(&mut self, database: Option<&str>) {
        let Some(process) = self.current.filter(|_| self.swarm.hosts.is_some()) else { return };
        let now_us = self.clock.now_us();
        let names = (0..self.swarm.pooling.databases).map(setup::database);
        for name in names.filter(|name| database.is_none_or(|database| database == name)) {
            self.processes[process].names.note_probed(&name, ProbedCluster::default());
            self.probes.forgotten.insert((process, name), now_us);
        }
    }
}
