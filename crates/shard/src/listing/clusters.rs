//! The servers of entries whose reads go to standbys, as rows for SHOW HOSTS and SHOW CLUSTERS.
//!
//! Owns reading what this shard has seen of them. Never decides what an operator is to do about it.

use messages::{ClusterHostRow, ClusterRow, HostLag, HostRole, PoolRow, ServerError};

use crate::connections::Conn;
use crate::core::Core;
use crate::link::standbys::place_of;
use crate::listing::{count_server, is_used, wall};
use crate::local_pools::cluster::{Cluster, Host, HostState};
use crate::local_pools::hosts::NOT_STANDBY;
use crate::local_pools::table::ClusterId;
use crate::server::Server;

pub(crate) fn rows(core: &Core) -> Vec<ClusterRow> {
    let mut rows: Vec<(ClusterId, ClusterRow)> =
        core.local_pools.clusters().map(|(id, cluster)| (id, row(core, cluster))).collect();
    for local_pool in core.local_pools.values() {
        let Some(cluster) = local_pool.serves.cluster() else { continue };
        let Some((_, row)) = rows.iter_mut().find(|(id, _)| *id == cluster) else { continue };
        row.system = local_pool.pool.database().cluster.known().map_or(row.system, |(system, _)| system);
        let host = local_pool.serves.standby().and_then(|standby| row.hosts.get_mut(standby.place));
        if let (Some(host), Some(error)) = (host, local_pool.server_error.as_deref()) {
            add_error(host, error);
        }
    }
    for conn in core.conns.values() {
        if let Conn::Server(server) = conn {
            count(core, server, &mut rows);
        }
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

fn row(core: &Core, cluster: &Cluster) -> ClusterRow {
    let host = |(place, host): (usize, &Host)| host_row(core, cluster, place, host);
    ClusterRow {
        database: cluster.database.to_string(),
        system: 0,
        timeline: cluster.timeline(),
        hosts: cluster.hosts().iter().enumerate().map(host).collect(),
    }
}

fn host_row(core: &Core, cluster: &Cluster, place: usize, host: &Host) -> ClusterHostRow {
    let known = |mono_us: u64| if host.seen_us() == 0 { 0 } else { wall(core, mono_us) };
    let is_primary = cluster.is_primary(place);
    let role = match host.state() {
        HostState::Unknown => HostRole::Unknown,
        HostState::Primary => HostRole::Primary,
        HostState::Standby => HostRole::Standby,
        HostState::Down(_) => HostRole::Down,
    };
    let error = match host.state() {
        HostState::Down(message) => Some(ServerError {
            message: message.clone(),
            since_us: known(host.since_us()),
            last_us: known(host.seen_us()),
        }),
        _ => None,
    };
    ClusterHostRow {
        label: host.label.to_string(),
        role,
        detached_us: host.detached_us().map(|since_us| wall(core, since_us)),
        since_us: known(host.since_us()),
        seen_us: known(host.seen_us()),
        timeline: if is_primary { cluster.timeline() } else { host.follows() },
        lsn: if is_primary { cluster.sampled_lsn() } else { host.replayed_lsn() },
        lag: cluster
            .lag(place, core.now.mono_us)
            .map(|lag| HostLag { bytes: lag.bytes, time_us: lag.time_us }),
        reads: host.reads,
        error,
        ..ClusterHostRow::default()
    }
}

/// Notes a failed login for reads. A primary is refused as a standby each time that it is looked at again: that is none.
fn add_error(host: &mut ClusterHostRow, error: &ServerError) {
    if error.message == NOT_STANDBY {
        return;
    }
    host.error = Some(match host.error.take() {
        Some(known) => known.merged(error.clone()),
        None => error.clone(),
    });
}

/// Counts a connection at its host.
fn count(core: &Core, server: &Server, rows: &mut [(ClusterId, ClusterRow)]) {
    let cluster = core.local_pools.get(server.pool).and_then(|local_pool| local_pool.serves.cluster());
    let Some(cluster) = cluster else { return };
    let row = rows.iter_mut().find(|(id, _)| *id == cluster);
    let host = row.zip(place_of(core, server)).and_then(|((_, row), place)| row.hosts.get_mut(place));
    let Some(host) = host else { return };
    let mut counts = PoolRow::default();
    count_server(&mut counts, server, is_used(core, server));
    host.server_active += counts.server_active + counts.server_tested + counts.server_being_cancelled;
    host.server_idle += counts.server_idle + counts.server_used;
    host.server_login += counts.server_login;
}
