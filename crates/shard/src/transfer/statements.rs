//! Prepared statements in a takeover: a client's names, and what a server has.
//!
//! Owns their fields. A statement keeps its number, because that is its name on the servers, the settings under which it was parsed, and
//! what its clients may read by. An older process does not say the settings: its statements serve those that have them, and no one else.
//! What a server has under a name that is not trusted to be the statement has a field of its own, so that an older process does not take
//! it for one.

use std::collections::BTreeMap;

use session::{
    Catalog, ClientStatements, Description, ImportedStatement, Parameters, ReadBy, ServerProtocol,
    ServerStatements, SqlStatements, StatementId,
};

use crate::core::Core;
use crate::takeover::field;
use crate::takeover::fields::{Fields, FieldsOut, pair, paired};

/// As a process has written them.
type Known = BTreeMap<StatementId, ImportedStatement>;

pub(crate) fn put_client_statements(core: &Core, out: &mut FieldsOut, names: &ClientStatements) {
    out.number(field::DESCRIBES, names.describes().into());
    for (name, id) in names.names() {
        if let Some(rest) = core.registry.rest(id) {
            out.bytes(field::STATEMENT, &paired(name, &[&id.to_be_bytes(), &rest[..]].concat()));
            put_scope(core, out, id);
        }
    }
}

pub(crate) fn put_server_statements(core: &Core, out: &mut FieldsOut, statements: &ServerStatements) {
    for id in statements.by_age() {
        if statements.is_stale(id) {
            out.number(field::STALE_STATEMENT, id);
            continue;
        }
        let rest = core.registry.rest(id).map(|rest| &**rest).unwrap_or_default();
        out.bytes(field::STATEMENT, &paired(id.to_string().as_bytes(), rest));
        put_scope(core, out, id);
    }
}

/// What SQL has prepared.
pub(crate) fn put_sql_statements(core: &Core, out: &mut FieldsOut, parameters: &Parameters) {
    for (number, name, text) in parameters.prepared().export(&ReadBy::of(parameters, &core.tracked)) {
        let rest = [name.as_bytes(), b"\0", text.unwrap_or_default().as_bytes()].concat();
        out.bytes(field::SQL_STATEMENT, &[&number.to_be_bytes(), &rest[..]].concat());
    }
}

/// What SQL has prepared, of a session with these parameters.
pub(crate) fn read_sql_statements(core: &Core, fields: &Fields<'_>, parameters: &mut Parameters) {
    let read = |bytes: &[u8]| {
        let (number, rest) = bytes.split_first_chunk()?;
        let (name, text) = std::str::from_utf8(rest).ok()?.split_once('\0')?;
        let text = (!text.is_empty()).then(|| text.to_owned());
        Some((u64::from_be_bytes(*number), name.to_owned(), text))
    };
    let statements = fields.all(field::SQL_STATEMENT).filter_map(read);
    parameters.set_prepared(SqlStatements::import(statements, &ReadBy::of(parameters, &core.tracked)));
}

/// The names of those that SQL may have prepared since the session was asked for.
pub(crate) fn put_named_statements(out: &mut FieldsOut, protocol: &ServerProtocol) {
    for name in protocol.named_statements() {
        out.text(field::NAMED_STATEMENT, name);
    }
}

/// The same, once it is known whether sessions are followed.
pub(crate) fn read_named_statements(fields: &Fields<'_>, protocol: &mut ServerProtocol) {
    let names = fields.all(field::NAMED_STATEMENT).filter_map(|name| std::str::from_utf8(name).ok());
    protocol.import_named_statements(names);
}

fn put_scope(core: &Core, out: &mut FieldsOut, id: StatementId) {
    let scope = core.registry.write_scope(id, &core.tracked);
    out.bytes(field::STATEMENT_SCOPE, &[&id.to_be_bytes(), &scope[..]].concat());
    let description = core.registry.write_description(id);
    if !description.is_empty() {
        out.bytes(field::STATEMENT_DESCRIPTION, &[&id.to_be_bytes(), &description[..]].concat());
    }
}

/// A client's names; None if it has none.
pub(crate) fn read_client_statements(
    core: &mut Core,
    fields: &Fields<'_>,
    catalog: Catalog,
) -> Option<Box<ClientStatements>> {
    let known = read_known(core, fields, catalog);
    let has_described = fields.number(field::DESCRIBES) != Some(0);
    let mut names = None;
    for (name, statement) in fields.all(field::STATEMENT).filter_map(pair) {
        let Some((id, rest)) = statement.split_first_chunk() else { continue };
        let id = u64::from_be_bytes(*id);
        let id = core.registry.import(id, rest, known.get(&id).cloned().unwrap_or_default());
        let names: &mut Box<ClientStatements> = names.get_or_insert_default();
        names.import(name, id, has_described, &mut core.registry);
    }
    names
}

/// What a server has; None if it cannot be understood.
pub(crate) fn read_server_statements(
    core: &mut Core,
    fields: &Fields<'_>,
    catalog: Catalog,
    statements: &mut ServerStatements,
) -> Option<()> {
    for id in fields.all(field::STALE_STATEMENT) {
        statements.import_stale(u64::from_be_bytes(id.try_into().ok()?), &core.registry);
    }
    let known = read_known(core, fields, catalog);
    for (id, rest) in fields.all(field::STATEMENT).filter_map(pair) {
        let id = std::str::from_utf8(id).ok()?.parse().ok()?;
        if !rest.is_empty() {
            core.registry.import(id, rest, known.get(&id).cloned().unwrap_or_default());
        }
        statements.import(id, &core.registry);
    }
    Some(())
}

fn read_known(core: &mut Core, fields: &Fields<'_>, catalog: Catalog) -> Known {
    let mut known = Known::new();
    for (id, scope) in fields.all(field::STATEMENT_SCOPE).filter_map(<[u8]>::split_first_chunk) {
        let imported = core.registry.read_scope(scope, &core.tracked, catalog);
        known.insert(u64::from_be_bytes(*id), imported);
    }
    for (id, description) in fields.all(field::STATEMENT_DESCRIPTION).filter_map(<[u8]>::split_first_chunk) {
        if let Some(imported) = known.get_mut(&u64::from_be_bytes(*id)) {
            imported.description = Description::from_bytes(description);
        }
    }
    known
}
