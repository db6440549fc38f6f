//! The local pools of this shard: found or created, spread over shards, and forgotten.
//!
//! Owns their creation, and which shard a new client of a pool goes to.

pub(crate) mod auto_size;
pub(crate) mod spread;
pub(crate) mod standbys;
pub(crate) mod unused;

use std::sync::Arc;

use messages::ShardId;
use pool::{Pool, SharedPool};
use session::{LearnedSettings, Parameters};
use settings::Database;
use telemetry::Counters;

use crate::core::Core;
use crate::link::opening;
use crate::local_pools::hosts::NextHost;
use crate::local_pools::known_relations::KnownRelations;
use crate::local_pools::local_pool::{LocalPool, limits};
use crate::local_pools::serves::Serves;
use crate::local_pools::sizing::Sizing;
use crate::local_pools::table::{PoolId, PoolName};

/// The local pool of this pool, created if it is new here.
pub(crate) fn local_pool(
    core: &mut Core,
    database_name: &str,
    user: &str,
    database: &Arc<Database>,
) -> PoolId {
    let name: PoolName = (database_name.into(), user.into());
    if let Some(pool) = core.local_pools.find(&name) {
        return pool;
    }
    let shared = core.pool_registry.pool(database_name, user);
    let catalog = core.local_pools.next_catalog();
    let judges = core.config.judges_reads(database, core.config.user(user).map(|user| &**user));
    let own = if judges { standbys::entry_of_primary(database) } else { Arc::clone(database) };
    let made = new_local_pool(core, (&name.0, &name.1), &own, shared, catalog, Serves::All);
    let pool_id = core.local_pools.insert(made);
    if judges {
        standbys::make(core, pool_id, database);
    }
    pool_id
}

/// A pool of this name and entry, without connections.
fn new_local_pool(
    core: &Core,
    (database_name, user): (&Arc<str>, &Arc<str>),
    database: &Arc<Database>,
    shared: Arc<SharedPool>,
    catalog: u64,
    serves: Serves,
) -> LocalPool {
    let pool_registry = &core.pool_registry;
    let (counts, user_counts) = (pool_registry.database(database_name), pool_registry.user(user));
    let mut pool = Pool::new(limits(&core.config, database, user), shared, counts, user_counts);
    let paused_by_command = core.administration.is_paused(database_name);
    pool.paused = paused_by_command || core.administration.is_suspended();
    let mut local_pool = LocalPool {
        pool,
        catalog,
        database_name: Arc::clone(database_name),
        user: Arc::clone(user),
        database: Arc::clone(database),
        serves,
        keys: None,
        password: None,
        found: None,
        server_greeting: None,
        server_error: None,
        default_params: Parameters::unknown(&core.tracked),
        last_params: Parameters::unknown(&core.tracked),
        learned_settings: LearnedSettings::default(),
        keeps_sequences: false,
        place_requested_us: None,
        relations: KnownRelations::default(),
        listener: None,
        counters: Counters::default(),
        sizing: Sizing::default(),
        pins: messages::PinCounters::default(),
        histograms: None,
        clients: 0,
        next_host: NextHost::default(),
        last_used_us: core.now.mono_us,
        permit_requested_us: 0,
        share_asked_us: 0,
        cancels_active: 0,
        cancels_waiting: std::collections::VecDeque::new(),
        paused_by_command,
    };
    local_pool.try_leader_first(core.now.mono_us);
    local_pool
}

/// Pools with a forced user and a minimum are there before their first client.
pub(crate) fn make_minimum_pools(core: &mut Core) {
    let config = Arc::clone(&core.config);
    for (name, database) in &config.databases {
        let Some(user) = &database.user else { continue };
        let minimum = config.min_pool_size(database);
        if minimum == 0
            || core.pool_registry.pool(name, user).shards().trailing_zeros() != u32::from(core.id.0)
        {
            continue;
        }
        let local_pool = local_pool(core, name, user, database);
        opening::serve_or_open(core, local_pool);
    }
}

/// The shard that a new client of this pool goes to: one that has a local pool; in turn if several have.
pub(crate) fn shard_for(core: &mut Core, shared: &SharedPool) -> ShardId {
    let shards = shared.shards();
    if shards & (1 << core.id.0) != 0 && shards.count_ones() == 1 {
        return core.id;
    }
    let turn = random_u32(core) % shards.count_ones().max(1);
    let mut bits = shards;
    for _ in 0..turn {
        bits &= bits.wrapping_sub(1);
    }
    ShardId(u16::try_from(bits.trailing_zeros()).unwrap_or(0))
}

fn random_u32(core: &mut Core) -> u32 {
    let mut bytes = [0; 4];
    core.entropy.fill(&mut bytes);
    u32::from_be_bytes(bytes)
}
