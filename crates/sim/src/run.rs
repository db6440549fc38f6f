//! From a seed to its outcome.

use std::sync::Arc;

use crate::cut::Cut;
use crate::direct::Direct;
use crate::directory::Names;
use crate::fault::Fault;
use crate::invariants::Violation;
use crate::model::replication::HostEvents;
use crate::prng::Prng;
use crate::setup;
use crate::steps::Steps;
use crate::swarm::{Length, Reloads, Swarm};
use crate::world::{Outcome, Starter, World};
use settings::AuthType;
use shard::Shard;

/// What came of a seed.
#[derive(Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What was broken, if anything.
    pub violation: Option<Violation>,
    /// The hash of all that happened; the same for every run of the seed.
    pub hash: u64,
    /// What happened, line by line, if asked for.
    pub lines: Vec<String>,
    /// Statements that the model server ran.
    pub statements: u64,
    /// Transactions that it ended.
    pub transactions: u64,
    /// Reads of clients that standbys executed.
    pub standby_reads: u64,
    /// What happened to the hosts of a cluster.
    pub host_events: HostEvents,
    /// Events that happened.
    pub events: u64,
    /// Client sessions.
    pub sessions: usize,
    /// Sessions, requests and faults that came up.
    pub steps_met: u64,
    /// Those of them that were not left out.
    pub steps_taken: u64,
    /// What these were, of a run that leaves some out.
    pub steps: Vec<String>,
}

/// Whether the servers of a seed are a primary and standbys.
#[must_use]
pub fn has_cluster(seed: u64) -> bool {
    Swarm::draw(&mut Prng::new(seed).split(10)).hosts.is_some()
}

/// The world of a seed.
fn swarm(length: Length, prng: &Prng) -> Swarm {
    Swarm::draw(&mut prng.split(10)).of_length(length, &mut prng.split(12))
}

/// Runs a seed against the real shard.
#[must_use]
pub fn run(seed: u64, length: Length, keep_lines: bool) -> Report {
    run_cut(seed, length, &Cut::default(), keep_lines)
}

/// Runs what is left of a seed.
#[must_use]
pub fn run_cut(seed: u64, length: Length, cut: &Cut, keep_lines: bool) -> Report {
    let prng = Prng::new(seed);
    let mut swarm = swarm(length, &prng);
    cut.simplify(&mut swarm);
    let prng = cut.streams(prng);
    let config = Arc::new(setup::config(&swarm.pooling, swarm.hosts.as_ref(), &mut prng.split(11)));
    let (shards, streams) = (swarm.pooling.shards, prng.clone());
    let starter: Starter<Shard> = Box::new(move |before, config| {
        let names = Arc::new(Names::new(shards));
        (setup::shards(config, &names, &streams, before), names)
    });
    let opening = keep_lines.then(|| format!("{swarm:#?}"));
    let outcome = World::new(swarm, starter, config, &prng, cut.steps(), keep_lines).run();
    report(seed, outcome, opening)
}

/// Runs a seed with a relay in the shard's place: what is objected to then is the models' own fault.
#[must_use]
pub fn run_direct(seed: u64, length: Length, keep_lines: bool) -> Report {
    let prng = Prng::new(seed);
    let mut swarm = swarm(length, &prng);
    // A relay knows no pools, commands, timeouts or bad manners, and a crowd of clients needs a server each.
    swarm.pooling.shards = 1;
    swarm.pooling.pool_size = u32::MAX / 2;
    swarm.pooling.max_db_connections = 0;
    swarm.pooling.tight_timeouts = false;
    swarm.pooling.auth_type = AuthType::Trust;
    swarm.client_mix.garbage_per_million = 0;
    swarm.client_mix.stranger_per_million = 0;
    swarm.pooling.reloads = Reloads::default();
    swarm.faults.retain(|(fault, _)| !fault.is_of_a_pooler() && !Fault::OF_CLUSTERS.contains(fault));
    swarm.hosts = None;
    swarm.client_mix.read_only_per_million = 0;
    let config = Arc::new(setup::config(&swarm.pooling, swarm.hosts.as_ref(), &mut prng.split(11)));
    let starter: Starter<Direct> =
        Box::new(|_, _| (vec![Direct::new(setup::HOST, setup::PORT)], Arc::new(Names::new(1))));
    let opening = keep_lines.then(|| format!("{swarm:#?}"));
    let outcome =
        World::new(swarm, starter, config, &prng, Steps::default(), keep_lines).without_pools().run();
    report(seed, outcome, opening)
}

fn report(seed: u64, outcome: Outcome, opening: Option<String>) -> Report {
    let Outcome {
        violation,
        hash,
        mut lines,
        statements,
        transactions,
        standby_reads,
        host_events,
        events,
        sessions,
        steps,
    } = outcome;
    lines.splice(0..0, opening);
    let (steps_met, steps_taken, steps) = (steps.met(), steps.taken(), steps.into_lines());
    Report {
        seed,
        violation,
        hash,
        lines,
        statements,
        transactions,
        standby_reads,
        host_events,
        events,
        sessions,
        steps_met,
        steps_taken,
        steps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_agree_with_each_other_without_a_pooler() {
        for seed in 0..60 {
            let report = run_direct(seed, Length::Long, false);
            assert_eq!(report.violation, None, "seed {seed}");
            assert!(report.statements > 0, "seed {seed} did nothing");
        }
    }

    #[test]
    fn a_seed_repeats_itself() {
        for (seed, length) in (0..10).flat_map(|seed| [(seed, Length::Long), (seed, Length::Short)]) {
            let direct = [false, true].map(|keep_lines| run_direct(seed, length, keep_lines).hash);
            assert_eq!(direct[0], direct[1], "seed {seed} {length:?}, direct");
            let hashes = [false, true].map(|keep_lines| run(seed, length, keep_lines).hash);
            assert_eq!(hashes[0], hashes[1], "seed {seed} {length:?}");
        }
    }

    #[test]
    fn most_short_runs_of_clusters_have_promotions_and_little_else() {
        let reports: Vec<Report> =
            (0..300).filter(|seed| has_cluster(*seed)).map(|seed| run(seed, Length::Short, false)).collect();
        let count = |happens: fn(&Report) -> bool| reports.iter().filter(|report| happens(report)).count();
        assert_eq!(count(|report| report.violation.is_some()), 0);
        let promoted = count(|report| report.host_events.promotions > 0);
        assert!(promoted * 2 > reports.len(), "{promoted} of {}", reports.len());
        let transactions: u64 = reports.iter().map(|report| report.transactions).sum();
        assert!(transactions < 300 * reports.len() as u64, "{transactions} in {}", reports.len());
    }
}
