//! Views of what a client sends: the names at the front of Parse, Bind, Describe and Close, a query's text, a
//! password. A *body* is the bytes after the five-byte header.
//! Reads only what a pooler acts upon; never a Bind's values, never SQL.
//!
//! The finders of names work on any prefix of a body, because a large Parse or Bind streams past: a frame's
//! names are known long before its end is here.

use crate::text;

/// What a finder made of a prefix of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// It is all here. More body bytes do not change the answer, except that [`target`] allows none.
    Yes(T),
    /// The NUL that ends it is not here yet. For a complete body this is malformed as well, see
    /// [`Found::complete`].
    More,
    /// No further bytes can make it right.
    Malformed,
}

impl<T> Found<T> {
    /// The answer for a body that is complete: what still asks for more is malformed, `None`.
    #[inline]
    pub fn complete(self) -> Option<T> {
        match self {
            Self::Yes(found) => Some(found),
            Self::More | Self::Malformed => None,
        }
    }
}

/// A Parse's statement name, and where the rest (text, parameter types) begins in the body.
#[inline]
pub fn parse_name(body: &[u8]) -> Found<(&[u8], usize)> {
    match text::split(body) {
        Some((name, _)) => Found::Yes((name, name.len() + 1)),
        None => Found::More,
    }
}

/// A Bind's portal name, its statement name, and where the rest (formats, values) begins in the body.
#[inline]
pub fn bind_names(body: &[u8]) -> Found<(&[u8], &[u8], usize)> {
    let Some((portal, rest)) = text::split(body) else { return Found::More };
    let Some((statement, _)) = text::split(rest) else { return Found::More };
    Found::Yes((portal, statement, portal.len() + statement.len() + 2))
}

/// The kind (`b'S'` statement, `b'P'` portal) and the name in a Describe or a Close. Nothing may follow.
#[inline]
pub fn target(body: &[u8]) -> Found<(u8, &[u8])> {
    match body {
        [] => Found::More,
        [kind @ (b'S' | b'P'), rest @ ..] => match text::split(rest) {
            Some((name, [])) => Found::Yes((*kind, name)),
            Some(_) => Found::Malformed,
            None => Found::More,
        },
        _ => Found::Malformed,
    }
}

/// A Query's text; `None` when the complete `body` is not one string and its NUL.
#[inline]
#[must_use]
pub fn query_text(body: &[u8]) -> Option<&[u8]> {
    text::sole(body)
}

/// A PasswordMessage's password; `None` when the complete `body` is not one string and its NUL.
#[must_use]
pub fn password(body: &[u8]) -> Option<&[u8]> {
    text::sole(body)
}

/// An Execute's portal name and row limit (0: none); `None` when the complete `body` is anything else.
#[must_use]
pub fn execute(body: &[u8]) -> Option<(&[u8], u32)> {
    let (portal, rest) = text::split(body)?;
    let limit: &[u8; 4] = rest.try_into().ok()?;
    Some((portal, u32::from_be_bytes(*limit)))
}

/// The statement text and the parameter types of a Parse; `rest` is the body from the offset that
/// [`parse_name`] gave to its end. `None` when it is anything else.
pub fn parse_rest(rest: &[u8]) -> Option<(&[u8], impl ExactSizeIterator<Item = u32>)> {
    let (query, rest) = text::split(rest)?;
    let (count, types) = rest.split_first_chunk::<2>()?;
    let (types, odd) = types.as_chunks::<4>();
    let whole = odd.is_empty() && types.len() == usize::from(u16::from_be_bytes(*count));
    whole.then(|| (query, types.iter().map(|oid| u32::from_be_bytes(*oid))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_found_once_their_nul_is_here() {
        assert_eq!(parse_name(b""), Found::More);
        assert_eq!(parse_name(b"st"), Found::More);
        assert_eq!(parse_name(b"st\0SELECT"), Found::Yes((&b"st"[..], 3)));
        assert_eq!(parse_name(b"\0"), Found::Yes((&b""[..], 1)));
        assert_eq!(bind_names(b"p\0st"), Found::More);
        assert_eq!(bind_names(b"p\0st\0\0\0"), Found::Yes((&b"p"[..], &b"st"[..], 5)));
        assert_eq!(bind_names(b"\0\0"), Found::Yes((&b""[..], &b""[..], 2)));
    }

    #[test]
    fn a_target_has_a_kind_a_name_and_nothing_else() {
        assert_eq!(target(b""), Found::More);
        assert_eq!(target(b"S"), Found::More);
        assert_eq!(target(b"Sx"), Found::More);
        assert_eq!(target(b"Sx\0"), Found::Yes((b'S', &b"x"[..])));
        assert_eq!(target(b"P\0"), Found::Yes((b'P', &b""[..])));
        assert_eq!(target(b"Sx\0y"), Found::Malformed);
        assert_eq!(target(b"Qx\0"), Found::Malformed);
        assert_eq!(target(b"Sx").complete(), None);
    }

    #[test]
    fn texts_end_in_their_only_nul() {
        assert_eq!(query_text(b"SELECT 1\0"), Some(&b"SELECT 1"[..]));
        assert_eq!(query_text(b"\0"), Some(&b""[..]));
        for bad in [&b""[..], b"SELECT 1", b"SELECT\x001\0", b"\0\0"] {
            assert_eq!(query_text(bad), None, "{bad:?}");
            assert_eq!(password(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_rest_of_a_parse_must_hold_as_many_types_as_it_says() {
        let (query, types) = parse_rest(b"SELECT $1\0\0\x01\0\0\0\x17").unwrap();
        assert_eq!((query, types.collect::<Vec<_>>()), (&b"SELECT $1"[..], vec![23]));
        for bad in [&b"q"[..], b"q\0", b"q\0\0", b"q\0\0\x01", b"q\0\0\0\0", b"q\0\0\x01\0\0\0\x17\0"] {
            assert!(parse_rest(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn an_execute_has_a_portal_and_a_limit() {
        assert_eq!(execute(b"p\0\0\0\0\x05"), Some((&b"p"[..], 5)));
        assert_eq!(execute(b"p\0\0\0\x05"), None);
        assert_eq!(execute(b"p\0\0\0\0\x05\0"), None);
    }
}
