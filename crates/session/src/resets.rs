//! RESET, DISCARD ALL and SET … TO DEFAULT of a client that gave parameters at startup: on a server that clients share
//! they go back to the server's defaults, where PostgreSQL goes back to the startup packet.
//!
//! Owns how such a command is recognised and what is noted of it until its ReadyForQuery. Setting the values again is the
//! shard's.

use crate::{Conversation, Tracked};

/// Parameters that a command resets, as bits by position; those from position 64 on are not followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reset {
    /// For the session.
    pub session: u64,
    /// Until the end of the transaction.
    pub local: u64,
}

impl Reset {
    pub(crate) fn is_empty(self) -> bool {
        self == Reset::default()
    }

    /// The positions.
    pub fn positions(self) -> impl Iterator<Item = usize> {
        let all = self.all();
        (0..u64::BITS as usize).filter(move |position| all & bit(*position) != 0)
    }

    pub(crate) fn all(self) -> u64 {
        self.session | self.local
    }

    pub(crate) fn add(&mut self, other: Reset) {
        self.session |= other.session;
        self.local |= other.local;
    }
}

/// The bit of a position.
pub(crate) fn bit(position: usize) -> u64 {
    u32::try_from(position).ok().and_then(|position| 1_u64.checked_shl(position)).unwrap_or(0)
}

/// What has been asked and answered about resets since the last ReadyForQuery behind which nothing was owed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resets {
    /// Anything is noted here.
    pub(crate) noted: bool,
    /// What the last request sent resets; nothing is sent behind it before its answer.
    pub(crate) asked: Reset,
    /// The number of the reply to the first such command.
    pub(crate) from: u64,
    /// A command tag said that something was reset, by a command that was not recognised beforehand.
    pub(crate) seen: bool,
    /// An error was answered since the last ReadyForQuery.
    pub(crate) failed: bool,
    /// What was reported to have become the server's default.
    pub(crate) returned: u64,
    /// What of that the client was not told.
    pub(crate) untold: u64,
}

impl Conversation {
    /// The request that was pushed last resets these.
    #[cold]
    pub(crate) fn note_reset(&mut self, reset: Reset) {
        if self.resets.asked.is_empty() {
            self.lost = Reset::default();
            self.resets.from = self.owes.next_number().saturating_sub(1);
        }
        self.resets.noted = true;
        self.resets.asked.add(reset);
    }

    /// Keeps what the client sends from here on until [`Conversation::release_requests`].
    pub fn hold_requests(&mut self) {
        if !planted::bug!("reset_overtaken") {
            self.owes.hold();
        }
    }

    /// Nothing has to wait for parameters any more.
    pub fn release_requests(&mut self) {
        self.owes.release();
        self.awaits_replies = false;
    }

    /// [`Conversation::hold_requests`] was called.
    #[inline]
    #[must_use]
    pub fn holds_requests(&self) -> bool {
        self.owes.is_held()
    }

    /// See [`Conversation::take_lost`].
    #[must_use]
    pub fn lost(&self) -> Reset {
        self.lost
    }

    /// What was reset since this was last asked, and is the client's by its startup packet.
    pub fn take_lost(&mut self) -> Reset {
        std::mem::take(&mut self.lost)
    }
}

/// Whether the command that begins here in the text may reset parameters, by its first letters; true as well where they do
/// not decide.
#[inline(always)]
pub(crate) fn may_reset(text: &[u8], at: usize) -> bool {
    let Some(&[first, _, third]) = text.get(at..at + 3) else { return true };
    let (first, third) = (first | 0x20, third | 0x20);
    // The third letter is the rarer one: SELECT, UPDATE and DELETE end here.
    if matches!(third, b's' | b't') {
        return matches!((first, third), (b's', b't') | (b'r' | b'd', b's')) || !first.is_ascii_lowercase();
    }
    !first.is_ascii_lowercase()
}

/// What a text resets that is RESET, DISCARD ALL or SET … TO DEFAULT and nothing else; None if it is not.
#[cold]
pub(crate) fn reset_by(text: &[u8], tracked: &Tracked) -> Option<Reset> {
    let mut words = Words { rest: text };
    let command = words.next()?;
    let is = |word: &str| command.eq_ignore_ascii_case(word.as_bytes());
    let reset = if is("reset") {
        let word = words.next()?;
        Reset { session: named(word, &mut words, tracked)?, local: 0 }
    } else if is("set") {
        set_to_default(&mut words, tracked)?
    } else if is("discard") && words.takes(b"all") {
        Reset { session: u64::MAX, local: 0 }
    } else {
        return None;
    };
    (words.end() && !reset.is_empty()).then_some(reset)
}

/// The parameter, or all of them, that this word and those behind it stand for.
fn named(word: &[u8], words: &mut Words<'_>, tracked: &Tracked) -> Option<u64> {
    let is = |expected: &str| word.eq_ignore_ascii_case(expected.as_bytes());
    if is("all") {
        return Some(u64::MAX);
    }
    let name: &[u8] = if is("time") && words.takes(b"zone") {
        b"TimeZone"
    } else if is("session") && words.takes(b"authorization") {
        b"session_authorization"
    } else {
        word
    };
    tracked.settable(name).map(bit)
}

/// What stands behind SET, if it ends with DEFAULT or what means the same.
fn set_to_default(words: &mut Words<'_>, tracked: &Tracked) -> Option<Reset> {
    let mut word = words.next()?;
    let local = word.eq_ignore_ascii_case(b"local");
    if local || word.eq_ignore_ascii_case(b"session") && !words.clone().takes(b"authorization") {
        word = words.next()?;
    }
    let (is_zone, is_names) = (word.eq_ignore_ascii_case(b"time"), word.eq_ignore_ascii_case(b"names"));
    let bits =
        if is_names { bit(tracked.position(b"client_encoding")?) } else { named(word, words, tracked)? };
    let has_sign = words.takes(b"to") || words.takes(b"=");
    let value = words.next();
    let is_default = match value {
        Some(value) => {
            value.eq_ignore_ascii_case(b"default") || is_zone && value.eq_ignore_ascii_case(b"local")
        }
        None => is_names && !has_sign,
    };
    let reset = if local { Reset { session: 0, local: bits } } else { Reset { session: bits, local: 0 } };
    is_default.then_some(reset)
}

/// The words of a command, without comments. A quoted name is given without its quotes.
#[derive(Clone)]
struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        self.skip_blanks();
        let (length, quoted) = match self.rest.first()? {
            b'"' => (self.rest[1..].iter().position(|byte| *byte == b'"')? + 2, true),
            byte if is_word(*byte) => (self.rest.iter().take_while(|byte| is_word(**byte)).count(), false),
            b'=' => (1, false),
            _ => return None,
        };
        let (word, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        if quoted { word.get(1..length - 1) } else { Some(word) }
    }

    /// Takes the next word if it is this one.
    fn takes(&mut self, expected: &[u8]) -> bool {
        let mut ahead = self.clone();
        let found = ahead.next().is_some_and(|word| word.eq_ignore_ascii_case(expected));
        if found {
            *self = ahead;
        }
        found
    }

    /// Nothing follows but what ends a command.
    fn end(&mut self) -> bool {
        self.skip_blanks();
        while let Some(rest) = self.rest.strip_prefix(b";") {
            self.rest = rest;
            self.skip_blanks();
        }
        matches!(self.rest.first(), None | Some(0))
    }

    fn skip_blanks(&mut self) {
        loop {
            self.rest = self.rest.trim_ascii_start();
            let comment = match self.rest {
                [b'-', b'-', ..] => self.rest.iter().position(|byte| matches!(byte, b'\n' | b'\r' | 0)),
                [b'/', b'*', ..] => block_comment(self.rest),
                _ => return,
            };
            self.rest = comment.and_then(|length| self.rest.get(length..)).unwrap_or_default();
        }
    }
}

/// The length of the comment that begins here; comments nest.
fn block_comment(text: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    loop {
        match text.get(at..at + 2)? {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$') || !byte.is_ascii()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(text: &str) -> Option<(Vec<String>, bool)> {
        let tracked = Tracked::new([]);
        assert!(reset_by(text.as_bytes(), &tracked).is_none() || may_reset(text.as_bytes(), 0), "{text}");
        let reset = reset_by(text.as_bytes(), &tracked)?;
        if reset.session == u64::MAX {
            return Some((vec!["all".to_owned()], false));
        }
        let named = (0..tracked.count()).filter(|position| reset.all() & bit(*position) != 0);
        Some((named.map(|position| tracked.name(position).to_owned()).collect(), reset.local != 0))
    }

    #[test]
    fn commands_that_reset_are_recognised() {
        for (text, name, local) in [
            ("RESET timezone", "TimeZone", false),
            (" reset\n\"TimeZone\" ; ", "TimeZone", false),
            ("/* a /* b */ */ Reset -- c\n time zone\0\0\0", "TimeZone", false),
            ("reset session authorization", "session_authorization", false),
            ("RESET ALL;", "all", false),
            ("discard all", "all", false),
            ("set timezone to default", "TimeZone", false),
            ("SET SESSION TimeZone=DEFAULT", "TimeZone", false),
            ("set local timezone = default", "TimeZone", true),
            ("set time zone local", "TimeZone", false),
            ("set local time zone default", "TimeZone", true),
            ("set session authorization default", "session_authorization", false),
            ("set names default", "client_encoding", false),
            ("set names", "client_encoding", false),
        ] {
            assert_eq!(names(text), Some((vec![name.to_owned()], local)), "{text}");
        }
    }

    #[test]
    fn others_are_not() {
        for text in [
            "",
            "\0",
            "select 1",
            "set timezone to 'Asia/Tokyo'",
            "set timezone to \"default",
            "set names 'utf8'",
            "reset role",
            "reset statement_timeout",
            "discard plans",
            "discard",
            "reset",
            "reset timezone; select 1",
            "/* reset all",
            "set in_hot_standby to default",
        ] {
            assert_eq!(names(text), None, "{text}");
        }
    }
}
