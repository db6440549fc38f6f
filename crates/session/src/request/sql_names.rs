//! Statements that the protocol has prepared and SQL names, and the other way round: one name space, as in PostgreSQL
//! (`session_state = virtual`).
//!
//! Owns when a client's name means the same on the server. What SQL has prepared is there under the client's name, and so the server judges
//! what the client asks for by that name. What the protocol has prepared is there under a shared one, until SQL names it: then the server gets
//! it under the client's, in front of that.

use wire::encode;
use wire::frame::Header;
use wire::tag::frontend as tag;

use super::bind::Bind;
use super::{RequestAction, Step, send_internal};
use crate::replay::parse_message;
use crate::statement_text::Effects;
use crate::{Boundary, Lookup, Output, PendingReply, StatementId};

/// A text up to this length is looked at whole before it is passed on.
pub(super) const WHOLE_BYTES: u32 = 64 * 1024;

/// What a statement may change that SQL has prepared: its text is not looked at.
const UNSEEN: Effects = Effects::CALLS.and(Effects::UNSEEN).and(Effects::ANYTHING).and(Effects::COPIES);

/// Parse's body after the name, of a statement that does nothing.
const EMPTY: &[u8] = b"\0\0\0";

/// What the server gets under a client's name.
enum Named {
    /// The statement that the protocol has prepared.
    Statement(StatementId),
    /// Any, because it is deallocated, and nothing else is done.
    Nothing,
}

impl Step<'_, '_> {
    /// What is not here whole yet may name statements.
    #[inline]
    pub(super) fn awaits_whole_text(&self, header: Header, is_whole: bool) -> bool {
        !is_whole && header.frame_bytes <= WHOLE_BYTES
    }

    /// A text that is about to be sent may name prepared statements. None if it can be sent; the server has them then. A Query is
    /// `alone` in its segment.
    #[cold]
    #[inline(never)]
    pub(super) fn before_names_in(
        &mut self,
        text: &[u8],
        alone: bool,
        at: Boundary,
        out: &mut impl Output,
    ) -> Option<RequestAction> {
        if !self.server.session.is_followed() || !self.executes() {
            return None;
        }
        let names = sql::statement_names(text);
        // What is parsed only may never be executed, and what stands among others may fail before it is.
        let only_deallocates = alone && sql::is_deallocate(text);
        let mut wanted: Vec<(String, Named)> = Vec::new();
        for name in names.all() {
            let is_lacking = || names.deallocated.contains(name) && self.server.lacks_statement(name);
            let named = match self.find(name.as_bytes()) {
                Lookup::Unresolved => return Some(RequestAction::AwaitReplies),
                Lookup::Is(_) if only_deallocates => Named::Nothing,
                Lookup::Is(statement) => Named::Statement(statement),
                Lookup::Unknown if is_lacking() => Named::Nothing,
                Lookup::Unknown => continue,
            };
            if !wanted.iter().any(|(known, _)| known == name) {
                wanted.push((name.clone(), named));
            }
        }
        if !wanted.is_empty() {
            if !self.server.replies.is_empty() {
                return Some(RequestAction::AwaitReplies);
            }
            if !self.server.transaction.in_failed_block() {
                self.send_names(&wanted, alone, at, out);
            }
        }
        self.server.session.note_statements(names.prepared.iter().map(String::as_str));
        // What is executed later may find under a name what is parsed until then.
        if !alone {
            self.server.effects.name_statements(self.context.client, names.all());
        }
        if names.is_unclear {
            self.server.session.note_prepared_unseen();
        }
        None
    }

    fn send_names(&mut self, wanted: &[(String, Named)], alone: bool, at: Boundary, out: &mut impl Output) {
        self.flush(out);
        self.server.session.note_statements(wanted.iter().map(|(name, _)| name.as_str()));
        self.server.session.note_prepared();
        for (name, named) in wanted {
            let rest = match named {
                Named::Statement(statement) => self.context.registry.typed(*statement),
                Named::Nothing => None,
            };
            send_internal(self.server, at, out, |bytes| {
                parse_message(bytes, name.as_bytes(), rest.as_deref().unwrap_or(EMPTY));
            });
            self.server.forget_lacking(name);
            let segment = self.server.replies.segment();
            let names = self.request.statements.get_or_insert_default();
            names.give_up(name.as_bytes(), segment);
            self.server.owe(PendingReply::InternalOwnParse);
        }
        // With what was executed before, behind which the client has sent no Sync, none may end its transaction; it may be that of a Query in a pipeline.
        if alone && self.server.effects.segment() == Effects::NONE && self.server.taint.is_none() {
            send_internal(self.server, at, out, encode::sync);
            let asked = self.server.transaction.asked();
            self.server.replies.push_internal_sync(asked);
        }
    }

    /// This name means what it means on the server.
    pub(super) fn is_own_name(&self, name: &[u8]) -> bool {
        self.server.is_own_name(self.context.client, name)
    }

    /// Bind of a name that means what it means on the server.
    #[cold]
    #[inline(never)]
    pub(super) fn bind_own(&mut self, bind: &Bind<'_>) -> RequestAction {
        let message = self.input.get(self.at..).unwrap_or_default();
        let message = &message[..message.len().min(bind.header.frame_bytes as usize)];
        self.server.effects.bind(UNSEEN);
        self.server.session.note_hidden(self.context.client, message);
        self.server.session.note_sequences();
        self.pass(PendingReply::Bind)
    }

    /// Parse, Describe or Close of such a name.
    #[cold]
    #[inline(never)]
    pub(super) fn pass_own(&mut self, frame_tag: u8, name: &[u8]) -> RequestAction {
        match frame_tag {
            tag::DESCRIBE => self.describe_portal(),
            tag::PARSE => {
                let name = String::from_utf8_lossy(name);
                self.server.session.note_statements([&*name].into_iter());
                self.server.session.note_prepared();
                self.pass(PendingReply::OwnParse)
            }
            _ => {
                self.server.session.note_prepared();
                self.pass(PendingReply::Close)
            }
        }
    }
}
