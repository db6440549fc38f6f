//! SHOW USERS: those of `auth_file`, of `[users]`, those of databases, and connected ones.

use std::collections::BTreeSet;

use messages::{Cell, Column};
use settings::PoolMode;

use super::{ViewContext, int, text, text_or_null};
use crate::CONSOLE;

pub(super) const COLUMNS: &[Column] = &[
    text("name"),
    text("pool_size"),
    text("reserve_pool_size"),
    text("pool_mode"),
    int("max_user_connections"),
    int("current_connections"),
    int("max_user_client_connections"),
    int("current_client_connections"),
];

pub(super) fn rows(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    all(context).into_iter().map(|name| row(context, name)).collect()
}

/// Every user that there is, by name.
pub(super) fn all<'a>(context: &ViewContext<'a>) -> BTreeSet<&'a str> {
    let config = context.config;
    let known = config.secrets.keys().chain(config.users.keys()).chain(context.aggregate.users.keys());
    let entries = config.databases.values().chain(&config.fallback);
    let named = entries.flat_map(|entry| [&entry.user, &entry.auth_user]).chain([&config.global.auth_user]);
    known.chain(named.flatten()).map(String::as_str).chain([CONSOLE]).collect()
}

fn row(context: &ViewContext<'_>, name: &str) -> Vec<Cell> {
    let user = context.config.user(name).map(|user| &**user);
    let used = context.aggregate.users.get(name);
    // PgBouncer shows these as text, and what follows the database as an empty one.
    let own_size = |size: Option<u32>| Cell::Text(size.map(|size| size.to_string()).unwrap_or_default());
    vec![
        name.into(),
        Cell::Text(user.and_then(|user| user.pool_size).map(|size| size.to_string()).unwrap_or_default()),
        own_size(user.and_then(|user| user.reserve_pool_size)),
        text_or_null(user.and_then(|user| user.pool_mode).map(PoolMode::word)),
        context.config.max_user_connections(user).into(),
        used.map_or(0, |used| used.servers).into(),
        context.config.max_user_client_connections(user).into(),
        used.map_or(0, |used| used.clients).into(),
    ]
}
