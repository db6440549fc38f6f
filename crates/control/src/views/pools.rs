//! SHOW POOLS: one row per database and user, over all shards. SERVER_ERRORS, Weir's own, has those whose server logins fail.

use messages::{Cell, PoolRow};
use settings::PoolMode;

use telemetry::record::date_time;

use super::{ViewContext, load_balance_hosts, seconds_and_rest, text_or_null};
use crate::CONSOLE;

/// Pools without a successful server login since the error.
pub(super) fn server_errors(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let timestamp = |us| Cell::from(format!("{} UTC", date_time(us)));
    let row = |((database, user), pool): (&(String, String), &PoolRow)| {
        let error = pool.server_error.as_ref()?;
        let (since, last) = (timestamp(error.since_us), timestamp(error.last_us));
        Some(vec![database.as_str().into(), user.as_str().into(), since, last, error.message.as_str().into()])
    };
    context.aggregate.pools.iter().filter_map(row).collect()
}

pub(super) fn rows(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let mut pools: std::collections::BTreeMap<_, _> = context.aggregate.pools.iter().collect();
    let console = (CONSOLE.to_owned(), CONSOLE.to_owned());
    let nobody = PoolRow::default();
    pools.entry(&console).or_insert(&nobody);
    pools.into_iter().map(|((database, user), pool)| row(context, database, user, pool)).collect()
}

fn row(context: &ViewContext<'_>, database: &str, user: &str, pool: &PoolRow) -> Vec<Cell> {
    let entry = context.config.database(database);
    let configured = || {
        entry
            .as_ref()
            .map(|entry| context.config.pool_mode(entry, context.config.user(user).map(|user| &**user)))
    };
    let mode = if database == CONSOLE { Some(PoolMode::Statement) } else { pool.mode.or_else(configured) };
    let [wait, wait_us] = seconds_and_rest(pool.max_wait_us);
    vec![
        database.into(),
        user.into(),
        pool.client_active.into(),
        pool.client_waiting.into(),
        pool.client_active_cancel.into(),
        pool.client_waiting_cancel.into(),
        pool.server_active.into(),
        pool.server_active_cancel.into(),
        pool.server_being_cancelled.into(),
        pool.server_idle.into(),
        pool.server_used.into(),
        pool.server_tested.into(),
        pool.server_login.into(),
        wait,
        wait_us,
        text_or_null(mode.map(PoolMode::word)),
        entry.as_deref().map_or(Cell::Null, load_balance_hosts),
    ]
}
