//! Replies to what is executed: rows, the end of a command, COPY from the client, ReadyForQuery.
//!
//! Owns what the end of a command shows about prepared statements and parameters, and what ReadyForQuery says about the
//! transaction. What these change is noted in [`ServerProtocol`](crate::ServerProtocol).

use wire::backend::{self, Status};
use wire::encode;
use wire::frame::{HEADER_BYTES, Header};
use wire::tag::backend as tag;

use super::{ReplyAction, Step};
use crate::server_protocol::session_knowledge::may_change_schema;
use crate::{Kinds, PendingReply, ServerFault, listening};

/// A CommandComplete longer than this is none of those that are looked for.
const TAG_BYTES: u32 = 64;

impl Step<'_, '_> {
    /// Parts of a result go to the request that is answered.
    #[inline]
    pub(super) fn data(&mut self) -> ReplyAction {
        match self.server.replies.front() {
            Some(PendingReply::InternalQuery) => self.internal_data(),
            Some(PendingReply::LeadingSetting) => self.swallow_body(),
            Some(_) => ReplyAction::Pass,
            None => ReplyAction::Fault(ServerFault::OutOfStep(self.input[self.at])),
        }
    }

    #[inline]
    pub(super) fn executed(&mut self, header: Header) -> ReplyAction {
        match self.server.replies.front() {
            Some(PendingReply::Execute) => {
                self.server.replies.pop();
                ReplyAction::Pass
            }
            Some(PendingReply::Query) => ReplyAction::Pass,
            Some(PendingReply::InternalQuery) => self.swallow_body(),
            Some(PendingReply::DeferredBegin | PendingReply::LeadingSetting) => self.in_front_step(),
            _ => ReplyAction::Fault(ServerFault::OutOfStep(header.tag)),
        }
    }

    #[inline(always)]
    pub(super) fn command_complete(&mut self, header: Header, rest: &[u8]) -> ReplyAction {
        // Those that are looked for begin with a D, P or R, and so do others; the rest need not be whole.
        if rest.len() < header.frame_bytes as usize && header.frame_bytes <= TAG_BYTES {
            return ReplyAction::Hold;
        }
        if self.server.session.is_followed()
            && !matches!(
                self.server.replies.front(),
                Some(PendingReply::InternalQuery | PendingReply::LeadingSetting)
            )
        {
            let is_short = header.frame_bytes <= TAG_BYTES;
            let command = rest.get(HEADER_BYTES..header.frame_bytes as usize).filter(|_| is_short);
            self.server.session.note_command(command.unwrap_or_default());
        }
        if self.server.schema_watch.is_on() {
            self.note_schema(rest.get(HEADER_BYTES..header.frame_bytes as usize).unwrap_or_default());
        }
        if matches!(rest.get(HEADER_BYTES), Some(b'D' | b'P' | b'R')) && header.frame_bytes <= TAG_BYTES {
            self.note_command(rest.get(HEADER_BYTES..header.frame_bytes as usize));
        }
        self.executed(header)
    }

    /// Whether a command that has ended may have changed the schema.
    #[inline(never)]
    fn note_schema(&mut self, command: &[u8]) {
        let is_client =
            matches!(self.server.replies.front(), Some(PendingReply::Query | PendingReply::Execute));
        if is_client && !command.starts_with(b"SELECT ") && may_change_schema(command) {
            self.server.schema_watch.note_change();
        }
    }

    /// Commands that change which statements are prepared, or reset parameters.
    #[cold]
    #[inline(never)]
    pub(super) fn note_command(&mut self, body: Option<&[u8]>) {
        if self.server.replies.front() == Some(PendingReply::LeadingSetting) {
            return;
        }
        let command = body.and_then(backend::command_tag);
        match command {
            Some(b"DISCARD ALL" | b"DEALLOCATE ALL") => {
                let discarded = command == Some(b"DISCARD ALL");
                self.outcome.discarded |= discarded;
                self.forget_statements();
                if discarded {
                    self.note_reset();
                }
            }
            // Weir's own, under other names than its shared ones.
            Some(b"DEALLOCATE" | b"PREPARE") if self.server.prepared_by_sql.is_preparing() => {}
            // Under which name is not said. DO may have run either.
            Some(b"DEALLOCATE" | b"PREPARE" | b"DO") => self.server.statements.distrust_all(),
            Some(b"RESET") => self.note_reset_command(),
            _ => {}
        }
    }

    pub(super) fn copy_in(&mut self, header: Header) -> ReplyAction {
        match self.server.replies.front() {
            Some(front @ (PendingReply::Query | PendingReply::Execute)) => {
                let begun = self.server.replies.copy_in();
                self.server.taint.set_if(begun.refuses);
                // Its Sync ends nothing: what comes behind the copy is behind the Execute, too.
                if front == PendingReply::Execute && begun.syncs > 0 {
                    self.server.taint.note_query_in_pipeline();
                }
                self.server.copy.begin(begun, header.tag == tag::COPY_BOTH);
                if self.server.effects.resets.begins_by(self.server.replies.answered()) {
                    self.server.replies.release(); // The Sync that comes behind the data ends this request.
                }
                self.end_unneeded_recording();
                ReplyAction::Pass
            }
            _ => ReplyAction::Fault(ServerFault::OutOfStep(header.tag)),
        }
    }

    #[inline(always)]
    pub(super) fn ready(&mut self, header: Header, body: &[u8]) -> ReplyAction {
        let Some(status) = backend::ready_status(body) else {
            return ReplyAction::Fault(ServerFault::Malformed);
        };
        let Some(answered) = self.server.ready() else {
            return ReplyAction::Fault(ServerFault::OutOfStep(header.tag));
        };
        let nothing_owed = self.server.replies.nothing_owed();
        let before = self.server.transaction.ready(status, nothing_owed);
        if self.server.taint.has_query_in_pipeline() {
            self.server.taint.ready_behind_query(answered, before, status, nothing_owed.is_none());
        }
        if nothing_owed.is_some() {
            self.server.effects.end_segment();
        }
        if answered == PendingReply::InternalQuery {
            self.outcome.internal_done = Some(self.context.internal_error.is_none());
            return ReplyAction::Swallow;
        }
        if matches!(answered, PendingReply::InternalSync | PendingReply::Marker) {
            return self.ready_for_none();
        }
        if self.context.refuses_blocks && status != Status::Idle {
            self.outcome.block_refused = true;
            return ReplyAction::Stop;
        }
        self.outcome.ready += 1;
        self.outcome.idle += u32::from(status == Status::Idle);
        if self.server.leading.is_some() {
            return self.ready_behind_leading_settings(status);
        }
        self.ready_for_client(status)
    }

    /// What is sent in place of it.
    #[inline(always)]
    pub(super) fn ready_for_client(&mut self, status: Status) -> ReplyAction {
        if self.server.effects.resets.is_noted() {
            return self.ready_behind_reset(status);
        }
        if self.context.listening.is_some() && status == Status::Idle {
            return self.ready_behind_notifications(status);
        }
        ReplyAction::Pass
    }

    /// What was notified during the transaction comes in front of its ReadyForQuery, the client's own ones in any case. Where its channels
    /// have changed, the others come once these are known.
    #[cold]
    fn ready_behind_notifications(&mut self, status: Status) -> ReplyAction {
        let is_followed = self.server.session.is_followed();
        let is_settled = !self.server.session.unknown().any(Kinds::CHANNELS);
        let kept = self.server.internal.notifications();
        let is_last = self.server.replies.nothing_owed().is_some() && self.server.boundary().is_some();
        let Some(listening) = self.context.listening.as_deref_mut() else { return ReplyAction::Pass };
        listening.meet_own();
        let has_kept_own = listening::notifications(kept).any(|one| listening.is_own(one.frame));
        let is_due = !is_followed || is_last && is_settled && kept.is_empty();
        let mut frames = Vec::new();
        if is_last && (has_kept_own || listening.awaits_own() || listening.has_own() && !is_due) {
            listening.withhold_ready();
        } else if !is_due {
            return ReplyAction::Pass;
        } else {
            frames = listening.take_queued();
            if frames.is_empty() {
                return ReplyAction::Pass;
            }
            encode::ready(&mut frames, status);
        }
        self.server.internal.replace(frames);
        ReplyAction::Replaced
    }
}
