//! The statements that SQL has prepared on this server (`session_state = virtual`): a linked client finds those of its own session here,
//! and no others.
//!
//! Owns preparing a client's statements on a server, and what becomes of one that cannot be prepared any more. Which can follow their client is
//! [`crate::sql_statements`]'.

use wire::{encode, error, sqlstate};

use super::{Boundary, ServerProtocol};
use crate::parameters::CLIENT_ENCODING;
use crate::prepared::SERVER_NAME_HEAD;
use crate::server_statements::UnnamedStatement;
use crate::sql_statements::{Difference, Found, MOST};
use crate::{PendingReply, ReadBy, SqlStatements, StatementRegistry, Tracked};

/// What runs, and what failed the last time.
#[derive(Debug, Default)]
pub(crate) struct PreparedBySql {
    preparing: Option<Box<Preparing>>,
    /// Statements of the linked client that could not be prepared here, with the body of the error.
    failed: Vec<(Box<str>, Vec<u8>)>,
}

/// The server is being given these.
#[derive(Debug)]
struct Preparing {
    wanted: SqlStatements,
    /// The number of the first reply, and what each prepares.
    first: u64,
    prepares: Vec<Option<Box<str>>>,
}

impl PreparedBySql {
    /// Statements that a client has prepared are prepared here now.
    #[inline]
    pub(crate) fn is_preparing(&self) -> bool {
        self.preparing.is_some()
    }

    /// Something of what is sent for it has failed, with this error.
    #[cold]
    pub(crate) fn note_failure(&mut self, number: u64, error_body: &[u8]) {
        let Some(preparing) = &self.preparing else { return };
        let place = number.checked_sub(preparing.first).and_then(|place| usize::try_from(place).ok());
        if let Some(Some(name)) = place.and_then(|place| preparing.prepares.get(place)) {
            self.failed.push((name.clone(), error_body.to_vec()));
        }
    }

    fn has_failed(&self, name: &[u8]) -> bool {
        self.failed.iter().any(|(failed, _)| failed.as_bytes() == name)
    }
}

impl ServerProtocol {
    /// Appends what gives this server the statements of a client; false if it has them. Its end is reported as that of any query of Weir's
    /// own, and [`ServerProtocol::preparing_ended`] is to be called behind the last.
    pub fn send_prepared(&mut self, _at: Boundary, out: &mut Vec<u8>, wanted: &SqlStatements) -> bool {
        self.prepared_by_sql.failed.clear();
        let Difference { queries, prepares } = wanted.difference(self.parameters.prepared());
        if queries.is_empty() {
            self.parameters.set_prepared(wanted.clone());
            return false;
        }
        self.statements.unnamed = UnnamedStatement::default();
        let first = self.replies.next_number();
        for query in &queries {
            encode::query(out, query.as_bytes());
            self.owe(PendingReply::InternalQuery);
        }
        let wanted = wanted.clone();
        self.prepared_by_sql.preparing = Some(Box::new(Preparing { wanted, first, prepares }));
        true
    }

    /// All of what was sent is answered: the server has them, but for those that could not be prepared.
    pub fn preparing_ended(&mut self) {
        let Some(preparing) = self.prepared_by_sql.preparing.take() else { return };
        let lacking: Vec<Box<str>> =
            self.prepared_by_sql.failed.iter().map(|(name, _)| name.clone()).collect();
        self.parameters.set_prepared(preparing.wanted.without(&lacking));
    }

    /// The client that is linked now has prepared what is here: what could not be prepared was another's, or is deallocated.
    pub fn prepared_as_wanted(&mut self) {
        self.prepared_by_sql.failed.clear();
    }

    /// Statements of the client that is linked could not be prepared here.
    #[must_use]
    pub fn lacks_prepared(&self) -> bool {
        !self.prepared_by_sql.failed.is_empty()
    }

    /// This client's name of a statement means what it means on the server: SQL has prepared it, may have, or names it when it is executed.
    pub(crate) fn is_own_name(&self, client: u64, name: &[u8]) -> bool {
        let is_named = |name| self.session.names_statement(name) || self.effects.may_name(client, name);
        self.session.is_followed()
            && !name.starts_with(SERVER_NAME_HEAD)
            && (self.parameters.prepared().has(name)
                || self.prepared_by_sql.has_failed(name)
                || std::str::from_utf8(name).is_ok_and(is_named))
    }

    /// Statements that SQL may have prepared since the session was asked for, for another process; an empty name stands for those whose names no
    /// text has shown.
    pub fn named_statements(&self) -> impl Iterator<Item = &str> {
        self.session.named_statements()
    }

    /// Those of a server that came from another process.
    pub fn import_named_statements<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let is_followed = self.session.is_followed();
        for name in names.filter(|_| is_followed) {
            match name {
                "" => self.session.note_prepared_unseen(),
                name => self.session.note_statements([name].into_iter()),
            }
        }
    }

    /// The client has prepared it by SQL, and it could not be prepared here.
    pub(crate) fn lacks_statement(&self, name: &str) -> bool {
        self.prepared_by_sql.has_failed(name.as_bytes())
    }

    /// It is deallocated.
    pub(crate) fn forget_lacking(&mut self, name: &str) {
        self.prepared_by_sql.failed.retain(|(failed, _)| **failed != *name);
    }

    /// The catalog shows these statements.
    pub(super) fn prepared_found(
        &mut self,
        rows: Vec<Found>,
        tracked: &Tracked,
        registry: &mut StatementRegistry,
    ) {
        let is_utf8 = self.parameters.text(CLIENT_ENCODING) == Some("UTF8");
        let can_be_sent = |name: &str, text: &str| {
            (is_utf8 || text.is_ascii()) && !name.as_bytes().starts_with(SERVER_NAME_HEAD)
        };
        let rows = rows.into_iter().map(|(name, text)| {
            let text = text.filter(|text| can_be_sent(&name, text));
            (name, text)
        });
        let read_by = ReadBy::of(&self.parameters, tracked);
        let (before, session) = (self.parameters.prepared().clone(), &self.session);
        let was_prepared = |name: &str| session.may_have_prepared(name);
        let found = before.found(rows.collect(), was_prepared, &read_by, || registry.next_number());
        self.parameters.set_prepared(found);
    }

    /// Whether the client keeps this server for them.
    pub(super) fn judge_prepared(&mut self, tracked: &Tracked) {
        let prepared = self.parameters.prepared();
        let stay = !prepared.is_empty()
            && (prepared.is_more_than(MOST) || !prepared.can_follow(&ReadBy::of(&self.parameters, tracked)));
        self.session.note_prepared_stay(stay);
    }

    /// What the linked client has prepared, once the catalog was looked at: a statement that could not be prepared here is still its own.
    #[must_use]
    pub fn prepared_of_client(&self, before: &SqlStatements) -> SqlStatements {
        let failed: Vec<Box<str>> =
            self.prepared_by_sql.failed.iter().map(|(name, _)| name.clone()).collect();
        self.parameters.prepared().with(before, &failed)
    }

    /// The error for a statement that does not exist is, where that is why, the one because of which it could not be prepared here.
    pub(crate) fn reason_it_is_missing(&self, error_body: &[u8]) -> Option<Vec<u8>> {
        if self.prepared_by_sql.failed.is_empty() {
            return None;
        }
        let fields = error::parse(error_body);
        if fields.code() != Some(sqlstate::UNDEFINED_PREPARED.as_bytes()) {
            return None;
        }
        let message = fields.message()?;
        let is_named =
            |name: &str| !name.is_empty() && message.windows(name.len()).any(|part| part == name.as_bytes());
        let (_, reason) = self.prepared_by_sql.failed.iter().find(|(name, _)| is_named(name))?;
        let mut frame = Vec::new();
        encode::error_without_position(&mut frame, reason);
        Some(frame)
    }

    /// All of them are gone: DISCARD ALL or DEALLOCATE ALL was run.
    pub(crate) fn prepared_discarded(&mut self) {
        self.prepared_by_sql.failed.clear();
        self.parameters.set_prepared(SqlStatements::default());
    }
}
