//! SHOW PINS: one row per client that keeps its server because of what its session holds. PIN_TOTALS: one row per pool.

use messages::{Cell, PoolRow, SocketRow};

use super::ViewContext;
use super::sockets::timestamp;

/// Clients that are pinned.
pub(super) fn clients(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let pinned = context.aggregate.sockets.iter().filter(|socket| socket.pinned_since_us > 0);
    pinned.map(row).collect()
}

fn row(socket: &SocketRow) -> Vec<Cell> {
    vec![
        socket.database.as_str().into(),
        socket.user.as_str().into(),
        socket.id.into(),
        socket.address.as_str().into(),
        Cell::Number(socket.port.into()),
        socket.application_name.as_str().into(),
        socket.state.into(),
        socket.pins.as_str().into(),
        timestamp(socket.pinned_since_us),
        (socket.pinned_us / 1_000_000).into(),
        socket.server_pid.into(),
        Cell::from(u64::from(socket.shard)),
    ]
}

/// Pools whose sessions are followed, or were when a client was pinned.
pub(super) fn totals(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let row = |((database, user), pool): (&(String, String), &PoolRow)| total(context, database, user, pool);
    context.aggregate.pools.iter().filter_map(row).collect()
}

/// None if no client of the pool can be pinned, nor was.
fn total(context: &ViewContext<'_>, database: &str, user: &str, pool: &PoolRow) -> Option<Vec<Cell>> {
    let config = context.config;
    let entry = config.database(database)?;
    let settings = config.user(user).map(|user| &**user);
    if !config.follows_sessions(&entry, settings) && pool.pins.begun == 0 {
        return None;
    }
    let reasons: Vec<String> =
        pool.pinned_by_reason.iter().map(|(reason, clients)| format!("{reason}={clients}")).collect();
    Some(vec![
        database.into(),
        user.into(),
        u64::from(config.max_pinned(&entry, settings)).into(),
        config.max_pinned_action(&entry, settings).word().into(),
        pool.pinned.into(),
        pool.waiting_for_pin.into(),
        reasons.join(",").into(),
        Cell::Sum(pool.pins.begun),
        Cell::Sum(pool.pinned_us),
        Cell::Sum(pool.pins.waited),
        Cell::Sum(pool.pins.refused),
    ])
}
