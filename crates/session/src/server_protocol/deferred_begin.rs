//! A BEGIN that Weir has answered itself and sends in front of the client's next request (`deferred_begin`).
//!
//! Owns its messages. They have no Sync: the request behind them ends their segment, and PostgreSQL skips that request if BEGIN
//! fails (55.2.3), so that nothing of a transaction is executed outside of one. Where the request is not all here, a Sync of Weir's own ends it
//! (`request/awaiting.rs`); the client of a BEGIN that fails is closed in any case.

use wire::encode;

use super::{Boundary, ServerProtocol};
use crate::PendingReply;
use crate::server_statements::UnnamedStatement;

impl ServerProtocol {
    /// Appends BEGIN; its replies are swallowed. A step of the client's request has to follow, in the same write.
    #[cold]
    pub fn send_deferred_begin(&mut self, _at: Boundary, out: &mut Vec<u8>) {
        encode::parse(out, b"", b"BEGIN", &[]);
        encode::bind_simple(out, b"", b"", &[]);
        encode::execute(out, b"", 0);
        // As behind a simple query, neither an unnamed portal nor an unnamed statement is left.
        encode::close(out, b'P', b"");
        encode::close(out, b'S', b"");
        for _ in 0..5 {
            self.owe(PendingReply::DeferredBegin);
        }
        self.statements.unnamed = UnnamedStatement::default();
        self.transaction.begin_block();
    }
}
