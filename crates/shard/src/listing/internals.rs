//! File descriptors and memory as rows, for SHOW FDS and SHOW MEM.
//!
//! Owns reading this shard's tables for them. The driver fills in the file descriptors.

use std::mem::size_of;

use messages::{DescriptorRow, MemoryRow};
use session::parameters::SHOWN_BY_DESCRIPTOR;

use crate::client::Client;
use crate::connections::Conn;
use crate::core::{CONSOLE, Core};
use crate::local_pools::local_pool::LocalPool;
use crate::server::Server;
use crate::{ConnId, Peer};

pub(crate) fn descriptor_rows(core: &Core) -> Vec<DescriptorRow> {
    let row = |(id, conn): (ConnId, &Conn)| {
        let row = match conn {
            Conn::Client(client) if client.is_settled() => client_descriptor(core, client),
            Conn::Server(server) => server_descriptor(core, server)?,
            _ => return None,
        };
        Some(DescriptorRow { conn: id.0, ..row })
    };
    core.conns.iter().filter_map(row).collect()
}

fn client_descriptor(core: &Core, client: &Client) -> DescriptorRow {
    let local_pool = core.local_pools.of(client.pool);
    let (address, port) = match client.peer {
        Peer::Inet { remote, .. } => (remote.ip().to_string(), remote.port()),
        Peer::Unix { port, .. } => ("unix".to_owned(), port),
    };
    DescriptorRow {
        link_conn: client.server().map(|ConnId(server)| server),
        user: client.login_user.to_string(),
        database: local_pool
            .map_or_else(|| CONSOLE.to_owned(), |local_pool| local_pool.database_name.to_string()),
        address,
        port,
        cancel: u64::from_be_bytes(client.cancel_key.short()),
        parameters: shown(&client.parameters),
        ..DescriptorRow::default()
    }
}

fn server_descriptor(core: &Core, server: &Server) -> Option<DescriptorRow> {
    let local_pool = core.local_pools.get(server.pool)?;
    let (address, port) = crate::log_format::address(server.remote);
    let key = server.key.as_ref().and_then(|(process_id, secret)| {
        let secret = <[u8; 4]>::try_from(&secret[..]).ok()?;
        Some(u64::from(*process_id) << 32 | u64::from(u32::from_be_bytes(secret)))
    });
    Some(DescriptorRow {
        is_server: true,
        link_conn: server.client().map(|ConnId(client)| client),
        user: local_pool.user.to_string(),
        database: local_pool.database_name.to_string(),
        address,
        port: if server.remote.is_none() { local_pool.database.port.first() } else { port },
        cancel: key.unwrap_or(0),
        parameters: shown(&server.protocol.parameters),
        ..DescriptorRow::default()
    })
}

pub(crate) fn memory_rows(core: &Core) -> Vec<MemoryRow> {
    let (mut clients, mut servers) = (0, 0);
    for conn in core.conns.values() {
        match conn {
            Conn::Client(_) => clients += 1,
            Conn::Server(_) => servers += 1,
            Conn::Cancel(_) | Conn::PeerCancel(_) | Conn::InternalClient(_) | Conn::Reserved => {}
        }
    }
    let row = |name, size: usize, used: usize, free: usize| MemoryRow {
        name,
        size: size as u64,
        used: used as u64,
        free: free as u64,
    };
    vec![
        row("client_cache", size_of::<Client>(), clients, 0),
        row("server_cache", size_of::<Server>(), servers, 0),
        row("pool_cache", size_of::<LocalPool>(), core.local_pools.len(), core.local_pools.free()),
        row("conn_cache", size_of::<Conn>(), core.conns.len(), core.conns.free()),
    ]
}

fn shown(parameters: &session::Parameters) -> [Option<String>; 4] {
    SHOWN_BY_DESCRIPTOR.map(|position| parameters.text(position).map(str::to_owned))
}
