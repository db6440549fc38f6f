//! How much a server may send while no client is linked to it: parameters and notices of an idle one, replies to queries
//! of Weir's own.
//!
//! Owns the bound. Nothing of this is kept; it is bounded because each byte costs work. What a linked client is sent is
//! bounded by back-pressure.

use crate::ConnId;
use crate::server::Phase;
use crate::state::ShardState;

/// Bytes between two clients, or two queries of Weir's own.
const UNASKED_BYTES: u32 = 16 * 1024 * 1024;

impl ShardState {
    /// Bytes of a server without a client.
    pub(crate) fn unlinked_server_received(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(server) = self.core.server(conn) else { return };
        let is_asked = matches!(server.phase, Phase::InternalQuery(_));
        let more = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        server.unasked_bytes = server.unasked_bytes.saturating_add(more);
        if server.unasked_bytes > UNASKED_BYTES {
            self.server_fault(conn, "server sent too much without being asked");
        } else if is_asked {
            self.answer(conn, None, bytes, bytes);
        } else {
            self.idle_server_received(conn, bytes);
        }
    }
}
