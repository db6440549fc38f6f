//! Whether it is known what the session on a server holds (`session_state = virtual`).
//!
//! Owns when it has to be asked for: a command ran that may have changed it. Only the answer of PostgreSQL makes it known again; a
//! client keeps its server until then, and for as long as the session holds what cannot move.

use crate::session_state::{self, MAX_NAMES, Pin};

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

/// What is known.
#[derive(Debug, Default)]
pub(crate) struct SessionKnowledge {
    /// The state of sessions is followed at all.
    is_followed: bool,
    /// A command ran that may have changed it since it was last asked for.
    is_unknown: bool,
    /// The client that ran a function which may have set a parameter of any name, unless all were reset since.
    called_by: Option<u64>,
    /// A library was loaded.
    has_loaded: bool,
    /// The client has the unnamed statement parsed, and will bind it.
    has_unbound: bool,
    /// What the session holds and cannot move, as PostgreSQL has answered.
    pin: Option<Pin>,
    /// Custom parameters that may have been set.
    names: Vec<Box<str>>,
    transcript: Transcript,
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

impl SessionKnowledge {
    #[inline(always)]
    pub(crate) fn is_followed(&self) -> bool {
        self.is_followed
    }

    #[inline]
    pub(crate) fn follow(&mut self, is_followed: bool) {
        if self.is_followed != is_followed {
            *self = SessionKnowledge { is_followed, ..SessionKnowledge::default() };
        }
    }

    /// The client keeps this server: it is to be asked what its session holds, or holds what cannot move.
    #[inline(always)]
    pub(crate) fn keeps_client(&self) -> bool {
        self.is_unknown || self.pin.is_some() || self.has_loaded || self.has_unbound
    }

    /// It has to be asked for, and can be: the query would end the unnamed statement that the client is about to bind.
    #[inline]
    pub(crate) fn is_to_be_asked(&self) -> bool {
        self.is_unknown && !self.has_unbound
    }

    pub(crate) fn pin(&self) -> Option<Pin> {
        let loaded = self.has_loaded.then_some(Pin::Libraries);
        self.pin.or(loaded).or(self.has_unbound.then_some(Pin::UnnamedStatement))
    }

    /// The unnamed statement is parsed, or has been bound or replaced.
    #[inline(always)]
    pub(crate) fn note_unbound(&mut self, has_unbound: bool) {
        self.has_unbound = self.is_followed && has_unbound;
    }

    /// A message asks for what may change the session unseen, and may name what it sets.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_hidden(&mut self, client: u64, message: &[u8]) {
        if !self.is_followed {
            return;
        }
        (self.is_unknown, self.called_by) = (true, Some(client));
        self.transcript = Transcript::More;
        self.note_names(message);
    }

    /// A message sets parameters to values that stand in it.
    #[cold]
    pub(crate) fn note_settings(&mut self, message: &[u8]) {
        if !self.is_followed {
            return;
        }
        self.is_unknown = true;
        self.note_names(message);
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
        self.note_undone();
    }

    /// What was set may have been taken back.
    fn note_undone(&mut self) {
        if self.is_unknown {
            self.transcript = Transcript::More;
        }
    }

    /// What was run since the session was last known, if the same leaves the same settings again.
    pub(crate) fn transcript(&self) -> Option<&[u8]> {
        match &self.transcript {
            Transcript::Settings(transcript) if !transcript.is_empty() && self.pin().is_none() => {
                Some(transcript)
            }
            _ => None,
        }
    }

    /// A message names what it sets, if it is executed.
    #[cold]
    pub(crate) fn note_names(&mut self, message: &[u8]) {
        for name in session_state::custom_names(message) {
            if self.names.len() < MAX_NAMES && !self.names.iter().any(|known| **known == *name) {
                self.names.push(name.into());
            }
        }
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
        let word = command.split(|byte| matches!(byte, b' ' | 0)).next().unwrap_or_default();
        match word {
            b"SET" => self.note_settings(word),
            b"ROLLBACK" | b"SAVEPOINT" | b"RELEASE" => self.note_undone(),
            _ if CHANGES_NOTHING.contains(&word) => {}
            _ => (self.is_unknown, self.transcript) = (true, Transcript::More),
        }
        self.has_loaded |= word == b"LOAD";
    }

    /// It has to be asked for.
    pub(crate) fn forget(&mut self) {
        self.is_unknown = self.is_followed;
        self.transcript = Transcript::More;
    }

    /// Custom parameters to ask for.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// PostgreSQL has answered.
    pub(crate) fn answered(&mut self, pin: Option<Pin>) {
        // It may not be followed any more, since it was asked for.
        (self.is_unknown, self.pin) = (false, pin.filter(|_| self.is_followed));
        self.names.clear();
        self.transcript = Transcript::default();
    }

    /// Another client than this one may have set a parameter whose name is not known.
    #[inline(always)]
    pub(crate) fn may_have_unknown_settings(&self, client: u64) -> bool {
        self.called_by.is_some_and(|called_by| called_by != client)
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
            (b"SET\0", true),
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
        knowledge.answered(Some(Pin::Channels));
        assert!(knowledge.keeps_client() && !knowledge.is_to_be_asked());
        knowledge.answered(None);
        assert!(!knowledge.keeps_client());
        assert!(knowledge.may_have_unknown_settings(8) && !knowledge.may_have_unknown_settings(7));
    }

    #[test]
    fn an_answer_that_comes_once_it_is_not_followed_keeps_nothing() {
        let mut knowledge = followed();
        knowledge.note_command(b"LISTEN\0");
        knowledge.follow(false);
        knowledge.answered(Some(Pin::Channels));
        assert!(!knowledge.keeps_client());
    }

    #[test]
    fn where_it_is_not_followed_nothing_is_kept() {
        let mut knowledge = SessionKnowledge::default();
        knowledge.note_command(b"SET\0");
        knowledge.note_hidden(7, b"select f()");
        assert!(!knowledge.keeps_client());
    }
}
