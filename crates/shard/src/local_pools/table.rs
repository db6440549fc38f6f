//! The pools of a shard, by id and by name.
//!
//! Owns both tables, so that they agree, and the numbers of the pools' statements. A connection's pool is there as long as the connection is.

use std::collections::BTreeMap;
use std::sync::Arc;

use slab::Slab;
use telemetry::Counters;

use crate::local_pools::cluster::Cluster;
use crate::local_pools::listener::Listener;
use crate::local_pools::local_pool::LocalPool;

/// A pool on this shard, valid as long as a connection has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolId(u32);

/// What is known of the servers of an entry, valid as long as a pool has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClusterId(u32);

/// Database and user.
pub(crate) type PoolName = (Arc<str>, Arc<str>);

/// What was counted in pools of a database that are forgotten.
#[derive(Default)]
pub(crate) struct Retired {
    pub(crate) counters: Counters,
    /// When the last of them was.
    pub(crate) since_us: u64,
}

impl Retired {
    pub(crate) fn add(&mut self, counters: &Counters, now_us: u64) {
        self.counters.add(counters);
        self.since_us = now_us;
    }
}

/// The pools of this shard.
#[derive(Default)]
pub(crate) struct LocalPools {
    slots: Slab<LocalPool>,
    by_name: BTreeMap<PoolName, PoolId>,
    /// The servers of entries whose reads go to standbys.
    clusters: Slab<Cluster>,
    /// Counts them as they are made.
    catalogs: u64,
    /// What was counted in pools that are forgotten, by database.
    retired: BTreeMap<Arc<str>, Retired>,
}

/// All pools, to be looked at while what is known of a cluster changes.
pub(crate) struct AllPools<'a>(&'a Slab<LocalPool>);

impl<'a> AllPools<'a> {
    #[inline]
    pub(crate) fn get(&self, pool: PoolId) -> Option<&'a LocalPool> {
        self.0.get(pool.0 as usize)
    }
}

impl LocalPools {
    #[inline]
    pub(crate) fn get(&self, pool: PoolId) -> Option<&LocalPool> {
        self.slots.get(pool.0 as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, pool: PoolId) -> Option<&mut LocalPool> {
        self.slots.get_mut(pool.0 as usize)
    }

    /// The pool of a client, unless it has not logged in to one.
    #[inline]
    pub(crate) fn of(&self, pool: Option<PoolId>) -> Option<&LocalPool> {
        self.get(pool?)
    }

    #[inline]
    pub(crate) fn of_mut(&mut self, pool: Option<PoolId>) -> Option<&mut LocalPool> {
        self.get_mut(pool?)
    }

    /// What listens for all clients of a pool, if anything does.
    pub(crate) fn listener_mut(&mut self, pool: PoolId) -> Option<&mut Listener> {
        self.get_mut(pool)?.listener.as_deref_mut()
    }

    /// The pool of this database and user, if it is on this shard.
    pub(crate) fn find(&self, name: &PoolName) -> Option<PoolId> {
        self.by_name.get(name).copied()
    }

    /// The same, or the pool for its reads on this host.
    pub(crate) fn find_on(&self, name: &PoolName, host: Option<&str>) -> Option<PoolId> {
        let pool = self.find(name)?;
        let Some(host) = host else { return Some(pool) };
        let standbys = &self.get(pool)?.serves.split()?.standbys;
        standbys.iter().copied().find(|standby| self.get(*standby).and_then(LocalPool::host) == Some(host))
    }

    /// The number that separates the statements of the next pool from those of all others.
    pub(crate) fn next_catalog(&mut self) -> u64 {
        self.catalogs += 1;
        self.catalogs
    }

    /// Adds a pool, under its name, unless it is for the reads of another one.
    pub(crate) fn insert(&mut self, local_pool: LocalPool) -> PoolId {
        let name = (Arc::clone(&local_pool.database_name), Arc::clone(&local_pool.user));
        let is_named = local_pool.serves.standby().is_none();
        let pool = id(self.slots.insert(local_pool));
        if is_named {
            self.by_name.insert(name, pool);
        }
        pool
    }

    pub(crate) fn cluster(&self, cluster: ClusterId) -> Option<&Cluster> {
        self.clusters.get(cluster.0 as usize)
    }

    /// A pool and the servers of its entry, where its reads go to standbys or it is for such reads.
    #[inline]
    pub(crate) fn with_cluster(&mut self, pool: PoolId) -> Option<(&mut LocalPool, &mut Cluster)> {
        let local_pool = self.slots.get_mut(pool.0 as usize)?;
        let cluster = self.clusters.get_mut(local_pool.serves.cluster()?.0 as usize)?;
        Some((local_pool, cluster))
    }

    /// A pool whose reads may go to others, what is known of the servers of its entry, and all pools.
    #[inline]
    pub(crate) fn with_standbys(&mut self, pool: PoolId) -> Option<(&LocalPool, &mut Cluster, AllPools<'_>)> {
        let slots = &self.slots;
        let local_pool = slots.get(pool.0 as usize)?;
        let cluster = self.clusters.get_mut(local_pool.serves.split()?.cluster.0 as usize)?;
        Some((local_pool, cluster, AllPools(slots)))
    }

    /// The servers of an entry with these hosts, if a pool of this shard has them.
    pub(crate) fn find_cluster(&self, is_one: impl Fn(&Cluster) -> bool) -> Option<ClusterId> {
        self.clusters.iter().find(|(_, cluster)| is_one(cluster)).map(|(index, _)| cluster_id(index))
    }

    pub(crate) fn add_cluster(&mut self, cluster: Cluster) -> ClusterId {
        cluster_id(self.clusters.insert(cluster))
    }

    pub(crate) fn clusters(&self) -> impl Iterator<Item = (ClusterId, &Cluster)> {
        self.clusters.iter().map(|(index, cluster)| (cluster_id(index), cluster))
    }

    pub(crate) fn clusters_mut(&mut self) -> impl Iterator<Item = &mut Cluster> {
        self.clusters.iter_mut().map(|(_, cluster)| cluster)
    }

    /// Forgets the servers of entries that no pool has any more.
    pub(crate) fn forget_unused_clusters(&mut self) {
        if self.clusters.is_empty() {
            return;
        }
        let slots = &self.slots;
        let has = |index| slots.iter().any(|(_, pool)| pool.serves.cluster() == Some(cluster_id(index)));
        self.clusters.retain(|index, _| has(index));
    }

    /// Removes a pool and its name.
    pub(crate) fn remove(&mut self, pool: PoolId) -> Option<LocalPool> {
        let local_pool = self.slots.try_remove(pool.0 as usize)?;
        if local_pool.serves.standby().is_none() {
            self.by_name.remove(&(Arc::clone(&local_pool.database_name), Arc::clone(&local_pool.user)));
        }
        Some(local_pool)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PoolId, &LocalPool)> {
        self.slots.iter().map(|(index, local_pool)| (id(index), local_pool))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &LocalPool> {
        self.slots.iter().map(|(_, local_pool)| local_pool)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut LocalPool> {
        self.slots.iter_mut().map(|(_, local_pool)| local_pool)
    }

    /// Keeps what a pool that is forgotten has counted.
    pub(crate) fn retire(&mut self, database: &Arc<str>, counters: &Counters, now_us: u64) {
        self.retired.entry(Arc::clone(database)).or_default().add(counters, now_us);
    }

    pub(crate) fn forget_retired(&mut self, database: &str) {
        self.retired.remove(database);
    }

    /// What was counted in forgotten pools, by database.
    pub(crate) fn retired(&self) -> impl Iterator<Item = (&Arc<str>, &Retired)> {
        self.retired.iter()
    }

    /// The ids of all pools, for steps that may add and remove some.
    pub(crate) fn ids(&self) -> Vec<PoolId> {
        self.iter().map(|(pool, _)| pool).collect()
    }

    /// The ids of the pools that match.
    pub(crate) fn ids_of(&self, matches: impl Fn(&LocalPool) -> bool) -> Vec<PoolId> {
        self.iter().filter(|(_, local_pool)| matches(local_pool)).map(|(pool, _)| pool).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Pools that fit without more memory.
    pub(crate) fn free(&self) -> usize {
        self.slots.capacity() - self.slots.len()
    }
}

#[inline]
fn id(index: usize) -> PoolId {
    PoolId(u32::try_from(index).unwrap_or(u32::MAX))
}

fn cluster_id(index: usize) -> ClusterId {
    ClusterId(u32::try_from(index).unwrap_or(u32::MAX))
}
