//! A message that uses a statement which the server lacks, or has otherwise than its clients know it: what is sent before it, and
//! whether it is sent at all.
//!
//! Owns the judgement by which description a client reads. PostgreSQL refuses to bind a statement whose result has changed since it was
//! parsed. A statement that is parsed again would be bound, and its rows be read by the old description; so its new one is compared
//! before anything is bound. All of this is off the path of a statement that the server has.

use wire::frame::{self, HEADER_BYTES, Header};
use wire::frontend::{self, Found};
use wire::tag::frontend as tag;

use super::Step;
use super::prepare::{Obstacle, Prerequisite};
use crate::client_statements::NameSelector;
use crate::server_protocol::settings::InForce;
use crate::{Boundary, Output, ParseSettings, PendingReply, Reader, StatementId, replay};

impl Step<'_, '_> {
    /// What has to come before a message that uses the statement that a client's name stands for, and which one it uses then.
    #[cold]
    #[inline(never)]
    pub(super) fn before_parse(
        &mut self,
        name: &[u8],
        statement: StatementId,
        header: Header,
        at: Boundary,
        out: &mut impl Output,
    ) -> Result<(StatementId, Prerequisite), Obstacle> {
        let (used, before) = self.check_missing(name, statement, header, at, out)?;
        let is_described = header.tag == tag::DESCRIBE
            || header.tag == tag::BIND && self.describes_next(name, header) == Some(true);
        if let Some(names) = &mut self.request.statements
            && let Some(held) = names.expected(name)
            && is_described
            && (used != held || !matches!(before, Prerequisite::Nothing(_)))
        {
            names.expect_describe(name, held, used, None, self.context.registry);
        }
        Ok((used, before))
    }

    fn check_missing(
        &mut self,
        name: &[u8],
        mut statement: StatementId,
        header: Header,
        at: Boundary,
        out: &mut impl Output,
    ) -> Result<(StatementId, Prerequisite), Obstacle> {
        let mut before = self.before_use(Some(statement)).ok_or(Obstacle::Replies)?;
        if let Prerequisite::Nothing(traits) = &before
            && traits.verified
        {
            return Ok((statement, before)); // Parsed or bound a moment ago: what has changed since, PostgreSQL tells.
        }
        let reader = self.reader(name, header);
        let differs = matches!(before, Prerequisite::Differs);
        if differs || self.context.registry.is_retired(statement) {
            match reader {
                None => return Err(Obstacle::Next),
                Some(Reader::Fresh) => {
                    let is_usable = matches!(before, Prerequisite::Nothing(_));
                    statement = self.follow(name, statement, is_usable, at, out);
                    before = self.before_use(Some(statement)).ok_or(Obstacle::Replies)?;
                }
                Some(_) if differs && header.tag == tag::BIND => {
                    self.server.statements.forget_difference(statement);
                    return Err(Obstacle::OldDescription);
                }
                Some(_) => {}
            }
        }
        if matches!(before, Prerequisite::Nothing(_)) {
            return Ok((statement, before));
        }
        if self.server.replies.internal_bytes_full() {
            return Err(Obstacle::Replies);
        }
        let InForce::Settings(settings) = self.in_force() else { return Err(Obstacle::Replies) };
        let matters = self.context.registry.description(statement).is_some_and(|known| known.matters());
        let is_held = matters && self.may_hold_descriptions();
        let compares = matters && header.tag == tag::BIND && reader != Some(Reader::Fresh);
        if compares && reader.is_none() {
            return Err(Obstacle::Next);
        }
        if !self.context.registry.may_be_parsed(statement, settings.as_ref()) {
            return self.under_other_settings(name, settings.as_ref(), is_held, compares, at, out);
        }
        if compares {
            return self.await_description(statement, at, out);
        }
        Ok((statement, Prerequisite::Parse))
    }

    /// By which description the client reads what it asks for with this message; None if it may be about to ask for one: its next
    /// message is not here yet.
    pub(super) fn reader(&self, name: &[u8], header: Header) -> Option<Reader> {
        match header.tag {
            tag::DESCRIBE => return Some(Reader::Fresh),
            tag::PARSE => return Some(Reader::Holding),
            _ => {}
        }
        match self.describes_next(name, header) {
            Some(false) if self.may_hold_descriptions() => Some(Reader::Holding),
            None if self.may_hold_descriptions() => None,
            _ => Some(Reader::Fresh),
        }
    }

    fn may_hold_descriptions(&self) -> bool {
        self.request.statements.as_ref().is_some_and(|names| names.describe_history.describes)
    }

    /// Whether the message behind this Bind asks for the description of what it binds; None if that is not here yet.
    fn describes_next(&self, name: &[u8], header: Header) -> Option<bool> {
        let bytes = header.frame_bytes as usize;
        let (bind, next) = self.input[self.at..].split_at_checked(bytes).unwrap_or_default();
        let next_body = match frame::header(next) {
            Ok(Some(header)) if header.tag != tag::DESCRIBE => return Some(false),
            Ok(Some(header)) => next.get(HEADER_BYTES..header.frame_bytes as usize),
            _ if next.first().is_some_and(|first| *first != tag::DESCRIBE) => return Some(false),
            _ => None,
        };
        let Some(next_body) = next_body else { return (bytes > replay::BYTES).then_some(false) };
        let portal = match frontend::bind_names(bind.get(HEADER_BYTES..).unwrap_or_default()) {
            Found::Yes((portal, _, _)) => portal,
            _ => b"",
        };
        Some(match frontend::target(next_body) {
            Found::Yes((b'P', target)) => target == portal,
            Found::Yes((b'S', target)) => target == name,
            _ => false,
        })
    }

    /// The statement that has taken the place of this one. A client that may hold a description keeps its statement until it has the new
    /// one's. What the server has of the old one is closed, unless those that keep it can use it.
    fn follow(
        &mut self,
        name: &[u8],
        statement: StatementId,
        is_usable: bool,
        at: Boundary,
        out: &mut impl Output,
    ) -> StatementId {
        let may_hold = self.may_hold_descriptions();
        let Some(names) = &mut self.request.statements else { return statement };
        let Some(new) = self.context.registry.successor(statement, None, true) else { return statement };
        if !may_hold {
            names.replace(statement, new, NameSelector::Only(name), self.context.registry);
        }
        if !is_usable && self.server.statements.is_expected(statement) {
            self.flush(out);
            self.close_internal(statement, at, out);
        }
        new
    }

    /// Sends its Parse; the message that needs it waits for its description.
    fn await_description(
        &mut self,
        statement: StatementId,
        at: Boundary,
        out: &mut impl Output,
    ) -> Result<(StatementId, Prerequisite), Obstacle> {
        self.flush(out);
        self.prepare(statement, PendingReply::InternalParse(statement), Reader::Holding, at, out);
        self.server.statements.await_description(statement);
        Err(Obstacle::Replies)
    }

    /// The statement cannot be parsed here, because other settings are in force than when it was: the name comes to stand for the same
    /// text under these. The description that a client may hold of the first is compared with the second's, too.
    fn under_other_settings(
        &mut self,
        name: &[u8],
        settings: Option<&ParseSettings>,
        is_held: bool,
        compares: bool,
        at: Boundary,
        out: &mut impl Output,
    ) -> Result<(StatementId, Prerequisite), Obstacle> {
        let names = self.request.statements.as_mut().ok_or(Obstacle::Replies)?;
        let statement =
            names.parse_again(name, settings, is_held, self.context.registry).ok_or(Obstacle::Replies)?;
        match self.before_use(Some(statement)).ok_or(Obstacle::Replies)? {
            Prerequisite::Parse if compares => self.await_description(statement, at, out),
            Prerequisite::Differs if compares => {
                self.server.statements.forget_difference(statement);
                Err(Obstacle::OldDescription)
            }
            before => Ok((statement, before)),
        }
    }
}
