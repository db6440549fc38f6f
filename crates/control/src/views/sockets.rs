//! SHOW CLIENTS, SERVERS, SOCKETS and ACTIVE_SOCKETS: one row per connection. SHARD_CLIENTS and SHARD_SERVERS are Weir's own.

use messages::{Cell, Column, SocketRow};
use telemetry::record::date_time;

use super::columns::{SocketColumn, ViewColumn as _};
use super::{ViewContext, int, seconds_and_rest, text};

/// Columns of CLIENTS and SERVERS: those of SHARD_CLIENTS without the shard, and the reason and beginning of a pin.
pub(super) const COLUMNS: [Column; 21] = {
    let mut columns = [text(""); 21];
    columns.copy_from_slice(SocketColumn::COLUMNS.split_at(21).0);
    columns
};

/// What SOCKETS and ACTIVE_SOCKETS show beside these: how PgBouncer's buffer of the connection is filled.
const BUFFER: [Column; 7] = [
    int("recv_pos"),
    int("pkt_pos"),
    int("pkt_remain"),
    int("send_pos"),
    int("send_remain"),
    int("pkt_avail"),
    int("send_avail"),
];

/// Columns of SOCKETS and ACTIVE_SOCKETS.
pub(super) const WITH_BUFFER: [Column; COLUMNS.len() + BUFFER.len()] = followed_by(&BUFFER);

const fn followed_by<const ALL: usize>(more: &[Column]) -> [Column; ALL] {
    let mut columns = [text(""); ALL];
    let (editable_entry, further) = columns.split_at_mut(COLUMNS.len());
    editable_entry.copy_from_slice(&COLUMNS);
    further.copy_from_slice(more);
    columns
}

/// Clients, or servers: whichever was listed.
pub(super) fn plain(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    context.aggregate.sockets.iter().map(row).collect()
}

/// Clients, or servers, with their shard and what pins them.
pub(super) fn with_location(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let with_location = |socket: &SocketRow| {
        let mut cells = row(socket);
        let since = match socket.pinned_since_us {
            0 => Cell::Null,
            since_us => timestamp(since_us),
        };
        cells.extend([Cell::from(u64::from(socket.shard)), Cell::from(socket.pinned), since]);
        cells
    };
    context.aggregate.sockets.iter().map(with_location).collect()
}

/// Every connection.
pub(super) fn all(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    context.aggregate.sockets.iter().map(row_with_buffer).collect()
}

/// Those in use: clients that do not wait, servers that are assigned.
pub(super) fn active(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let is_active =
        |socket: &&SocketRow| socket.state == "active" || !socket.is_server && socket.state == "idle";
    context.aggregate.sockets.iter().filter(is_active).map(row_with_buffer).collect()
}

fn row_with_buffer(socket: &SocketRow) -> Vec<Cell> {
    let mut cells = row(socket);
    // Weir has no buffer per connection: pending bytes are shown as the buffer's content.
    let (held, remaining) = (socket.held_bytes, socket.remaining_bytes);
    cells.extend([held, 0, remaining, 0, remaining, held, 0].map(Cell::from));
    cells
}

fn row(socket: &SocketRow) -> Vec<Cell> {
    let or = |name: &str, nothing: &str| Cell::from(if name.is_empty() { nothing } else { name });
    let [wait, wait_us] = seconds_and_rest(socket.wait_us);
    vec![
        if socket.is_server { "S" } else { "C" }.into(),
        or(&socket.user, "(nouser)"),
        or(&socket.database, "(nodb)"),
        or(socket.replication, "none"),
        socket.state.into(),
        socket.address.as_str().into(),
        Cell::Number(socket.port.into()),
        socket.local_address.as_str().into(),
        Cell::Number(socket.local_port.into()),
        timestamp(socket.connect_time_us),
        timestamp(socket.request_time_us),
        wait,
        wait_us,
        Cell::Number(socket.close_needed.into()),
        pointer(socket.id),
        pointer(socket.link),
        socket.remote_pid.into(),
        socket.tls.as_str().into(),
        socket.application_name.as_str().into(),
        socket.prepared_statements.into(),
        socket.id.into(),
    ]
}

/// A time as PgBouncer writes it.
pub(super) fn timestamp(wall_us: u64) -> Cell {
    format!("{} UTC", date_time(wall_us)).into()
}

/// The connection's id in log lines (`C-0x1f`); PgBouncer shows an address here, and nothing for none.
fn pointer(id: u64) -> Cell {
    if id == 0 { "".into() } else { format!("{id:#x}").into() }
}
