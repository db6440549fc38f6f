//! Why a server cannot be released by its client yet, in one word, for SHOW.
//!
//! Reads what [`ServerProtocol::is_quiet`] depends on and changes nothing; the decision to release is never made from it.

use wire::backend::Status;

use crate::ServerProtocol;

impl ServerProtocol {
    /// What keeps this server with its client beyond the request that runs; None if the end of that request frees it.
    #[must_use]
    pub fn pin_reason(&self) -> Option<&'static str> {
        if self.taint.is_tainted() {
            Some("unclear")
        } else if self.copy.is_reading() {
            Some("copy")
        } else if self.status() == Some(Status::Failed) {
            Some("failed_transaction")
        } else if self.in_block() {
            Some("transaction")
        } else if self.status().is_none() && !self.replies.end_with_ready() {
            Some("no_sync")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply_queue::CopyBegun;
    use crate::reply_queue::transaction::TransactionStatus;
    use crate::{Parameters, PendingReply, Tracked};

    fn protocol() -> ServerProtocol {
        ServerProtocol::new(Parameters::unknown(&Tracked::new([])))
    }

    #[test]
    fn what_ends_by_itself_holds_nothing() {
        let mut protocol = protocol();
        assert_eq!(protocol.pin_reason(), None);
        protocol.owe(PendingReply::Execute);
        protocol.owe(PendingReply::Sync);
        assert_eq!(protocol.pin_reason(), None);
    }

    #[test]
    fn what_does_not_end_by_itself_has_a_name() {
        let mut protocol = protocol();
        protocol.transaction.asked();
        assert_eq!(protocol.pin_reason(), Some("no_sync"));
        protocol.transaction = TransactionStatus::new(Status::InTransaction);
        assert_eq!(protocol.pin_reason(), Some("transaction"));
        protocol.transaction.asked();
        assert_eq!(protocol.pin_reason(), Some("transaction"), "while its next query runs, too");
        protocol.transaction = TransactionStatus::new(Status::Failed);
        assert_eq!(protocol.pin_reason(), Some("failed_transaction"));
        protocol.copy.begin(CopyBegun::default(), false);
        assert_eq!(protocol.pin_reason(), Some("copy"));
        protocol.taint.set_if(true);
        assert_eq!(protocol.pin_reason(), Some("unclear"));
    }
}
