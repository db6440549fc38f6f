//! Requests for statements that are not there, or are there already: what PostgreSQL would refuse is refused by the server,
//! in its place in the stream, so that what follows in the segment is skipped there as well.

use wire::frame::{HEADER_BYTES, Header};
use wire::rename;
use wire::tag::frontend as tag;

use super::statements::Prerequisite;
use super::{RequestAction, Step, send};
use crate::prepared::{NO_STATEMENT, server_name};
use crate::replay::parse_message;
use crate::statement_text::Effects;
use crate::{Boundary, Output, PendingReply, Reader, StatementId};

impl Step<'_, '_> {
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
        self.server.status = None;
        if !matches!(before, Prerequisite::Nothing(_)) {
            self.prepare(taken, PendingReply::InternalParse(taken), Reader::Holding, at, out);
        }
        send(&mut self.server.replay_buffer, at, out, |bytes| {
            parse_message(bytes, &server_name(taken), rest)
        });
        self.server.replies.push_refused(name);
        RequestAction::Dropped(header.frame_bytes as usize)
    }

    /// Bind of a name that stands for nothing.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse_bind(
        &mut self,
        header: Header,
        portal: &[u8],
        name: &[u8],
        rest: usize,
        at: Boundary,
        out: &mut impl Output,
    ) -> RequestAction {
        if self.server.replies.internal_bytes_full() {
            return RequestAction::AwaitReplies; // The name is kept.
        }
        let action = self.bind_nothing(header, portal, name, rest, at, out);
        self.server.replies.push_refused(name);
        action
    }

    /// Bind of a client that would read the rows by an old description; the words of the error are Weir's.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse_old_description(
        &mut self,
        header: Header,
        portal: &[u8],
        name: &[u8],
        rest: usize,
        at: Boundary,
        out: &mut impl Output,
    ) -> RequestAction {
        let action = self.bind_nothing(header, portal, name, rest, at, out);
        self.server.replies.push(PendingReply::RefusedBind);
        action
    }

    fn bind_nothing(
        &mut self,
        header: Header,
        portal: &[u8],
        name: &[u8],
        rest: usize,
        at: Boundary,
        out: &mut impl Output,
    ) -> RequestAction {
        self.flush(out);
        self.server.segment_effects.add(Effects::BOUND);
        self.server.status = None;
        self.close_internal(NO_STATEMENT, at, out); // SQL may have prepared one under this name.
        send(&mut self.server.replay_buffer, at, out, |bytes| {
            rename::bind(bytes, header, portal, name.len(), &server_name(NO_STATEMENT));
        });
        RequestAction::Dropped(HEADER_BYTES + rest)
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
        self.server.status = None;
        self.close_internal(NO_STATEMENT, at, out);
        send(&mut self.server.replay_buffer, at, out, |bytes| {
            rename::target(bytes, tag::DESCRIBE, b'S', &server_name(NO_STATEMENT));
        });
        self.server.replies.push_refused(name);
        RequestAction::Dropped(header.frame_bytes as usize)
    }
}
