//! The comments by which a text says where it wants to run.
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
    let is_comment = |at: usize| text.get(at + 1) == Some(&b'*');
    if memchr::memchr_iter(b'/', text).any(is_comment) { in_comments(text) } else { None }
}

#[inline(never)]
fn in_comments(text: &[u8]) -> Option<RouteHint> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let seen = String::from_utf8_lossy(&text[..text.len().min(ANALYSED_BYTES)]);
    let found = first(&seen, Backslash::Literal);
    if !seen.contains('\\') {
        return found;
    }
    // What is a comment to one server may be a string to another: a standby is asked if both readings say so.
    match (found, first(&seen, Backslash::Escape)) {
        (one, other) if one == other => one,
        (Some(RouteHint::Primary), _) | (_, Some(RouteHint::Primary)) => Some(RouteHint::Primary),
        _ => None,
    }
}

fn first(text: &str, backslash: Backslash) -> Option<RouteHint> {
    let mut lexer = Lexer::reading(text, backslash);
    loop {
        let hint = lexer.comment().and_then(hint_of);
        if hint.is_some() {
            return hint;
        }
        if lexer.is_at_end() {
            return None;
        }
    }
}

/// What stands between the signs of a comment.
fn hint_of(comment: &str) -> Option<RouteHint> {
    let (name, value) = comment.split_once(':')?;
    if !name.trim().eq_ignore_ascii_case("weir") {
        return None;
    }
    match value.trim() {
        value if value.eq_ignore_ascii_case("primary") => Some(RouteHint::Primary),
        value if value.eq_ignore_ascii_case("standby") => Some(RouteHint::Standby),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("", None),
        ] {
            assert_eq!(route_hint(text.as_bytes()), hint, "{text}");
        }
    }
}
