//! Quotas: a client's connection and what it uses count for its user, its groups, its database and its application_name, and requests that begin are refused where a limit says so.
//!
//! Owns nothing: limits and usage are in `quota::Book`, over all shards; a client has the meters of its subjects since its login. What a turn has used counts when the server is released,
//! and a third of a second later at the latest while it goes on. Clients of administrators count, and are never refused.

use quota::{ClientMeters, Meter, Standing};
use session::parameters::APPLICATION_NAME;
use session::{RefusedRequest, StatementGuard};
use settings::Global;
use std::sync::Arc;
use telemetry::Level;
use wire::{encode, sqlstate};

use crate::ConnId;
use crate::client::{Client, ClientQuota, StorageState};
use crate::connections::Conn;
use crate::core::Core;
use crate::link::{client_end, overload, storage};
use crate::server::Server;

/// Counts the connection of a client that has logged in. False: there are too many, and the client got the error.
pub(crate) fn enter(core: &mut Core, conn: ConnId) -> bool {
    if !core.has_quotas {
        return true;
    }
    let (meters, is_exempt) = meters_of(core, conn, true);
    match ClientMeters::enter(meters, is_exempt, core.id.0) {
        Ok(meters) => {
            attach(core, conn, meters, true);
            true
        }
        Err(full) => {
            let mut text = String::new();
            core.pool_registry.with_quotas(&mut |book| text = book.refused_connection(full.subject()).text);
            client_end::fail_client(core, conn, sqlstate::CONFIGURATION_LIMIT, &text);
            false
        }
    }
}

/// Counts the connection of a client that is there already.
#[cold]
pub(crate) fn enter_anyway(core: &mut Core, conn: ConnId) {
    if core.has_quotas {
        let (meters, is_exempt) = meters_of(core, conn, false);
        attach(core, conn, ClientMeters::enter_anyway(meters, is_exempt, core.id.0), false);
    }
}

fn attach(core: &mut Core, conn: ConnId, meters: ClientMeters, logs_in: bool) {
    let now_us = core.now.mono_us;
    let Some(client) = core.conns.client_mut(conn) else { return };
    (client.used_queries, client.used_bytes) = (0, 0);
    let application_name = application_name(client, logs_in).into();
    client.quota = Some(Box::new(ClientQuota {
        meters,
        settled_us: now_us,
        was_warned: false,
        application_name,
        storage: StorageState::default(),
    }));
}

/// The name that a client has given at login, which SET does not change; without what `application_name_add_host` has added.
fn application_name(client: &Client, logs_in: bool) -> &str {
    if let Some(quota) = &client.quota {
        return &quota.application_name;
    }
    // At login its parameters are what it has given; without a startup packet's later it has given nothing.
    let is_own = logs_in || client.dedicated_request.is_some();
    let given = if is_own { Some(&client.parameters) } else { client.startup.as_ref() };
    let name = given.and_then(|parameters| parameters.text(APPLICATION_NAME)).unwrap_or_default();
    let added = format!(" - {}", crate::log_format::peer(client.peer));
    name.strip_suffix(&*added).unwrap_or(name)
}

fn meters_of(core: &Core, conn: ConnId, logs_in: bool) -> (Vec<Arc<Meter>>, bool) {
    let mut meters = Vec::new();
    let Some(client) = core.conns.client(conn) else { return (meters, false) };
    let Some(local_pool) = core.local_pools.of(client.pool) else { return (meters, false) };
    let application_name = application_name(client, logs_in);
    core.pool_registry.with_quotas(&mut |book| {
        meters = book.meters(&client.login_user, &local_pool.database_name, application_name);
    });
    (meters, is_administrator(&core.config.global, &client.login_user))
}

fn is_administrator(global: &Global, user: &str) -> bool {
    let lists = |users: &[String]| users.iter().any(|listed| listed == user);
    lists(&global.admin_users) || lists(&global.stats_users)
}

/// Other quotas are in force: all clients have the meters of their subjects.
pub(crate) fn configured(core: &mut Core) {
    let quotas = Arc::clone(&core.config.quotas);
    let is_client = |conn: &Conn| matches!(conn, Conn::Client(client) if client.counted.is_in_pool());
    let clients = core.conns.ids(is_client);
    // As long as a client's setting is a quota's, it has to be given back before its next transaction.
    let is_set = clients.iter().any(|conn| core.conns.client(*conn).is_some_and(storage::is_set));
    core.has_quotas = !quotas.is_empty() || is_set;
    core.has_storage_quotas = quotas.limits_storage(None) || is_set;
    core.pool_registry.with_quotas(&mut |book| book.set_rules(&quotas));
    for conn in clients {
        if core.has_quotas {
            moves(core, conn);
        } else if let Some(client) = core.client(conn) {
            client.quota = None;
        }
    }
}

/// The same client has other subjects, or the same.
fn moves(core: &mut Core, conn: ConnId) {
    if core.conns.client(conn).is_none_or(|client| client.quota.is_none()) {
        return enter_anyway(core, conn);
    }
    leave(core, conn);
    let (meters, is_exempt) = meters_of(core, conn, false);
    let Some(client) = core.conns.client_mut(conn) else { return };
    if let Some(mut quota) = client.quota.take() {
        quota.meters = quota.meters.moved_to(meters, is_exempt);
        client.quota = Some(quota);
    }
}

/// A server is about to leave its client, or has been with it for a while: what was used since counts.
#[cold]
pub(crate) fn settle(core: &mut Core, client_conn: ConnId, server_conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    if server.dedicated.is_some() {
        // Replication counts as a connection only.
        return (client.used_queries, client.used_bytes) = (0, 0);
    }
    settle_since(client, server.request_us, now_us);
}

/// The same for a server that may have a client.
#[cold]
pub(crate) fn settle_linked(core: &mut Core, server_conn: ConnId) {
    if let Some(client_conn) = core.conns.find_server(server_conn).and_then(Server::client) {
        settle(core, client_conn, server_conn);
    }
}

fn settle_since(client: &mut Client, since_us: u64, now_us: u64) {
    let used = (std::mem::take(&mut client.used_queries), std::mem::take(&mut client.used_bytes));
    let Some(quota) = client.quota.as_deref_mut() else { return };
    let since_us = since_us.max(quota.settled_us);
    quota.settled_us = now_us;
    quota.meters.add(now_us.saturating_sub(since_us), used.0, used.1);
}

/// A client disconnects, or leaves for another process: what it has used up to now counts.
#[cold]
pub(crate) fn leave(core: &mut Core, conn: ConnId) {
    let now_us = core.now.mono_us;
    let server = core.conns.client(conn).and_then(Client::server);
    if let Some(server_conn) = server {
        settle(core, conn, server_conn);
    }
    if let Some(client) = core.client(conn) {
        settle_since(client, now_us, now_us);
    }
}

/// A client was answered without a server.
#[cold]
pub(crate) fn answered_without_server(core: &mut Core, conn: ConnId, bytes: u64) {
    let now_us = core.now.mono_us;
    let Some(client) = core.conns.client_mut(conn) else { return };
    client.used_queries += 1;
    client.used_bytes += bytes;
    settle_since(client, now_us, now_us);
}

/// A request of an idle client begins; `request` is empty if it is held. True: it is refused, and the client has its errors. Whoever is above a soft limit is told so once.
#[cold]
#[inline(never)]
pub(crate) fn stops(core: &mut Core, conn: ConnId, request: &[u8]) -> bool {
    let is_stopped = refuses_request(core, conn, request);
    is_stopped || core.has_storage_quotas && storage::stops(core, conn, request)
}

fn refuses_request(core: &mut Core, conn: ConnId, request: &[u8]) -> bool {
    let Some(client) = core.conns.client(conn) else { return false };
    let Some((standing, meter)) = client.quota.as_ref().and_then(|quota| quota.meters.concern()) else {
        return false;
    };
    let meter = Arc::clone(meter);
    if standing < Standing::Refused {
        warn(core, conn, &meter);
        return false;
    }
    let begins = if request.is_empty() { &client.request.held } else { request };
    if client.deferred_begin.is_some()
        || !RefusedRequest::can_be(begins) && !overload::can_close(client, begins)
    {
        return false; // It is in a transaction, or what PostgreSQL never refuses.
    }
    let Some(text) = told(core, &meter, Standing::Refused) else { return false };
    overload::refuse_over_quota(core, conn, request, text, false)
}

/// A client that keeps its server begins a request outside of a transaction, if that is so. True: it waits for a setting, or its quota refuses it, and the client is closed, because
/// its server has what its session holds.
#[cold]
#[inline(never)]
pub(crate) fn stops_linked(core: &mut Core, conn: ConnId, server: ConnId, bytes: &[u8]) -> bool {
    let is_ended = ends_session(core, conn, server);
    is_ended || core.has_storage_quotas && storage::sets_first(core, conn, server, bytes)
}

fn ends_session(core: &mut Core, conn: ConnId, server: ConnId) -> bool {
    let Some((client, server)) = core.conns.linked(conn, server) else { return false };
    let Some((standing, meter)) = client.quota.as_ref().and_then(|quota| quota.meters.concern()) else {
        return false;
    };
    if !server.protocol.is_quiet() || server.dedicated.is_some() {
        return false;
    }
    let meter = Arc::clone(meter);
    if standing < Standing::Refused {
        warn(core, conn, &meter);
        return false;
    }
    let Some(text) = told(core, &meter, Standing::Refused) else { return false };
    client_end::fail_client(core, conn, sqlstate::CONFIGURATION_LIMIT, &text);
    true
}

/// The quota of a client that has a server refuses its requests, and how what it sends is held to reading. `has_quotas`: there are quotas at all, and of storage.
#[inline(always)]
pub(crate) fn bounds<'a>(
    has_quotas: (bool, bool),
    quota: &'a mut Option<Box<ClientQuota>>,
    server: &Server,
) -> (bool, Option<&'a mut StatementGuard>) {
    if has_quotas.0 { bounds_of(has_quotas.1, quota, server) } else { (false, None) }
}

#[cold]
#[inline(never)]
fn bounds_of<'a>(
    has_storage: bool,
    quota: &'a mut Option<Box<ClientQuota>>,
    server: &Server,
) -> (bool, Option<&'a mut StatementGuard>) {
    let refuses = refuses(quota.as_deref(), server);
    (refuses, if has_storage { storage::guard(quota, server) } else { None })
}

fn refuses(quota: Option<&ClientQuota>, server: &Server) -> bool {
    let Some(quota) = quota.filter(|_| server.dedicated.is_none()) else { return false };
    let concern = quota.meters.concern();
    storage::holds(quota) || concern.is_some_and(|(standing, _)| standing == Standing::Refused)
}

/// All that a client has asked is answered, its transaction is over, and what it has sent since waits: that is another request, and will be refused.
#[cold]
pub(crate) fn refuses_next(core: &mut Core, conn: ConnId, server: ConnId) -> bool {
    let linked = core.conns.linked(conn, server);
    let is_refused = |(client, server): (&mut Client, &mut Server)| {
        server.protocol.is_quiet() && refuses(client.quota.as_deref(), server)
    };
    linked.is_some_and(is_refused)
}

fn warn(core: &mut Core, conn: ConnId, meter: &Meter) {
    let was_warned = |client: &mut Client| {
        client.quota.as_mut().is_none_or(|quota| std::mem::replace(&mut quota.was_warned, true))
    };
    if core.client(conn).is_none_or(was_warned) {
        return;
    }
    if let Some(text) = told(core, meter, Standing::OverSoft) {
        core.outbox.write(conn, |out| encode::notice(out, "WARNING", sqlstate::WARNING, &text));
        core.log_client(conn, Level::Log, &text);
    }
}

fn told(core: &Core, meter: &Meter, standing: Standing) -> Option<String> {
    let mut text = None;
    core.pool_registry
        .with_quotas(&mut |book| text = book.told(meter.subject(), standing).map(|refused| refused.text));
    text
}
