//! SHOW DATABASES: what is configured, what came from `*`, and the console itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use messages::Cell;
use settings::{Database, Origin, PoolMode, PoolSize};

use super::{ViewContext, load_balance_hosts, text_or_null};
use crate::CONSOLE;

pub(super) fn rows(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    all(context).values().map(|database| row(context, database)).collect()
}

/// Every database that there is, by name.
pub(super) fn all(context: &ViewContext<'_>) -> BTreeMap<String, Arc<Database>> {
    let mut all = context.config.databases.clone();
    // A database paused or disabled by name is listed although it is unused: the operator will look for it.
    let named = context.aggregate.databases.keys().chain(context.pause_state.all_named());
    for name in named.filter(|name| *name != CONSOLE) {
        if let Some(database) = context.config.database(name) {
            all.entry(name.clone()).or_insert(database);
        }
    }
    all.insert(CONSOLE.to_owned(), Arc::new(console(context)));
    all
}

/// The console as if it had an entry; PgBouncer shows it so.
fn console(context: &ViewContext<'_>) -> Database {
    let nowhere = Origin { file: "".into(), line: 0 };
    Database {
        port: settings::Ports::one(context.config.global.listen_port),
        user: Some(CONSOLE.to_owned()),
        pool_size: Some(PoolSize::Fixed(2)),
        pool_mode: Some(PoolMode::Statement),
        ..Database::new(CONSOLE, nowhere)
    }
}

fn row(context: &ViewContext<'_>, database: &Database) -> Vec<Cell> {
    let config = context.config;
    let used = context.aggregate.databases.get(&database.name);
    vec![
        database.name.as_str().into(),
        text_or_null((!database.host.is_empty()).then(|| database.host.join(","))),
        Cell::Number(database.port.first().into()),
        database.dbname.as_str().into(),
        text_or_null(database.user.as_deref()),
        config.pool_size(database, None).largest().into(),
        config.min_pool_size(database).into(),
        config.reserve_pool_size(database, None).into(),
        config.server_lifetime(database).as_secs().into(),
        text_or_null(database.pool_mode.map(PoolMode::word)),
        load_balance_hosts(database),
        config.max_db_connections(database).into(),
        used.map_or(0, |used| used.servers).into(),
        config.max_db_client_connections(database).into(),
        used.map_or(0, |used| used.clients).into(),
        Cell::Number(context.pause_state.holds(&database.name).into()),
        Cell::Number(context.pause_state.disables(&database.name).into()),
    ]
}
