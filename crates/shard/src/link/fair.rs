//! Fair queueing (`queue = fair`): whose server time a client's is, where it waits, and what its turns cost.
//!
//! Owns nothing: what subjects have had is in `pool::FairShares`, over all shards. A turn is the time that a client has a server, whatever it does with it.

use std::sync::Arc;

use pool::{FairShare, FairTurn, PoolRegistry, QueuePosition};
use session::parameters::APPLICATION_NAME;
use settings::QueueBy;

use crate::client::{Client, Phase};
use crate::connections::Conn;
use crate::core::Core;
use crate::link::priority;
use crate::local_pools::local_pool::LocalPool;
use crate::local_pools::table::{LocalPools, PoolId};
use crate::server::Server;
use crate::{ConnId, Peer};

/// What is in place of an address for clients of unix sockets, as in `pg_hba.conf`.
const LOCAL: &str = "local";

/// Puts a client that waits for any server into the queue of its pool.
#[inline]
pub(crate) fn join(
    client: &mut Client,
    local_pool: &mut LocalPool,
    registry: &Arc<dyn PoolRegistry>,
    conn: ConnId,
    since_us: u64,
) -> QueuePosition {
    match local_pool.pool.limits.fair {
        None => local_pool.pool.queue.join_as(conn.0, since_us, priority::class_of(client, local_pool)),
        Some(by) => join_share(client, local_pool, registry, by, (conn, since_us)),
    }
}

#[cold]
#[inline(never)]
fn join_share(
    client: &mut Client,
    local_pool: &mut LocalPool,
    registry: &Arc<dyn PoolRegistry>,
    by: QueueBy,
    (conn, since_us): (ConnId, u64),
) -> QueuePosition {
    let class = priority::class_of(client, local_pool);
    let share = share_of(client, local_pool, registry, by);
    let burst_us = local_pool.pool.limits.queue_burst_us;
    let position = local_pool.pool.queue.join_fair(conn.0, since_us, class, (share, burst_us));
    local_pool.pool.tell_waiting(since_us);
    position
}

/// A client gets a server.
#[cold]
#[inline(never)]
pub(crate) fn begin(
    client: &mut Client,
    server: &mut Server,
    local_pool: &mut LocalPool,
    registry: &Arc<dyn PoolRegistry>,
    now_us: u64,
) {
    let Some(by) = local_pool.pool.limits.fair else { return };
    let is_alone = local_pool.pool.nobody_waits();
    let turn = FairShare::begin(share_of(client, local_pool, registry, by), now_us, is_alone);
    if let Some(unended) = server.turn.replace(Box::new(turn)) {
        finish(*unended, local_pool, now_us);
    }
}

/// A server leaves its client.
#[inline(always)]
pub(crate) fn end(server: &mut Server, local_pools: &mut LocalPools, now_us: u64) {
    if server.turn.is_some() {
        end_turn(server, local_pools, now_us);
    }
}

#[cold]
#[inline(never)]
fn end_turn(server: &mut Server, local_pools: &mut LocalPools, now_us: u64) {
    let Some(turn) = server.turn.take() else { return };
    match local_pools.get_mut(server.pool) {
        Some(local_pool) => finish(*turn, local_pool, now_us),
        None => turn.end(now_us),
    }
}

fn finish(turn: FairTurn, local_pool: &mut LocalPool, now_us: u64) {
    let share = Arc::clone(turn.share());
    turn.end(now_us);
    local_pool.pool.queue.corrected(&share);
}

/// The settings of a pool have changed: who waits does so by the new ones.
pub(crate) fn configured(core: &mut Core, pool_id: PoolId) {
    for conn in core.conns.values_mut() {
        if let Conn::Client(client) = conn
            && client.pool == Some(pool_id)
        {
            client.fair_shares.clear();
        }
    }
    let Some(local_pool) = core.local_pools.get_mut(pool_id) else { return };
    for waiter in local_pool.pool.queue.take_fair() {
        let Some(client) = core.conns.client_mut(ConnId(waiter.client)) else { continue };
        let position = join(client, local_pool, &core.pool_registry, ConnId(waiter.client), waiter.since_us);
        match &mut client.phase {
            Phase::Waiting(place) | Phase::AwaitingGreeting(place) => *place = position,
            _ => {}
        }
    }
}

/// The share of the subject that a client belongs to now, in this pool.
fn share_of<'a>(
    client: &'a mut Client,
    local_pool: &LocalPool,
    registry: &Arc<dyn PoolRegistry>,
    by: QueueBy,
) -> &'a Arc<FairShare> {
    let pool = local_pool.pool.shared().fair();
    let name = match by {
        QueueBy::User => Some(&*client.login_user),
        QueueBy::ApplicationName => Some(client.parameters.text(APPLICATION_NAME).unwrap_or_default()),
        QueueBy::ClientAddr => None, // Does not change while it is connected.
    };
    let is_known =
        |share: &Arc<FairShare>| share.by() == by && name.is_none_or(|name| share.subject() == name);
    let known = client.fair_shares.iter().position(|share| share.is_of(pool) && is_known(share));
    let place = known.unwrap_or_else(|| {
        let subject = name.map_or_else(|| address(client.peer), str::to_owned);
        let weight = local_pool.database.queue_weights.of(&subject);
        let share = registry.fair_share(pool, by, &subject, weight);
        client.fair_shares.retain(|other| !other.is_of(pool)); // Of another name that it had.
        client.fair_shares.push(share);
        client.fair_shares.len() - 1
    });
    &client.fair_shares[place]
}

fn address(peer: Peer) -> String {
    match peer {
        Peer::Unix { .. } => LOCAL.to_owned(),
        Peer::Inet { remote, .. } => remote.ip().to_canonical().to_string(),
    }
}
