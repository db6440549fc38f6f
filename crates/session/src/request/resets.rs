//! Requests that reset parameters, of a client whose startup packet gave some: what they reset is noted, and what the client
//! sends behind them waits for the answer, because its startup values have to be set again first.
//!
//! Owns at which messages it is looked. What a text resets is [`crate::resets`]'s.

use wire::frame::{self, HEADER_BYTES};
use wire::frontend::{self, Found};
use wire::tag::frontend as tag;

use super::{Step, plain};
use crate::resets::{may_reset, reset_by, reset_by_portal, reset_by_query};
use crate::statement_text::Effects;
use crate::{PendingReply, Reset, StatementId};

/// No longer request is looked at for what it resets.
const RESET_BYTES: u32 = 1024;

/// A frame that may be looked at for what it resets.
enum Short<'a> {
    /// All of its body.
    Body(&'a [u8]),
    /// The rest is not here yet.
    Partial,
    /// It is too long to be a reset; what is here of its body.
    No(&'a [u8]),
}

impl<'a> Step<'a, '_> {
    /// A Query that may be a RESET. If it is, what the client sends behind it waits for the answer, because the client's
    /// startup values have to be set again first. False if more of it is needed.
    #[cold]
    #[inline(never)]
    pub(super) fn resetting_query(&mut self) -> bool {
        let reset = match self.short_frame() {
            Short::Body(text) => self.context.resets.and_then(|tracked| reset_by_query(text, tracked)),
            Short::Partial => return false,
            Short::No(_) => None,
        };
        self.server.ask(PendingReply::Query);
        self.server.replies.note_change();
        if let Some(reset) = reset.filter(|_| self.executes()) {
            let number = self.server.replies.last_number();
            self.server.effects.query_resets(reset, number);
            self.server.hold_requests();
        }
        true
    }

    /// An Execute of what may change prepared statements, or parameters.
    #[cold]
    #[inline(never)]
    pub(super) fn executes_alteration(&mut self, effects: Effects) {
        let reset = self.server.effects.portal_resets();
        if effects.any(Effects::SETS_VALUES) {
            self.server.session.note_settings_executed();
        }
        if effects.any(Effects::STATEMENTS) || !reset.is_empty() {
            self.server.replies.note_change();
        }
        if effects.any(Effects::SETTINGS) {
            self.server.settings.note_change(self.server.replies.segment());
        }
        if reset != Reset::default() && self.executes() {
            let number = self.server.replies.last_number();
            self.server.effects.execute_resets(reset, number);
        }
    }

    /// Parse, Bind, Describe, Close of a client whose names are the server's. Of a Parse it is taken that it will be bound;
    /// false if more of it is needed.
    #[inline(never)]
    pub(super) fn extended_as_is(&mut self, frame_tag: u8) -> bool {
        if let (Some(tracked), tag::PARSE) = (self.context.resets, frame_tag) {
            match self.short_frame() {
                Short::Body(body) => {
                    if let Found::Yes((_, at)) = frontend::parse_name(body)
                        && may_reset(body, at)
                        && let Some(reset) = reset_by(&body[at..], tracked)
                        && !reset.is_of_others()
                    {
                        self.server.effects.bind_resetting(reset);
                    }
                }
                Short::Partial => return false,
                Short::No(_) => {}
            }
        }
        if frame_tag == tag::BIND || frame_tag == tag::PARSE {
            // Which statement is bound is not followed.
            self.server.session.note_hidden(self.context.client, &self.input[self.at..]);
            if frame_tag == tag::PARSE && self.may_call_sequences() {
                self.server.session.note_sequences();
            } else {
                self.server.session.note_sequences_unseen();
            }
        }
        self.server.ask(plain(frame_tag));
        true
    }

    /// The current frame is a Parse whose text shows that it may call `nextval`.
    fn may_call_sequences(&mut self) -> bool {
        let Short::Body(body) = self.short_frame() else { return false };
        let Found::Yes((_, at)) = frontend::parse_name(body) else { return false };
        self.context.registry.session_effects(&body[at..]).any(Effects::SEQUENCES)
    }

    /// The current frame, as far as it may be looked at for what it resets.
    fn short_frame(&self) -> Short<'a> {
        let input: &'a [u8] = self.input;
        let rest = &input[self.at..];
        match frame::header(rest) {
            Ok(Some(header)) if header.frame_bytes <= RESET_BYTES => {
                rest.get(HEADER_BYTES..header.frame_bytes as usize).map_or(Short::Partial, Short::Body)
            }
            _ => Short::No(rest.get(HEADER_BYTES..).unwrap_or_default()),
        }
    }

    /// Notes what the statement without a name resets; false if more of it is needed.
    #[cold]
    #[inline(never)]
    pub(super) fn unnamed_resets(&mut self) -> bool {
        let (Short::Body(body) | Short::No(body)) = self.short_frame() else { return false };
        let resets = match (frontend::parse_name(body), self.context.resets) {
            (Found::Yes((_, at)), Some(tracked)) => reset_by_portal(&body[at..], tracked),
            _ => Reset::UNCLEAR,
        };
        self.server.effects.set_unnamed_resets(resets);
        true
    }

    /// A portal of a statement that may change prepared statements or parameters; without a number of the one without a
    /// name. What it resets is noted.
    #[cold]
    #[inline(never)]
    pub(super) fn alters_by_portal(&mut self, statement: Option<StatementId>) {
        let Some(tracked) = self.context.resets else { return };
        let reset = match statement.and_then(|id| self.context.registry.resets(id, tracked)) {
            Some(reset) => reset,
            None if self.server.statements.unnamed.may_alter() => self.server.effects.unnamed_resets(),
            None => Reset::default(),
        };
        self.server.effects.add_portal_resets(reset);
    }
}
