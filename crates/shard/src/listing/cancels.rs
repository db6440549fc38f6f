//! Cancel requests as rows of SHOW CLIENTS, and the connections that carry them as rows of SHOW SERVERS.
//!
//! Never decides anything about them.

use messages::SocketRow;

use crate::connections::Conn;
use crate::connections::kinds::{CancelConn, CancelRequester};
use crate::core::Core;
use crate::listing;

/// The canceling client, until the cancel ends; the address of one on another shard is not known here.
pub(crate) fn requester_row(core: &Core, cancel_conn: &CancelConn) -> Option<SocketRow> {
    let local_pool = core.local_pools.get(cancel_conn.local_pool)?;
    let row = match cancel_conn.requester {
        CancelRequester::Local(conn, id) => match core.conns.get(conn)? {
            Conn::Client(client) if client.id == id => listing::client_row(core, client),
            _ => return None,
        },
        CancelRequester::Remote(_, _, id) => SocketRow {
            id,
            connect_time_us: listing::wall(core, cancel_conn.since_us),
            request_time_us: listing::wall(core, cancel_conn.since_us),
            ..SocketRow::default()
        },
        CancelRequester::Operator => return None,
    };
    Some(SocketRow {
        user: local_pool.user.to_string(),
        database: local_pool.database_name.to_string(),
        state: if cancel_conn.has_turn() { "active_cancel_req" } else { "waiting_cancel_req" },
        link: if cancel_conn.has_turn() { cancel_conn.id } else { 0 },
        ..row
    })
}

/// A connection that carries a cancel request to a server.
pub(crate) fn cancel_conn_row(core: &Core, cancel_conn: &CancelConn) -> Option<SocketRow> {
    let local_pool = core.local_pools.get(cancel_conn.local_pool).filter(|_| cancel_conn.has_turn())?;
    let (conn, id) = cancel_conn.server;
    let remote = match core.conns.get(conn) {
        Some(Conn::Server(server)) if server.id == id => server.remote,
        _ => None,
    };
    let (address, port) = crate::log_format::address(remote);
    let link = match cancel_conn.requester {
        CancelRequester::Local(_, id) | CancelRequester::Remote(_, _, id) => id,
        CancelRequester::Operator => 0,
    };
    Some(SocketRow {
        id: cancel_conn.id,
        shard: core.id.0,
        is_server: true,
        user: local_pool.user.to_string(),
        database: local_pool.database_name.to_string(),
        state: "active_cancel",
        address,
        port: if remote.is_none() { local_pool.database.port.first() } else { port },
        connect_time_us: listing::wall(core, cancel_conn.since_us),
        request_time_us: listing::wall(core, cancel_conn.since_us),
        link,
        ..SocketRow::default()
    })
}
