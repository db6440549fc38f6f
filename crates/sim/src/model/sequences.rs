//! What `nextval` has left in a session, and what `currval` and `lastval` find of it.
//!
//! Owns what of that a pooler promises its clients (docs/session-state.md), which depends on what else their transactions have done. A value is the
//! tag of the request that has called `nextval`, so that it tells whose it is. No transaction takes it back.

use std::collections::{BTreeMap, BTreeSet};

use super::reply::Sqlstate;
use super::session::Session;
use crate::sequence_sql::{OF_TABLE, SequenceStatement};
use crate::session_sql::SessionStatement;
use crate::sql::{Statement, Tag};

/// What a client is promised that asks for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// What PostgreSQL alone would answer: its transaction has called `nextval` of the same sequence.
    AsPostgresql,
    /// That, or that there is none.
    OrUndefined,
    /// Nothing, as long as the pool is not known to need values of earlier transactions, which is not known here: it asks behind other messages of
    /// its segment, or its transaction may have called `nextval` of other sequences.
    Nothing,
}

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AskedValue {
    /// Counted from 0 in a session.
    pub(crate) number: u64,
    /// How much the session had said since that was taken last.
    pub(crate) at: usize,
    pub(crate) promise: Promise,
}

/// What was found to have happened in place of what the session knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// There was no value.
    Undefined,
    /// There was one, whichever.
    Value,
}

/// The values of one session.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequences {
    values: BTreeMap<String, String>,
    last: Option<String>,
    /// Those of which the transaction has called `nextval`.
    called: BTreeSet<String>,
    /// The transaction has done something else that may call it, as far as its text shows.
    is_clouded: bool,
    /// Messages of the extended protocol since the last Sync.
    segment: Vec<u8>,
    count: u64,
    asked: Vec<AskedValue>,
    found: BTreeMap<u64, Found>,
}

impl Sequences {
    fn call(&mut self, name: &str, tag: Option<Tag>) -> String {
        let value = tag.map(|tag| tag.to_string()).unwrap_or_default();
        self.values.insert(name.to_owned(), value.clone());
        self.last = Some(name.to_owned());
        self.called.insert(name.to_owned());
        value
    }

    /// Something is asked for when so much was said. None of no name is the last one.
    fn ask(&mut self, name: Option<&str>, at: usize) -> Result<String, (Sqlstate, &'static str)> {
        let name = name.or(self.last.as_deref());
        let number = self.count;
        self.count += 1;
        self.asked.push(AskedValue { number, at, promise: self.promise(name) });
        let value = name.and_then(|name| self.values.get(name)).cloned();
        let found = match self.found.get(&number) {
            None => value,
            Some(Found::Undefined) => None,
            Some(Found::Value) => Some(value.unwrap_or_default()),
        };
        found.ok_or(("55000", "the value is not yet defined in this session"))
    }

    fn promise(&self, name: Option<&str>) -> Promise {
        let is_own = name.is_some_and(|name| self.called.contains(name));
        match (is_own, self.is_clouded || !self.called.is_empty() || !self.is_alone()) {
            (true, _) => Promise::AsPostgresql,
            (false, true) => Promise::Nothing,
            (false, false) => Promise::OrUndefined,
        }
    }

    /// No other messages of its segment stand in front of what is executed.
    fn is_alone(&self) -> bool {
        let count = |kind| self.segment.iter().filter(|one| **one == kind).count();
        count(b'P') <= 1 && count(b'B') <= 1 && count(b'E') <= 1 && count(b'C') == 0 && count(b'Q') == 0
    }

    /// A message is read.
    pub(super) fn note_message(&mut self, kind: u8) {
        match kind {
            b'S' => self.segment.clear(),
            b'P' | b'B' | b'E' | b'C' => self.segment.push(kind),
            b'Q' | b'F' if !self.segment.is_empty() => self.segment.push(b'Q'),
            _ => {}
        }
    }

    /// A statement begins.
    pub(super) fn note_statement(&mut self, statement: &Statement) {
        self.is_clouded |= !plainly_calls_none(statement);
    }

    /// DISCARD SEQUENCES.
    pub(super) fn discard(&mut self) {
        self.values.clear();
        self.called.clear();
        (self.last, self.is_clouded) = (None, false);
    }

    /// The transaction is over.
    pub(super) fn end_transaction(&mut self) {
        self.called.clear();
        self.is_clouded = false;
    }
}

impl Session {
    /// The value in the row of a statement, or why there is none.
    pub(super) fn evaluate_sequence(
        &mut self,
        statement: &SequenceStatement,
        tag: Option<Tag>,
    ) -> Result<String, (Sqlstate, &'static str)> {
        use SequenceStatement::*;
        let at = self.out.len();
        match statement {
            Next(name) | NextByFunction(name) => Ok(self.sequences.call(name, tag)),
            NextAndFail(name) => {
                self.sequences.call(name, tag);
                Err(("22012", "division by zero"))
            }
            Insert(_) => Ok(self.sequences.call(OF_TABLE, tag)),
            Current(name) => self.sequences.ask(Some(name), at),
            Last => self.sequences.ask(None, at),
        }
    }

    /// Whether a message may ask for a value.
    pub(crate) fn may_ask_for_values(&self, kind: u8, body: &[u8]) -> bool {
        let mut fields = crate::protocol::Fields(body);
        match kind {
            // What stands behind the COPY in its query goes on at the end of the data.
            _ if self.is_copying_in() => {
                self.work.as_ref().is_some_and(|work| kind == b'c' && work.rest.iter().any(asks))
            }
            b'Q' => SequenceStatement::may_ask(body),
            b'E' => {
                let portal = fields.text().and_then(|name| self.portals.get(name));
                portal.is_some_and(|portal| asks(&portal.statement))
            }
            _ => false,
        }
    }

    /// What was asked for since this was called last.
    pub(crate) fn take_asked_values(&mut self) -> Vec<AskedValue> {
        std::mem::take(&mut self.sequences.asked)
    }

    /// What is asked for under this number is found to be so.
    pub(crate) fn assume_value(&mut self, number: u64, found: Found) {
        self.sequences.found.insert(number, found);
    }
}

fn asks(statement: &Statement) -> bool {
    matches!(statement, Statement::Session(SessionStatement::Sequence(statement)) if statement.asks())
}

/// Its text shows that it calls no `nextval`, or it is known of which sequence it does.
fn plainly_calls_none(statement: &Statement) -> bool {
    use SessionStatement::{
        Channels, Close, CurrentSetting, Cursors, DiscardOther, FindTemporary, Listen, Lock, Locks, Notify,
        Prepared, Sequence, Unlisten, Unlock, UnlockAll,
    };
    use Statement::*;
    matches!(
        statement,
        Session(
            CurrentSetting(_)
                | FindTemporary(_)
                | Cursors
                | Locks
                | Channels
                | Prepared
                | Listen(_)
                | Unlisten(_)
                | Notify(..)
                | Lock(_)
                | Unlock(_)
                | UnlockAll
                | Close(_)
                | DiscardOther(_)
                | Sequence(_),
        ) | Empty
            | Begin
            | Commit
            | Rollback
            | Set(..)
            | Reset(_)
            | ResetAll
            | Show(_)
            | Select(..)
            | Sleep(..)
            | SelectNumber(_)
            | Stamp(_)
            | SetLocal(..)
            | SetConfig(..)
            | Savepoint(_)
            | RollbackTo(_)
            | Release(_)
            | Prepare(..)
            | Deallocate(_)
            | DeallocateAll
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(sequences: &mut Sequences, name: Option<&str>) -> (Result<String, Sqlstate>, Promise) {
        let value = sequences.ask(name, 0).map_err(|(sqlstate, _)| sqlstate);
        let asked = std::mem::take(&mut sequences.asked);
        (value, asked[0].promise)
    }

    #[test]
    fn values_last_until_they_are_discarded_and_promises_until_the_transaction_ends() {
        let mut sequences = Sequences::default();
        let tag = Tag { client: 3, request: 17 };
        assert_eq!(ask(&mut sequences, None), (Err("55000"), Promise::OrUndefined));
        sequences.call("a", Some(tag));
        let own = || Ok(tag.to_string());
        assert_eq!(ask(&mut sequences, None), (own(), Promise::AsPostgresql));
        assert_eq!(ask(&mut sequences, Some("b")), (Err("55000"), Promise::Nothing));
        sequences.end_transaction();
        assert_eq!(ask(&mut sequences, Some("a")), (own(), Promise::OrUndefined));
        sequences.note_statement(&Statement::CopyIn);
        assert_eq!(ask(&mut sequences, Some("a")), (own(), Promise::Nothing));
        sequences.discard();
        assert_eq!(ask(&mut sequences, Some("a")), (Err("55000"), Promise::OrUndefined));
    }

    #[test]
    fn what_is_found_to_be_otherwise_is_so_once() {
        let mut sequences = Sequences::default();
        sequences.found.insert(0, Found::Value);
        sequences.found.insert(1, Found::Undefined);
        assert_eq!(ask(&mut sequences, None).0, Ok(String::new()));
        sequences.call("a", None);
        assert_eq!(ask(&mut sequences, None).0, Err("55000"));
        assert_eq!(ask(&mut sequences, None).0, Ok(String::new()));
    }
}
