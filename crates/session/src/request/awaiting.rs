//! What the client sends waits for replies, or for the rest of its message.
//!
//! Owns what is sent to the server so that the replies come, although the request that they precede has not ended.

use wire::encode;

use super::{Step, send, send_internal};
use crate::{Boundary, Output};

impl Step<'_, '_> {
    /// This and what comes behind it is kept until replies have come. The server is made to send those that it would keep
    /// until a Sync.
    #[cold]
    #[inline(never)]
    pub(super) fn await_replies(&mut self, at: Boundary, out: &mut impl Output) {
        self.flush(out);
        self.server.gate.close_until(self.server.replies.awaited());
        if !self.server.replies.ends_with_ready() {
            self.server.replay_buffer.follow(true);
            send(&mut self.server.replay_buffer, at, out, encode::flush);
            self.server.replies.note_flush();
        }
    }

    /// What Weir has sent in front of a request ends with a Sync of its own, because nothing of the request can be sent yet. PostgreSQL would answer it with
    /// the end of the request only, and the server would owe something for as long as the client sends no more.
    #[cold]
    #[inline(never)]
    pub(super) fn end_own_segment(&mut self, at: Boundary, out: &mut impl Output) {
        self.flush(out);
        send_internal(self.server, at, out, encode::sync);
        let asked = self.server.transaction.asked();
        self.server.replies.push_internal_sync(asked);
        self.server.gate.close_until(self.server.replies.next_number());
    }
}
