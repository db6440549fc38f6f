//! The comments by which a text says where it wants to run, and in which class it waits.
//!
//! Owns their words. They count wherever they stand, but not in strings, nor in comments with anything else.

use crate::lexer::{Backslash, Lexer};
use crate::statement::ANALYSED_BYTES;

/// Where a text wants to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteHint {
    /// `/* weir: primary */`
    Primary,
    /// `/* weir: standby */`
    Standby,
}

/// The class in which a text wants to wait for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityHint {
    /// `/* weir: priority=high */`
    High,
    /// `/* weir: priority=normal */`
    Normal,
    /// `/* weir: priority=low */`
    Low,
}

/// The first hint of a text at its class, up to a NUL; none where two readings of its strings differ.
///
/// ```
/// use sql::{PriorityHint, priority_hint};
///
/// assert_eq!(priority_hint(b"/* weir: priority=low */ SELECT f()"), Some(PriorityHint::Low));
/// assert_eq!(priority_hint(b"SELECT '/* weir: priority=high */'"), None);
/// ```
#[must_use]
pub fn priority_hint(text: &[u8]) -> Option<PriorityHint> {
    if !has_comments(text) {
        return None;
    }
    let seen = analysed(text);
    let found = first(&seen, Backslash::Literal, priority_of);
    found.filter(|_| !seen.contains('\\') || first(&seen, Backslash::Escape, priority_of) == found)
}

/// The first hint of a text, up to a NUL. It is no part of the text's [`crate::shape`].
///
/// ```
/// use sql::{RouteHint, route_hint};
///
/// assert_eq!(route_hint(b"/* weir: standby */ SELECT f()"), Some(RouteHint::Standby));
/// assert_eq!(route_hint(b"SELECT f() /*WEIR:primary*/"), Some(RouteHint::Primary));
/// assert_eq!(route_hint(b"SELECT '/* weir: standby */'"), None);
/// ```
#[inline]
#[must_use]
pub fn route_hint(text: &[u8]) -> Option<RouteHint> {
    if has_comments(text) { in_comments(text) } else { None }
}

#[inline]
fn has_comments(text: &[u8]) -> bool {
    let is_comment = |at: usize| text.get(at + 1) == Some(&b'*');
    memchr::memchr_iter(b'/', text).any(is_comment)
}

fn analysed(text: &[u8]) -> std::borrow::Cow<'_, str> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(&text[..text.len().min(ANALYSED_BYTES)])
}

#[inline(never)]
fn in_comments(text: &[u8]) -> Option<RouteHint> {
    let seen = analysed(text);
    let found = first(&seen, Backslash::Literal, route_of);
    if !seen.contains('\\') {
        return found;
    }
    // What is a comment to one server may be a string to another: a standby is asked if both readings say so.
    match (found, first(&seen, Backslash::Escape, route_of)) {
        (one, other) if one == other => one,
        (Some(RouteHint::Primary), _) | (_, Some(RouteHint::Primary)) => Some(RouteHint::Primary),
        _ => None,
    }
}

fn first<T>(text: &str, backslash: Backslash, meaning: impl Fn(&str) -> Option<T>) -> Option<T> {
    let mut lexer = Lexer::reading(text, backslash);
    loop {
        let hint = lexer.comment().and_then(hint_of).and_then(&meaning);
        if hint.is_some() {
            return hint;
        }
        if lexer.is_at_end() {
            return None;
        }
    }
}

/// What stands between the signs of a comment.
fn hint_of(comment: &str) -> Option<&str> {
    let (name, value) = comment.split_once(':')?;
    name.trim().eq_ignore_ascii_case("weir").then(|| value.trim())
}

fn priority_of(hint: &str) -> Option<PriorityHint> {
    let (name, value) = hint.split_once('=')?;
    if !name.trim_end().eq_ignore_ascii_case("priority") {
        return None;
    }
    match value.trim_start() {
        value if value.eq_ignore_ascii_case("high") => Some(PriorityHint::High),
        value if value.eq_ignore_ascii_case("normal") => Some(PriorityHint::Normal),
        value if value.eq_ignore_ascii_case("low") => Some(PriorityHint::Low),
        _ => None,
    }
}

fn route_of(hint: &str) -> Option<RouteHint> {
    match hint {
        value if value.eq_ignore_ascii_case("primary") => Some(RouteHint::Primary),
        value if value.eq_ignore_ascii_case("standby") => Some(RouteHint::Standby),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_one_of_three_in_a_comment_of_its_own() {
        for (text, hint) in [
            ("/* weir: priority=high */ select 1", Some(PriorityHint::High)),
            ("select 1 /*WEIR : Priority = LOW*/", Some(PriorityHint::Low)),
            ("/* weir: standby */ select 1 /* weir: priority=normal */", Some(PriorityHint::Normal)),
            ("/* weir: priority=low */ /* weir: priority=high */", Some(PriorityHint::Low)),
            ("/* weir: priority=urgent */ select 1 /* weir: priority=high */", Some(PriorityHint::High)),
            ("/* weir: priority=high, please */ select 1", None),
            ("/* weir: high */ select 1", None),
            ("select '/* weir: priority=high */'", None),
            ("select '\\' /* weir: priority=high */ '", None),
            ("select '\\x' /* weir: priority=high */", Some(PriorityHint::High)),
            ("select 1 -- /* weir: priority=high */", None),
            ("select 1\0/* weir: priority=high */", None),
        ] {
            assert_eq!(priority_hint(text.as_bytes()), hint, "{text}");
        }
        assert_eq!(route_hint(b"/* weir: priority=high */ /* weir: primary */"), Some(RouteHint::Primary));
    }

    #[test]
    fn hints_are_comments_of_their_own() {
        for (text, hint) in [
            ("/* weir: primary */ select 1", Some(RouteHint::Primary)),
            ("select 1 /*weir:standby*/", Some(RouteHint::Standby)),
            ("select/*\n WEIR : Standby\t*/1 /* weir: primary */", Some(RouteHint::Standby)),
            ("-- x\n/* a */ /* weir: primary */", Some(RouteHint::Primary)),
            ("select 1 -- '\n /* weir: standby */", Some(RouteHint::Standby)),
            ("select 1 -- /* weir: primary */", None),
            ("select 'a /* weir: primary */'", None),
            ("select \"a /* weir: primary */\"", None),
            ("select $$ /* weir: primary */ $$", None),
            ("/* weir: primary please */ select 1", None),
            ("/* /* weir: primary */ */ select 1", None),
            ("/* weir: primary", None),
            ("/* weir primary */", None),
            ("select 1\0/* weir: primary */", None),
            ("select a / b * c", None),
            ("select '\\' /* weir: standby */", None),
            ("select '\\' /* weir: primary */ '", Some(RouteHint::Primary)),
            ("select '\\\\' /* weir: standby */", Some(RouteHint::Standby)),
            ("select nextval('s'), E'a'\n'b\\' ', '\\', ' /* weir: standby */ '", None),
            ("", None),
        ] {
            assert_eq!(route_hint(text.as_bytes()), hint, "{text}");
        }
    }
}
