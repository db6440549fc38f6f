//! Whose values `currval` and `lastval` return on a server (`session_state = virtual`).
//!
//! Owns which clients may have called `nextval` or `setval` there since the server had no such value, and when a request that asks for one may be
//! sent: once the values are its client's own, or there are none. PostgreSQL has no way to set such a value without changing the sequence, so that it
//! can be ended (DISCARD SEQUENCES), and not be given to another server.

use super::ServerProtocol;

/// What ends all values.
pub const DISCARD_SEQUENCES: &str = "DISCARD SEQUENCES";

/// Which clients may have left values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CalledBy {
    /// None.
    #[default]
    Nobody,
    /// This one alone.
    One(u64),
    /// More than one, or it is not known.
    Several,
}

/// What the client asks for since it has the server is its own, or not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Settled {
    /// That is not known.
    #[default]
    No,
    /// As far as it has called `nextval` itself, in the transaction that runs.
    InTransaction,
    /// As long as it has the server: what others have left is discarded.
    WhileLinked,
}

/// A request is held until it is settled whose values it would find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// What it asks for may have been left by an earlier transaction.
    Earlier,
    /// It calls `nextval` itself.
    OwnToo,
}

/// The values of `currval` and `lastval` on one server.
#[derive(Debug, Default)]
pub(crate) struct SequenceValues {
    /// The client that has the server, or had it last.
    client: u64,
    called_by: CalledBy,
    /// That client may have called since it has the server.
    has_called: bool,
    /// It is among those in `called_by` for that.
    is_noted: bool,
    settled: Settled,
    /// Clients of the pool ask for values of earlier transactions.
    is_kept: bool,
    /// It may have called them since the server was quiet last.
    is_fresh: bool,
    /// It was left the server once for a fresh value, though others waited.
    is_spared: bool,
    awaited: Option<Awaited>,
}

impl SequenceValues {
    /// This client gets the server. If it `is_latest`, the client has not called on another one since. True if values have to be discarded
    /// first: those of others, or its own from before others of its own.
    #[inline(always)]
    pub(crate) fn link(&mut self, client: u64, is_latest: impl FnOnce() -> bool, is_kept: bool) -> bool {
        (self.client, self.settled, self.is_kept) = (client, Settled::No, is_kept);
        (self.has_called, self.is_noted) = (false, false);
        self.called_by != CalledBy::Nobody && self.link_with_values(is_latest())
    }

    #[inline(never)]
    fn link_with_values(&mut self, is_latest: bool) -> bool {
        if !is_latest && self.called_by == CalledBy::One(self.client) {
            self.called_by = CalledBy::Several;
        }
        self.is_kept && self.are_foreign()
    }

    /// Another client than the linked one may have left a value.
    pub(crate) fn are_foreign(&self) -> bool {
        match self.called_by {
            CalledBy::Nobody => false,
            CalledBy::One(client) => client != self.client,
            CalledBy::Several => true,
        }
    }

    /// This client, and no other, may have left values.
    pub(crate) fn are_of(&self, client: u64) -> bool {
        self.called_by == CalledBy::One(client)
    }

    /// Of whom they are, if of one client.
    pub(crate) fn owner(&self) -> Option<u64> {
        match self.called_by {
            CalledBy::One(client) => Some(client),
            CalledBy::Nobody | CalledBy::Several => None,
        }
    }

    /// The client may have called `nextval` or `setval`. True if it has to keep the server for that.
    #[inline]
    pub(crate) fn note(&mut self) -> bool {
        if self.settled == Settled::No {
            self.settled = Settled::InTransaction;
        }
        self.note_unseen()
    }

    /// The same of a statement that most often calls none.
    #[inline]
    pub(crate) fn note_unseen(&mut self) -> bool {
        self.is_fresh = true;
        if !self.is_noted {
            self.is_spared = false;
            self.note_failed();
        }
        self.is_kept
    }

    /// The client may have called them, in a request that has failed.
    #[inline]
    pub(crate) fn note_failed(&mut self) {
        (self.has_called, self.is_noted) = (true, true);
        self.called_by = match self.called_by {
            CalledBy::Nobody => CalledBy::One(self.client),
            CalledBy::One(client) if client == self.client => CalledBy::One(client),
            _ => CalledBy::Several,
        };
    }

    /// The server is quiet. True if the client may not keep it for its values any longer, because others wait: but for a fresh value it may,
    /// once in a row, as most ask for it with their next request.
    pub(crate) fn yields(&mut self, others_wait: bool) -> bool {
        let is_spared = std::mem::take(&mut self.is_fresh) && !self.is_spared;
        self.is_spared = others_wait && is_spared;
        others_wait && !is_spared
    }

    /// The client that has the server may have called since it has it.
    #[inline(always)]
    pub(crate) fn has_called(&self) -> bool {
        self.has_called
    }

    /// That is noted.
    pub(crate) fn call_noted(&mut self) {
        self.has_called = false;
    }

    /// The client has executed DISCARD SEQUENCES or DISCARD ALL. A call is noted when its text is sent: it may come behind that.
    pub(crate) fn discarded_by_client(&mut self) {
        if !self.is_noted {
            self.discarded();
        }
    }

    /// The server has no values any more.
    pub(crate) fn discarded(&mut self) {
        (self.called_by, self.is_noted) = (CalledBy::Nobody, false);
    }

    /// Nothing is known of the values that it has.
    pub(crate) fn distrust(&mut self) {
        (self.called_by, self.settled) = (CalledBy::Several, Settled::No);
    }

    /// A server of another process has the values of this client alone, or of any.
    pub(crate) fn import(&mut self, owner: Option<u64>) {
        self.called_by = owner.map_or(CalledBy::Several, CalledBy::One);
    }

    /// The client begins another transaction.
    pub(crate) fn transaction_begins(&mut self) {
        if self.settled == Settled::InTransaction {
            self.settled = Settled::No;
        }
    }

    /// The client has called `nextval` in the transaction that runs, while another process had the server.
    pub(crate) fn import_call(&mut self) {
        self.settled = Settled::InTransaction;
    }

    /// The client has called `nextval` in the transaction that runs, or no other client's values are there.
    pub(crate) fn are_settled(&self) -> bool {
        self.settled != Settled::No
    }

    /// A request that asks for values, and `calls_next` itself, has to wait: they are not known to be its client's, or the pool is not known to
    /// need such values.
    pub(crate) fn have_to_be_settled(&self, calls_next: bool) -> bool {
        self.settled == Settled::No && self.would_have_to_be_settled(calls_next)
    }

    /// The same, if its transaction has called no `nextval` before it: that is not known before earlier requests are answered.
    pub(crate) fn may_have_to_be_settled(&self, calls_next: bool) -> bool {
        self.settled != Settled::WhileLinked && self.would_have_to_be_settled(calls_next)
    }

    fn would_have_to_be_settled(&self, calls_next: bool) -> bool {
        let is_lacking = !self.are_of(self.client);
        is_lacking && (!calls_next || self.are_foreign()) || !calls_next && !self.is_kept
    }

    /// It waits.
    pub(crate) fn hold_request(&mut self, calls_next: bool) {
        self.awaited = Some(if calls_next { Awaited::OwnToo } else { Awaited::Earlier });
    }

    /// A request waits.
    #[inline]
    pub(crate) fn holds_request(&self) -> bool {
        self.awaited.is_some()
    }

    /// Takes the request that waits: Some(true) if it asks for values of earlier transactions.
    pub(crate) fn take_held(&mut self) -> Option<bool> {
        self.awaited.take().map(|awaited| awaited == Awaited::Earlier)
    }

    /// What the client asks for from here on is its own, or not there, and whether clients of the pool ask for values of earlier transactions.
    pub(crate) fn settled(&mut self, is_kept: bool) {
        (self.settled, self.is_kept) = (Settled::WhileLinked, is_kept);
    }
}

impl ServerProtocol {
    /// This client gets the server. `is_latest`: it has not called `nextval` on another one since it has on this one. `is_kept`: clients of its pool
    /// ask for sequences' values of earlier transactions. True if what is there has to be discarded first ([`DISCARD_SEQUENCES`]).
    #[inline(always)]
    pub fn link_sequences(&mut self, client: u64, is_latest: impl FnOnce() -> bool, is_kept: bool) -> bool {
        self.session.sequences.link(client, is_latest, is_kept)
    }

    /// The client may have called `nextval` since it has the server.
    #[inline(always)]
    #[must_use]
    pub fn has_called_sequences(&self) -> bool {
        self.session.sequences.has_called()
    }

    /// The client knows by now that it has.
    pub fn sequences_call_noted(&mut self) {
        self.session.sequences.call_noted();
    }

    /// What a request asks for that calls no `nextval` itself, and is the first of its transaction, may not be its client's own. Then it waits.
    pub fn hold_for_sequences(&mut self) -> bool {
        self.session.sequences.transaction_begins();
        let waits = self.session.is_followed() && self.session.sequences.have_to_be_settled(false);
        if waits {
            self.session.sequences.hold_request(false);
        }
        waits
    }

    /// `currval` and `lastval` may return what another client than the linked one has left.
    #[must_use]
    pub fn has_foreign_sequences(&self) -> bool {
        self.session.is_followed() && self.session.sequences.are_foreign()
    }

    /// `currval` and `lastval` return what this client has left, and nothing of others.
    #[must_use]
    pub fn has_sequences_of(&self, client: u64) -> bool {
        self.session.is_followed() && self.session.sequences.are_of(client)
    }

    /// The client whose values these are, if they are of one.
    #[must_use]
    pub fn sequences_owner(&self) -> Option<u64> {
        self.session.sequences.owner()
    }

    /// A request of the client waits because it asks for values that may not be its own.
    #[inline]
    #[must_use]
    pub fn holds_for_sequences(&self) -> bool {
        self.session.sequences.holds_request()
    }

    /// Takes that request, which waits no longer: Some(true) if it asks for values of earlier transactions.
    pub fn take_held_for_sequences(&mut self) -> Option<bool> {
        self.session.sequences.take_held()
    }

    /// What the client asks for from here on is its own, or not there.
    pub fn sequences_settled(&mut self, is_kept: bool) {
        self.session.sequences.settled(is_kept);
    }

    /// [`DISCARD_SEQUENCES`] is sent, or has been executed.
    pub fn sequences_discarded(&mut self) {
        self.session.sequences.discarded();
    }

    /// It is not known whether what was sent to discard them has been executed.
    pub fn distrust_sequences(&mut self) {
        self.session.sequences.distrust();
    }

    /// A server that came from another process has the values of this client, or of any client.
    pub fn import_sequences(&mut self, owner: Option<u64>) {
        self.session.sequences.import(owner);
    }

    /// The client does not keep the server for its sequences' values any more.
    pub fn unpin_sequences(&mut self) {
        self.session.unpin_sequences();
    }

    /// The server is quiet, and others may wait for it. True if its client has to do without its values now, if it keeps the server for these alone.
    pub fn yields_sequences(&mut self, others_wait: bool) -> bool {
        self.session.sequences.yields(others_wait)
    }

    /// What the client's transaction asks for is its own, or not there.
    #[must_use]
    pub fn has_settled_sequences(&self) -> bool {
        self.session.sequences.are_settled()
    }

    /// Such a server came with this client, which `is_pinned` for them, and whose transaction may have called `nextval` (`is_settled`).
    pub fn import_linked_sequences(
        &mut self,
        client: u64,
        is_kept: bool,
        (is_pinned, is_settled): (bool, bool),
    ) {
        self.session.sequences.link(client, || true, is_kept);
        if is_settled {
            self.session.sequences.import_call();
        }
        if !self.session.sequences.are_of(client) {
            return;
        }
        self.session.sequences.note();
        if is_pinned && is_kept {
            self.session.note_sequences();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linked(client: u64, is_kept: bool) -> SequenceValues {
        let mut values = SequenceValues::default();
        assert!(!values.link(client, || true, is_kept), "a new server has none");
        values
    }

    #[test]
    fn values_of_one_client_are_its_own_until_another_calls_nextval() {
        let mut values = linked(7, false);
        assert!(!values.note() && values.are_of(7) && !values.are_foreign());
        values.link(8, || true, false);
        assert!(values.are_foreign() && values.are_of(7), "it has called nothing yet");
        values.note();
        assert!(values.are_foreign() && !values.are_of(7) && !values.are_of(8) && values.owner().is_none());
        values.discarded();
        assert!(!values.are_foreign());
    }

    #[test]
    fn older_values_of_the_same_client_are_none() {
        let mut values = linked(7, false);
        values.note();
        assert!(values.has_called());
        assert!(values.link(7, || false, true) && !values.has_called(), "it has called elsewhere since");
    }

    #[test]
    fn discarding_them_does_not_take_back_that_they_were_called_here() {
        let mut values = linked(7, false);
        values.note();
        values.discarded();
        assert!(values.has_called(), "older ones on other servers are not the latest any more");
        values.note();
        assert!(values.are_of(7));
    }

    #[test]
    fn a_call_that_was_sent_may_come_behind_the_discard_that_is_answered() {
        let mut values = linked(7, false);
        values.note();
        values.discarded_by_client();
        assert!(values.are_of(7), "both may be in one text");
        values.link(8, || true, false);
        values.discarded_by_client();
        values.link(7, || true, false);
        assert!(!values.are_of(7) && !values.are_foreign());
    }

    #[test]
    fn what_has_failed_may_have_left_a_value_and_keeps_nobody() {
        let mut values = linked(7, true);
        values.note_failed();
        assert!(values.are_of(7));
        assert!(values.link(8, || true, true), "another client's");
    }

    #[test]
    fn values_yield_to_others_who_wait_but_fresh_ones_once_in_a_row_not() {
        let mut values = linked(7, true);
        values.note();
        assert!(!values.yields(false) && values.yields(true), "not fresh any more");
        values.note();
        assert!(!values.yields(true) && values.yields(true));
        values.note();
        assert!(!values.yields(true));
        values.note();
        assert!(values.yields(true), "the second in a row");
        values.note();
        assert!(!values.yields(false));
        values.note();
        assert!(!values.yields(true), "nobody has waited in between");
    }

    #[test]
    fn a_request_waits_until_it_is_known_whose_values_it_finds() {
        let mut values = linked(7, false);
        assert!(values.have_to_be_settled(false), "the pool learns of it");
        assert!(!values.have_to_be_settled(true), "it calls nextval itself, and there is nothing else");
        values.note();
        assert!(!values.have_to_be_settled(false), "its own, of this transaction");
        values.link(7, || true, false);
        assert!(values.have_to_be_settled(false), "its own, of an earlier one: the pool learns of it");
        values.link(7, || true, true);
        assert!(!values.have_to_be_settled(false));
        values.link(8, || true, false);
        assert!(values.have_to_be_settled(true), "what it calls may be another sequence");
        values.hold_request(false);
        assert!(values.holds_request());
        assert_eq!((values.take_held(), values.take_held()), (Some(true), None));
        values.settled(true);
        values.transaction_begins();
        assert!(!values.have_to_be_settled(false));
    }

    #[test]
    fn a_call_settles_what_its_transaction_asks_for_and_nothing_behind_it() {
        let mut values = linked(7, false);
        values.note();
        values.link(8, || true, false);
        values.note();
        assert!(!values.have_to_be_settled(false) && values.may_have_to_be_settled(false));
        values.transaction_begins();
        assert!(values.have_to_be_settled(false), "the other client's are still there");
    }

    #[test]
    fn where_nothing_is_known_they_are_foreign_to_all() {
        let mut values = linked(7, true);
        values.note();
        values.distrust();
        assert!(values.link(7, || true, true));
        values.import(Some(7));
        assert!(!values.link(7, || true, true) && values.link(8, || true, true));
        values.import(None);
        assert!(values.link(7, || true, true));
    }
}
