//! A client's first bytes: startup packets, requests for encryption, cancel requests, and what is none of these.
//!
//! Owns everything before the startup packet with the user's name; that is handled by `login`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use session::StartupRequest;
use session::startup_request::NEWEST;
use settings::truncate_identifier;
use wire::startup::{First, StartupFault, Version};
use wire::{sqlstate, startup};

use crate::cancel_key::Key;
use crate::client::{Client, Phase};
use crate::connections::Conn;
use crate::core::Core;
use crate::effects::Effect;
use crate::link::{client_end, slow_login};
use crate::login::{Logins, client_tls};
use crate::{Action, ConnId, Peer};

/// Peers whose garbage was logged within the last second.
const GARBAGE_PEERS: usize = 1024;

/// The log text for bytes that are no startup packet.
const NO_PACKET: &str = "bad packet header";

/// When each peer last sent something that is no startup packet, in seconds.
#[derive(Default)]
pub(crate) struct GarbageSeen(BTreeMap<Option<IpAddr>, u64>);

impl GarbageSeen {
    /// Notes it; whether it is the first of this peer within a second.
    fn is_first(&mut self, peer: Option<IpAddr>, second: u64) -> bool {
        if self.0.len() >= GARBAGE_PEERS {
            self.0.clear();
        }
        self.0.insert(peer, second) != Some(second)
    }
}

impl Logins {
    pub(crate) fn accepted(&mut self, core: &mut Core, conn: ConnId, peer: Peer) {
        let mut client =
            Client::new(core.process.next_id(), peer, &core.tracked, Arc::clone(&self.nobody), core.now);
        if !core.config.global.log_slow_queries.is_zero() {
            slow_login::measure(&mut client);
        }
        core.conns.place(conn, Conn::Client(Box::new(client)));
        self.count_unauthenticated(core, conn);
    }

    /// Bytes before the startup packet is complete.
    pub(crate) fn startup(&mut self, core: &mut Core, conn: ConnId, bytes: &[u8]) {
        let Some(client) = core.client(conn) else { return };
        if client.request.held.is_empty() && client_tls::begins_with_tls(core, conn, bytes) {
            return client_tls::accept_direct_tls(core, conn, bytes);
        }
        let Some(client) = core.client(conn) else { return };
        // Nearly all send it at once.
        let mut held = std::mem::take(&mut client.request.held);
        let packet = if held.is_empty() {
            bytes
        } else {
            held.extend_from_slice(bytes);
            &held
        };
        match startup::first(packet) {
            Ok(None) => client.request.held = if held.is_empty() { bytes.to_vec() } else { held },
            Ok(Some((first, taken))) => self.first_packet(core, conn, &first, &packet[taken..]),
            Err(fault) => self.startup_fault(core, conn, fault),
        }
    }

    fn startup_fault(&mut self, core: &mut Core, conn: ConnId, fault: StartupFault) {
        match fault {
            StartupFault::Layout => {
                let text = "invalid startup packet layout: expected terminator as last byte";
                client_end::fail_client(core, conn, sqlstate::PROTOCOL_VIOLATION, text);
            }
            StartupFault::Version(version) => unsupported_version(core, conn, version),
            StartupFault::Length(_) | StartupFault::CancelLength => self.garbage(core, conn),
        }
    }

    /// What came is no startup packet: closed without an error message, and logged once a second for each peer.
    fn garbage(&mut self, core: &mut Core, conn: ConnId) {
        let Some(client) = core.client(conn) else { return };
        let address = match client.peer {
            Peer::Inet { remote, .. } => Some(remote.ip()),
            Peer::Unix { .. } => None,
        };
        let second = core.now.mono_us / 1_000_000;
        if self.garbage.is_first(address, second) {
            return client_end::disconnect_client(core, conn, NO_PACKET);
        }
        client_end::forget_client(core, conn);
        core.act(Action::Close { conn });
    }
}

/// Sessions of these clients are followed: they may set at startup what they could set later.
fn takes_any_parameter(core: &Core, database: &str, user: &str) -> bool {
    let Some(database) = core.config.database(truncate_identifier(database)) else { return false };
    let user = database.user.as_deref().unwrap_or(truncate_identifier(user));
    core.config.follows_sessions(&database, core.config.user(user).map(|user| &**user))
}

fn unsupported_version(core: &mut Core, conn: ConnId, version: Version) {
    let Version { major, minor } = version;
    let text =
        format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.{}", NEWEST.minor);
    client_end::fail_client(core, conn, sqlstate::FEATURE_NOT_SUPPORTED, &text);
}

impl Logins {
    fn first_packet(&mut self, core: &mut Core, conn: ConnId, first: &First<'_>, rest: &[u8]) {
        match first {
            First::Ssl => client_tls::ssl_request(core, conn, rest),
            First::Gss => refuse_encryption(core, conn, false, rest),
            First::Cancel(cancel) => {
                self.note_cancel(core, conn);
                let key = Key::new(cancel.process_id, cancel.secret);
                core.effects.push(Effect::CancelRequest { conn, key });
            }
            First::Startup(packet) => {
                match StartupRequest::read(
                    packet,
                    &core.config.global.ignore_startup_parameters,
                    &core.tracked,
                    |database, user| takes_any_parameter(core, database, user),
                ) {
                    Ok(startup_request) => self.startup_request_received(core, conn, startup_request, rest),
                    Err(fault) => client_end::client_fault(core, conn, &fault),
                }
            }
        }
    }
}

/// SSLRequest and GSSENCRequest are answered N, each once.
pub(crate) fn refuse_encryption(core: &mut Core, conn: ConnId, is_ssl: bool, rest: &[u8]) {
    let now_us = core.now.mono_us;
    let Some(client) = core.client(conn) else { return };
    let Phase::Startup { ssl_refused, gss_refused } = &mut client.phase else { return };
    let again = if is_ssl { ssl_refused } else { gss_refused };
    let is_again = std::mem::replace(again, true);
    client.request_us = now_us;
    if is_again {
        return unsupported_version(
            core,
            conn,
            Version { major: 1234, minor: if is_ssl { 5679 } else { 5680 } },
        );
    }
    core.outbox.write(conn, |out| out.push(b'N'));
    if !rest.is_empty() {
        let what = if is_ssl { "SSL" } else { "GSSAPI encryption" };
        let text = format!("received unencrypted data after {what} request");
        client_end::fail_client(core, conn, sqlstate::PROTOCOL_VIOLATION, &text);
    }
}
