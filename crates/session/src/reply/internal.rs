//! Replies that are not a client's: those to Weir's own queries and to a deferred BEGIN, and what comes while no client is linked.
//!
//! Owns how they are swallowed, and that their rows are kept within bounds. An internal Parse or Describe of a client's statement is
//! [`super::statements`]'.

use wire::frame::{self, HEADER_BYTES, Header};
use wire::tag::backend as tag;

use super::{HELD_BYTES, ReplyAction, Step};
use crate::{PendingReply, ServerFault, internal_result, listening};

/// So much is kept of what only the client's server delivers while its channels are not known.
const KEPT_BYTES: usize = 1024 * 1024;

impl Step<'_, '_> {
    /// Notices and notifications come at any time; those of Weir's own queries are swallowed.
    pub(super) fn for_client_only(&mut self, header: Header, rest: &[u8]) -> ReplyAction {
        if !self.is_private() {
            return if self.is_own_notice() { self.swallow_body() } else { self.unless_shared(header, rest) };
        }
        let action = self.swallow_body();
        let is_asked = self.server.replies.front() == Some(PendingReply::InternalQuery);
        let is_kept =
            is_asked && self.server.session.is_followed() || self.server.internal.collects_notifications();
        if matches!(action, ReplyAction::Swallow) && is_kept {
            self.keep_notification();
        }
        action
    }

    /// What the client hears by way of the shared connection it does not hear again from its own server. What only the server delivers is
    /// kept: it may have to come behind what the shared connection delivers later.
    fn unless_shared(&mut self, header: Header, rest: &[u8]) -> ReplyAction {
        let Some(listening) = self.context.listening.as_deref_mut() else { return ReplyAction::Pass };
        if header.tag != tag::NOTIFICATION {
            return ReplyAction::Pass;
        }
        let Some(frame) = rest.get(..header.frame_bytes as usize) else {
            return if header.frame_bytes as usize <= HELD_BYTES {
                ReplyAction::Hold
            } else {
                ReplyAction::Pass
            };
        };
        let Some(one) = listening::read(frame) else { return ReplyAction::Pass };
        let is_shared = listening.is_on(one.channel);
        if is_shared {
            listening.note_own(frame);
        }
        let kept = self.server.internal.notifications().len();
        let keeps = self.server.session.is_followed() && kept + frame.len() <= KEPT_BYTES;
        match is_shared {
            true if kept == 0 || !keeps => {}
            false if !keeps => return ReplyAction::Pass,
            _ => self.server.internal.keep_notification(frame),
        }
        ReplyAction::Swallow
    }

    /// A session that is asked what it holds may listen: its client gets the notification as soon as that is answered.
    #[cold]
    fn keep_notification(&mut self) {
        let rest = &self.input[self.at..];
        if let Ok(Some(header)) = frame::header(rest)
            && header.tag == tag::NOTIFICATION
            && let Some(frame) = rest.get(..header.frame_bytes as usize)
        {
            self.server.internal.keep_notification(frame);
        }
    }

    /// It is a warning about a statement that Weir has parsed once more: its client was warned when it prepared it.
    fn is_own_notice(&self) -> bool {
        let is_internal = matches!(
            self.server.replies.front(),
            Some(
                PendingReply::InternalParse(_)
                    | PendingReply::InternalDescribe(..)
                    | PendingReply::InternalOwnParse
            )
        );
        is_internal && self.input.get(self.at) == Some(&tag::NOTICE)
    }

    /// What comes now is not for a client: it answers Weir's own query, or no client is linked.
    pub(super) fn is_private(&self) -> bool {
        !self.context.has_client
            || matches!(
                self.server.replies.front(),
                Some(PendingReply::InternalQuery | PendingReply::LeadingSetting)
            )
    }

    /// Swallowing needs the whole frame; Weir's own queries have small answers.
    pub(super) fn swallow_body(&mut self) -> ReplyAction {
        let rest = &self.input[self.at..];
        match frame::header(rest) {
            Ok(Some(header)) if rest.len() >= header.frame_bytes as usize => ReplyAction::Swallow,
            Ok(Some(header)) if header.frame_bytes as usize > HELD_BYTES => {
                ReplyAction::Fault(ServerFault::Malformed)
            }
            _ => ReplyAction::Hold,
        }
    }

    /// Rows of [`ServerProtocol::send_internal_select`] are kept; other data of internal queries is dropped.
    pub(super) fn internal_data(&mut self) -> ReplyAction {
        let rest = &self.input[self.at..];
        let Some(answer) = self.server.internal.result() else { return self.swallow_body() };
        match frame::header(rest) {
            Ok(Some(header)) if header.frame_bytes as usize > internal_result::FRAME_BYTES => {
                ReplyAction::Fault(ServerFault::Malformed)
            }
            Ok(Some(header)) => match rest.get(HEADER_BYTES..header.frame_bytes as usize) {
                Some(body) if header.tag != tag::DATA_ROW || answer.keep(body) => ReplyAction::Swallow,
                Some(_) => ReplyAction::Fault(ServerFault::Malformed),
                None => ReplyAction::Hold,
            },
            _ => ReplyAction::Hold,
        }
    }

    /// A message of Weir's in front of the client's request is answered, once its reply is here whole.
    #[cold]
    pub(super) fn in_front_step(&mut self) -> ReplyAction {
        let action = self.swallow_body();
        if matches!(action, ReplyAction::Swallow) {
            self.server.replies.pop();
        }
        action
    }

    /// An internal query with rows uses the extended protocol, whose steps are confirmed one by one.
    pub(super) fn internal_step(&mut self, header: Header) -> ReplyAction {
        match (self.server.replies.front(), self.server.internal.result()) {
            (Some(PendingReply::InternalQuery), Some(_)) => self.swallow_body(),
            (Some(PendingReply::DeferredBegin | PendingReply::LeadingSetting), _) => self.in_front_step(),
            _ => ReplyAction::Fault(ServerFault::OutOfStep(header.tag)),
        }
    }
}
