//! The TLS layer: between a shard's events and actions, which the driver sees as ciphertext, and its state, which sees
//! plaintext only.
//!
//! Owns one [`Session`] per connection with TLS, and the memory of an event's plaintext. TLS is requested by a
//! [`TlsRequest`]. Owns what a failure of it means for the connection. Plain connections pass untouched; without any session nothing here runs. Never
//! decides who may or must use TLS.

use std::collections::VecDeque;

use telemetry::Level;
use tls::{HandshakeFault, NegotiatedTls, TlsConnection};

use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::core::Core;
use crate::effects::TlsRequest;
use crate::link::{backpressure, client_end, server_end};
use crate::login::client_tls;
use crate::outbox::{Outbox, empty};
use crate::state::ShardState;
use crate::{Action, ConnId, Event, Source, cancel, servers};

/// All sessions of a shard.
#[derive(Default)]
pub(crate) struct TlsLayer {
    /// By connection.
    links: Vec<Option<Link>>,
    count: usize,
    /// Plaintext of the event at hand.
    opened: Vec<u8>,
    /// The event's bytes were ciphertext: what state forwards lies in `opened`.
    is_opened: bool,
    scratch: Vec<u8>,
    gathered: Vec<u8>,
    queue: VecDeque<Action>,
    /// What goes out before everything else: ranges of the written bytes.
    first: Vec<(ConnId, usize, usize)>,
    /// Connections whose output could not be encrypted.
    broken: Vec<ConnId>,
}

/// A connection's session.
struct Link {
    session: Box<TlsConnection>,
    /// It failed: nothing is sent any more, least of all in clear.
    is_broken: bool,
}

impl TlsLayer {
    /// There is no connection with TLS.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.count == 0
    }

    fn link(&mut self, conn: ConnId) -> Option<&mut Link> {
        self.links.get_mut(conn.0 as usize).and_then(Option::as_mut)
    }

    fn has(&self, conn: ConnId) -> bool {
        matches!(self.links.get(conn.0 as usize), Some(Some(_)))
    }

    fn insert(&mut self, conn: ConnId, session: Box<TlsConnection>) {
        let index = conn.0 as usize;
        if index >= self.links.len() {
            self.links.resize_with(index + 1, || None);
        }
        if let Some(slot) = self.links.get_mut(index) {
            debug_assert!(slot.is_none(), "a second session on one connection");
            self.count += usize::from(slot.is_none());
            *slot = Some(Link { session, is_broken: false });
        }
    }

    fn take(&mut self, conn: ConnId) -> Option<Box<TlsConnection>> {
        let link = self.links.get_mut(conn.0 as usize)?.take()?;
        self.count -= 1;
        Some(link.session)
    }

    /// Passes an event to the state, in clear.
    pub(crate) fn event(&mut self, state: &mut ShardState, event: Event<'_>) {
        match event {
            Event::Received { conn, bytes, unsent } if self.has(conn) => {
                self.received(state, conn, bytes, unsent);
            }
            Event::Closed { conn } => {
                self.take(conn);
                state.event(event);
            }
            other => state.event(other),
        }
    }

    fn received(&mut self, state: &mut ShardState, conn: ConnId, bytes: &[u8], unsent: bool) {
        let Some(Some(link)) = self.links.get_mut(conn.0 as usize) else { return };
        if link.is_broken {
            return;
        }
        let (scratch, opened) = (&mut self.scratch, &mut self.opened);
        opened.clear();
        self.is_opened = true;
        let session = &mut link.session;
        let was_secured = session.is_handshake_complete();
        let (range, outcome) = state.core.outbox.append(|out| session.receive(bytes, scratch, opened, out));
        self.first.push((conn, range.start, range.end));
        match outcome {
            Ok(progress) => {
                let ends = progress.ended && session.is_server_side();
                if progress.secured {
                    let agreed = session.negotiated();
                    secured(&mut state.core, conn, agreed);
                }
                if !self.opened.is_empty() {
                    state.event(Event::Received { conn, bytes: &self.opened, unsent });
                }
                if ends {
                    backpressure::hung_up(&mut state.core, conn);
                }
            }
            Err(fault) => {
                link.is_broken = true;
                unsecured(&mut state.core, conn, &fault, was_secured);
            }
        }
    }

    /// Handles the state's requests, which may lead to further requests.
    pub(crate) fn secure_all(&mut self, state: &mut ShardState) {
        while let Some(secure) = state.core.tls.requests.pop() {
            match secure {
                TlsRequest::Adopt { conn, session } => self.insert(conn, session),
                TlsRequest::Accept { conn, answer, received } => {
                    state.core.tls.settings.set_time(state.core.now.wall_us);
                    let session = TlsConnection::accept(&state.core.tls.settings.clients);
                    self.begin(state, conn, session, answer, &received);
                }
                TlsRequest::Connect { conn, host, is_node } => {
                    let settings = &state.core.tls.settings;
                    settings.set_time(state.core.now.wall_us);
                    let terms = if is_node { &settings.peers } else { &settings.servers };
                    let session = TlsConnection::connect(terms, &host);
                    self.begin(state, conn, session, b"", b"");
                }
            }
        }
    }

    fn begin(
        &mut self,
        state: &mut ShardState,
        conn: ConnId,
        session: Result<TlsConnection, HandshakeFault>,
        answer: &[u8],
        received: &[u8],
    ) {
        let mut session = match session {
            Ok(session) => Box::new(session),
            Err(fault) => return unsecured(&mut state.core, conn, &fault, false),
        };
        let (scratch, opened) = (&mut self.scratch, &mut Vec::new());
        let (range, outcome) = state.core.outbox.append(|out| {
            out.extend_from_slice(answer);
            session.receive(received, scratch, opened, out)
        });
        self.first.push((conn, range.start, range.end));
        self.insert(conn, session);
        if let Err(fault) = outcome {
            if let Some(link) = self.link(conn) {
                link.is_broken = true;
            }
            unsecured(&mut state.core, conn, &fault, false);
        }
    }

    /// Seals what state sends to connections with TLS. `received` are the event's bytes as the driver has them.
    pub(crate) fn seal_all(&mut self, state: &mut ShardState, received: &[u8]) {
        loop {
            self.translate(&mut state.core.outbox, received);
            if self.broken.is_empty() {
                break;
            }
            for conn in std::mem::take(&mut self.broken) {
                unsecured(&mut state.core, conn, &HandshakeFault::NotConfigured, true);
            }
            state.settle();
        }
        self.is_opened = false;
    }

    fn translate(&mut self, outbox: &mut Outbox, received: &[u8]) {
        let mut queue = std::mem::take(&mut self.queue);
        outbox.exchange(&mut queue);
        for (conn, start, end) in self.first.drain(..) {
            outbox.send(conn, Source::Written, start, end);
        }
        while let Some(action) = queue.pop_front() {
            match action {
                Action::Send { to, .. } if self.has(to) => {
                    self.seal(outbox, to, action, &mut queue, received)
                }
                Action::Send { to, source: Source::Received, start, end } if self.is_opened => {
                    let bytes = self.opened.get(start as usize..end as usize).unwrap_or_default();
                    outbox.write(to, |out| out.extend_from_slice(bytes));
                }
                Action::Close { conn } => {
                    self.send_close_notify(outbox, conn);
                    outbox.push(Action::Close { conn });
                }
                Action::Move { conn, to, mut client } => {
                    client.session = self.take(conn);
                    outbox.push(Action::Move { conn, to, client });
                }
                other => outbox.push(other),
            }
        }
        self.queue = queue;
    }

    /// One send, together with those that follow it to the same connection: few large records instead of many small.
    fn seal(
        &mut self,
        outbox: &mut Outbox,
        to: ConnId,
        first: Action,
        queue: &mut VecDeque<Action>,
        received: &[u8],
    ) {
        let TlsLayer { links, gathered, opened, is_opened, broken, .. } = self;
        let received = if *is_opened { opened } else { received };
        gathered.clear();
        let mut next = Some(first);
        while let Some(Action::Send { source, start, end, .. }) = next {
            let from = if source == Source::Received { received } else { outbox.written() };
            gathered.extend_from_slice(from.get(start as usize..end as usize).unwrap_or_default());
            let follows = matches!(queue.front(), Some(Action::Send { to: other, .. }) if *other == to);
            next = if follows { queue.pop_front() } else { None };
        }
        let Some(Some(link)) = links.get_mut(to.0 as usize) else { return };
        if link.is_broken || !link.session.is_handshake_complete() {
            return;
        }
        let (range, outcome) = outbox.append(|out| link.session.encrypt(gathered, out));
        empty(gathered);
        outbox.send(to, Source::Written, range.start, range.end);
        if outcome.is_err() {
            link.is_broken = true;
            broken.push(to);
        }
    }

    /// The connection is being closed: sends close_notify to the peer.
    fn send_close_notify(&mut self, outbox: &mut Outbox, conn: ConnId) {
        let Some(link) = self.link(conn) else { return };
        if !link.is_broken {
            let (range, ()) = outbox.append(|out| link.session.close(out));
            outbox.send(conn, Source::Written, range.start, range.end);
        }
        self.take(conn);
    }
}

/// A handshake has gone well.
fn secured(core: &mut Core, conn: ConnId, agreed: NegotiatedTls) {
    match core.conns.get_mut(conn) {
        Some(Conn::Client(_)) => client_tls::client_secured(core, conn, agreed),
        Some(Conn::Server(server)) => {
            let text = format!("SSL established: {}", agreed.summary());
            server.tls = Some(Box::new(agreed));
            let level = if core.config.global.log_connections { Level::Log } else { Level::Noise };
            core.log_server(conn, level, &text);
            servers::begin_server_login(core, conn);
        }
        Some(Conn::Cancel(_)) => cancel::send_cancel(core, conn),
        Some(Conn::PeerCancel(_)) => cancel::peers::send_peer_cancel(core, conn),
        Some(Conn::InternalClient(_) | Conn::Reserved) | None => {}
    }
}

/// A handshake has failed, or later a record could not be read: the connection is lost.
fn unsecured(core: &mut Core, conn: ConnId, fault: &HandshakeFault, was_secured: bool) {
    let (what, prefix) = if was_secured {
        ("TLS error", "TLS error: ")
    } else {
        ("TLS handshake failed", "TLS handshake error: handshake failed: ")
    };
    let text = format!("{prefix}{fault}");
    match core.conns.get(conn) {
        Some(Conn::Client(_)) => {
            core.log_client(conn, Level::Warning, &text);
            client_end::disconnect_client(core, conn, what);
        }
        Some(Conn::Server(_)) => {
            core.log_server(conn, Level::Warning, &text);
            if was_secured {
                server_end::server_fault(core, conn, what);
            } else {
                server_end::close_server(core, conn, CloseReason::Message(what));
            }
        }
        Some(Conn::Cancel(_)) => {
            core.log(Level::Warning, format!("cancel request: {text}"));
            cancel::close(core, conn);
        }
        Some(Conn::PeerCancel(_)) => cancel::peers::peer_cancel_conn_unsecured(core, conn, &text),
        Some(Conn::InternalClient(_) | Conn::Reserved) | None => {}
    }
}
