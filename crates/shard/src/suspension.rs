//! SUSPEND: nothing is read and no server is checked out, until RESUME or `suspend_timeout`.
//!
//! Owns how it begins and ends here.

use messages::RequestId;

use crate::administration::PendingKind;
use crate::connections::Conn;
use crate::core::Core;
use crate::link::{backpressure, client_end, server_end};
use crate::pending;
use crate::time::micros;

/// No server is checked out and nothing is read any more, except the console and logins.
pub(crate) fn suspend(core: &mut Core, request: RequestId) {
    core.administration.suspend(core.now.mono_us);
    for local_pool in core.local_pools.values_mut() {
        local_pool.pool.paused = true;
    }
    let clients = core.conns.ids(|conn| matches!(conn, Conn::Client(client) if client.server().is_some()));
    let servers = core.conns.ids(|conn| matches!(conn, Conn::Server(server) if server.client().is_some()));
    for conn in clients {
        backpressure::pause_client(core, conn);
    }
    for conn in servers {
        backpressure::pause_server(core, conn);
    }
    core.administration.answer_when(request, PendingKind::Suspended);
    pending::paused_progress(core);
}

/// Ends SUSPEND where no RESUME will come; false if it was not in force. The caller serves the pools.
pub(crate) fn end_suspension(core: &mut Core) -> bool {
    if !core.administration.is_suspended() {
        return false;
    }
    core.administration.retain_pending(|pending| !matches!(pending.what, PendingKind::Suspended));
    stand_no_more(core);
    let now_us = core.now.mono_us;
    for local_pool in core.local_pools.values_mut() {
        local_pool.pool.paused = local_pool.paused_by_command;
        local_pool.pool.is_able_since(now_us);
    }
    true
}

/// RESUME after SUSPEND: everything is read again. The caller resumes the pools.
pub(crate) fn stand_no_more(core: &mut Core) {
    if !core.administration.end_suspension() {
        return;
    }
    for conn in core.conns.ids(|conn| matches!(conn, Conn::Client(client) if client.paused)) {
        backpressure::resume_client(core, conn);
    }
    for conn in core.conns.ids(|conn| matches!(conn, Conn::Server(server) if server.paused)) {
        let client = core.server(conn).and_then(|server| server.client());
        let send_buffer_full =
            client.and_then(|client| core.client(client)).is_some_and(|client| client.send_buffer_full);
        if !send_buffer_full {
            backpressure::resume_server(core, conn);
        }
    }
}

/// Closes those that keep a SUSPEND waiting for too long.
pub(crate) fn check_suspend_deadline(core: &mut Core) {
    let limit_us = micros(core.config.global.suspend_timeout);
    let since_us = core.administration.suspended_since_us().unwrap_or(core.now.mono_us);
    if limit_us == 0 || core.now.mono_us.saturating_sub(since_us) < limit_us {
        return;
    }
    for conn in pending::unsent_conns(core) {
        match core.conns.get(conn) {
            Some(Conn::Client(_)) => client_end::disconnect_client(core, conn, "suspend_timeout"),
            Some(Conn::Server(_)) => server_end::server_fault(core, conn, "suspend_timeout"),
            _ => {}
        }
    }
}
