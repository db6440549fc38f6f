//! The first bytes of an idle client, judged before a server is checked out for it.
//!
//! Owns that no server is checked out for a message without a reply: one that PostgreSQL ignores outside a COPY is
//! skipped as it comes, however long, and one that has to be whole before it can be passed on is kept until it is.

use session::FirstMessage;
use wire::frame;
use wire::frame::Header;
use wire::tag::frontend as tag;

use crate::ConnId;
use crate::client::{Client, Phase};
use crate::core::Core;
use crate::link::{cached, checkout, client_end, deferred_begin, overload, quotas, relay};

/// A message about a statement or portal is kept up to this size while its client has no server; a longer one has to be
/// passed on in pieces.
const WHOLE_BYTES: u32 = 64 * 1024;

/// The first bytes of a request: checks out a server, which is returned, or waits for one.
#[inline(always)]
pub(crate) fn idle_client_received(core: &mut Core, conn: ConnId, bytes: &[u8]) -> Option<ConnId> {
    let frame_bytes_max = core.config.global.max_packet_size;
    let client = core.client(conn)?;
    if client.ignored_bytes > 0 || !client.request.held.is_empty() {
        let behind = client.skip_ignored(bytes);
        client.request.held.extend_from_slice(behind);
        idle_client_received_held(core, conn);
        return None;
    }
    match first_unsent_message(bytes, frame_bytes_max) {
        FirstMessage::NeedsServer => {
            let may_answer = deferred_begin::may_answer(client, bytes);
            if core.has_quotas && quotas::stops(core, conn, bytes)
                || may_answer && deferred_begin::answer(core, conn, bytes)
            {
                return None;
            }
            if !core.query_caches.are_none() && cached::answer(core, conn, bytes) {
                return None;
            }
            let server = checkout::checkout(core, conn, bytes);
            if server.is_none() {
                hold_until_linked(core, conn, bytes);
            }
            return server;
        }
        FirstMessage::Incomplete => hold(core, conn, bytes),
        FirstMessage::Ignored(_) => {
            hold(core, conn, bytes);
            idle_client_received_held(core, conn);
        }
        FirstMessage::Terminate => client_end::disconnect_client(core, conn, "client close request"),
        FirstMessage::Fault(fault) => client_end::client_fault(core, conn, &fault),
    }
    None
}

/// The same for bytes that were kept.
pub(crate) fn idle_client_received_held(core: &mut Core, conn: ConnId) {
    let frame_bytes_max = core.config.global.max_packet_size;
    let Some(client) = core.client(conn) else { return };
    if client.refusal.is_some() {
        return overload::answer_refused(core, conn);
    }
    let (held, mut at) = (&mut client.request.held, 0);
    while let FirstMessage::Ignored(ignored) = first_unsent_message(&held[at..], frame_bytes_max) {
        let here = ignored.min(held.len() - at);
        at += here;
        client.ignored_bytes = u32::try_from(ignored - here).unwrap_or(0);
    }
    held.drain(..at); // At once: what is behind would be moved for each message.
    match first_unsent_message(&client.request.held, frame_bytes_max) {
        FirstMessage::NeedsServer => {
            client.recording = None; // It was for an earlier request.
            if core.has_quotas && quotas::stops(core, conn, &[]) {
                return;
            }
            match checkout::checkout(core, conn, &[]) {
                Some(server) => relay::send_held(core, conn, server),
                None => overload::admit(core, conn),
            }
        }
        FirstMessage::Incomplete | FirstMessage::Ignored(_) => {}
        FirstMessage::Terminate => client_end::disconnect_client(core, conn, "client close request"),
        FirstMessage::Fault(fault) => client_end::client_fault(core, conn, &fault),
    }
}

/// What a client with a server sent has asked for nothing, for example the end of copy data that was refused before.
/// It keeps the server only for a request that is too long to be kept whole.
#[cold]
pub(crate) fn release_without_request(core: &mut Core, conn: ConnId, server: ConnId) {
    let frame_bytes_max = core.config.global.max_packet_size;
    let Some(client) = core.client(conn) else { return };
    if first_unsent_message(&client.request.held, frame_bytes_max) == FirstMessage::NeedsServer {
        return;
    }
    checkout::release(core, server);
    if core.exporting.is_some() {
        core.try_export(conn);
    }
}

fn hold(core: &mut Core, conn: ConnId, bytes: &[u8]) {
    if let Some(client) = core.client(conn) {
        client.request.held.extend_from_slice(bytes);
    }
}

/// The client waits, or got another server than the first one that was idle (`server_shuffle`): then nothing else would send this.
#[cold]
fn hold_until_linked(core: &mut Core, conn: ConnId, bytes: &[u8]) {
    hold(core, conn, bytes);
    if let Some(Phase::Linked(server)) = core.client(conn).map(|client| &client.phase) {
        let server = *server;
        relay::send_held(core, conn, server);
    } else {
        overload::admit(core, conn);
    }
}

impl Client {
    /// Skips what is left of a message that is ignored; the answer is what follows it.
    fn skip_ignored<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let here = bytes.len().min(self.ignored_bytes as usize);
        self.ignored_bytes -= u32::try_from(here).unwrap_or(self.ignored_bytes);
        &bytes[here..]
    }
}

/// [`session::first_message`] where nothing has been sent to a server yet. `Ignored` counts the bytes of the whole message, whether they
/// are here or not.
#[inline(always)]
fn first_unsent_message(bytes: &[u8], frame_bytes_max: u32) -> FirstMessage {
    match session::first_message(bytes, frame_bytes_max) {
        FirstMessage::NeedsServer if bytes.first() != Some(&tag::QUERY) => match frame::header(bytes) {
            Ok(Some(header)) => unless_incomplete(header, bytes.len()),
            _ => FirstMessage::NeedsServer,
        },
        judged => judged,
    }
}

fn unless_incomplete(header: Header, here: usize) -> FirstMessage {
    match header.tag {
        tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL => {
            FirstMessage::Ignored(header.frame_bytes as usize)
        }
        tag::PARSE | tag::BIND | tag::DESCRIBE | tag::CLOSE
            if here < header.frame_bytes as usize && header.frame_bytes <= WHOLE_BYTES =>
        {
            FirstMessage::Incomplete
        }
        _ => FirstMessage::NeedsServer,
    }
}
