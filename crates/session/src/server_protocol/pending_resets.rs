//! What has been asked and answered about resets since the last ReadyForQuery behind which nothing was owed.
//!
//! Owns which parameters the client has again by its startup packet, and which reports are kept from it until then. Never
//! writes a message.

use wire::backend::Status;

use crate::parameters::bit;
use crate::{PendingReply, Reset};

/// Requests that reset parameters, and what the server has answered to them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PendingResets {
    /// Anything is noted here.
    noted: bool,
    /// What the last request sent resets; nothing is sent behind it before its answer.
    asked: Reset,
    /// The number of the reply to the first such command.
    from: u64,
    /// The number of the reply to the last query that resets only parameters that are not followed.
    others: u64,
    /// A command tag said that something was reset, by a command that was not recognised beforehand.
    seen: bool,
    /// An error was answered since the last ReadyForQuery.
    failed: bool,
    /// What was reported to have become the server's default.
    returned: u64,
    /// What of that the client was not told.
    withheld: u64,
}

impl PendingResets {
    /// Something has to be looked at before the next ReadyForQuery goes to the client.
    #[inline]
    pub(crate) fn is_noted(&self) -> bool {
        self.noted
    }

    /// A request was sent that resets parameters which are followed.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// The request whose reply has this number resets these.
    pub(crate) fn ask(&mut self, reset: Reset, number: u64) {
        if self.asked.is_empty() {
            self.from = number;
        }
        self.noted = true;
        self.asked.add(reset);
    }

    /// The query whose reply has this number resets these.
    pub(crate) fn ask_by_query(&mut self, reset: Reset, number: u64) {
        self.ask(reset, number);
        if reset.is_of_others() {
            self.others = number;
        }
    }

    /// The reply with this number, or an earlier one, is to the first request that resets.
    pub(crate) fn begins_by(&self, number: u64) -> bool {
        number >= self.from
    }

    /// RESET or DISCARD ALL was done.
    pub(crate) fn note_done(&mut self) {
        (self.noted, self.seen) = (true, true);
    }

    /// A RESET that was done in answer to `oldest` was recognised as of parameters that are not followed.
    pub(crate) fn is_of_others(&self, oldest: Option<PendingReply>, number: u64) -> bool {
        match oldest {
            Some(PendingReply::Query) => self.others == number,
            Some(PendingReply::Execute) => self.asked.is_of_others(),
            _ => false,
        }
    }

    /// An error was answered.
    pub(crate) fn fail(&mut self) {
        self.failed |= self.noted;
    }

    /// The server has reported a parameter while it answers the request with this number; `is_reset` if the value is its
    /// default, and not the client's. True if the report is kept from the client for now.
    pub(crate) fn report(&mut self, position: usize, is_reset: bool, number: u64, is_last: bool) -> bool {
        let asked = self.asked.all() & bit(position) != 0 && self.begins_by(number);
        let is_kept = is_reset && (asked || self.seen && is_last);
        set(&mut self.returned, position, is_reset);
        set(&mut self.withheld, position, is_kept);
        self.noted = true;
        is_kept
    }

    /// The client has not been sent the last report of this parameter.
    pub(crate) fn is_withheld(&self, position: usize) -> bool {
        self.withheld & bit(position) != 0
    }

    /// Of which parameters a reset was done is not known.
    pub(crate) fn is_unsure(&self) -> bool {
        self.failed || self.is_unrecognised()
    }

    fn is_unrecognised(&self) -> bool {
        self.seen && self.asked.is_empty()
    }

    /// Behind a ReadyForQuery with which not all is answered. Requests behind this one already run with what the server has.
    pub(crate) fn continued(self) -> PendingResets {
        let returned = if self.seen { self.returned } else { 0 };
        PendingResets { failed: false, withheld: 0, returned, ..self }
    }

    /// Whether the client has this parameter again by its startup packet, where the server has it at the default: for the session, for
    /// the transaction, or not. Without a report (`is_reported`), only the command itself shows that it has been reset.
    pub(crate) fn lost(&self, position: usize, is_reported: bool, status: Status, is_shared: bool) -> Reset {
        let bit = bit(position);
        let of_session = Reset { session: bit, ..Reset::default() };
        // Which of the parameters that are not reported a command reset that was not recognised is not known: all are set again. So is
        // what a failed request may have reset.
        let is_undone = self.failed && self.asked.session & bit != 0;
        if !is_reported && is_shared && (self.is_unrecognised() || is_undone) {
            return of_session;
        }
        // What a failed request has reset is undone with it.
        if self.failed {
            return Reset::default();
        }
        let by_report = self.is_unrecognised() && self.returned & bit != 0;
        if self.asked.session & bit != 0 || by_report {
            of_session
        } else if self.asked.local & bit != 0 && status == Status::InTransaction {
            Reset { local: bit, ..Reset::default() }
        } else {
            Reset::default()
        }
    }
}

fn set(bits: &mut u64, position: usize, on: bool) {
    let bit = bit(position);
    *bits = if on { *bits | bit } else { *bits & !bit };
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: usize = 3;

    fn asked(reset: Reset) -> PendingResets {
        let mut resets = PendingResets::default();
        resets.ask(reset, 20);
        resets
    }

    #[test]
    fn what_was_asked_is_lost_with_its_answer() {
        let session = Reset::of_session(bit(AT));
        let resets = asked(session);
        assert!(resets.is_noted() && resets.is_asked() && resets.begins_by(20) && !resets.begins_by(19));
        assert_eq!(resets.lost(AT, true, Status::Idle, true), session);
        assert!(resets.lost(AT + 1, true, Status::Idle, true).is_empty());
    }

    #[test]
    fn what_is_reset_for_a_transaction_is_lost_until_its_end() {
        let local = Reset { local: bit(AT), ..Reset::default() };
        assert_eq!(asked(local).lost(AT, true, Status::InTransaction, true), local);
        assert!(asked(local).lost(AT, true, Status::Idle, true).is_empty());
    }

    #[test]
    fn a_failed_reset_is_undone_but_only_a_report_proves_it() {
        let mut resets = asked(Reset::of_session(bit(AT)));
        resets.fail();
        assert!(resets.is_unsure() && resets.lost(AT, true, Status::Idle, true).is_empty());
        assert!(!resets.lost(AT, false, Status::Idle, true).is_empty());
        assert!(resets.lost(AT, false, Status::Idle, false).is_empty(), "the session keeps its server");
        assert!(!resets.continued().is_unsure());
    }

    #[test]
    fn a_reset_that_was_not_recognised_shows_in_the_reports() {
        let mut resets = PendingResets::default();
        resets.note_done();
        assert!(resets.report(AT, true, 20, true) && resets.is_withheld(AT));
        assert!(!resets.lost(AT, true, Status::Idle, true).is_empty());
        assert!(!resets.report(AT, false, 20, true) && !resets.is_withheld(AT));
        assert!(resets.lost(AT, true, Status::Idle, true).is_empty());
        assert!(!resets.report(AT, true, 20, false), "requests behind it already run with the default");
    }

    #[test]
    fn a_reset_of_untracked_parameters_is_known_by_its_number() {
        let mut resets = PendingResets::default();
        resets.ask_by_query(Reset::OTHERS, 20);
        assert!(resets.is_of_others(Some(PendingReply::Query), 20));
        assert!(!resets.is_of_others(Some(PendingReply::Query), 21));
        assert!(resets.is_of_others(Some(PendingReply::Execute), 21));
        assert!(!resets.is_of_others(None, 20) && !resets.is_asked());
    }
}
