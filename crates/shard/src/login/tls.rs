//! TLS before a login: requests for it, whether it is required, and what a failure means.
//!
//! Owns SSLRequest on both sides and direct TLS of clients. Records are the TLS layer's; what follows on an encrypted
//! connection is the same login as on a plain one.

use std::sync::Arc;

use settings::SslMode;
use telemetry::Level;
use tls::{HandshakeFault, NegotiatedTls};
use wire::{encode, sqlstate};

use crate::close_reason::CloseReason;
use crate::connections::Conn;
use crate::connections::cancel_conn::CancelTls;
use crate::state::ShardState;
use crate::tls_layer::TlsRequest;
use crate::{Action, ConnId, Peer, client, server};

/// The first byte of a TLS record that opens a handshake.
const HANDSHAKE_RECORD: u8 = 0x16;

impl ShardState {
    /// TLS is offered to clients on this connection.
    pub(crate) fn offers_tls(&self, conn: ConnId) -> bool {
        let Some(client) = self.core.conns.client(conn) else { return false };
        let is_inet = matches!(client.peer, Peer::Inet { .. });
        is_inet && client.tls.is_none() && self.tls.clients.mode != SslMode::Disable
    }

    /// The client must use TLS and does not.
    pub(crate) fn lacks_tls(&self, conn: ConnId) -> bool {
        self.tls.clients.mode >= SslMode::Require && self.offers_tls(conn)
    }

    /// The very first bytes of a client are a TLS record.
    pub(crate) fn begins_with_tls(&self, conn: ConnId, bytes: &[u8]) -> bool {
        bytes.first() == Some(&HANDSHAKE_RECORD) && self.offers_tls(conn)
    }

    /// Direct TLS, as PostgreSQL 17 has it.
    pub(crate) fn accept_direct_tls(&mut self, conn: ConnId, bytes: &[u8]) {
        self.begin_client_tls(conn, true, b"", bytes.to_vec());
    }

    /// SSLRequest is answered with S; nothing may have come behind it.
    pub(crate) fn accept_tls(&mut self, conn: ConnId) {
        self.begin_client_tls(conn, false, b"S", Vec::new());
    }

    fn begin_client_tls(&mut self, conn: ConnId, direct: bool, answer: &'static [u8], received: Vec<u8>) {
        let now_us = self.core.now.mono_us;
        let Some(client) = self.core.client(conn) else { return };
        client.phase = client::Phase::Handshake { direct };
        client.request_us = now_us;
        self.tls_requests.push(TlsRequest::Accept { conn, answer, received });
    }

    /// A handshake has gone well.
    pub(crate) fn secured(&mut self, conn: ConnId, agreed: NegotiatedTls) {
        match self.core.conns.get_mut(conn) {
            Some(Conn::Client(_)) => self.client_secured(conn, agreed),
            Some(Conn::Server(server)) => {
                let text = format!("SSL established: {}", agreed.summary());
                server.tls = Some(Box::new(agreed));
                let level = if self.core.config.global.log_connections { Level::Log } else { Level::Noise };
                self.core.log_server(conn, level, &text);
                self.core.begin_server_login(conn);
            }
            Some(Conn::Cancel(_)) => self.core.send_cancel(conn),
            Some(Conn::PeerCancel(_) | Conn::InternalClient(_) | Conn::Reserved) | None => {}
        }
    }

    fn client_secured(&mut self, conn: ConnId, agreed: NegotiatedTls) {
        let now_us = self.core.now.mono_us;
        let Some(client) = self.core.client(conn) else { return };
        let client::Phase::Handshake { direct } = client.phase else { return };
        client.request_us = now_us;
        let lacks_alpn = direct && !agreed.has_alpn;
        client.tls = Some(Box::new(agreed));
        // Inside TLS there is no further asking for encryption.
        client.phase = client::Phase::Startup { ssl_refused: true, gss_refused: true };
        if lacks_alpn {
            let text = "direct TLS connection without the protocol negotiation extension (ALPN)";
            self.core.log_client(conn, Level::Warning, text);
            self.disconnect_client(conn, "direct TLS connection without ALPN");
        }
    }

    /// A handshake has failed, or later a record could not be read: the connection is lost.
    pub(crate) fn unsecured(&mut self, conn: ConnId, fault: &HandshakeFault, was_secured: bool) {
        let (what, prefix) = if was_secured {
            ("TLS error", "TLS error: ")
        } else {
            ("TLS handshake failed", "TLS handshake error: handshake failed: ")
        };
        let text = format!("{prefix}{fault}");
        match self.core.conns.get(conn) {
            Some(Conn::Client(_)) => {
                self.core.log_client(conn, Level::Warning, &text);
                self.disconnect_client(conn, what);
            }
            Some(Conn::Server(_)) => {
                self.core.log_server(conn, Level::Warning, &text);
                if was_secured {
                    self.server_fault(conn, what);
                } else {
                    self.close_server(conn, CloseReason::Message(what));
                }
            }
            Some(Conn::Cancel(_)) => {
                self.core.log(Level::Warning, format!("cancel request: {text}"));
                self.core.act(Action::Close { conn });
            }
            Some(Conn::PeerCancel(_) | Conn::InternalClient(_) | Conn::Reserved) | None => {}
        }
    }

    /// The socket to a server is connected: whether TLS is requested first.
    pub(crate) fn asks_for_tls(&mut self, conn: ConnId) -> bool {
        let asks = self.tls.servers.mode != SslMode::Disable;
        let Some(server) = self.core.server(conn).filter(|server| asks && server.host().is_some()) else {
            return false;
        };
        server.phase = server::Phase::AskedTls;
        self.core.outbox.write(conn, encode::ssl_request);
        true
    }

    /// A server's answer to SSLRequest: one byte, and nothing may come behind it in clear.
    pub(crate) fn server_answers_tls(&mut self, conn: ConnId, bytes: &[u8]) {
        match bytes {
            [b'S'] => {
                let Some(server) = self.core.server(conn) else { return };
                let host = server.host().map(ToString::to_string).unwrap_or_default();
                server.phase = server::Phase::Handshake;
                self.tls_requests.push(TlsRequest::Connect { conn, host });
            }
            [b'N'] if self.tls.servers.mode < SslMode::Require => self.core.begin_server_login(conn),
            [b'N'] => self.close_server(conn, CloseReason::TlsRefused),
            [b'S' | b'N', ..] => {
                self.close_server(conn, CloseReason::PlainBehindTls);
            }
            _ => self.close_server(conn, CloseReason::TlsAnswerUnexpected),
        }
    }

    /// A cancel connection's socket is there: it gets TLS if the server that runs the query has it.
    pub(crate) fn secure_cancel(&mut self, conn: ConnId) -> bool {
        let Some(cancel_conn) = self.core.conns.cancel_conn_mut(conn) else { return false };
        if !matches!(cancel_conn.tls, CancelTls::Wanted(_)) || self.tls.servers.mode == SslMode::Disable {
            return false;
        }
        self.core.outbox.write(conn, encode::ssl_request);
        true
    }

    /// The answer to a cancel connection's SSLRequest. PostgreSQL answers the cancel request itself with nothing but
    /// its end of file.
    pub(crate) fn cancel_conn_received(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(cancel_conn) = self.core.conns.cancel_conn_mut(conn) else { return };
        let CancelTls::Wanted(host) = &cancel_conn.tls else { return };
        let host = Arc::clone(host);
        cancel_conn.tls = CancelTls::Begun;
        match bytes {
            [b'S'] => self.tls_requests.push(TlsRequest::Connect { conn, host: host.to_string() }),
            // A cancel key is not sent in clear over a connection that had to use TLS.
            _ => self.core.act(Action::Close { conn }),
        }
    }

    /// SSLRequest of a client, with what came behind it.
    pub(crate) fn ssl_request(&mut self, conn: ConnId, rest: &[u8]) {
        if self.offers_tls(conn) && rest.is_empty() {
            return self.accept_tls(conn);
        }
        self.refuse_encryption(conn, true, rest);
    }

    /// The client's startup packet came in clear where it must not.
    pub(crate) fn refuse_plain(&mut self, conn: ConnId) {
        self.fail_client(conn, sqlstate::INVALID_AUTHORIZATION, "SSL required");
    }
}
