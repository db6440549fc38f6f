//! Notifications from the connection that a pool's clients share, to each client between its transactions.
//!
//! Owns when a client can take them, and what becomes of one for which they pile up. In front of ReadyForQuery they are put by
//! `session`.

use session::Listening;
use session::listening::{self, Notification};
use wire::backend::Status;
use wire::{encode, sqlstate};

use crate::ConnId;
use crate::client::{Client, Phase};
use crate::core::Core;
use crate::link::client_end;
use crate::local_pools::listener::MARKERS;
use crate::outbox::Outbox;

/// More waits for the end of a client's transaction than may.
const QUEUE_FULL: &str = "too many notifications while the client was in a transaction or did not read";
/// The shared connection has the text in another encoding.
const OTHER_ENCODING: &str =
    "a notification cannot be converted to the client_encoding that was set after LISTEN";

/// A notification for this client. True if it waits.
pub(crate) fn deliver(core: &mut Core, client_conn: ConnId, shared: ConnId, one: &Notification<'_>) -> bool {
    let has_encoding =
        one.channel.is_ascii() && one.payload.is_ascii() || has_encoding_of(core, client_conn, shared);
    if !has_encoding {
        client_end::fail_client(core, client_conn, sqlstate::UNTRANSLATABLE, OTHER_ENCODING);
        return false;
    }
    let takes = can_take(core, client_conn);
    let Some(client) = core.conns.find_client_mut(client_conn) else { return false };
    let Some(listening) = client.listening.as_deref_mut().filter(|listening| listening.is_on(one.channel))
    else {
        return false;
    };
    if listening.queue(one.frame).is_err() {
        client_end::fail_client(core, client_conn, sqlstate::PROGRAM_LIMIT, QUEUE_FULL);
        return false;
    }
    if takes {
        flush(core, client_conn);
    }
    !takes
}

fn has_encoding_of(core: &Core, client_conn: ConnId, shared: ConnId) -> bool {
    let (client, server) = (core.conns.find_client(client_conn), core.conns.find_server(shared));
    client
        .zip(server)
        .is_some_and(|(client, server)| client.parameters.has_encoding_of(&server.protocol.parameters))
}

/// The client is between two transactions and reads.
fn can_take(core: &Core, client_conn: ConnId) -> bool {
    let is_suspended = core.administration.is_suspended();
    let reads = |client: &&Client| !client.send_buffer_full && !is_suspended;
    let Some(client) = core.conns.find_client(client_conn).filter(reads) else {
        return false;
    };
    match client.phase {
        Phase::Idle => client.deferred_begin.is_none(),
        // What it listens on has to be known first, if that is followed.
        Phase::Linked(server) => core.conns.find_server(server).is_some_and(|server| {
            server.protocol.has_answered() && !server.protocol.session_is_to_be_asked()
        }),
        _ => false,
    }
}

/// What waits goes to the client, if it can take it.
pub(crate) fn flush(core: &mut Core, client_conn: ConnId) {
    if !can_take(core, client_conn) {
        return;
    }
    let Some(client) = core.conns.find_client_mut(client_conn) else { return };
    let queued = client.listening.as_deref_mut().map(Listening::take_queued).unwrap_or_default();
    if !queued.is_empty() {
        core.outbox.write(client_conn, |out| out.extend_from_slice(&queued));
    }
}

/// What waits goes to the client, and the ReadyForQuery that has waited with it. One that was not withheld may not be due yet.
pub(crate) fn flush_ready(core: &mut Core, client_conn: ConnId) {
    let Some(client) = core.conns.find_client_mut(client_conn) else { return };
    let Some(listening) = client.listening.as_deref_mut() else { return };
    if !listening.is_ready_withheld() || matches!(client.phase, Phase::Closing) {
        return flush(core, client_conn);
    }
    give_ready(&mut core.outbox, client_conn, listening);
    if listening.is_empty() {
        client.listening = None;
    }
}

/// The ReadyForQuery that was withheld comes now, if one was.
#[cold]
#[inline(never)]
pub(crate) fn give_ready(outbox: &mut Outbox, client_conn: ConnId, listening: &mut Listening) {
    if listening.take_ready() {
        let mut frames = listening.take_queued();
        encode::ready(&mut frames, Status::Idle);
        outbox.write(client_conn, |out| out.extend_from_slice(&frames));
    }
}

/// What a client's own server has delivered while a query of Weir's own ran there.
pub(crate) fn deliver_own(core: &mut Core, client_conn: ConnId, frames: &[u8]) {
    let Some(client) = core.conns.find_client(client_conn) else { return };
    let server = client.server().and_then(|conn| core.conns.find_server(conn));
    let server_id = server.and_then(|server| server.key.as_ref()).map_or(0, |key| key.0);
    let mut own: Vec<u8> = listening::notifications(frames)
        .filter(|one| !client.hears_elsewhere(one.channel) && one.channel != MARKERS.as_bytes())
        .flat_map(|one| one.frame)
        .copied()
        .collect();
    listening::replace_process_id(&mut own, server_id, client.cancel_key.process_id());
    if !own.is_empty() {
        core.outbox.write(client_conn, |out| out.extend_from_slice(&own));
    }
}

impl Client {
    /// It gets the notifications of this channel from the shared connection.
    fn hears_elsewhere(&self, channel: &[u8]) -> bool {
        self.listening.as_deref().is_some_and(|listening| listening.is_on(channel))
    }
}
