//! What the session on a server holds (`session_state = virtual`): the question, the answer, and what follows from it for release.
//!
//! Owns how an answer becomes parameters. When it has to be asked for is [`super::session_knowledge`]'s.

use std::sync::Arc;

use super::{Boundary, ServerProtocol};
use crate::changing_relations::ChangingRelations;
use crate::server_statements::UnnamedStatement;
use crate::session_state::{self, AskedSettings, Channels, Kinds, Pin, Pins, SessionState};
use crate::{LearnedSettings, Parameters, PendingReply, StatementRegistry, Tracked};

impl ServerProtocol {
    /// Whether it is followed what clients leave in the session (`session_state = virtual`).
    #[inline]
    pub fn follow_session(&mut self, is_followed: bool) {
        self.session.follow(is_followed);
    }

    /// It is followed what clients leave in the session.
    #[inline(always)]
    #[must_use]
    pub fn follows_session(&self) -> bool {
        self.session.is_followed()
    }

    /// These are the tables and views whose use may change the session, as far as it is followed.
    #[inline]
    pub fn watch_relations(&mut self, relations: Option<&Arc<ChangingRelations>>) {
        self.session.watch(relations);
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

    /// All that it holds of that, as far as it is known.
    #[must_use]
    pub fn session_pins(&self) -> Pins {
        self.session.pins()
    }

    /// Nothing has run since the server was asked that may have changed what it holds.
    #[must_use]
    pub fn session_is_known(&self) -> bool {
        self.session.unknown() == Kinds::NONE
    }

    /// The channels that the session listens on, as far as that is known.
    #[must_use]
    pub fn channels(&self) -> &Channels {
        self.session.channels()
    }

    /// Nothing but the channels that the session listens on keeps its client.
    #[must_use]
    pub fn is_kept_by_channels(&self) -> bool {
        self.session.is_kept_by_channels()
    }

    /// Weir has the session listen on these channels and no others.
    pub fn set_channels(&mut self, channels: Channels) {
        self.session.set_channels(channels);
    }

    /// Whether notifications are kept for [`ServerProtocol::take_notifications`] while no client is linked.
    pub fn collect_notifications(&mut self, collects: bool) {
        self.internal.collect_notifications(collects);
    }

    /// Something has run whose effect on the session is not known.
    pub fn forget_session(&mut self) {
        self.session.forget();
    }

    /// Appends the query for what the session may hold; [`ServerProtocol::session_answered`] reads the answer.
    pub fn send_session_query(&mut self, _at: Boundary, out: &mut Vec<u8>) {
        let sql = session_state::query(self.session.unknown(), &self.asked_settings());
        wire::encode::query(out, sql.as_bytes());
        self.statements.unnamed = UnnamedStatement::default();
        self.owe(PendingReply::InternalQuery);
        self.internal.begin_result();
    }

    fn asked_settings(&self) -> AskedSettings<'_> {
        if let Some(names) = self.names_to_ask() {
            return AskedSettings::Named(names);
        }
        let known = self.parameters.others().iter().map(|(name, _)| name);
        let custom = known.filter(|name| session_state::is_custom_name(name));
        let names: std::collections::BTreeSet<&str> = self.session.names().chain(custom).collect();
        AskedSettings::All(names.into_iter().collect())
    }

    /// The names of the settings that were set, where no others can have changed.
    fn names_to_ask(&self) -> Option<Vec<&str>> {
        let names = self.session.set_names()?;
        let can_be_asked = |name: &String| session_state::can_be_set(name);
        let all_known = !self.session.holds(Pin::Settings) && names.iter().all(can_be_asked);
        all_known.then(|| names.iter().map(String::as_str).collect())
    }

    /// The server has reported the values of all settings that were set. With the user the role changes, which it does not report.
    fn reports_all_set(&self, tracked: &Tracked, default_params: &Parameters) -> bool {
        let is_reported = |name: &&str| {
            let position = tracked.position(name.as_bytes()).filter(|_| *name != "session_authorization");
            position.is_some_and(|position| default_params.value(position).is_some())
        };
        self.names_to_ask().is_some_and(|names| !names.is_empty() && names.iter().all(is_reported))
    }

    /// Reads the answer to [`ServerProtocol::send_session_query`]: from here on the parameters say what is set in the session. What a
    /// server does not report, and is not set, is as in `default_params`. False if the answer cannot be read.
    pub fn session_answered(
        &mut self,
        tracked: &Tracked,
        default_params: &Parameters,
        learned: &mut LearnedSettings,
        registry: &mut StatementRegistry,
    ) -> bool {
        let Some(mut state) = session_state::read(self.internal.take_result().into_rows()) else {
            return false;
        };
        let kinds = self.session.unknown();
        if kinds.any(Kinds::SETTINGS) {
            let (known, has_room) = self.known_settings(&state, tracked, default_params);
            if !has_room {
                state.pins.set(Pin::Settings, true);
                state.left_out.extend(self.session.set_names().unwrap_or_default().iter().cloned());
            }
            self.session.note_left_out(std::mem::take(&mut state.left_out));
            if let Some(transcript) = self.session.transcript().filter(|_| state.pins.is_empty()) {
                learned.learn(transcript, self.parameters.clone(), known.clone());
            }
            self.parameters.note_unreported(default_params, &known);
        }
        if kinds.any(Kinds::PREPARED) {
            self.prepared_found(state.prepared, tracked, registry);
        }
        self.session.answered(kinds, state.pins, state.channels);
        self.judge_prepared(tracked);
        true
    }

    /// The parameters by this answer, which has all settings of the session or those that were asked for by name. False if they are more
    /// than is kept for a client.
    fn known_settings(
        &self,
        state: &SessionState,
        tracked: &Tracked,
        default_params: &Parameters,
    ) -> (Parameters, bool) {
        if self.names_to_ask().is_none() {
            let mut known = default_params.clone();
            let others = state.settle(&mut known, tracked);
            known.set_others(others);
            return (known, true);
        }
        let mut known = self.parameters.clone();
        let found = state.settle(&mut known, tracked);
        let asked = self.session.set_names().unwrap_or_default();
        let kept = self.parameters.others().without(asked);
        let all = found.over(&kept);
        let has_room = all.bytes() <= session_state::MAX_BYTES;
        known.set_others(if has_room { all } else { kept });
        (known, has_room)
    }

    /// The same where nothing was run but settings that the server reports, or whose result was learned before: the server need not be
    /// asked. False if it has to be.
    pub fn session_is_learned(
        &mut self,
        tracked: &Tracked,
        default_params: &Parameters,
        learned: &LearnedSettings,
    ) -> bool {
        if self.session.unknown() == Kinds::SETTINGS && self.reports_all_set(tracked, default_params) {
            self.session.answered(Kinds::SETTINGS, Pins::default(), Channels::default());
            self.judge_prepared(tracked);
            return true;
        }
        let known = self
            .session
            .transcript()
            .and_then(|transcript| learned.find(transcript, &self.parameters, default_params));
        if let Some(known) = known {
            self.parameters.note_unreported(default_params, known);
            self.session.answered(Kinds::SETTINGS, Pins::default(), Channels::default());
        }
        let is_known = known.is_some();
        if is_known {
            self.judge_prepared(tracked);
        }
        is_known
    }

    /// A command ran that may have changed triggers, views and functions, since this was asked last.
    pub fn take_schema_change(&mut self) -> bool {
        self.session.take_schema_change()
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

    /// The session has settings that the server is not asked for by name: the client keeps it.
    #[must_use]
    pub fn has_unlisted_settings(&self) -> bool {
        self.session.has_unlisted()
    }

    /// It had in the process from which this server came.
    pub fn import_unlisted_settings(&mut self) {
        self.session.import_unlisted();
    }

    /// RESET ALL is sent.
    pub fn unknown_settings_reset(&mut self) {
        self.session.unknown_settings_reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose session is followed, that reports TimeZone and session_authorization.
    fn followed() -> (ServerProtocol, Tracked, Parameters) {
        let tracked = Tracked::new([]);
        let mut reported = Parameters::unknown(&tracked);
        for (name, value) in [("TimeZone", "UTC"), ("session_authorization", "alice")] {
            reported.set(tracked.position(name.as_bytes()).expect("tracked"), value);
        }
        let mut server = ServerProtocol::new(reported.clone());
        server.follow_session(true);
        (server, tracked, reported)
    }

    #[test]
    fn settings_that_the_server_reports_need_no_question() {
        for (sql, is_known) in [
            ("set timezone = 'UTC'", true),
            ("set work_mem = '1MB'", false),
            ("set timezone = 'UTC'; set work_mem = '1MB'", false),
            ("set session authorization bob", false),
            ("reset timezone", false),
        ] {
            let (mut server, tracked, reported) = followed();
            server.session.note_settings(sql.as_bytes(), sql.as_bytes());
            assert!(server.keeps_client(), "{sql}");
            let learned = LearnedSettings::default();
            assert_eq!(server.session_is_learned(&tracked, &reported, &learned), is_known, "{sql}");
            assert_eq!(server.keeps_client(), !is_known, "{sql}");
        }
    }

    #[test]
    fn where_a_setting_cannot_move_all_are_asked_for() {
        let (mut server, ..) = followed();
        let mut pins = Pins::of(Pin::Channels);
        pins.set(Pin::Settings, true);
        server.session.answered(Kinds::ALL, pins, Channels::default());
        server.session.note_settings(b"set work_mem = '1MB'", b"Q");
        assert!(server.names_to_ask().is_none(), "the other one would count as gone");
    }
}
