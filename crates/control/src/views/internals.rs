//! SHOW FDS and MEM: file descriptors and memory of the process.
//! Never shows a secret: PgBouncer's columns for them, which its takeover read, are NULL.

use messages::{Cell, Column, DescriptorRow, ListenerRow, MemoryRow};

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
