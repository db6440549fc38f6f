//! Under which cancel keys clients are found, and the process ids of server processes in them.
//!
//! Owns that no two clients have the same key: a key that another client has is not registered. What a key consists of is
//! `cancel_key`'s.

use settings::PeerGroup;

use crate::ConnId;
use crate::cancel_key::{Key, LONG};
use crate::core::Core;

/// Secrets that are tried with a process id. Each is taken with a probability of less than one in a thousand even if a million
/// clients have that id.
const SECRETS_TRIED: usize = 8;

/// From now on the client is found by this key, and by no other. False: another client has one like it, and nothing has changed.
pub(crate) fn register(core: &mut Core, conn: ConnId, key: Key) -> bool {
    let prefix = key.prefix(core.config.peer_group());
    let Some(client) = core.conns.client_mut(conn) else { return true };
    if client.cancel_key_prefix != Some(prefix) {
        if !core.pool_registry.keep_cancel_key(prefix, core.id.0, conn.0) {
            return false;
        }
        if let Some(earlier) = client.cancel_key_prefix.replace(prefix) {
            core.pool_registry.forget_cancel_key(earlier);
        }
    }
    client.cancel_key = key;
    true
}

/// The client's key gets the process id of this server, as a direct connection shows it. It stays as it is if the server has
/// none, or one that peers would take for another's key.
pub(crate) fn take_process_id(core: &mut Core, conn: ConnId, server_conn: ConnId) {
    let group = core.config.peer_group();
    let server_key = core.server(server_conn).and_then(|server| server.key.as_ref());
    let Some(process_id) = server_key.map(|(process_id, _)| *process_id) else { return };
    let Some(client) = core.conns.client(conn) else { return };
    let mut key = client.cancel_key.with_process_id(process_id);
    if group != PeerGroup::None && !key.may_be_of_server() {
        return;
    }
    // An earlier client of this server has had a key with the same process id.
    for _ in 0..SECRETS_TRIED {
        if register(core, conn, key.clone()) {
            return;
        }
        let mut secret = [0; LONG];
        let secret = &mut secret[..key.secret().len().min(LONG)];
        core.entropy.fill(secret);
        key = Key::new(process_id, secret).whole(group);
    }
}
