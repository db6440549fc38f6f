//! Requests for statements that are not there, or are there already: what PostgreSQL would refuse is refused by the server,
//! in its place in the stream, so that what follows in the segment is skipped there as well. And what a client that may read only may not send.

use wire::frame::Header;
use wire::rename;
use wire::tag::frontend as tag;

use super::prepare::Prerequisite;
use super::{RequestAction, Step, send};
use crate::prepared::{NO_STATEMENT, server_name};
use crate::replay::parse_message;
use crate::statement_guard::Guarded;
use crate::{Boundary, ClientFault, Output, PendingReply, Reader, StatementId};

impl Step<'_, '_> {
    /// What comes of a frame that its client may not send, or that has to be here to its end before that can be said.
    #[inline(always)]
    pub(super) fn guarded(&mut self, header: Header, rest: &[u8]) -> Option<RequestAction> {
        if self.context.guard.is_none() { None } else { self.judged(header, rest) }
    }

    #[cold]
    #[inline(never)]
    fn judged(&mut self, header: Header, rest: &[u8]) -> Option<RequestAction> {
        match self.context.guard.as_deref_mut()?.judge(header, rest) {
            Guarded::Passes => None,
            Guarded::Incomplete => Some(RequestAction::Hold),
            Guarded::Refused => Some(RequestAction::Stop(ClientFault::ReadOnly.into())),
        }
    }

    /// Parse of a name that is taken. The server has that statement under its shared name, under which it judges this one: the
    /// text first, the name last.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse_parse(
        &mut self,
        header: Header,
        name: &[u8],
        taken: StatementId,
        rest: &[u8],
        at: Boundary,
        out: &mut impl Output,
    ) -> RequestAction {
        let Ok((taken, before)) = self.before_named(name, taken, header, at, out) else {
            return RequestAction::AwaitReplies;
        };
        if self.server.replies.internal_bytes_full() {
            return RequestAction::AwaitReplies; // The name is kept.
        }
        self.flush(out);
        if !matches!(before, Prerequisite::Nothing(_)) {
            self.prepare(taken, PendingReply::InternalParse(taken), Reader::Holding, at, out);
        }
        send(&mut self.server.replay_buffer, at, out, |bytes| {
            parse_message(bytes, &server_name(taken), rest)
        });
        self.server.owe_refused(name);
        RequestAction::Dropped(header.frame_bytes as usize)
    }

    /// Describe of a name that stands for nothing.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse_describe(
        &mut self,
        header: Header,
        name: &[u8],
        at: Boundary,
        out: &mut impl Output,
    ) -> RequestAction {
        if self.server.replies.internal_bytes_full() {
            return RequestAction::AwaitReplies; // The name is kept.
        }
        self.flush(out);
        self.close_internal(NO_STATEMENT, at, out);
        send(&mut self.server.replay_buffer, at, out, |bytes| {
            rename::target(bytes, tag::DESCRIBE, b'S', &server_name(NO_STATEMENT));
        });
        self.server.owe_refused(name);
        RequestAction::Dropped(header.frame_bytes as usize)
    }
}
