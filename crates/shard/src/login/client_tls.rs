//! TLS of clients before their login: requests for it, and whether it is required.
//!
//! Owns SSLRequest and direct TLS of clients. Records are the TLS layer's; what follows on an encrypted
//! connection is the same login as on a plain one.

use settings::SslMode;
use telemetry::Level;
use tls::NegotiatedTls;
use wire::sqlstate;

use crate::client::login_times::LoginPart;
use crate::core::Core;
use crate::effects::TlsRequest;
use crate::link::{client_end, slow_login};
use crate::login::startup;
use crate::{ConnId, Peer, client};

/// The first byte of a TLS record that opens a handshake.
const HANDSHAKE_RECORD: u8 = 0x16;

/// TLS is offered to clients on this connection.
fn offers_tls(core: &Core, conn: ConnId) -> bool {
    let Some(client) = core.conns.client(conn) else { return false };
    let is_inet = matches!(client.peer, Peer::Inet { .. });
    is_inet && client.tls.is_none() && core.tls.settings.clients.mode != SslMode::Disable
}

/// The client must use TLS and does not.
pub(crate) fn lacks_tls(core: &Core, conn: ConnId) -> bool {
    core.tls.settings.clients.mode >= SslMode::Require && offers_tls(core, conn)
}

/// The very first bytes of a client are a TLS record.
pub(crate) fn begins_with_tls(core: &Core, conn: ConnId, bytes: &[u8]) -> bool {
    bytes.first() == Some(&HANDSHAKE_RECORD) && offers_tls(core, conn)
}

/// Direct TLS, as PostgreSQL 17 has it.
pub(crate) fn accept_direct_tls(core: &mut Core, conn: ConnId, bytes: &[u8]) {
    begin_client_tls(core, conn, true, b"", bytes.to_vec());
}

/// SSLRequest is answered with S; nothing may have come behind it.
fn accept_tls(core: &mut Core, conn: ConnId) {
    begin_client_tls(core, conn, false, b"S", Vec::new());
}

fn begin_client_tls(core: &mut Core, conn: ConnId, direct: bool, answer: &'static [u8], received: Vec<u8>) {
    let now_us = core.now.mono_us;
    let Some(client) = core.client(conn) else { return };
    client.phase = client::Phase::Handshake { direct };
    client.request_us = now_us;
    slow_login::begins(client, LoginPart::Tls, now_us);
    core.tls.requests.push(TlsRequest::Accept { conn, answer, received });
}

pub(crate) fn client_secured(core: &mut Core, conn: ConnId, agreed: NegotiatedTls) {
    let now_us = core.now.mono_us;
    let Some(client) = core.client(conn) else { return };
    let client::Phase::Handshake { direct } = client.phase else { return };
    client.request_us = now_us;
    slow_login::ends(client, now_us);
    let lacks_alpn = direct && !agreed.has_alpn;
    client.tls = Some(Box::new(agreed));
    // Inside TLS there is no further asking for encryption.
    client.phase = client::Phase::Startup { ssl_refused: true, gss_refused: true };
    if lacks_alpn {
        let text = "direct TLS connection without the protocol negotiation extension (ALPN)";
        core.log_client(conn, Level::Warning, text);
        client_end::disconnect_client(core, conn, "direct TLS connection without ALPN");
    }
}

/// SSLRequest of a client, with what came behind it.
pub(crate) fn ssl_request(core: &mut Core, conn: ConnId, rest: &[u8]) {
    if offers_tls(core, conn) && rest.is_empty() {
        return accept_tls(core, conn);
    }
    startup::refuse_encryption(core, conn, true, rest);
}

/// The client's startup packet came in clear where it must not.
pub(crate) fn refuse_plain(core: &mut Core, conn: ConnId) {
    client_end::fail_client(core, conn, sqlstate::INVALID_AUTHORIZATION, "SSL required");
}
