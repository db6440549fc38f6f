//! Whether the text of a command is RESET, DISCARD ALL or SET … TO DEFAULT, and of which parameters.
//!
//! Reads words, never grammar; what is not recognised is told apart from what resets nothing only where that matters
//! ([`reset_by_portal`]).

use super::Reset;
use crate::Tracked;
use crate::parameters::bit;

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
        let bits = named(word, &mut words, tracked).unwrap_or(0);
        if bits == 0 && word.eq_ignore_ascii_case(b"transaction") && words.takes(b"isolation") {
            words.takes(b"level");
        }
        if bits == 0 { Reset::OTHERS } else { Reset::of_session(bits) }
    } else if is("set") {
        set_to_default(&mut words, tracked)?
    } else if is("discard") && words.takes(b"all") {
        Reset::of_session(u64::MAX)
    } else {
        return None;
    };
    (words.end() && reset != Reset::default()).then_some(reset)
}

/// What a query string resets, which may hold several commands; None if that is not known.
#[cold]
pub(crate) fn reset_by_query(text: &[u8], tracked: &Tracked) -> Option<Reset> {
    reset_by(text, tracked).or_else(|| resets_of_others(text, tracked))
}

/// What a portal of a statement with this text resets; of the text not more than the first command need be here.
#[cold]
pub(crate) fn reset_by_portal(text: &[u8], tracked: &Tracked) -> Reset {
    let known = if is_other_command(text) { Some(Reset::default()) } else { None };
    reset_by(text, tracked).or(known).unwrap_or(Reset::UNCLEAR)
}

/// Some if there is a RESET among several commands, and each is of a parameter that is not followed.
fn resets_of_others(mut text: &[u8], tracked: &Tracked) -> Option<Reset> {
    let mut found = None;
    loop {
        let (command, rest) = text.split_at_checked(command_bytes(text)?)?;
        match reset_by(command, tracked) {
            Some(reset) if reset.is_of_others() => found = Some(reset),
            Some(_) => return None,
            None if is_other_command(command) => {}
            None => return None,
        }
        match rest {
            [b';', rest @ ..] => text = rest,
            _ => return found,
        }
    }
}

/// The command is not RESET or DISCARD ALL, or there is none.
fn is_other_command(command: &[u8]) -> bool {
    let mut words = Words { rest: command };
    match words.next() {
        Some(word) if word.eq_ignore_ascii_case(b"discard") => !words.takes(b"all"),
        Some(word) => !word.eq_ignore_ascii_case(b"reset"),
        None => words.end(),
    }
}

/// How long the first command of a query string is. None where that depends on how the server reads strings.
fn command_bytes(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += match text.get(at..)? {
            [] | [0 | b';', ..] => return Some(at),
            [b'\\' | b'$', ..] => return None,
            [quote @ (b'\'' | b'"'), rest @ ..] => {
                let quoted = &rest[..rest.iter().position(|byte| byte == quote)?];
                if quoted.contains(&b'\\') {
                    return None;
                }
                quoted.len() + 2
            }
            [b'-', b'-', rest @ ..] => {
                2 + rest.iter().position(|byte| matches!(byte, b'\n' | b'\r' | 0)).unwrap_or(rest.len())
            }
            comment @ [b'/', b'*', ..] => block_comment(comment)?,
            _ => 1,
        };
    }
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
    let of_block = Reset { local: bits, ..Reset::default() };
    is_default.then_some(if local { of_block } else { Reset::of_session(bits) })
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
        let reset = reset_by(text.as_bytes(), &tracked).filter(|reset| !reset.is_of_others())?;
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

    #[test]
    fn those_of_other_parameters_are() {
        let tracked = Tracked::new([]);
        let of_others =
            |text: &str| reset_by_query(text.as_bytes(), &tracked).is_some_and(Reset::is_of_others);
        for text in [
            "reset role",
            " RESET\t\"role\" ; ",
            "reset statement_timeout\0\0\0",
            "reset /* all */ my.parameter",
            "reset transaction isolation level",
            "reset in_hot_standby",
            "reset role;;reset statement_timeout",
            "set a = ';reset all'; reset role",
            "select \"reset all;\"; -- reset all; \n/* ; reset all */; reset role",
            "select 1; reset role; -- it's",
        ] {
            assert!(of_others(text), "{text}");
        }
        for text in [
            "",
            "select 1; select 2",
            "reset all",
            "reset role; reset all",
            "reset role; reset timezone",
            "reset role; discard all",
            "reset role; set timezone to default",
            "reset role; \u{b}reset all",
            "reset U&\"role\"",
            "reset \"a\"\"b\"",
            "select '\\'; reset role; --'; reset all",
            "select $$;$$; reset role",
            "reset role; select 'reset all",
        ] {
            assert!(!of_others(text), "{text}");
        }
    }

    #[test]
    fn a_portal_that_may_reset_and_is_not_recognised_is_unclear() {
        let tracked = Tracked::new([]);
        let of = |text: &str| reset_by_portal(text.as_bytes(), &tracked);
        assert_eq!(of("set a = 1\0"), Reset::default());
        assert_eq!(of("do $$ begin end $$\0"), Reset::default());
        assert!(of("reset role\0").is_of_others() && !of("reset all\0").is_empty());
        for text in ["reset U&\"timezone\"\0", "reset /* ...", "\u{b}reset all\0", "reset"] {
            assert_eq!(of(text), Reset::UNCLEAR, "{text}");
        }
    }
}
