//! Which tables and views of a pool's database may change a session when they are used (`session_state = virtual`).
//!
//! Owns that a server is asked for them, before a client gets it. When that is due is `local_pools`', and what is asked `session`'s.

use session::changing_relations;
use telemetry::Level;
use wire::sqlstate;

use crate::ConnId;
use crate::core::Core;
use crate::server::{InternalQuery, Phase};

/// Errors of a moment: a lock that another session holds, a timeout or a cancel request of the client before.
const PASSING: [&str; 3] =
    [sqlstate::LOCK_NOT_AVAILABLE, sqlstate::DEADLOCK_DETECTED, sqlstate::QUERY_CANCELED];

/// Asks this server, which no client has; false if nothing has to be asked.
#[cold]
#[inline(never)]
pub(crate) fn ask(core: &mut Core, server_conn: ConnId) -> bool {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server_mut(server_conn) else { return false };
    let Some(local_pool) = core.local_pools.get_mut(server.pool) else { return false };
    if !local_pool.pool.limits.follows_sessions {
        local_pool.relations.postpone(now_us);
        return false;
    }
    local_pool.relations.asked(now_us);
    let protocol = &mut server.protocol;
    let Some(at) = protocol.boundary() else { return false };
    // Whoever waits gets this server when it has answered: no other is opened meanwhile.
    local_pool.pool.begin_check(server_conn.0, now_us);
    server.phase = Phase::InternalQuery(InternalQuery::Relations);
    server.query_us = now_us;
    core.outbox.write(server_conn, |out| {
        protocol.send_internal_simple_query(
            at,
            out,
            changing_relations::BEFORE_QUERY,
            &changing_relations::query(),
        );
    });
    true
}

/// The server has answered, or refused to.
pub(crate) fn answered(core: &mut Core, server_conn: ConnId, error: Option<&[u8]>) {
    let Some(server) = core.conns.server_mut(server_conn) else { return };
    let rows = server.protocol.take_internal_result().into_rows();
    let Some(local_pool) = core.local_pools.get_mut(server.pool) else { return };
    let code = error.and_then(|error| wire::error::parse(error).code());
    if code.is_some_and(|code| PASSING.iter().any(|passing| passing.as_bytes() == code)) {
        return local_pool.relations.unanswered(core.now.mono_us);
    }
    local_pool.relations.answered(error.is_none().then_some(rows), core.now.mono_us);
    if let Some(error) = error {
        let fields = wire::error::parse(error);
        let message = String::from_utf8_lossy(fields.message().unwrap_or_default()).into_owned();
        let text = format!(
            "triggers and views that may change a session could not be looked up ({message}); what they set is not followed"
        );
        core.log_server(server_conn, Level::Warning, &text);
    }
}
