//! A read that a standby has not run, and the primary runs instead (`read_write_split`).
//!
//! Owns that this happens only before anything of the answer has been passed on: the standby has refused the request, or its connection is gone. The
//! copy of the request is `attempt`'s; which errors are refusals, `session`'s.

use session::{AfterRefusal, Boundary, Cause, Output, Refusal, ReplyContext, request_routing};
use sql::Routing;
use telemetry::Level;

use crate::ConnId;
use crate::attempt::NotRun;
use crate::client::{Client, Phase, routed::Writes};
use crate::close_reason::CloseReason;
use crate::core::Core;
use crate::link::{backpressure, checkout, first_message, overload, relay, server_end};
use crate::log_format::excerpt;
use crate::outbox::Outbox;
use crate::server::{self, InternalQuery};

const NOT_RUN: &str = "a standby does not run a read, the primary does";
const SETTINGS_REFUSED: &str = "the standby refuses the client's settings";

/// Where the rest of an answer goes that is not passed on.
struct Dropped<'a> {
    outbox: &'a mut Outbox,
    server: ConnId,
}

impl Output for Dropped<'_> {
    fn forward(&mut self, _: &[u8], _: usize, _: usize) {}

    fn to_client(&mut self, _: impl FnOnce(&mut Vec<u8>)) {}

    fn to_server(&mut self, _: Boundary, write: impl FnOnce(&mut Vec<u8>)) {
        self.outbox.write(self.server, write);
    }
}

/// The standby has refused the request, and has said this so far.
#[cold]
pub(crate) fn refused(
    core: &mut Core,
    server_conn: ConnId,
    client_conn: ConnId,
    refusal: Refusal,
    answer: &[u8],
) {
    let text = format!("{NOT_RUN} ({})", excerpt(refusal.text));
    let is_new = remember(core, server_conn, client_conn, refusal.cause);
    core.log_server(server_conn, if is_new { Level::Log } else { Level::Debug }, &text);
    let lost = match refusal.connection {
        AfterRefusal::GoesOn => return drop_answer(core, server_conn, client_conn, answer),
        AfterRefusal::EndedByStandby => "the standby ends the connection",
        AfterRefusal::SettingsRefused => SETTINGS_REFUSED,
    };
    server_lost(core, server_conn, lost);
}

/// More of a refusal: behind its end the request is the primary's.
#[cold]
pub(crate) fn drop_answer(core: &mut Core, server_conn: ConnId, client_conn: ConnId, bytes: &[u8]) {
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    let local_pool = core.local_pools.get(server.pool);
    let mut context = ReplyContext {
        registry: &mut core.registry,
        tracked: &core.tracked,
        names: client.request.statements.as_deref_mut(),
        internal_error: &mut server.internal_error,
        errors_seen: &mut Vec::new(),
        startup: client.startup.as_ref(),
        default_params: local_pool.map(|local_pool| &local_pool.default_params),
        listening: None,
        has_client: true,
        releases_between_transactions: true,
        refuses_blocks: false,
        body_max: relay::body_max(&core.config.global),
    };
    let mut dropped = Dropped { outbox: &mut core.outbox, server: server_conn };
    let outcome = server.protocol.step(&mut context, bytes, &mut dropped);
    if let Some(fault) = outcome.fault {
        return server_end::server_fault(core, server_conn, &fault.message());
    }
    if outcome.ready > 0 {
        repeat(core, server_conn, client_conn);
    }
}

/// The refusal is read to its end, and the server is free.
fn repeat(core: &mut Core, server_conn: ConnId, client_conn: ConnId) {
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    let Some(not_run) = server.attempt.take() else { return };
    let writes = writes_of(not_run.cause);
    give_back(client, not_run, writes);
    checkout::release(core, server_conn);
    if core.server(server_conn).is_some_and(|server| server.client() == Some(client_conn)) {
        server_end::close_server(core, server_conn, CloseReason::Unclean);
        go_on(core, client_conn);
    }
}

/// A server has refused the settings of a client, of whose request nothing has been sent, with an error of this body. True if that is a standby's, which may not
/// have replayed yet what they need: the primary serves all of the session, or this request if it was a conflict with recovery.
#[cold]
pub(crate) fn settings_refused(
    core: &mut Core,
    server_conn: ConnId,
    client_conn: ConnId,
    error: &[u8],
) -> bool {
    if !server_lost(core, server_conn, SETTINGS_REFUSED) {
        return false;
    }
    let refusal = Refusal::of_setting(error);
    if let Some(client) = core.conns.client_mut(client_conn).filter(|_| refusal.cause == Cause::Session) {
        client.routed.note_refusal();
    }
    core.log_client(client_conn, Level::Log, &format!("{NOT_RUN} ({})", excerpt(refusal.text)));
    true
}

/// The connection to a server is gone. True if that is a standby's whose client has got nothing of an answer: the primary serves it.
#[cold]
pub(crate) fn server_lost(core: &mut Core, server_conn: ConnId, text: &str) -> bool {
    let Some(server) = core.conns.server_mut(server_conn) else { return false };
    let Some(client_conn) = server.client() else { return false };
    let local_pool = core.local_pools.get(server.pool);
    if local_pool.is_none_or(|local_pool| local_pool.serves.standby().is_none()) {
        return false;
    }
    let (not_run, writes) = match server.phase {
        server::Phase::Linked(_) => match server.attempt.take() {
            Some(not_run) => {
                let writes = writes_of(not_run.cause);
                (not_run, writes)
            }
            None => return false,
        },
        // It was made like its client, of whose request nothing has been sent. What a comment has sent to a standby may write.
        server::Phase::InternalQuery(InternalQuery::Apply(_) | InternalQuery::Statements(_)) => {
            (NotRun::default(), Writes::Yes)
        }
        _ => return false,
    };
    let line = match not_run.is_cancelled {
        true => format!("{text}; its client has cancelled what was asked of it"),
        false => format!("{text}; the primary runs what was asked of it"),
    };
    core.log_server(server_conn, Level::Warning, &line);
    server_end::close_server(core, server_conn, CloseReason::Message(text));
    server_end::let_go(core, server_conn);
    let Some(client) = core.conns.client_mut(client_conn) else { return true };
    give_back(client, not_run, writes);
    if let Some(statements) = client.request.statements.as_deref_mut() {
        statements.request_repeats(&mut core.registry);
    }
    go_on(core, client_conn);
    true
}

/// Whether a request that a standby has not run writes: what it has refused because it is one may.
fn writes_of(cause: Option<Cause>) -> Writes {
    if cause == Some(Cause::Statement) { Writes::Yes } else { Writes::No }
}

/// The request is in front of what its client has sent behind it, and the primary's; one that was cancelled is refused.
fn give_back(client: &mut Client, not_run: NotRun, writes: Writes) {
    client.request.held.splice(0..0, not_run.request);
    client.routed.repeat(writes);
    if not_run.is_cancelled {
        overload::refuse_cancelled(client);
    }
    if let Some(query_tracker) = &mut client.query_tracker {
        query_tracker.repeats();
    }
}

/// The client has no server any more, and what it has sent is held.
fn go_on(core: &mut Core, client_conn: ConnId) {
    let Some(client) = core.client(client_conn) else { return };
    client.phase = Phase::Idle;
    backpressure::resume_client(core, client_conn);
    first_message::idle_client_received_held(core, client_conn);
}

/// What was refused for good goes to the primary from here on: statements of its shape, or all of the session. False if it was refused for now.
fn remember(core: &mut Core, server_conn: ConnId, client_conn: ConnId, cause: Cause) -> bool {
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return false };
    let is_remembered = match cause {
        Cause::Moment => return false,
        Cause::Session => false,
        Cause::Statement => {
            let split = client.pool.and_then(|pool| core.local_pools.get_mut(pool)?.serves.split_mut());
            let statements = client.request.statements.as_deref();
            split.is_some_and(|split| {
                let mut are_remembered = true;
                let mut refused = |text: &[u8]| {
                    are_remembered &= split.names.refused(text);
                    Routing::Read
                };
                let _ = request_routing(
                    server.attempt.request(),
                    (statements, true),
                    &core.registry,
                    &mut refused,
                );
                are_remembered
            })
        }
    };
    if !is_remembered {
        client.routed.note_refusal();
    }
    true
}
