//! Overload: which clients that wait are refused (SQLSTATE 53300), so that those that are served are served in time (`queue_limit`, `queue_target`).
//!
//! Owns how a request is refused without a server: the client gets errors in the places of its answers and goes on; where a message is long, or a transaction has
//! begun, the client is closed. A client that waits because its pool cannot serve anyone (PAUSE, no host) is not late.

use session::{FirstMessage, RefusedAnswer, RefusedMessage, RefusedRequest, StatementRegistry};
use wire::backend::Status;
use wire::frame::{self, HEADER_BYTES};
use wire::frontend::{self, Found};
use wire::{encode, sqlstate};

use crate::ConnId;
use crate::client::{Client, Phase, Refusal};
use crate::core::Core;
use crate::link::{backpressure, client_end, first_message, notify, pins};
use crate::local_pools::local_pool::LocalPool;

/// A queue that is empty once in so long is no overload, whatever a client has waited.
const STANDING_US: u64 = 100_000;

/// The end of a refused message of which so much is here is not waited for.
const LONGEST_BYTES: usize = 64 * 1024;

/// Errors for requests that have come at once: a client that asks for more of them asks for nothing else.
const MOST_ANSWERED_BYTES: usize = 256 * 1024;

/// A client has begun to wait: refuses it if too many do.
#[inline(always)]
pub(crate) fn admit(core: &mut Core, conn: ConnId) {
    let Some(client) = core.conns.client(conn) else { return };
    let Some(local_pool) = core.local_pools.of_mut(client.served_by()) else { return };
    if local_pool.pool.limits.queue_limit > 0 && matches!(client.phase, Phase::Waiting(_)) {
        refuse_above_limit(core, conn);
    }
}

#[cold]
fn refuse_above_limit(core: &mut Core, conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(client) = core.conns.client(conn) else { return };
    let Some(local_pool) = core.local_pools.of_mut(client.served_by()) else { return };
    let limit = local_pool.pool.limits.queue_limit;
    if local_pool.pool.tell_waiting(now_us) > limit {
        refuse(core, conn, &format!("more than {limit} clients wait (queue_limit)"));
    }
}

/// The pool serves a client that has waited since then: whether that is too late.
#[inline]
pub(crate) fn is_late(local_pool: &LocalPool, since_us: u64, now_us: u64) -> bool {
    let target_us = local_pool.pool.limits.queue_target_us;
    target_us > 0 && local_pool.pool.is_overloaded(since_us, target_us, STANDING_US, now_us)
}

/// A server of the pool runs a query of Weir's own, or has just answered it, or is left behind: clients that have come meanwhile have not waited for the load.
#[inline]
pub(crate) fn excuse_waits(core: &mut Core, server_conn: ConnId) {
    let now_us = core.now.mono_us;
    let Some(server) = core.conns.server(server_conn) else { return };
    let Some(local_pool) = core.local_pools.get_mut(server.pool) else { return };
    if local_pool.pool.limits.queue_target_us > 0 {
        local_pool.pool.excuse_since(server.query_us, now_us);
    }
}

/// Refuses a client that has waited for too long; false if it is served all the same.
#[cold]
pub(crate) fn refuse_late(core: &mut Core, conn: ConnId) -> bool {
    // A query of Weir's own may stand in the queue, too.
    let Some(client) = core.conns.find_client(conn).filter(|client| may_refuse(client)) else { return false };
    let Some(local_pool) = core.local_pools.of(client.served_by()) else { return false };
    let target = local_pool.pool.limits.queue_target_us / 1_000;
    refuse(core, conn, &format!("clients wait for more than {target} ms (queue_target)"));
    true
}

/// It waits for a server, not for a pin, and with a request that can be refused. One whose standby has not run its request has been served already.
fn may_refuse(client: &Client) -> bool {
    matches!(client.phase, Phase::Waiting(position) if !position.is_for_pin())
        && !client.routed.is_repeated()
        && RefusedRequest::can_be(&client.request.held)
}

fn refuse(core: &mut Core, conn: ConnId, why: &str) {
    let now_us = core.now.mono_us;
    let Some(client) = core.conns.client_mut(conn) else { return };
    let (Phase::Waiting(position), true) = (&client.phase, may_refuse(client)) else { return };
    let position = *position;
    let Some(local_pool) = core.local_pools.of_mut(client.served_by()) else { return };
    local_pool.pool.queue.leave(position);
    local_pool.pool.tell_waiting(now_us);
    let seconds = local_pool.seconds_to_serve();
    let (database, user) = (&local_pool.database_name, &local_pool.user);
    let text = format!("pool {database}/{user} is overloaded: {why}; try again in {seconds} s");
    client.phase = Phase::Idle;
    client.recording = None;
    if client.deferred_begin.is_some() {
        return client_end::fail_client(core, conn, sqlstate::TOO_MANY_CONNECTIONS, &text);
    }
    let code = sqlstate::TOO_MANY_CONNECTIONS;
    client.refusal = Some(Box::new(Refusal {
        text,
        code,
        request: RefusedRequest::default(),
        closes: false,
        once: false,
    }));
    pins::release(core, conn); // One was reserved for the request.
    notify::flush_ready(core, conn); // What has come while it waited is between two requests.
    answer_refused(core, conn);
}

/// What becomes of a client whose request is refused, behind the answers.
enum Then {
    GoesOn,
    /// What comes next is not refused.
    IsServed,
    /// What it sends is too much to be skipped.
    Ends,
    /// It has sent something that is no message of a request.
    Judged(FirstMessage),
}

/// A client gets the errors of a request that its quota refuses; `once`: what is sent behind it is looked at for itself.
pub(crate) fn refuse_over_quota(
    core: &mut Core,
    conn: ConnId,
    request: &[u8],
    text: String,
    once: bool,
) -> bool {
    let Some(client) = core.client(conn) else { return false };
    client.request.held.extend_from_slice(request);
    begin_refusal(client, sqlstate::CONFIGURATION_LIMIT, text, once);
    answer_refused(core, conn);
    true
}

/// What the client has sent is refused with this error, and run by no server; `once`: what is sent behind it is looked at for itself.
fn begin_refusal(client: &mut Client, code: &'static str, text: String, once: bool) {
    client.recording = None;
    client.routed.repeats_nothing();
    let request = RefusedRequest::default();
    client.refusal = Some(Box::new(Refusal { text, code, request, closes: true, once }));
}

/// The client has cancelled its request, and no server runs it: it gets PostgreSQL's error where it goes on, as far as the request can be refused.
pub(crate) fn refuse_cancelled(client: &mut Client) {
    let can_be = RefusedRequest::can_be(&client.request.held) || can_close(client, &client.request.held);
    if client.deferred_begin.is_none() && can_be {
        let text = "canceling statement due to user request".to_owned();
        begin_refusal(client, sqlstate::QUERY_CANCELED, text, true);
    }
}

/// The client's request is refused: answers what is here of it.
#[cold]
pub(crate) fn answer_refused(core: &mut Core, conn: ConnId) {
    let (frame_bytes_max, now_us) = (core.config.global.max_packet_size, core.now.mono_us);
    let Some(client) = core.conns.client_mut(conn) else { return };
    client.request_us = now_us; // It is idle since now.
    let Some(mut refusal) = client.refusal.take() else { return };
    let (held, mut at, mut errors) = (std::mem::take(&mut client.request.held), 0, 0);
    let mut answers = Vec::new();
    let then = loop {
        if at == held.len() {
            break Then::GoesOn;
        }
        match refusal.request.next(&held[at..]) {
            RefusedMessage::Done(..) if answers.len() > MOST_ANSWERED_BYTES => break Then::Ends,
            RefusedMessage::Done(length, answer) => {
                at += length;
                if matches!(answer, RefusedAnswer::Error | RefusedAnswer::ErrorAndReady) {
                    errors += 1;
                    encode::error(&mut answers, "ERROR", refusal.code, &refusal.text);
                }
                if matches!(answer, RefusedAnswer::Ready | RefusedAnswer::ErrorAndReady) {
                    encode::ready(&mut answers, Status::Idle);
                    if refusal.once {
                        break Then::IsServed;
                    }
                }
            }
            RefusedMessage::Spared
                if refusal.closes
                    && let Some(length) = close(client, &mut core.registry, &held[at..]) =>
            {
                at += length;
                encode::close_complete(&mut answers);
            }
            RefusedMessage::Spared => break Then::IsServed,
            RefusedMessage::Incomplete if held.len() - at > LONGEST_BYTES => break Then::Ends,
            RefusedMessage::Incomplete => break Then::GoesOn,
            RefusedMessage::Other => {
                break Then::Judged(session::first_message(&held[at..], frame_bytes_max));
            }
        }
    };
    client.request.held.extend_from_slice(&held[at..]);
    let (text, code) = (refusal.text.clone(), refusal.code);
    if !matches!(then, Then::IsServed) && (refusal.request.skips() || at < held.len()) {
        if client.request.held.is_empty() {
            encode::flush(&mut client.request.held); // Asks for nothing, and has what comes next looked at here.
        }
        client.refusal = Some(refusal);
    }
    core.outbox.write(conn, |out| out.extend_from_slice(&answers));
    (0..errors).for_each(|_| core.count_error(conn, code));
    match then {
        Then::GoesOn => backpressure::resume_client(core, conn),
        Then::IsServed => {
            backpressure::resume_client(core, conn);
            first_message::idle_client_received_held(core, conn);
        }
        Then::Ends => client_end::fail_client(core, conn, code, &text),
        Then::Judged(FirstMessage::Fault(fault)) => client_end::client_fault(core, conn, &fault),
        Then::Judged(_) => client_end::disconnect_client(core, conn, "client close request"),
    }
}

/// Whether a Close of a client without a server can be done without one: what it closes is known here, or there is nothing to be closed.
pub(crate) fn can_close(client: &Client, bytes: &[u8]) -> bool {
    let Ok(Some(header)) = frame::header(bytes) else { return true };
    let Some(message) = bytes.get(HEADER_BYTES..header.frame_bytes as usize) else { return true };
    match frontend::target(message) {
        Found::Yes((b'S', name)) if !name.is_empty() => {
            let names = client.request.statements.as_deref();
            names.is_some_and(|names| names.expected(name).is_some())
                || client.parameters.prepared().is_empty()
        }
        // Portals are gone since its transaction ended.
        Found::Yes(_) => true,
        Found::More | Found::Malformed => false,
    }
}

/// Does what a Close says, and returns its length; None if a server has to do it.
fn close(client: &mut Client, registry: &mut StatementRegistry, bytes: &[u8]) -> Option<usize> {
    let header = frame::header(bytes).ok()??;
    if !can_close(client, bytes) {
        return None;
    }
    if let Found::Yes((b'S', name)) = frontend::target(bytes.get(HEADER_BYTES..header.frame_bytes as usize)?)
    {
        if name.is_empty() {
            client.server_used_last = None; // What that has without a name is not to be run any more.
        } else if let Some(names) = client.request.statements.as_deref_mut()
            && names.close(name, 0)
        {
            names.confirm(registry);
        }
    }
    Some(header.frame_bytes as usize)
}
