//! The small views: CONFIG, LISTS, SHARDS, STATE, VERSION.

use messages::{Cell, Column, Drain, ShardRow};

use super::{ViewContext, databases, text, text_or_null, users};
use crate::CONSOLE;

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

macro_rules! list_items {
    ($($item:ident $word:literal,)*) => {
        /// A row of SHOW LISTS.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ListItem { $(#[doc = concat!("`", $word, "`.")] $item,)* }

        impl ListItem {
            /// Each of them, in the order of the rows.
            pub const ALL: &'static [ListItem] = &[$(ListItem::$item,)*];

            fn word(self) -> &'static str {
                match self { $(ListItem::$item => $word,)* }
            }
        }
    };
}

list_items! {
    Databases "databases",
    Users "users",
    Peers "peers",
    Pools "pools",
    PeerPools "peer_pools",
    FreeClients "free_clients",
    UsedClients "used_clients",
    LoginClients "login_clients",
    FreeServers "free_servers",
    UsedServers "used_servers",
    DnsNames "dns_names",
    DnsZones "dns_zones",
    DnsQueries "dns_queries",
    DnsPending "dns_pending",
}

pub(super) fn lists(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let sum = |count: fn(&ShardRow) -> u64| context.aggregate.shards.values().map(count).sum::<u64>();
    let size = |count: usize| count as u64;
    let pools = &context.aggregate.pools;
    let console_pool = (CONSOLE.to_owned(), CONSOLE.to_owned());
    let items = |item| match item {
        ListItem::Databases => size(databases::all(context).len()),
        ListItem::Users => size(users::all(context).len()),
        ListItem::Peers => size(context.config.group_peers().count()),
        ListItem::Pools => size(pools.len()) + u64::from(!pools.contains_key(&console_pool)),
        ListItem::PeerPools => size(context.aggregate.peer_pools.len()),
        ListItem::FreeClients => 0,
        ListItem::UsedClients => sum(|shard| shard.clients + shard.logins),
        ListItem::LoginClients => sum(|shard| shard.logins),
        ListItem::FreeServers => 0,
        ListItem::UsedServers => sum(|shard| shard.servers),
        ListItem::DnsNames => size(context.aggregate.hosts.iter().filter(|host| host.known).count()),
        ListItem::DnsZones => size(context.aggregate.zones.len()),
        ListItem::DnsQueries => context.aggregate.hosts.iter().map(|host| host.underway).sum(),
        ListItem::DnsPending => 0,
    };
    ListItem::ALL.iter().map(|item| vec![item.word().into(), items(*item).into()]).collect()
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
            shard.listener_losses.into(),
        ]
    };
    context.aggregate.shards.values().map(row).collect()
}

pub(super) fn state(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let (paused, suspended) = (context.pause_state.whole(), context.pause_state.suspended());
    let row = |key: &str, holds: bool| vec![key.into(), if holds { "yes" } else { "no" }.into()];
    let draining = context.pause_state.drain() != Drain::Off;
    vec![
        row("active", !paused && !suspended),
        row("paused", paused),
        row("suspended", suspended),
        row("draining", draining),
    ]
}

pub(super) fn version(_: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    vec![vec![crate::VERSION.into()]]
}
