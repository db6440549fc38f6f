//! RESET, DISCARD ALL and SET … TO DEFAULT of a client that gave parameters at startup: its server has gone back to its own
//! defaults, and gets the client's values before the client's next request.
//!
//! Owns when they are set on a server that the client keeps. A server that is released gets them at the next checkout, like
//! any other. Which they are, and what is reported to the client, is `session`'s.

use session::{Parameters, ServerProtocol};

use crate::client::Client;
use crate::core::Core;
use crate::link::{checkout, session_state};
use crate::server::InternalQuery;
use crate::{ConnId, client};

impl Client {
    /// What was reset on its server has the value of the startup packet again.
    #[cold]
    pub(crate) fn restore_client_startup_values(
        &mut self,
        protocol: &ServerProtocol,
        default_params: Option<&Parameters>,
    ) {
        let (Some(startup), lost) = (&self.startup, protocol.lost()) else { return };
        self.parameters.take_over_settings(&protocol.parameters);
        if let Some(default_params) = default_params.filter(|_| protocol.follows_session()) {
            self.parameters.return_to_startup(startup, default_params);
        }
        for position in lost.positions() {
            self.parameters.take_over(position, startup);
        }
    }
}

/// The client's startup values were reported to it again. If it keeps its server, because of a transaction or
/// for its session, they are set now.
#[cold]
pub(crate) fn restore_startup_values(core: &mut Core, server_conn: ConnId, client_conn: ConnId) {
    let Some((client, server)) = core.conns.linked(client_conn, server_conn) else { return };
    let is_linked = matches!(client.phase, client::Phase::Linked(linked) if linked == server_conn);
    if !is_linked {
        return;
    }
    // Half a notice behind the ReadyForQuery is the client's, and would be swallowed with the answer. A cancel request under
    // way is for the client's query, and must not meet Weir's own.
    if !server.protocol.is_exportable() || server.protocol.boundary().is_none() || server.cancels > 0 {
        return server.protocol.hold_requests();
    }
    // Which of the values that no server reports are gone, the server says first; they are set with its answer.
    if !server.protocol.in_block() && server.protocol.session_is_to_be_asked() {
        return session_state::keep(core, client_conn, server_conn);
    }
    server.protocol.release_requests();
    let local = server.protocol.take_lost().local;
    let now = &server.protocol.parameters;
    let sets = match server.protocol.in_block() {
        true => client.parameters.sets_within(now, &core.tracked, local),
        false => client.parameters.sets_from(now, &core.tracked),
    };
    match sets {
        Some(sets) => {
            checkout::prepare(core, client_conn, server_conn, InternalQuery::Restore(client_conn), &sets)
        }
        None => checkout::prepared(core, server_conn, client_conn),
    }
}

/// A server sends while its client's requests are held, or a cancel request is over: once what it sends is whole, the values
/// can be set.
#[cold]
pub(crate) fn restore_late(core: &mut Core, server_conn: ConnId, client_conn: ConnId) {
    let Some(server) = core.server(server_conn) else { return };
    if !server.protocol.is_exportable() {
        return;
    }
    server.protocol.release_requests();
    checkout::release(core, server_conn);
    // What was held may have been sent: then the values are set.
    if core.conns.find_server(server_conn).is_some_and(|server| !server.protocol.is_busy()) {
        restore_startup_values(core, server_conn, client_conn);
    }
}

/// All is answered, and the driver has not said yet that all is sent: the client keeps its server until then. If the session is to be asked what
/// it holds, that is done before the client's next request all the same, as it may have reset startup values that no server reports.
#[cold]
pub(crate) fn restore_unsent(core: &mut Core, server_conn: ConnId, client_conn: ConnId) {
    if core.conns.find_client(client_conn).is_some_and(|client| client.startup.is_some()) {
        restore_startup_values(core, server_conn, client_conn);
    }
}
