//! SHOW CLIENTS and SHOW SERVERS: one row per connection.

use mail::{Cell, Column, SocketRow};
use telemetry::record::date_time;

use super::{Scene, int, seconds_and_rest, text};

pub(super) const COLUMNS: &[Column] = &[
    text("type"),
    text("user"),
    text("database"),
    text("replication"),
    text("state"),
    text("addr"),
    int("port"),
    text("local_addr"),
    int("local_port"),
    text("connect_time"),
    text("request_time"),
    int("wait"),
    int("wait_us"),
    int("close_needed"),
    text("ptr"),
    text("link"),
    int("remote_pid"),
    text("tls"),
    text("application_name"),
    int("prepared_statements"),
    int("id"),
];

pub(super) fn clients(scene: &Scene<'_>) -> Vec<Vec<Cell>> {
    scene.gathered.sockets.iter().map(|socket| row("C", socket)).collect()
}

pub(super) fn servers(scene: &Scene<'_>) -> Vec<Vec<Cell>> {
    scene.gathered.sockets.iter().map(|socket| row("S", socket)).collect()
}

fn row(kind: &str, socket: &SocketRow) -> Vec<Cell> {
    let or = |name: &str, nothing: &str| Cell::from(if name.is_empty() { nothing } else { name });
    let [wait, wait_us] = seconds_and_rest(socket.wait_us);
    vec![
        kind.into(),
        or(&socket.user, "(nouser)"),
        or(&socket.database, "(nodb)"),
        "none".into(),
        socket.state.into(),
        socket.address.as_str().into(),
        Cell::Number(socket.port.into()),
        socket.local_address.as_str().into(),
        Cell::Number(socket.local_port.into()),
        moment(socket.connect_time_us),
        moment(socket.request_time_us),
        wait,
        wait_us,
        Cell::Number(socket.close_needed.into()),
        pointer(socket.id),
        pointer(socket.link),
        socket.remote_pid.into(),
        "".into(),
        socket.application_name.as_str().into(),
        socket.prepared_statements.into(),
        socket.id.into(),
    ]
}

/// A time as PgBouncer writes it.
fn moment(wall_us: u64) -> Cell {
    format!("{} UTC", date_time(wall_us)).into()
}

/// What log lines call the connection (`C-0x1f`); PgBouncer shows an address here, and nothing for none.
fn pointer(id: u64) -> Cell {
    if id == 0 { "".into() } else { format!("{id:#x}").into() }
}
