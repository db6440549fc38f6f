//! Why a server cannot be released by its client yet, in one word, for SHOW.
//!
//! Reads what [`ServerProtocol::is_quiet`] depends on and changes nothing; the decision to release is never made from it.

use wire::backend::Status;

use crate::ServerProtocol;

impl ServerProtocol {
    /// What keeps this server with its client beyond the request that runs; None if the end of that request frees it.
    #[must_use]
    pub fn pin_reason(&self) -> Option<&'static str> {
        if self.tainted {
            Some("unclear")
        } else if self.copying_in {
            Some("copy")
        } else if self.status == Some(Status::Failed) {
            Some("failed_transaction")
        } else if self.in_block() {
            Some("transaction")
        } else if self.status.is_none() && !self.replies.end_with_ready() {
            Some("no_sync")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parameters, PendingReply, Tracked};

    fn protocol() -> ServerProtocol {
        ServerProtocol::new(Parameters::unknown(&Tracked::new([])))
    }

    #[test]
    fn what_ends_by_itself_holds_nothing() {
        let mut protocol = protocol();
        assert_eq!(protocol.pin_reason(), None);
        protocol.status = None;
        protocol.replies.push(PendingReply::Execute);
        protocol.replies.push(PendingReply::Sync);
        assert_eq!(protocol.pin_reason(), None);
    }

    #[test]
    fn what_does_not_end_by_itself_has_a_name() {
        let mut protocol = protocol();
        protocol.status = None;
        assert_eq!(protocol.pin_reason(), Some("no_sync"));
        (protocol.status, protocol.last_status) = (Some(Status::InTransaction), Status::InTransaction);
        assert_eq!(protocol.pin_reason(), Some("transaction"));
        protocol.status = None;
        assert_eq!(protocol.pin_reason(), Some("transaction"), "while its next query runs, too");
        protocol.status = Some(Status::Failed);
        assert_eq!(protocol.pin_reason(), Some("failed_transaction"));
        protocol.copying_in = true;
        assert_eq!(protocol.pin_reason(), Some("copy"));
        protocol.tainted = true;
        assert_eq!(protocol.pin_reason(), Some("unclear"));
    }
}
