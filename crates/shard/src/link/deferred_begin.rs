//! Answers a plain BEGIN without a server, and sends it in front of the client's next request (`deferred_begin`).
//!
//! Owns which requests of an idle client are answered here: BEGIN, and the COMMIT or ROLLBACK of a transaction in which nothing
//! was asked. All other requests are a server's, behind the BEGIN.

use messages::ShutdownMode;
use session::{Listening, StatementRegistry, TransactionControl};
use wire::backend::Status;
use wire::encode;

use crate::ConnId;
use crate::client::Client;
use crate::core::Core;
use crate::deferred_begin::DeferredBegin;
use crate::outbox::Outbox;
use crate::queries::TrackedAnswer;
use crate::server::Server;

/// Whether [`answer`] has to look at this request of an idle client.
#[inline(always)]
pub(crate) fn may_answer(client: &Client, bytes: &[u8]) -> bool {
    client.deferred_begin.is_some() || TransactionControl::may_begin(bytes)
}

/// Answers the request if it needs no server; false if it is a server's to answer.
#[cold]
#[inline(never)]
pub(crate) fn answer(core: &mut Core, conn: ConnId, bytes: &[u8]) -> bool {
    let Some(asked) = TransactionControl::of_message(bytes) else { return false };
    let now_us = core.now.mono_us;
    let takes_begin = takes_begin(core);
    let Some(client) = core.conns.client_mut(conn) else { return false };
    let Some(local_pool) = core.local_pools.of_mut(client.pool) else { return false };
    let status = match client.deferred_begin {
        None if asked.begins() && takes_begin && local_pool.pool.limits.defers_begin => {
            client.deferred_begin = Some(DeferredBegin { since_us: now_us });
            Status::InTransaction
        }
        Some(begin) if !asked.begins() => {
            client.deferred_begin = None;
            local_pool.transacted(1, now_us.saturating_sub(begin.since_us));
            Status::Idle
        }
        _ => return false,
    };
    client.request_us = now_us;
    local_pool.last_used_us = now_us;
    local_pool.answered(1, 0);
    local_pool.counters.bytes_received += bytes.len() as u64;
    let listening = client.listening.as_deref_mut().filter(|_| status == Status::Idle);
    let notifications = listening.map(Listening::take_queued).unwrap_or_default();
    let (written, ()) = core.outbox.append(|out| {
        encode::command_complete(out, asked.command_tag());
        out.extend_from_slice(&notifications);
        encode::ready(out, status);
    });
    local_pool.counters.bytes_sent += written.len() as u64;
    core.outbox.send(conn, crate::Source::Written, written.start, written.end);
    track(core, conn, bytes);
    if core.exporting.is_some() {
        core.try_export(conn);
    }
    true
}

/// No command is in force under which a transaction may not begin, or clients are not answered.
fn takes_begin(core: &Core) -> bool {
    !core.config.global.disable_pqexec
        && !core.administration.is_suspended()
        && core.administration.shutdown() != Some(ShutdownMode::WaitForServers)
}

/// Counts a request that no server was asked for among the queries by fingerprint.
pub(crate) fn track(core: &mut Core, conn: ConnId, bytes: &[u8]) {
    let (now_us, Some(tracking)) = (core.now.wall_us, &mut core.statistics.tracking) else { return };
    let Some(client) = core.conns.client_mut(conn) else { return };
    let Some(local_pool) = core.local_pools.of_mut(client.pool) else { return };
    let statements = client.request.statements.as_deref();
    tracking.heard(&mut client.query_tracker, statements, &core.registry, bytes, true);
    if let Some(query_tracker) = &mut client.query_tracker {
        let answer = TrackedAnswer {
            database: &local_pool.database_name,
            user: &client.login_user,
            count: 1,
            took_us: 0,
            is_all: true,
            slow_us: None,
            keeps_spans: core.config.global.otlp_traces,
            now_us,
        };
        tracking.answered(query_tracker, &answer);
    }
}

/// The client's BEGIN is deferred, and its request waits until it is settled whose values of sequences it finds: nothing may be in front of that.
#[cold]
#[inline(never)]
pub(crate) fn waits_for_sequences(
    client: &Client,
    server: &mut Server,
    registry: &StatementRegistry,
    request: &[u8],
) -> bool {
    let names = client.request.statements.as_deref();
    session::asks_for_sequence_values(request, names, registry) && server.protocol.hold_for_sequences()
}

/// Sends the client's BEGIN, which is deferred, to the server that it has just got; its request follows.
#[cold]
#[inline(never)]
pub(crate) fn send(client: &mut Client, server: &mut Server, outbox: &mut Outbox, conn: ConnId) {
    let Some(at) = server.protocol.boundary() else { return };
    let Some(begin) = client.deferred_begin.take() else { return };
    server.transaction_us = begin.since_us;
    let protocol = &mut server.protocol;
    outbox.write(conn, |out| protocol.send_deferred_begin(at, out));
}
