//! Storage quotas: the transactions of a client whose user or database has too much on disk are read-only.
//!
//! Owns when the server's `default_transaction_read_only` is the quota's and not the client's: it is put among the client's own parameters before a transaction begins, so that every
//! server that the client gets has it, and no other client's does. What could end a read-only transaction is the session's to know ([`session::StatementGuard`]).

use std::sync::Arc;

use quota::StorageStanding;
use session::{GuardMode, Parameters, RefusedRequest, StatementGuard, Tracked};
use telemetry::Level;
use wire::{encode, sqlstate};

use crate::ConnId;
use crate::client::{Client, ClientQuota};
use crate::core::Core;
use crate::link::{client_end, overload, startup_values};
use crate::server::Server;

/// The setting.
const SETTING: &str = "default_transaction_read_only";

fn standing(client: &Client) -> StorageStanding {
    client.quota.as_ref().map_or(StorageStanding::Free, |quota| quota.meters.storage())
}

/// How what a client sends now is held to reading.
#[inline(never)]
pub(crate) fn guard<'a>(
    quota: &'a mut Option<Box<ClientQuota>>,
    server: &Server,
) -> Option<&'a mut StatementGuard> {
    let quota = quota.as_deref_mut().filter(|_| server.dedicated.is_none())?;
    let standing = quota.meters.storage();
    let state = &mut quota.storage;
    state.guard.set_mode(match standing {
        StorageStanding::Free => GuardMode::Notes,
        StorageStanding::ReadsAndDeletes => GuardMode::Words { deletes: true },
        StorageStanding::ReadsOnly if state.is_read_only => GuardMode::ReadOnly,
        // It began before the limit was reached.
        StorageStanding::ReadsOnly => GuardMode::Words { deletes: false },
    });
    Some(&mut state.guard)
}

/// Whether each request of a client waits for the answer of the one before: what that has set is looked at first.
pub(crate) fn holds(quota: &ClientQuota) -> bool {
    quota.meters.storage() != StorageStanding::Free
}

/// A transaction, or a request outside of one, is about to begin: the client's setting is the quota's, or its own again.
fn begins(core: &mut Core, conn: ConnId) -> StorageStanding {
    let Some(position) = core.tracked.position(SETTING.as_bytes()) else { return StorageStanding::Free };
    let Some(client) = core.conns.client_mut(conn) else { return StorageStanding::Free };
    let standing = standing(client);
    let Some(quota) = client.quota.as_mut() else { return StorageStanding::Free };
    let state = &mut quota.storage;
    state.guard.begin();
    state.is_read_only = standing == StorageStanding::ReadsOnly;
    let now = client.parameters.value(position).cloned();
    let told = if state.is_read_only {
        let is_on = now.as_deref() == Some("on");
        if state.own.is_none() || !is_on {
            state.own = Some(now); // The client's, who may have set it meanwhile.
        }
        client.parameters.set(position, "on");
        (!is_on).then(|| Arc::from("on"))
    } else {
        restore(&mut client.parameters, position, state.own.take())
    };
    if let Some(value) = told {
        core.outbox.write(conn, |out| encode::parameter_status(out, SETTING.as_bytes(), value.as_bytes()));
    }
    standing
}

/// The client's own value is in force again; it is returned, if it is another one.
fn restore(parameters: &mut Parameters, position: usize, own: Option<Option<Arc<str>>>) -> Option<Arc<str>> {
    let own: Arc<str> = own?.unwrap_or_else(|| Arc::from("off"));
    let is_other = parameters.value(position) != Some(&own);
    parameters.set(position, &own);
    is_other.then_some(own)
}

/// A client leaves for another process, or has no storage quota any more: its setting is its own.
pub(crate) fn give_back(core: &mut Core, conn: ConnId) {
    let Some(position) = core.tracked.position(SETTING.as_bytes()) else { return };
    let Some(client) = core.conns.client_mut(conn) else { return };
    let own = client.quota.as_mut().and_then(|quota| quota.storage.own.take());
    restore(&mut client.parameters, position, own);
}

/// A client has come with its server, whose setting may be a quota's: the client's is its own, and is set before its next transaction.
pub(crate) fn keep_own(tracked: &Tracked, parameters: &mut Parameters, own: &Parameters) {
    if let Some(position) = tracked.position(SETTING.as_bytes()) {
        parameters.take_over(position, own);
    }
}

/// Whether a client's setting is the quota's.
pub(crate) fn is_set(client: &Client) -> bool {
    client.quota.as_ref().is_some_and(|quota| quota.storage.own.is_some())
}

/// A request of a client without a server begins; `request` is empty if it is held. True: it is refused, and the client has its errors.
#[cold]
#[inline(never)]
pub(crate) fn stops(core: &mut Core, conn: ConnId, request: &[u8]) -> bool {
    let standing = begins(core, conn);
    let mode = match standing {
        StorageStanding::Free => return false,
        StorageStanding::ReadsAndDeletes => GuardMode::Words { deletes: true },
        StorageStanding::ReadsOnly => GuardMode::ReadOnly,
    };
    let Some(client) = core.conns.client(conn) else { return false };
    let first = if request.is_empty() { &client.request.held } else { request };
    let is_refused =
        client.quota.as_ref().is_some_and(|quota| quota.storage.guard.refuses_first(first, mode));
    if !is_refused || client.deferred_begin.is_some() || !RefusedRequest::can_be(first) {
        return false; // In a transaction, what has to be refused ends the connection.
    }
    let text = told(core, conn);
    overload::refuse_over_quota(core, conn, request, text, true)
}

/// A client that keeps its server begins a request outside of a transaction. True: the server gets the setting first, and `bytes` wait.
#[cold]
#[inline(never)]
pub(crate) fn sets_first(core: &mut Core, conn: ConnId, server_conn: ConnId, bytes: &[u8]) -> bool {
    let Some((client, server)) = core.conns.linked(conn, server_conn) else { return false };
    if client.quota.is_none() || server.dedicated.is_some() {
        return false;
    }
    if !server.protocol.is_quiet() || client.deferred_begin.is_some() {
        return false;
    }
    begins(core, conn);
    let Some(position) = core.tracked.position(SETTING.as_bytes()) else { return false };
    let Some((client, server)) = core.conns.linked(conn, server_conn) else { return false };
    if client.parameters.value(position) == server.protocol.parameters.value(position) {
        return false;
    }
    client.request.held.extend_from_slice(bytes);
    startup_values::restore_startup_values(core, server_conn, conn);
    true
}

/// A client has sent what could end its reading only: it is closed.
#[cold]
pub(crate) fn refuse(core: &mut Core, conn: ConnId) {
    let text = told(core, conn);
    core.log_client(conn, Level::Warning, &text);
    client_end::fail_client(core, conn, sqlstate::CONFIGURATION_LIMIT, &text);
}

fn told(core: &Core, conn: ConnId) -> String {
    let mut text = String::new();
    let quota = core.conns.client(conn).and_then(|client| client.quota.as_ref());
    if let Some(meter) = quota.and_then(|quota| quota.meters.full_storage()) {
        core.pool_registry.with_quotas(&mut |book| {
            text = book.told_of_storage(meter.subject()).map_or_else(String::new, |told| told.text);
        });
    }
    if text.is_empty() { "quota of storage exceeded: the connection is read-only".to_owned() } else { text }
}
