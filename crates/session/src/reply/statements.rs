//! Replies about prepared statements and portals: matched, swallowed where the request was Weir's own, and what they
//! show about the statement. Never sees an error; that is [`super::error`].

use wire::backend;
use wire::frame::{HEADER_BYTES, Header};
use wire::tag::backend as tag;

use super::{HELD_BYTES, ReplyAction, Step};
use crate::client_statements::NameSelector;
use crate::{Description, PendingReply, Reader, ServerFault, StatementId};

/// The longest part of a description that is kept until it is whole: PostgreSQL has at most 1664 columns and 65535 parameters.
const DESCRIPTION_BYTES: usize = 512 * 1024;

impl Step<'_, '_> {
    #[inline(always)]
    pub(super) fn bind_complete(&mut self, header: Header) -> ReplyAction {
        if let Some(PendingReply::Bind | PendingReply::NamedBind(_)) = self.server.replies.front() {
            self.server.replies.pop();
            return ReplyAction::Pass;
        }
        self.other_bind_complete(header)
    }

    /// The same for a Bind that is recorded, or not the client's.
    #[inline(never)]
    fn other_bind_complete(&mut self, header: Header) -> ReplyAction {
        match self.server.replies.front() {
            Some(PendingReply::RecordedBind(statement)) => {
                self.server.replies.pop();
                self.plan_is_valid(statement)
            }
            _ => self.internal_step(header),
        }
    }

    /// The message that would have failed on a stale plan has been answered.
    pub(super) fn plan_is_valid(&mut self, statement: StatementId) -> ReplyAction {
        self.server.statements.verify(statement);
        self.end_unneeded_recording();
        ReplyAction::Pass
    }

    /// Ends the recording if the reply that it waited for is not owed any more.
    pub(super) fn end_unneeded_recording(&mut self) {
        if !self.server.replies.has_recorded() {
            self.outcome.unblocked |= self.server.replay_buffer.end();
        }
    }

    /// PostgreSQL describes the parameters before it finds that the result has changed. The client gets both parts of
    /// the answer or, of a request that is replayed, neither.
    pub(super) fn parameters_described(&mut self, header: Header, rest: &[u8]) -> ReplyAction {
        match self.server.replies.front() {
            Some(PendingReply::RecordedDescribe(_)) => {}
            Some(PendingReply::InternalDescribe(..)) => return self.described_types(header, rest),
            _ => return self.data(),
        }
        match rest.get(header.frame_bytes as usize) {
            Some(&tag::ROW_DESCRIPTION | &tag::NO_DATA) => ReplyAction::Pass,
            Some(&tag::ERROR) => ReplyAction::Swallow,
            None if header.frame_bytes as usize <= HELD_BYTES => ReplyAction::Hold,
            _ => {
                self.outcome.unblocked |= self.server.replay_buffer.end();
                ReplyAction::Pass
            }
        }
    }

    #[inline(always)]
    pub(super) fn described(&mut self, header: Header, rest: &[u8]) -> ReplyAction {
        if let Some(PendingReply::Query | PendingReply::Execute) = self.server.replies.front() {
            return ReplyAction::Pass;
        }
        self.description_came(header, rest)
    }

    /// The same where it answers a Describe, or a query of Weir's own.
    #[inline(never)]
    fn description_came(&mut self, header: Header, rest: &[u8]) -> ReplyAction {
        match self.server.replies.front() {
            Some(PendingReply::InternalDescribe(statement, reader)) => {
                self.internal_described(header, rest, statement, reader)
            }
            Some(PendingReply::Describe | PendingReply::NamedDescribe(_)) => {
                self.note_description_read();
                self.server.replies.pop();
                ReplyAction::Pass
            }
            Some(PendingReply::RecordedDescribe(statement)) => {
                self.note_description_read();
                self.server.replies.pop();
                self.plan_is_valid(statement)
            }
            Some(PendingReply::InternalQuery) => self.swallow_body(),
            _ => ReplyAction::Fault(ServerFault::OutOfStep(header.tag)),
        }
    }

    #[inline]
    fn note_description_read(&mut self) {
        if let Some(names) = &mut self.context.names {
            names.describe_answered(self.server.replies.answered(), self.context.registry);
        }
    }

    /// The body of a frame that answers Weir's own Describe.
    fn internal_body(header: Header, rest: &[u8]) -> Result<&[u8], ReplyAction> {
        match rest.get(HEADER_BYTES..header.frame_bytes as usize) {
            Some(body) => Ok(body),
            None if header.frame_bytes as usize <= DESCRIPTION_BYTES => Err(ReplyAction::Hold),
            None => Err(ReplyAction::Fault(ServerFault::Malformed)),
        }
    }

    fn described_types(&mut self, header: Header, rest: &[u8]) -> ReplyAction {
        match Self::internal_body(header, rest).map(backend::parameter_types) {
            Ok(Some(types)) => {
                self.server.internal.keep_types(types);
                ReplyAction::Swallow
            }
            Ok(None) => ReplyAction::Fault(ServerFault::Malformed),
            Err(action) => action,
        }
    }

    /// A statement that Weir has had parsed is described. If its clients know it otherwise, it is another one for a client that reads by
    /// no description, from here on, or by this one, once it has it; those that may hold theirs keep it.
    fn internal_described(
        &mut self,
        header: Header,
        rest: &[u8],
        statement: StatementId,
        reader: Reader,
    ) -> ReplyAction {
        let body = match Self::internal_body(header, rest) {
            Ok(body) => Some(body).filter(|_| header.tag == tag::ROW_DESCRIPTION),
            Err(action) => return action,
        };
        let parameters = self.server.internal.take_types();
        let own_types = self.server.settings.catalog().own_types;
        let Some(description) = Description::read(parameters, body, own_types) else {
            return ReplyAction::Fault(ServerFault::Malformed);
        };
        self.server.replies.pop();
        let as_known = self.context.registry.describe(statement, &description);
        self.server.statements.described(statement, as_known);
        if !as_known && let Some(names) = &mut self.context.names {
            let registry = &mut *self.context.registry;
            let selector = match reader {
                Reader::Preparing => Some(NameSelector::Latest),
                _ if !names.describe_history.describes => Some(NameSelector::All),
                Reader::Fresh if names.has_pending_describe(statement) => None,
                Reader::Fresh | Reader::Holding => return ReplyAction::Swallow,
            };
            let typed = reader != Reader::Preparing;
            if let Some(new) = registry.successor(statement, Some(&description), typed) {
                match selector {
                    Some(selector) => names.replace(statement, new, selector, registry),
                    None => names.redirect_describe(statement, new, registry),
                }
            }
        }
        ReplyAction::Swallow
    }

    /// The server dropped all its prepared statements, and the client meant its own.
    pub(super) fn forget_statements(&mut self) {
        self.server.statements.clear();
        self.server.prepared_discarded();
        if self.server.replies.front() != Some(PendingReply::InternalQuery)
            && let Some(names) = &mut self.context.names
        {
            names.clear(self.context.registry);
        }
    }

    #[inline(always)]
    pub(super) fn parse_complete(&mut self, header: Header) -> ReplyAction {
        if let Some(PendingReply::Parse) = self.server.replies.front() {
            self.server.replies.pop();
            self.server.statements.unnamed.answered();
            return ReplyAction::Pass;
        }
        self.named_parse_complete(header)
    }

    /// The same for a statement with a name, or not the client's.
    #[inline(never)]
    fn named_parse_complete(&mut self, header: Header) -> ReplyAction {
        match self.server.replies.front() {
            Some(PendingReply::NamedParse(statement)) => {
                self.server.replies.pop();
                self.server.statements.answered(statement, true);
                self.confirm();
                ReplyAction::Pass
            }
            Some(PendingReply::InternalParse(statement)) => {
                self.server.replies.pop();
                self.server.statements.answered(statement, true);
                ReplyAction::Swallow
            }
            Some(PendingReply::OwnParse) => {
                self.server.replies.pop();
                ReplyAction::Pass
            }
            Some(PendingReply::InternalOwnParse) => {
                self.server.replies.pop();
                self.confirm();
                ReplyAction::Swallow
            }
            _ => self.internal_step(header),
        }
    }

    pub(super) fn close_complete(&mut self, header: Header) -> ReplyAction {
        match self.server.replies.front() {
            Some(PendingReply::Close) => {
                self.server.replies.pop();
                ReplyAction::Pass
            }
            Some(PendingReply::NamedClose) => {
                self.server.replies.pop();
                self.confirm();
                ReplyAction::Pass
            }
            Some(PendingReply::InternalClose(statement)) => {
                self.server.replies.pop();
                self.server.statements.answered(statement, false);
                ReplyAction::Swallow
            }
            // Its ReadyForQuery ends it.
            Some(PendingReply::Marker | PendingReply::InternalQuery) => ReplyAction::Swallow,
            Some(PendingReply::DeferredBegin | PendingReply::LeadingSetting) => self.in_front_step(),
            _ => ReplyAction::Fault(ServerFault::OutOfStep(header.tag)),
        }
    }

    pub(super) fn confirm(&mut self) {
        if let Some(names) = &mut self.context.names {
            names.confirm(self.context.registry);
        }
    }
}
