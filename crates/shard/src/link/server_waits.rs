//! What servers wait for while they run clients' queries (`track_lock_waits`): samples of pg_stat_activity, counted for whom each backend works at that moment.
//!
//! Owns which server connection a sampled backend is, and how much of the time between two samples counts. Off the path of all queries.

use std::net::IpAddr;

use messages::ServerWaitSample;
use telemetry::ServerWait;

use crate::connections::Conn;
use crate::core::Core;
use crate::server::{Phase, Server};
use crate::{ConnId, Target};

/// Backends of a server were found waiting.
#[cold]
#[inline(never)]
pub(crate) fn sampled(core: &mut Core, sample: &ServerWaitSample) {
    let now_us = core.now.mono_us;
    let found: Vec<_> = core
        .conns
        .iter()
        .filter_map(|(conn, what)| match what {
            Conn::Server(server) => {
                let (client, wait) = waits(server, sample)?;
                // It has not waited longer for this query than the query has been running.
                Some((conn, client, wait, sample.us.min(now_us.saturating_sub(server.query_us))))
            }
            _ => None,
        })
        .collect();
    for (server, client, wait, us) in found {
        add(core, server, client, wait, us);
    }
}

/// The client whose request a sampled backend runs, and what it waits for.
fn waits(server: &Server, sample: &ServerWaitSample) -> Option<(ConnId, ServerWait)> {
    let Phase::Linked(client) = server.phase else { return None };
    let pid = server.key.as_ref()?.0;
    let at = sample.backends.binary_search_by_key(&pid, |(pid, _)| *pid).ok()?;
    let (_, wait) = sample.backends.get(at)?;
    (server.protocol.is_busy() && is_there(server, sample)).then_some((client, *wait))
}

fn is_there(server: &Server, sample: &ServerWaitSample) -> bool {
    let is_place = match &server.target {
        Target::Inet { host, port } | Target::Near { host, port, .. } => {
            **host == *sample.host && *port == sample.port
        }
        Target::Unix { path } => **path == *sample.host && sample.port == 0,
    };
    let addresses = server.remote.map(|remote| remote.ip()).zip(sample.address);
    is_place && addresses.is_none_or(|(one, other)| may_be_same(one, other))
}

/// A name may have addresses of several servers. One server may have two of different kinds.
fn may_be_same(one: IpAddr, other: IpAddr) -> bool {
    one == other || one.is_ipv4() != other.is_ipv4() || one.is_loopback() && other.is_loopback()
}

/// For its pool, and for the client and its request while queries are tracked.
fn add(core: &mut Core, server: ConnId, client: ConnId, wait: ServerWait, us: u64) {
    let is_tracking = core.statistics.tracking.is_some();
    let Some((client, server)) = core.conns.linked(client, server) else { return };
    if let Some(local_pool) = core.local_pools.get_mut(server.pool) {
        local_pool.histograms.get_or_insert_default().server_waits.add(wait, us);
    }
    if is_tracking {
        client.query_tracker.get_or_insert_default().server_waited(wait, us);
    }
}
