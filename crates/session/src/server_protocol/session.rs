//! What the session on a server holds (`session_state = virtual`): the question, the answer, and what follows from it for release.
//!
//! Owns how an answer becomes parameters. When it has to be asked for is [`super::session_knowledge`]'s.

use super::{Boundary, ServerProtocol};
use crate::server_statements::UnnamedStatement;
use crate::{LearnedSettings, Parameters, PendingReply, Pin, Tracked, session_state};

impl ServerProtocol {
    /// Whether it is followed what clients leave in the session (`session_state = virtual`).
    #[inline]
    pub fn follow_session(&mut self, is_followed: bool) {
        self.session.follow(is_followed);
    }

    /// The session has to be asked what it holds, or holds what only this connection has.
    #[inline(always)]
    #[must_use]
    pub fn keeps_client(&self) -> bool {
        self.session.keeps_client()
    }

    /// [`ServerProtocol::send_session_query`] has to be called before this server serves another client.
    #[must_use]
    pub fn session_is_to_be_asked(&self) -> bool {
        self.session.is_to_be_asked()
    }

    /// What the session holds and another connection cannot be given.
    #[must_use]
    pub fn session_pin(&self) -> Option<Pin> {
        self.session.pin()
    }

    /// Something has run whose effect on the session is not known.
    pub fn forget_session(&mut self) {
        self.session.forget();
    }

    /// Appends the query for what the session holds; [`ServerProtocol::session_answered`] reads the answer.
    pub fn send_session_query(&mut self, _at: Boundary, out: &mut Vec<u8>) {
        let known = self
            .parameters
            .others()
            .iter()
            .map(|(name, _)| name)
            .filter(|name| session_state::is_custom_name(name));
        let names: std::collections::BTreeSet<&str> = self.session.names().chain(known).collect();
        wire::encode::query(out, session_state::query(names).as_bytes());
        self.statements.unnamed = UnnamedStatement::default();
        self.owe(PendingReply::InternalQuery);
        self.internal.begin_result();
    }

    /// Reads the answer to [`ServerProtocol::send_session_query`]: from here on the parameters say what is set in the session. What a
    /// server does not report, and is not set, is as in `default_params`. False if the answer cannot be read.
    pub fn session_answered(
        &mut self,
        tracked: &Tracked,
        default_params: &Parameters,
        learned: &mut LearnedSettings,
    ) -> bool {
        let Some(state) = session_state::read(self.internal.take_result().into_rows()) else { return false };
        let mut known = default_params.clone();
        let others = state.settle(&mut known, tracked);
        known.set_others(others);
        if let Some(transcript) = self.session.transcript().filter(|_| state.pin.is_none()) {
            learned.learn(transcript, self.parameters.clone(), known.clone());
        }
        self.parameters.note_unreported(default_params, &known);
        self.session.answered(state.pin);
        true
    }

    /// The same where nothing was run but settings whose result was learned before: the server need not be asked. False if it has to be.
    pub fn session_is_learned(&mut self, default_params: &Parameters, learned: &LearnedSettings) -> bool {
        let known = self
            .session
            .transcript()
            .and_then(|transcript| learned.find(transcript, &self.parameters, default_params));
        if let Some(known) = known {
            self.parameters.note_unreported(default_params, known);
            self.session.answered(None);
        }
        known.is_some()
    }

    /// Another client than this one has run a function that may have set a parameter of a name that is not known: only RESET ALL
    /// resets that.
    #[inline(always)]
    #[must_use]
    pub fn may_have_unknown_settings(&self, client: u64) -> bool {
        self.session.may_have_unknown_settings(client)
    }

    /// Any client may have.
    #[must_use]
    pub fn has_unknown_settings(&self) -> bool {
        self.session.has_unknown_settings()
    }

    /// A client of the process from which this server came may have.
    pub fn import_unknown_settings(&mut self) {
        self.session.import_unknown_settings();
    }

    /// RESET ALL is sent.
    pub fn unknown_settings_reset(&mut self) {
        self.session.unknown_settings_reset();
    }
}
