//! Why a server cannot leave its client yet, in a word, for who looks at it.
//!
//! Reads what [`Conversation::is_quiet`] depends on and changes nothing; the decision to release is never made from it.

use wire::backend::Status;

use crate::Conversation;

impl Conversation {
    /// What keeps this server with its client beyond the request that runs; None if the end of that request frees it.
    #[must_use]
    pub fn hold(&self) -> Option<&'static str> {
        if self.doubtful {
            Some("unclear")
        } else if self.copying_in {
            Some("copy")
        } else if self.status == Some(Status::Failed) {
            Some("failed_transaction")
        } else if self.in_block() {
            Some("transaction")
        } else if self.status.is_none() && !self.owes.end_with_ready() {
            Some("no_sync")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Owed, Parameters, Tracked};

    fn talk() -> Conversation {
        Conversation::new(Parameters::unknown(&Tracked::new([])))
    }

    #[test]
    fn what_ends_by_itself_holds_nothing() {
        let mut talk = talk();
        assert_eq!(talk.hold(), None);
        talk.status = None;
        talk.owes.push(Owed::Execute);
        talk.owes.push(Owed::Sync);
        assert_eq!(talk.hold(), None);
    }

    #[test]
    fn what_does_not_end_by_itself_has_a_name() {
        let mut talk = talk();
        talk.status = None;
        assert_eq!(talk.hold(), Some("no_sync"));
        (talk.status, talk.last_status) = (Some(Status::InTransaction), Status::InTransaction);
        assert_eq!(talk.hold(), Some("transaction"));
        talk.status = None;
        assert_eq!(talk.hold(), Some("transaction"), "while its next query runs, too");
        talk.status = Some(Status::Failed);
        assert_eq!(talk.hold(), Some("failed_transaction"));
        talk.copying_in = true;
        assert_eq!(talk.hold(), Some("copy"));
        talk.doubtful = true;
        assert_eq!(talk.hold(), Some("unclear"));
    }
}
