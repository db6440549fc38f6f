//! SHOW FDS, MEM, DNS_HOSTS and DNS_ZONES: file descriptors and memory of the process, the names that it has looked up, and
//! the zones whose serial numbers it watches.
//! Never shows a secret: PgBouncer's columns for them, which its takeover read, are NULL.

use messages::{Cell, Column, DescriptorRow, HostRow, ListenerRow, MemoryRow, ZoneRow};

use super::{ViewContext, int, text, text_or_null};

pub(super) const FDS: &[Column] = &[
    int("fd"),
    text("task"),
    text("user"),
    text("database"),
    text("addr"),
    int("port"),
    int("cancel"),
    int("link"),
    text("client_encoding"),
    text("std_strings"),
    text("datestyle"),
    text("timezone"),
    text("password"),
    text("scram_client_key"),
    text("scram_server_key"),
];

pub(super) const MEM: &[Column] = &[text("name"), int("size"), int("used"), int("free"), int("memtotal")];

pub(super) const HOSTS: &[Column] = &[text("hostname"), int("ttl"), text("addrs")];
pub(super) const ZONES: &[Column] = &[text("zonename"), int("serial"), int("count")];

pub(super) fn descriptors(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let listening = context.aggregate.listeners.iter().map(listener);
    listening.chain(context.aggregate.descriptors.iter().map(connection)).collect()
}

fn listener(row: &ListenerRow) -> Vec<Cell> {
    let nothing = || Cell::Null;
    let mut cells = vec![Cell::Number(row.descriptor.into()), "pooler".into(), nothing(), nothing()];
    cells.extend([row.address.as_str().into(), Cell::Number(row.port.into())]);
    cells.extend([Cell::Number(0), Cell::Number(0)]);
    cells.extend((0..7).map(|_| nothing()));
    cells
}

fn connection(row: &DescriptorRow) -> Vec<Cell> {
    let mut cells = vec![
        Cell::Number(row.descriptor.into()),
        if row.is_server { "server" } else { "client" }.into(),
        row.user.as_str().into(),
        row.database.as_str().into(),
        row.address.as_str().into(),
        Cell::Number(row.port.into()),
        Cell::Number(row.cancel.cast_signed()),
        Cell::Number(row.link.into()),
    ];
    cells.extend(row.parameters.iter().map(|value| text_or_null(value.as_deref())));
    cells.extend((0..3).map(|_| Cell::Null));
    cells
}

pub(super) fn memory(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    context.aggregate.memory.values().map(kind).collect()
}

fn kind(row: &MemoryRow) -> Vec<Cell> {
    let total = row.size * (row.used + row.free);
    vec![row.name.into(), row.size.into(), row.used.into(), row.free.into(), total.into()]
}

pub(super) fn hosts(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let row = |host: &HostRow| {
        // PgBouncer writes socket addresses, whose port is none.
        let addresses = host.addresses.iter().map(|address| std::net::SocketAddr::new(*address, 0));
        let texts: Vec<String> = addresses.map(|address| address.to_string()).collect();
        vec![host.name.as_str().into(), host.ttl_s.into(), texts.join(",").into()]
    };
    context.aggregate.hosts.iter().filter(|host| host.known).map(row).collect()
}

pub(super) fn zones(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let row =
        |zone: &ZoneRow| vec![zone.name.as_str().into(), Cell::from(zone.serial), Cell::from(zone.hosts)];
    context.aggregate.zones.iter().map(row).collect()
}
