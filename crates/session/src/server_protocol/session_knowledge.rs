//! Whether it is known what the session on a server holds (`session_state = virtual`).
//!
//! Owns when it has to be asked for, and for which kinds of state: a command ran that may have changed them. Only the answer of PostgreSQL makes
//! them known again; a client keeps its server until then, and for as long as the session holds what cannot move.

use std::sync::Arc;

use super::sequences::SequenceValues;
use crate::changing_relations::ChangingRelations;
use crate::session_state::{self, Channels, Kinds, MAX_NAMES, Pin, Pins};

/// Commands that change nothing in the session, by the first word of their command tags. COMMIT and ROLLBACK end what began in
/// their transaction, whose commands have tags of their own.
const CHANGES_NOTHING: [&[u8]; 22] = [
    b"SELECT",
    b"INSERT",
    b"UPDATE",
    b"DELETE",
    b"MERGE",
    b"COPY",
    b"FETCH",
    b"MOVE",
    b"BEGIN",
    b"START",
    b"COMMIT",
    b"ROLLBACK",
    b"SAVEPOINT",
    b"RELEASE",
    b"SHOW",
    b"NOTIFY",
    b"TRUNCATE",
    b"LOCK",
    b"VACUUM",
    b"ANALYZE",
    b"GRANT",
    b"CHECKPOINT",
];

/// Commands that change one kind of state, likewise; what they call besides shows in their texts.
const CHANGES_ONE_KIND: [(&[u8], Kinds); 7] = [
    (b"LISTEN", Kinds::CHANNELS),
    (b"UNLISTEN", Kinds::CHANNELS),
    (b"PREPARE", Kinds::PREPARED),
    (b"DEALLOCATE", Kinds::PREPARED),
    (b"DECLARE", Kinds::CURSORS),
    (b"CLOSE", Kinds::CURSORS),
    (b"RESET", Kinds::SETTINGS),
];

/// First words of tags of commands that change nothing of the schema either; a procedure seldom does.
const CHANGES_NO_SCHEMA: [&[u8]; 4] = [b"SET", b"DISCARD", b"EXPLAIN", b"CALL"];

/// What is known.
#[derive(Debug, Default)]
pub(crate) struct SessionKnowledge {
    /// The state of sessions is followed at all.
    is_followed: bool,
    /// Why the client keeps this server, beside open requests and transactions.
    reasons: Reasons,
    /// What was set, as far as it has to be asked for.
    set: SetNames,
    /// The client that ran a function which may have set a parameter of any name, unless all were reset since.
    called_by: Option<u64>,
    /// Tables and views whose use may change the session, if there are any.
    relations: Option<Arc<ChangingRelations>>,
    /// A command ran that may have changed triggers, views and functions.
    has_changed_schema: bool,
    /// Custom parameters that may have been set.
    names: Vec<Box<str>>,
    /// Custom parameters were set whose names are not kept: PostgreSQL lists none that it is not asked for by name.
    has_unlisted: bool,
    /// Custom parameters whose values are not kept, because they are too long or too many: they are asked for until they are.
    left_out: Vec<Box<str>>,
    /// Statements that texts have named since: SQL may have prepared them.
    statements: Vec<Box<str>>,
    /// SQL has prepared a statement whose name no text has shown.
    has_prepared_unseen: bool,
    transcript: Transcript,
    /// What the parser reads may have been changed for the transaction that runs, and no server reports it.
    reads_otherwise: bool,
    /// The channels that it listens on.
    channels: Channels,
    /// Whose values `currval` and `lastval` return.
    pub(crate) sequences: SequenceValues,
}

/// Why a client keeps its server because of its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reasons {
    /// These have to be asked for.
    unknown: Kinds,
    /// It holds these.
    pins: Pins,
}

impl Reasons {
    #[inline(always)]
    fn any(self) -> bool {
        self != Reasons::default()
    }
}

/// Which settings were set since they were last known.
#[derive(Debug, Default, PartialEq, Eq)]
enum SetNames {
    /// None.
    #[default]
    None,
    /// These, for the session.
    Named(Vec<String>),
    /// Any.
    Any,
}

/// What was run since the session was last known.
#[derive(Debug)]
enum Transcript {
    /// Nothing but this, which leaves the same settings again whenever it is run with the same ones.
    Settings(Vec<u8>),
    /// More than that.
    More,
}

impl Default for Transcript {
    fn default() -> Transcript {
        Transcript::Settings(Vec::new())
    }
}

/// The longest transcript that is kept, in bytes.
const TRANSCRIPT_BYTES: usize = 1024;

/// A command with this tag may have changed functions, views, triggers or policies. Of DO nothing is known.
pub(crate) fn may_change_schema(command: &[u8]) -> bool {
    let word = command.split(|byte| matches!(byte, b' ' | 0)).next().unwrap_or_default();
    let known = CHANGES_NOTHING.iter().chain(CHANGES_ONE_KIND.iter().map(|(word, _)| word));
    !known.chain(&CHANGES_NO_SCHEMA).any(|known| *known == word)
}

impl SessionKnowledge {
    #[inline(always)]
    pub(crate) fn is_followed(&self) -> bool {
        self.is_followed
    }

    #[inline]
    pub(crate) fn follow(&mut self, is_followed: bool) {
        if self.is_followed != is_followed {
            let sequences = std::mem::take(&mut self.sequences);
            *self = SessionKnowledge { is_followed, sequences, ..SessionKnowledge::default() };
        }
        if !is_followed {
            self.sequences.distrust(); // Whoever has it calls what it likes.
        }
    }

    /// These are the tables and views whose use may change the session.
    #[inline]
    pub(crate) fn watch(&mut self, relations: Option<&Arc<ChangingRelations>>) {
        if self.is_followed && self.relations.as_ref().map(Arc::as_ptr) != relations.map(Arc::as_ptr) {
            self.relations = relations.cloned();
        }
    }

    #[inline(always)]
    pub(crate) fn has_changing_relations(&self) -> bool {
        self.relations.is_some()
    }

    /// This text, up to a NUL, may name one of them.
    #[inline(always)]
    pub(crate) fn names_changing_relation(&self, text: &[u8]) -> bool {
        self.relations.as_ref().is_some_and(|relations| relations.are_named(text))
    }

    /// The client keeps this server: it is to be asked what its session holds, or holds what cannot move.
    #[inline(always)]
    pub(crate) fn keeps_client(&self) -> bool {
        self.reasons.any()
    }

    /// Nothing runs: what was set for a transaction is over.
    #[inline(always)]
    pub(crate) fn mark_quiet(&mut self) {
        self.reads_otherwise = false;
    }

    /// What the parser reads may be changed from here on, and is not reported.
    #[cold]
    pub(crate) fn note_reading(&mut self) {
        self.reads_otherwise = self.is_followed;
    }

    /// It is not known under which settings the server parses, because some were changed that it does not report.
    #[inline(always)]
    pub(crate) fn reads_otherwise(&self) -> bool {
        self.reads_otherwise
    }

    /// It has to be asked for, and can be: the query would end the unnamed statement that the client is about to bind.
    #[inline]
    pub(crate) fn is_to_be_asked(&self) -> bool {
        self.reasons.unknown != Kinds::NONE && !self.holds(Pin::UnnamedStatement)
    }

    /// What has to be asked for.
    pub(crate) fn unknown(&self) -> Kinds {
        self.reasons.unknown
    }

    /// It holds this, whatever else it holds.
    pub(crate) fn holds(&self, pin: Pin) -> bool {
        self.reasons.pins.has(pin)
    }

    /// The session listens on these from here on, and on no others, because Weir has it do so.
    pub(crate) fn set_channels(&mut self, channels: Channels) {
        let listens = channels != Channels::default();
        self.reasons.pins.set(Pin::Channels, self.is_followed && listens);
        self.channels = channels;
    }

    /// The channels that the session listens on, as far as it is known.
    pub(crate) fn channels(&self) -> &Channels {
        &self.channels
    }

    /// All of it is known, and channels are the only thing that keeps the client.
    pub(crate) fn is_kept_by_channels(&self) -> bool {
        self.reasons.unknown == Kinds::NONE && self.reasons.pins.is_only(Pin::Channels)
    }

    pub(crate) fn pin(&self) -> Option<Pin> {
        self.reasons.pins.first()
    }

    pub(crate) fn pins(&self) -> Pins {
        self.reasons.pins
    }

    /// The unnamed statement is parsed, or has been bound or replaced.
    #[inline(always)]
    pub(crate) fn note_unbound(&mut self, has_unbound: bool) {
        self.reasons.pins.set(Pin::UnnamedStatement, self.is_followed && has_unbound);
    }

    /// A message asks for what may change the session unseen, and may name what it sets.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_hidden(&mut self, client: u64, message: &[u8]) {
        if !self.is_followed {
            return;
        }
        (self.reasons.unknown, self.called_by) = (Kinds::ALL, Some(client));
        (self.set, self.transcript) = (SetNames::Any, Transcript::More);
        self.reads_otherwise = true;
        // What a function sets beyond these reaches no other client: `called_by`. What the text itself sets stays with this one.
        self.note_names(message);
        self.has_unlisted |= session_state::names_behind_set(message).any(|name| !self.has_name(&name));
    }

    /// The client may have called `nextval` or `setval`, or is about to. Where its pool needs the values it keeps the server.
    pub(crate) fn note_sequences(&mut self) {
        if self.is_followed && self.sequences.note() {
            self.reasons.pins.set(Pin::Sequences, true);
        }
    }

    /// The same, by a statement of which nothing is known: other clients do not get the value, but what this one asks for behind it may be another's.
    pub(crate) fn note_sequences_unseen(&mut self) {
        if self.is_followed && self.sequences.note_unseen() {
            self.reasons.pins.set(Pin::Sequences, true);
        }
    }

    /// The client does not keep the server for the values of its sequences.
    pub(crate) fn unpin_sequences(&mut self) {
        self.reasons.pins.set(Pin::Sequences, false);
    }

    /// A message may take or release advisory locks, and changes nothing else.
    #[cold]
    pub(crate) fn note_locks(&mut self) {
        if self.is_followed {
            self.reasons.unknown = self.reasons.unknown.and(Kinds::LOCKS);
            self.transcript = Transcript::More;
        }
    }

    /// A statement of this text sets parameters to values that stand in it or in `message`.
    #[cold]
    pub(crate) fn note_settings(&mut self, text: &[u8], message: &[u8]) {
        if !self.is_followed {
            return;
        }
        match sql::settings_set(text) {
            sql::SettingsSet::Local => return,
            sql::SettingsSet::Named(names) => {
                for name in names.iter().filter(|name| name.contains('.')) {
                    self.has_unlisted |= !session_state::is_custom_name(name) || !self.note_name(name);
                }
                self.set.add(names);
            }
            sql::SettingsSet::Unknown => {
                self.set = SetNames::Any;
                self.has_unlisted |= !self.note_names(message);
            }
        }
        self.reasons.unknown = self.reasons.unknown.and(Kinds::SETTINGS);
        self.add_to_transcript(message);
    }

    /// The statement that was noted last, or one before, is bound to these values.
    #[cold]
    pub(crate) fn note_settings_bound(&mut self, message: &[u8]) {
        if self.set == SetNames::None {
            self.set = SetNames::Any; // Noted before the last answer.
        }
        self.reasons.unknown = self.reasons.unknown.and(Kinds::SETTINGS);
        self.has_unlisted |= !self.note_names(message);
        self.add_to_transcript(message);
    }

    /// What was noted is executed, perhaps again.
    #[cold]
    pub(crate) fn note_settings_executed(&mut self) {
        if self.reasons.unknown.any(Kinds::SETTINGS) {
            self.add_to_transcript(b"E");
        }
    }

    fn add_to_transcript(&mut self, message: &[u8]) {
        if let Transcript::Settings(transcript) = &mut self.transcript {
            if transcript.len() + message.len() > TRANSCRIPT_BYTES {
                self.transcript = Transcript::More;
            } else {
                // With its length: no other messages make the same transcript.
                transcript.extend_from_slice(&message.len().to_be_bytes());
                transcript.extend_from_slice(message);
            }
        }
    }

    /// A request has failed: what it set is taken back.
    #[inline]
    pub(crate) fn note_error(&mut self) {
        self.sequences.note_failed();
        self.note_undone();
    }

    /// What was set may have been taken back.
    fn note_undone(&mut self) {
        if self.reasons.unknown != Kinds::NONE {
            self.transcript = Transcript::More;
        }
        if self.set != SetNames::None {
            self.set = SetNames::Any;
        }
    }

    /// What was run since the session was last known, if the same leaves the same settings again.
    pub(crate) fn transcript(&self) -> Option<&[u8]> {
        match &self.transcript {
            Transcript::Settings(transcript) if !transcript.is_empty() && self.pin().is_none() => {
                Some(transcript).filter(|_| self.reasons.unknown == Kinds::SETTINGS).map(|bytes| &**bytes)
            }
            _ => None,
        }
    }

    /// A message names what it sets, if it is executed. False if not all names could be kept.
    #[cold]
    pub(crate) fn note_names(&mut self, message: &[u8]) -> bool {
        let all_plain = session_state::custom_names(message).all(|name| self.note_name(name));
        let all_quoted = session_state::quoted_custom_names(message).all(|name| self.note_name(&name));
        all_plain && all_quoted && !session_state::has_long_name(message)
    }

    fn has_name(&self, name: &str) -> bool {
        self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    fn note_name(&mut self, name: &str) -> bool {
        if self.has_name(name) {
            return true;
        }
        let has_room = self.names.len() < MAX_NAMES;
        if has_room {
            self.names.push(name.to_ascii_lowercase().into());
        }
        has_room
    }

    /// A text names statements that it prepares or has prepared under these names.
    #[cold]
    pub(crate) fn note_statements<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        for name in names {
            if self.statements.len() < MAX_NAMES && !self.names_statement(name) {
                self.statements.push(name.into());
            } else if self.statements.len() >= MAX_NAMES {
                self.has_prepared_unseen = true;
            }
        }
    }

    /// SQL may prepare a statement whose name the text does not show.
    pub(crate) fn note_prepared_unseen(&mut self) {
        self.has_prepared_unseen = true;
    }

    /// Those that were noted, for another process; an empty name stands for those whose names no text has shown.
    pub(crate) fn named_statements(&self) -> impl Iterator<Item = &str> {
        let unseen = self.has_prepared_unseen.then_some("");
        self.statements.iter().map(|name| &**name).chain(unseen)
    }

    /// A text has named this statement since the session was last known.
    pub(crate) fn names_statement(&self, name: &str) -> bool {
        self.statements.iter().any(|known| **known == *name)
    }

    /// SQL may have prepared this statement since the session was last known.
    pub(crate) fn may_have_prepared(&self, name: &str) -> bool {
        self.has_prepared_unseen || self.names_statement(name)
    }

    /// The server has a statement under the client's own name that may have been changed: it is asked for.
    #[cold]
    pub(crate) fn note_prepared(&mut self) {
        if self.is_followed {
            self.reasons.unknown = self.reasons.unknown.and(Kinds::PREPARED);
            self.transcript = Transcript::More;
        }
    }

    /// The statements that SQL has prepared can be prepared on another server, or only this one has them.
    pub(crate) fn note_prepared_stay(&mut self, stay: bool) {
        self.reasons.pins.set(Pin::PreparedStatements, self.is_followed && stay);
    }

    /// A command has ended, with this tag.
    #[inline(always)]
    pub(crate) fn note_command(&mut self, command: &[u8]) {
        if self.is_followed && !command.starts_with(b"SELECT ") {
            self.note_other_command(command);
        }
    }

    #[inline(never)]
    fn note_other_command(&mut self, command: &[u8]) {
        // The commonest, without a look for the end of the word.
        match command {
            b"BEGIN\0" | b"COMMIT\0" => return,
            // By triggers, and seldom by defaults.
            _ if command.starts_with(b"UPDATE ") => {
                self.sequences.note();
                return;
            }
            // By defaults and identity columns.
            _ if command.starts_with(b"INSERT ") => return self.note_sequences(),
            _ => {}
        }
        let word = command.split(|byte| matches!(byte, b' ' | 0)).next().unwrap_or_default();
        match word {
            // What SET sets was noted when its text was.
            b"SET" => {}
            b"MERGE" | b"COPY" => self.note_sequences(),
            b"DELETE" => drop(self.sequences.note()),
            b"ROLLBACK" | b"SAVEPOINT" | b"RELEASE" => self.note_undone(),
            _ if CHANGES_NOTHING.contains(&word) => {}
            _ => {
                let kinds = CHANGES_ONE_KIND.iter().find(|(known, _)| *known == word);
                let kinds = kinds.map_or(Kinds::ALL, |(_, kinds)| *kinds);
                self.has_changed_schema |= kinds == Kinds::ALL && word != b"DISCARD";
                self.reasons.unknown = self.reasons.unknown.and(kinds);
                if kinds.any(Kinds::SETTINGS) {
                    self.set = SetNames::Any;
                }
                // RESET was noted by its text, as SET.
                if word != b"RESET" {
                    self.transcript = Transcript::More;
                }
            }
        }
        if word == b"PREPARE" && self.statements.is_empty() {
            self.has_prepared_unseen = true;
        }
        if command.starts_with(b"DISCARD ALL") || command.starts_with(b"DISCARD SEQUENCES") {
            self.sequences.discarded_by_client();
            self.unpin_sequences();
        }
        if word == b"LOAD" {
            self.reasons.pins.set(Pin::Libraries, true);
        }
    }

    /// It has to be asked for.
    pub(crate) fn forget(&mut self) {
        self.reasons.unknown = if self.is_followed { Kinds::ALL } else { Kinds::NONE };
        (self.set, self.transcript) = (SetNames::Any, Transcript::More);
    }

    /// The settings to ask for, if it is known which.
    pub(crate) fn set_names(&self) -> Option<&[String]> {
        match &self.set {
            SetNames::Named(names) => Some(names),
            SetNames::None | SetNames::Any => None,
        }
    }

    /// A command ran that may have changed triggers, views and functions, since this was asked last.
    pub(crate) fn take_schema_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed_schema)
    }

    /// Custom parameters to ask for.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().chain(&self.left_out).map(|name| &**name)
    }

    /// Of all that PostgreSQL has answered, the values of these custom parameters are not kept.
    pub(crate) fn note_left_out(&mut self, mut names: Vec<String>) {
        names.retain(|name| name.contains('.'));
        let can_be_asked = |name: &String| session_state::is_custom_name(name);
        self.has_unlisted |= names.len() > MAX_NAMES || !names.iter().all(can_be_asked);
        names.retain(can_be_asked);
        names.truncate(MAX_NAMES);
        self.left_out = names.into_iter().map(String::into_boxed_str).collect();
    }

    /// PostgreSQL has answered what there is of these kinds.
    pub(crate) fn answered(&mut self, kinds: Kinds, mut pins: Pins, channels: Channels) {
        pins.set(Pin::Settings, pins.has(Pin::Settings) || self.has_unlisted());
        // It may not be followed any more, since it was asked for.
        if self.is_followed {
            self.reasons.pins.replace(kinds, pins);
        }
        if kinds.any(Kinds::CHANNELS) {
            self.channels = channels;
        }
        self.reasons.unknown = Kinds::NONE;
        self.names.clear();
        if kinds.any(Kinds::PREPARED) {
            (self.statements, self.has_prepared_unseen) = (Vec::new(), false);
        }
        (self.set, self.transcript) = (SetNames::None, Transcript::default());
    }

    /// Another client than this one may have set a parameter whose name is not known.
    #[inline(always)]
    pub(crate) fn may_have_unknown_settings(&self, client: u64) -> bool {
        self.called_by.is_some_and(|called_by| called_by != client)
    }

    /// The session has settings that it is not asked for by name, and so will not show.
    pub(crate) fn has_unlisted(&self) -> bool {
        self.has_unlisted || !self.left_out.is_empty()
    }

    /// It had, in another process.
    pub(crate) fn import_unlisted(&mut self) {
        self.has_unlisted = self.is_followed;
    }

    /// A client may have set a parameter whose name is not known.
    pub(crate) fn has_unknown_settings(&self) -> bool {
        self.called_by.is_some()
    }

    /// A client of another process may have.
    pub(crate) fn import_unknown_settings(&mut self) {
        self.called_by = self.is_followed.then_some(0);
    }

    pub(crate) fn unknown_settings_reset(&mut self) {
        self.called_by = None;
    }
}

impl SetNames {
    fn add(&mut self, names: Vec<String>) {
        match self {
            SetNames::None => *self = SetNames::Named(names),
            SetNames::Named(known) if known.len() + names.len() <= MAX_NAMES => known.extend(names),
            SetNames::Named(_) => *self = SetNames::Any,
            SetNames::Any => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed() -> SessionKnowledge {
        let mut knowledge = SessionKnowledge::default();
        knowledge.follow(true);
        knowledge
    }

    #[test]
    fn it_is_asked_for_behind_what_may_change_it() {
        for (command, changes) in [
            (&b"SELECT 1\0"[..], false),
            (b"INSERT 0 1\0", false),
            (b"COMMIT\0", false),
            (b"CREATE TABLE\0", true),
            (b"DECLARE CURSOR\0", true),
            (b"LISTEN\0", true),
            (b"DO\0", true),
            (b"DISCARD ALL\0", true),
            (b"", true),
        ] {
            let mut knowledge = followed();
            knowledge.note_command(command);
            assert_eq!(knowledge.keeps_client(), changes, "{}", String::from_utf8_lossy(command));
        }
    }

    #[test]
    fn only_the_answer_makes_it_known_and_what_cannot_move_keeps_the_client() {
        let mut knowledge = followed();
        knowledge.note_hidden(7, b"select set_config('a.b', 'c', false)");
        assert_eq!(knowledge.names().collect::<Vec<_>>(), ["a.b"]);
        knowledge.answered(Kinds::ALL, Pins::of(Pin::Channels), Channels::default());
        assert!(knowledge.keeps_client() && !knowledge.is_to_be_asked());
        knowledge.answered(Kinds::ALL, Pins::default(), Channels::default());
        assert!(!knowledge.keeps_client());
        assert!(knowledge.may_have_unknown_settings(8) && !knowledge.may_have_unknown_settings(7));
    }

    #[test]
    fn an_answer_that_comes_once_it_is_not_followed_keeps_nothing() {
        let mut knowledge = followed();
        knowledge.note_command(b"LISTEN\0");
        knowledge.follow(false);
        knowledge.answered(Kinds::ALL, Pins::of(Pin::Channels), Channels::default());
        assert!(!knowledge.keeps_client());
    }

    #[test]
    fn where_it_is_not_followed_nothing_is_kept() {
        let mut knowledge = SessionKnowledge::default();
        knowledge.note_settings(b"set a = 1", b"set a = 1");
        knowledge.note_hidden(7, b"select f()");
        assert!(!knowledge.keeps_client());
    }

    #[test]
    fn settings_with_names_are_asked_for_by_name_unless_they_were_taken_back() {
        let mut knowledge = followed();
        knowledge.note_settings(b"set local a = 1", b"Q");
        assert!(!knowledge.keeps_client(), "over with its transaction");
        knowledge.note_settings(b"set a = 1", b"Q");
        knowledge.note_settings(b"select set_config('b.c', $1, false)", b"B");
        assert_eq!((knowledge.unknown(), knowledge.set_names().map(<[_]>::len)), (Kinds::SETTINGS, Some(2)));
        knowledge.note_command(b"ROLLBACK\0");
        assert_eq!(knowledge.set_names(), None);
    }

    #[test]
    fn settings_that_cannot_be_asked_for_by_name_keep_the_client() {
        let many: String = (0..65).map(|number| format!("set a.b{number} = 1;")).collect();
        let long = format!("select set_config('a.{}', '1', false)", "b".repeat(200));
        for text in [many.as_str(), &long, "set \"\u{e4}\".b = 1"] {
            let mut knowledge = followed();
            knowledge.note_settings(text.as_bytes(), text.as_bytes());
            knowledge.answered(Kinds::SETTINGS, Pins::default(), Channels::default());
            knowledge.note_hidden(7, b"select f()");
            knowledge.answered(Kinds::ALL, Pins::default(), Channels::default());
            assert_eq!(knowledge.pin(), Some(Pin::Settings), "{text}");
        }
    }

    #[test]
    fn a_kind_that_was_not_asked_for_stays_as_it_was() {
        let mut knowledge = followed();
        knowledge.note_command(b"LISTEN\0");
        assert_eq!(knowledge.unknown(), Kinds::CHANNELS);
        knowledge.answered(Kinds::CHANNELS, Pins::of(Pin::Channels), Channels::default());
        knowledge.note_settings(b"set a = 1", b"Q");
        knowledge.answered(Kinds::SETTINGS, Pins::default(), Channels::default());
        assert_eq!(knowledge.pin(), Some(Pin::Channels));
        knowledge.note_command(b"UNLISTEN\0");
        knowledge.answered(Kinds::CHANNELS, Pins::default(), Channels::default());
        assert!(!knowledge.keeps_client());
    }
}
