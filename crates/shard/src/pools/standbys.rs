//! The pools for the reads of another one, a pool for each host of its entry (`read_write_split`): made with it, kept in step with its entry, and forgotten with it.
//!
//! Owns which hosts a connection is kept to. What a server's login or its failure says of its host is `link::standbys`'s.

use std::sync::Arc;

use settings::{Database, Ports, TargetSessionAttrs};

use crate::ConnId;
use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::core::Core;
use crate::link::{opening, positions, routing, standbys};
use crate::local_pools::cluster::{Cluster, Host, label};
use crate::local_pools::known_names::KnownNames;
use crate::local_pools::serves::{Serves, Split, Standby};
use crate::local_pools::table::{ClusterId, PoolId};
use crate::pools;

/// The entry of a pool whose reads go elsewhere: its own connections go to the primary.
pub(crate) fn entry_of_primary(entry: &Arc<Database>) -> Arc<Database> {
    if entry.target_session_attrs != TargetSessionAttrs::Any {
        return Arc::clone(entry);
    }
    Arc::new(Database { target_session_attrs: TargetSessionAttrs::Primary, ..Database::clone(entry) })
}

/// The entry of the pool for reads on one of its hosts.
pub(crate) fn entry_of_standby(entry: &Database, place: usize) -> Option<Arc<Database>> {
    let host = entry.host.get(place)?.clone();
    Some(Arc::new(Database {
        host: vec![host],
        port: Ports::one(entry.port.of(place)),
        target_session_attrs: TargetSessionAttrs::Standby,
        ..entry.clone()
    }))
}

/// Makes the pools for the reads of this one, whose entry has these hosts.
pub(crate) fn make(core: &mut Core, primary: PoolId, entry: &Database) {
    let Some(local_pool) = core.local_pools.get(primary) else { return };
    let (name, user) = (Arc::clone(&local_pool.database_name), Arc::clone(&local_pool.user));
    let (catalog, now_us) = (local_pool.catalog, core.now.mono_us);
    let cluster = cluster_of(core, &name, entry);
    let splits = core.config.splits_reads(entry, core.config.user(&user).map(|user| &**user));
    let mut standbys = Vec::new();
    for place in 0..if splits { entry.host.len() } else { 0 } {
        let Some(own) = entry_of_standby(entry, place) else { continue };
        let label = label(&entry.host[place], entry, place);
        let shared = core.pool_registry.host_pool(&name, &user, &label);
        shared.spread_to(core.id.0);
        let is_needed = core.exporting.is_none()
            && core.local_pools.cluster(cluster).is_some_and(|known| known.may_be_standby(place, now_us));
        let serves = Serves::Standby(Standby { primary: Some(primary), cluster, place, label, is_needed });
        let made = pools::new_local_pool(core, (&name, &user), &own, shared, catalog, serves);
        standbys.push(core.local_pools.insert(made));
    }
    if let Some(local_pool) = core.local_pools.get_mut(primary) {
        local_pool.serves =
            Serves::Primary(Box::new(Split { cluster, standbys, names: KnownNames::default() }));
    }
    follow_relations(core, primary);
    clients_of(core, primary).into_iter().for_each(|client| routing::begin_split(core, client));
}

fn clients_of(core: &Core, pool_id: PoolId) -> Vec<ConnId> {
    core.conns.ids(|conn| matches!(conn, Conn::Client(client) if client.pool == Some(pool_id)))
}

/// What is known of the servers of this entry, as its hosts are now.
fn cluster_of(core: &mut Core, name: &Arc<str>, entry: &Database) -> ClusterId {
    let is_it = |cluster: &Cluster| cluster.database == *name && cluster.is_of(entry);
    if let Some(known) = core.local_pools.find_cluster(is_it) {
        return known;
    }
    let mut cluster = Cluster::new(Arc::clone(name), entry);
    for place in 0..entry.host.len() {
        let is_detached =
            cluster.host(place).is_some_and(|host| core.administration.is_detached(name, &host.label))
                || entry.without_reads.contains(&place);
        cluster.set_detached(place, is_detached, core.now.mono_us);
    }
    core.local_pools.add_cluster(cluster)
}

/// The entry has other hosts, or its reads are not split any more: the pools for reads end.
pub(crate) fn remove(core: &mut Core, primary: PoolId) {
    let local_pool = core.local_pools.get_mut(primary);
    // A pool for reads stays one until it is forgotten.
    let Some(local_pool) = local_pool.filter(|local_pool| local_pool.serves.split().is_some()) else {
        return;
    };
    let Serves::Primary(split) = std::mem::take(&mut local_pool.serves) else { return };
    for standby in split.standbys {
        routing::move_waiters(core, standby);
        if let Some(Serves::Standby(standby)) =
            core.local_pools.get_mut(standby).map(|local_pool| &mut local_pool.serves)
        {
            (standby.primary, standby.is_needed) = (None, false);
        }
        standbys::close_servers(core, standby, CloseReason::ConfigurationChanged);
    }
    for conn in clients_of(core, primary) {
        if let Some(client) = core.client(conn).filter(|client| client.server().is_none()) {
            client.routed.end_split();
        }
    }
}

/// Which tables and views may change a session is the primary's to say, which has them first.
fn follow_relations(core: &mut Core, primary: PoolId) {
    let now_us = core.now.mono_us;
    let Some(local_pool) = core.local_pools.get_mut(primary) else { return };
    let known = std::mem::take(&mut local_pool.relations);
    let standbys = local_pool.serves.split().map(|split| split.standbys.clone()).unwrap_or_default();
    for standby in standbys {
        if let Some(standby) = core.local_pools.get_mut(standby) {
            standby.relations.follow(&known, now_us);
        }
    }
    if let Some(local_pool) = core.local_pools.get_mut(primary) {
        local_pool.relations = known;
    }
}

/// DETACH and ATTACH: no reads go to this host of a database, or they may again. Returns how many pools this concerns.
pub(crate) fn set_detached(core: &mut Core, database: &str, host: &str, is_detached: bool) -> usize {
    let now_us = core.now.mono_us;
    core.administration.set_detached(database.to_owned(), host.to_owned(), is_detached);
    for cluster in core.local_pools.clusters_mut().filter(|cluster| *cluster.database == *database) {
        for place in cluster.places_of(host) {
            cluster.set_detached(place, is_detached, now_us);
        }
    }
    let followers = core.local_pools.ids_of(|local_pool| {
        *local_pool.database_name == *database && !local_pool.database.without_reads.is_empty()
    });
    followers.into_iter().for_each(|primary| follow_entry(core, primary));
    let pools = core
        .local_pools
        .ids_of(|local_pool| *local_pool.database_name == *database && local_pool.host() == Some(host));
    for pool_id in &pools {
        if is_detached {
            standbys::close_servers(core, *pool_id, CloseReason::Detached);
        }
        let standby = core.local_pools.get(*pool_id).and_then(|local_pool| local_pool.serves.standby());
        if let Some(primary) = standby.and_then(|standby| standby.primary) {
            check(core, primary);
        }
    }
    pools.len()
}

/// The entry of this pool has changed, but for its hosts: which of them get no reads (`topology`).
pub(crate) fn follow_entry(core: &mut Core, primary: PoolId) {
    let now_us = core.now.mono_us;
    let Some(local_pool) = core.local_pools.get(primary) else { return };
    let Some(split) = local_pool.serves.split() else { return };
    let (id, name, entry) =
        (split.cluster, Arc::clone(&local_pool.database_name), Arc::clone(&local_pool.database));
    for place in 0..entry.host.len() {
        let Some(host) = core.local_pools.cluster(id).and_then(|cluster| cluster.host(place)) else { return };
        let is_detached =
            core.administration.is_detached(&name, &host.label) || entry.without_reads.contains(&place);
        if is_detached != host.is_detached()
            && let Some((_, cluster)) = core.local_pools.with_cluster(primary)
        {
            cluster.set_detached(place, is_detached, now_us);
        }
    }
    check(core, primary);
}

/// The process is being taken over: from here on no connection is kept open for its own sake.
pub(crate) fn keep_none(core: &mut Core) {
    for local_pool in core.local_pools.values_mut() {
        if let Serves::Standby(standby) = &mut local_pool.serves {
            standby.is_needed = false;
        }
    }
}

/// Keeps a connection to each host that may be a standby, and knows how far they are.
pub(crate) fn check(core: &mut Core, primary: PoolId) {
    let now_us = core.now.mono_us;
    let Some(local_pool) = core.local_pools.get(primary) else { return };
    let has_clients = core.exporting.is_none() && (local_pool.clients > 0 || local_pool.is_forced());
    let Some(split) = local_pool.serves.split() else { return };
    let Some(cluster) = core.local_pools.cluster(split.cluster) else { return };
    let needed: Vec<(PoolId, bool, CloseReason<'static>)> = split
        .standbys
        .iter()
        .enumerate()
        .map(|(place, standby)| {
            let is_detached = cluster.host(place).is_some_and(Host::is_detached);
            let reason = if is_detached { CloseReason::Detached } else { CloseReason::Promoted };
            (*standby, cluster.may_be_standby(place, now_us), reason)
        })
        .collect();
    let silent: Vec<PoolId> = split
        .standbys
        .iter()
        .enumerate()
        .filter(|(place, _)| cluster.is_silent(*place, now_us))
        .map(|(_, standby)| *standby)
        .collect();
    follow_relations(core, primary);
    for (pool_id, may_be_standby, reason) in needed {
        let Some(local_pool) = core.local_pools.get_mut(pool_id) else { continue };
        let Serves::Standby(standby) = &mut local_pool.serves else { continue };
        standby.is_needed = has_clients && may_be_standby;
        let is_silent = silent.contains(&pool_id);
        let has_servers = local_pool.pool.open() > 0;
        if !may_be_standby && has_servers {
            standbys::close_servers(core, pool_id, reason);
        } else if is_silent {
            routing::move_waiters(core, pool_id);
        }
        opening::serve_or_open(core, pool_id);
    }
    positions::ask_idle(core, primary, 0);
}
