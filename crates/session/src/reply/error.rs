//! An ErrorResponse: whether the client gets it, and what was not executed because of it.
//!
//! Owns what is undone in the sets of statements, and noting the errors that the client gets. Whether a request may be sent again is
//! judged in [`super::replay`].

use wire::encode;
use wire::frame::{HEADER_BYTES, Header};

use super::{ErrorSeen, HELD_BYTES, ReplyAction, Step, replay};
use crate::prepared::SERVER_NAME_HEAD;
use crate::{PendingReply, Reader, ServerFault, StatementId};

impl Step<'_, '_> {
    #[cold]
    #[inline(never)]
    pub(super) fn error(&mut self, header: Header, rest: &[u8]) -> ReplyAction {
        let whole = rest.get(HEADER_BYTES..header.frame_bytes as usize);
        if self.server.replies.front() == Some(PendingReply::InternalQuery) {
            let action = self.swallow_body();
            if let (ReplyAction::Swallow, Some(body)) = (&action, whole) {
                self.server.prepared_by_sql.note_failure(self.server.replies.answered(), body);
                *self.context.internal_error = Some(body.to_vec());
            }
            return action;
        }
        if self.server.replies.front() == Some(PendingReply::LeadingSetting)
            && let Some(refused) = self.leading_setting_refused(whole)
        {
            return refused;
        }
        let quiet = self.server.replies.is_empty() && self.server.transaction.is_at_rest();
        // Of a client that keeps its server between transactions the session ends, as it would without a pooler.
        let is_released = self.context.releases_between_transactions && !self.server.session.keeps_client();
        if !self.context.has_client || quiet && is_released {
            let action = self.swallow_body();
            if let (ReplyAction::Swallow, Some(body)) = (&action, whole) {
                self.outcome.fatal = true; // It answers no request: the server closes the connection.
                if !self.context.has_client {
                    *self.context.internal_error = Some(body.to_vec());
                }
            }
            return action;
        }
        // FATAL ends the connection: the client must not get a second one.
        match whole {
            None if header.frame_bytes as usize <= HELD_BYTES => return ReplyAction::Hold,
            None => {}
            Some(body) => {
                let severity = wire::error::parse(body).severity().unwrap_or(b"");
                let fatal = severity == b"FATAL" || severity == b"PANIC";
                self.outcome.fatal |= fatal;
                self.outcome.ends_client |= fatal;
                self.note_changed(body);
                if !fatal
                    && let Some(at) = self.server.boundary()
                    && let Some(reader) = self.replayable(body)
                {
                    return ReplyAction::Replay(at, reader);
                }
                self.note_stale_plan(body);
            }
        }
        if let Some(fault) = self.fault(header).filter(|_| !self.outcome.fatal) {
            return ReplyAction::Fault(fault);
        }
        let is_unseen = whole.is_some() && !self.outcome.fatal && self.server.replies.fails_unseen();
        if !is_unseen {
            self.note_error(&rest[HEADER_BYTES..]);
        }
        self.server.effects.resets.fail();
        self.server.session.note_error();
        let replacement = whole.filter(|_| !self.outcome.fatal).and_then(|body| self.rewrite_error(body));
        self.skip_requests();
        if is_unseen {
            return ReplyAction::Swallow; // The client's Query, which comes next, is judged by itself.
        }
        let Some(frame) = replacement else { return ReplyAction::Pass };
        self.server.internal.replace(frame);
        ReplyAction::Replaced
    }

    /// The request that is answered has failed: what the server skips because of that does not happen.
    fn skip_requests(&mut self) {
        self.server.copy.fail(self.server.replies.front() == Some(PendingReply::Query));
        let statements = &mut self.server.statements;
        let mut names = 0;
        let sync_is_to_come = self.server.replies.fail(|pending| match pending {
            PendingReply::Parse => statements.unnamed.skipped(),
            PendingReply::NamedParse(statement) => {
                statements.skipped(statement);
                names += 1;
            }
            PendingReply::InternalParse(statement)
            | PendingReply::InternalDescribe(statement, _)
            | PendingReply::InternalClose(statement) => {
                statements.skipped(statement);
            }
            PendingReply::LocalParseComplete
            | PendingReply::LocalCloseComplete
            | PendingReply::NamedClose
            | PendingReply::InternalOwnParse => names += 1,
            _ => {}
        });
        self.server.skipping.fail(sync_is_to_come);
        if let Some(client) = &mut self.context.names {
            for _ in 0..names {
                client.undo(self.context.registry);
            }
            client.drop_describes_before(self.server.replies.answered(), self.context.registry);
        }
        self.end_unneeded_recording();
    }

    /// The server has refused a setting of the client's: the request behind it is skipped. None if the error ends the connection, which the
    /// client is told as at any other time.
    fn leading_setting_refused(&mut self, body: Option<&[u8]>) -> Option<ReplyAction> {
        let Some(body) = body else { return Some(self.swallow_body()) };
        let severity = wire::error::parse(body).severity().unwrap_or(b"");
        if severity == b"FATAL" || severity == b"PANIC" {
            return None;
        }
        *self.context.internal_error = Some(body.to_vec());
        Some(ReplyAction::Fault(ServerFault::SettingRefused))
    }

    /// The error of a request behind which the client cannot go on.
    fn fault(&self, header: Header) -> Option<ServerFault> {
        // Its client has been answered already, and the request behind it is skipped.
        let refuses_begin = self.server.replies.front() == Some(PendingReply::DeferredBegin);
        let unclear = || self.skips_unclear().then_some(ServerFault::OutOfStep(header.tag));
        refuses_begin.then_some(ServerFault::BeginRefused).or_else(unclear)
    }

    /// Whether the requests behind a copy that fails by the extended protocol are skipped depends on a Sync among its data,
    /// which the server may have read before or behind the data it refuses. Nor does a Close fail.
    fn skips_unclear(&self) -> bool {
        match self.server.replies.front() {
            Some(PendingReply::Marker) => true,
            Some(PendingReply::Execute) => {
                self.server.copy.has_syncs() && self.server.replies.second_is_skipped()
            }
            _ => false,
        }
    }

    /// The error with the name that the client uses for the statement.
    fn rewrite_error(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        let mut frame = Vec::new();
        match self.server.replies.front()? {
            PendingReply::RefusedBind => encode::changed_result(&mut frame),
            PendingReply::Refused => {
                let name = self.server.replies.refused_name()?;
                let message = named_as(wire::error::parse(body).message()?, &name);
                encode::error_with_message(&mut frame, body, &message);
            }
            _ => return self.server.reason_it_is_missing(body),
        }
        Some(frame)
    }

    /// Notes an error that the client gets. The code is near the beginning, also of an error that is not here whole.
    fn note_error(&mut self, body: &[u8]) {
        let code = wire::error::parse(body).code().and_then(|code| code.as_array()).copied();
        let seen = ErrorSeen { code: code.unwrap_or_default(), behind: self.outcome.ready };
        self.context.errors_seen.push(seen);
    }

    fn replayable(&mut self, error_body: &[u8]) -> Option<Reader> {
        let describe_history =
            self.context.names.as_ref().map(|names| names.describe_history).unwrap_or_default();
        let refused = replay::replayable(self.server, error_body, describe_history, self.context.registry)?;
        let statement = refused.statement;
        if let (Some(number), Some(names)) = (refused.described, &mut self.context.names)
            && !names.has_pending_describe(statement)
        {
            match names.only_name(statement) {
                Some(name) => {
                    names.expect_describe(&name, statement, statement, Some(number), self.context.registry);
                }
                // It would not be known by which name the client reads anew.
                None if refused.is_changed_result => return None,
                None => {}
            }
        }
        Some(refused.reader)
    }

    /// The client gets the error that a statement's plan is stale, or that it does not exist: at its next use it is
    /// prepared anew.
    fn note_stale_plan(&mut self, error_body: &[u8]) {
        if let (Some(statement), true) = (self.statement_refused(), replay::is_stale_plan(error_body)) {
            self.server.statements.mark_stale(statement);
        }
    }

    /// Tables have changed under a statement: no further client gets it. Those that prepare the same text get what PostgreSQL makes of it
    /// now, as the types of its parameters may be others.
    fn note_changed(&mut self, error_body: &[u8]) {
        let used = match self.server.replies.front() {
            Some(PendingReply::InternalParse(statement)) => Some(statement),
            _ => self.statement_refused(),
        };
        let Some(statement) = used else { return };
        let is_known = self.context.registry.description(statement).is_some();
        if replay::is_changed_result(error_body) || is_known && replay::is_unparsable(error_body) {
            self.context.registry.retire(statement);
        }
    }

    fn statement_refused(&self) -> Option<StatementId> {
        match self.server.replies.front()? {
            PendingReply::NamedBind(statement) | PendingReply::NamedDescribe(statement) => Some(statement),
            PendingReply::RecordedBind(statement) | PendingReply::RecordedDescribe(statement) => {
                Some(statement)
            }
            _ => None,
        }
    }
}

/// A message about a prepared statement that Weir has sent under a shared name, with the name that the client uses. The
/// message may be translated; the quotes around the name may be others.
fn named_as(message: &[u8], name: &[u8]) -> Vec<u8> {
    if name.is_empty() {
        return b"unnamed prepared statement does not exist".to_vec();
    }
    let Some(start) = message.windows(SERVER_NAME_HEAD.len()).position(|part| part == SERVER_NAME_HEAD)
    else {
        return message.to_vec();
    };
    let behind = &message[start + SERVER_NAME_HEAD.len()..];
    let digits = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
    [&message[..start], name, &behind[digits..]].concat()
}
