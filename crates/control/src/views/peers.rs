//! SHOW PEERS and PEER_POOLS: the processes that cancel requests are forwarded to, and how many are on their way.

use messages::{Cell, Column};

use super::{ViewContext, int, text, text_or_null};

pub(super) const PEERS: &[Column] = &[int("peer_id"), text("host"), int("port"), int("pool_size")];

pub(super) const POOLS: &[Column] = &[
    int("peer_id"),
    int("cl_active_cancel_req"),
    int("cl_waiting_cancel_req"),
    int("sv_active_cancel"),
    int("sv_login"),
];

pub(super) fn peers(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let row = |(id, peer): (u32, &settings::Peer)| {
        vec![
            id.into(),
            text_or_null(peer.host.as_deref()),
            Cell::Number(peer.port.into()),
            context.config.peer_pool_size(peer).into(),
        ]
    };
    context.config.group_peers().map(row).collect()
}

pub(super) fn pools(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let row = |pool: &messages::PeerPoolRow| {
        vec![
            pool.peer_id.into(),
            pool.client_active_cancel.into(),
            pool.client_waiting_cancel.into(),
            pool.server_active_cancel.into(),
            pool.server_login.into(),
        ]
    };
    context.aggregate.peer_pools.values().map(row).collect()
}
