//! The small views: CONFIG, HELP, LISTS, SHARDS, STATE, VERSION.

use messages::{Cell, Column, ShardRow};

use super::{ViewContext, databases, int, text, text_or_null, users};
use crate::{COMMANDS, CONSOLE, VIEWS};

pub(super) const CONFIG: &[Column] = &[text("key"), text("value"), text("default"), text("changeable")];
pub(super) const LISTS: &[Column] = &[text("list"), int("items")];
pub(super) const SHARDS: &[Column] = &[
    int("shard"),
    int("clients"),
    int("logins"),
    int("servers"),
    int("pools"),
    int("busy_percent"),
    int("transactions"),
];
pub(super) const STATE: &[Column] = &[text("key"), text("value")];
pub(super) const VERSION: &[Column] = &[text("version")];

pub(super) fn config(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let cells = |row: settings::ShowRow| {
        // `auto` is shown as the driver in use.
        let value = if row.key == "io_driver" { Some(context.facts.io_driver.to_owned()) } else { row.value };
        vec![
            row.key.into(),
            text_or_null(value),
            text_or_null(row.default),
            if row.changeable { "yes" } else { "no" }.into(),
        ]
    };
    settings::show(context.config).into_iter().map(cells).collect()
}

pub(super) fn lists(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let sum = |count: fn(&ShardRow) -> u64| context.aggregate.shards.values().map(count).sum::<u64>();
    let size = |count: usize| count as u64;
    let pools = &context.aggregate.pools;
    let console_pool = (CONSOLE.to_owned(), CONSOLE.to_owned());
    let lists = [
        ("databases", size(databases::all(context).len())),
        ("users", size(users::all(context).len())),
        ("peers", size(context.config.peers.len())),
        ("pools", size(pools.len()) + u64::from(!pools.contains_key(&console_pool))),
        ("peer_pools", size(context.aggregate.peer_pools.len())),
        ("free_clients", 0),
        ("used_clients", sum(|shard| shard.clients + shard.logins)),
        ("login_clients", sum(|shard| shard.logins)),
        ("free_servers", 0),
        ("used_servers", sum(|shard| shard.servers)),
        ("dns_names", size(context.aggregate.hosts.iter().filter(|host| host.known).count())),
        ("dns_zones", size(context.aggregate.zones.len())),
        ("dns_queries", context.aggregate.hosts.iter().map(|host| host.underway).sum()),
        ("dns_pending", 0),
    ];
    lists.into_iter().map(|(name, items)| vec![name.into(), items.into()]).collect()
}

pub(super) fn shards(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let row = |shard: &ShardRow| {
        vec![
            Cell::Number(shard.shard.into()),
            shard.clients.into(),
            shard.logins.into(),
            shard.servers.into(),
            shard.pools.into(),
            shard.busy_percent.into(),
            shard.transactions.into(),
        ]
    };
    context.aggregate.shards.values().map(row).collect()
}

pub(super) fn state(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let (paused, suspended) = (context.pause_state.whole(), context.pause_state.suspended());
    let row = |key: &str, holds: bool| vec![key.into(), if holds { "yes" } else { "no" }.into()];
    vec![row("active", !paused && !suspended), row("paused", paused), row("suspended", suspended)]
}

pub(super) fn version(_: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    vec![vec![crate::VERSION.into()]]
}

/// What can be typed, from the two tables.
pub(super) fn help() -> String {
    let mut text = String::from("\n\tSHOW ");
    let views: Vec<&str> = VIEWS.iter().map(|view| view.name).collect();
    text.push_str(&views.join("|"));
    text.push_str("\n\tSET key = arg");
    for command in COMMANDS {
        if let Some(help) = command.help {
            text.push_str("\n\t");
            text.push_str(command.word);
            text.push_str(help);
        }
    }
    text
}
