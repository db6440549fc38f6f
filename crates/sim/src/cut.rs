//! What a run of a seed may leave out or simplify: the world, the random numbers, the steps. `shrink` searches for the
//! smallest that still fails.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use settings::{AuthType, PoolMode};

use crate::prng::Prng;
use crate::steps::Steps;
use crate::swarm::{Quotas, Reloads, Swarm};

/// A way to make a world simpler.
pub(crate) struct Simpler {
    pub(crate) name: &'static str,
    pub(crate) apply: fn(&mut Swarm),
}

const fn simpler(name: &'static str, apply: fn(&mut Swarm)) -> Simpler {
    Simpler { name, apply }
}

/// All of them, those that save most first.
pub(crate) const SIMPLER: &[Simpler] = &[
    simpler("faultless", |world| world.faults.clear()),
    simpler("without-operator", |world| world.faults.retain(|(fault, _)| !fault.is_of_a_pooler())),
    simpler("two-clients", |world| world.client_mix.slots = world.client_mix.slots.min(2)),
    simpler("three-clients", |world| world.client_mix.slots = world.client_mix.slots.min(3)),
    simpler("few-requests", |world| world.client_mix.requests = world.client_mix.requests.min(4)),
    simpler("short", |world| world.chaos_us = world.chaos_us.min(20_000)),
    simpler("shorter", |world| world.chaos_us /= 4),
    simpler("one-thread", |world| world.pooling.shards = 1),
    simpler("one-database", |world| world.pooling.databases = 1),
    simpler("one-user", |world| (world.pooling.users, world.pooling.looks_up) = (1, false)),
    simpler("one-server", |world| (world.pooling.pool_size, world.pooling.reserve_pool_size) = (1, 0)),
    simpler("fixed-size", |world| world.pooling.auto_size = false),
    simpler("unlimited", |world| world.pooling.max_db_connections = 0),
    simpler("unshared", |world| world.pooling.sharing.mode = settings::ConnectionSharing::None),
    simpler("classless", |world| world.pooling.queueing.classes.0 = settings::QueuePriority::None),
    simpler("without-quotas", |world| world.pooling.quotas = Quotas::default()),
    simpler("patient", |world| world.pooling.tight_timeouts = false),
    simpler("lasting", |world| world.pooling.server_lifetime_ms = 3_600_000),
    simpler("unprobed", |world| world.hosts.iter_mut().for_each(|hosts| hosts.probe_us = 0)),
    simpler("noticed", |world| world.hosts.iter_mut().for_each(|hosts| hosts.half_open_per_million = 0)),
    simpler("unchecked", |world| world.pooling.checks = false),
    simpler("trusting", |world| world.pooling.auth_type = AuthType::Trust),
    simpler("transactions", |world| world.pooling.pool_mode = PoolMode::Transaction),
    simpler("unreloaded", |world| world.pooling.reloads = Reloads::default()),
    simpler("whole-packets", |world| world.network_conditions.split_per_million = 0),
    simpler("wide-pipes", |world| {
        (world.network_conditions.capacity_least, world.network_conditions.capacity_most) = (65_536, 65_536);
    }),
    simpler("steady", |world| {
        (world.network_conditions.latency_us, world.network_conditions.jitter_us) = (100, 1)
    }),
    simpler("quiet", |world| world.servers.chatter_per_million = 0),
    simpler("without-ddl", |world| world.servers.ddl_per_million = 0),
    simpler("roomy", |world| world.servers.max_connections = 1_000),
    simpler("quick", |world| world.servers.work_us = 1),
    simpler("whole-reads", |world| (world.driving.read_most, world.driving.clog_bytes) = (65_536, 65_536)),
    simpler("prompt", |world| {
        (world.driving.completion_us, world.driving.late_read_per_million) = (0, 0);
        (world.driving.tick_late_us, world.driving.letter_us) = (1, 1);
    }),
    simpler("idle-threads", |world| world.driving.busy_percent = 0),
    simpler("polite", |world| {
        (world.client_mix.garbage_per_million, world.client_mix.stranger_per_million) = (0, 0)
    }),
    simpler("patient", |world| (world.pooling.queueing.limit, world.pooling.queueing.target_ms) = (0, 0)),
    simpler("first come", |world| world.pooling.queueing.fair = None),
    simpler("tame", |world| world.client_mix.wild_per_million = 0),
    simpler("immortal", |world| {
        (world.client_mix.die_per_million, world.client_mix.slow_per_million) = (0, 0)
    }),
    simpler("listening", |world| {
        (world.client_mix.deaf_per_million, world.client_mix.long_idle_per_million) = (0, 0)
    }),
    simpler("patient-clients", |world| world.client_mix.cancel_per_million = 0),
    simpler("without-copy", |world| world.client_mix.copy_per_million = 0),
    simpler("without-replication", |world| world.client_mix.replicate_per_million = 0),
    simpler("without-set", |world| world.client_mix.set_per_million = 0),
    simpler("without-blocks", |world| world.client_mix.transaction_per_million = 0),
    simpler("without-errors", |world| world.client_mix.fail_per_million = 0),
    simpler("one-row", |world| world.client_mix.rows_most = 1),
    simpler("without-tls", |world| world.client_mix.ask_for_tls = false),
    simpler("one-ahead", |world| world.client_mix.depth_most = 1),
];

/// What is left of a seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Its random numbers are others; 0: its own.
    pub(crate) streams: u64,
    /// How its world is simpler: indices into the table.
    pub(crate) simpler: BTreeSet<usize>,
    /// The steps that are taken; None: all.
    pub(crate) only: Option<BTreeSet<u64>>,
}

impl Cut {
    pub(crate) fn simplify(&self, swarm: &mut Swarm) {
        self.simpler.iter().filter_map(|index| SIMPLER.get(*index)).for_each(|way| (way.apply)(swarm));
    }

    pub(crate) fn streams(&self, prng: Prng) -> Prng {
        if self.streams == 0 { prng } else { prng.split(self.streams) }
    }

    pub(crate) fn steps(&self) -> Steps {
        Steps::new(self.only.clone())
    }
}

/// `STREAMS:SIMPLER,…:STEP,…`, a word for a shell; without a third part all steps are taken.
impl fmt::Display for Cut {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.simpler.iter().map(|index| SIMPLER[*index].name).collect();
        write!(formatter, "{}:{}", self.streams, names.join(","))?;
        let Some(only) = &self.only else { return Ok(()) };
        let numbers: Vec<String> = only.iter().map(u64::to_string).collect();
        write!(formatter, ":{}", numbers.join(","))
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Cut, String> {
        let mut parts = text.split(':');
        let mut words = || parts.next().map(|part| part.split(',').filter(|word| !word.is_empty()));
        let number = |word: &str| word.parse::<u64>().map_err(|_| format!("`{word}` is no number"));
        let streams = words().and_then(|mut words| words.next()).map_or(Ok(0), number)?;
        let index = |word: &str| SIMPLER.iter().position(|way| way.name == word);
        let simpler =
            words().into_iter().flatten().map(|word| index(word).ok_or(format!("what is `{word}`?")));
        let simpler = simpler.collect::<Result<_, _>>()?;
        let only = words().map(|words| words.map(number).collect::<Result<_, _>>()).transpose()?;
        Ok(Cut { streams, simpler, only })
    }
}
