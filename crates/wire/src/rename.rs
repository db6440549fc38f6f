//! A prepared statement under another name: the new front of a frame whose rest streams past unchanged.
//! Owns the arithmetic of lengths; never chooses a name and never touches the rest.
//!
//! For Parse and Bind the caller sends what these append, then the original body from the offset that
//! [`crate::frontend::parse_name`] or [`crate::frontend::bind_names`] gave.
//!
//! ```
//! use wire::frame::{self, HEADER_BYTES};
//! use wire::frontend::{self, Found};
//! use wire::{encode, rename};
//!
//! let (mut original, mut expected) = (Vec::new(), Vec::new());
//! encode::parse(&mut original, b"find", b"select $1", &[23]);
//! encode::parse(&mut expected, b"PGBOUNCER_7", b"select $1", &[23]);
//!
//! let header = frame::header(&original).unwrap().unwrap();
//! let body = &original[HEADER_BYTES..];
//! let Found::Yes((name, rest)) = frontend::parse_name(body) else { panic!("the name is here") };
//! let mut renamed = Vec::new();
//! rename::parse(&mut renamed, header, name.len(), b"PGBOUNCER_7");
//! renamed.extend_from_slice(&body[rest..]);
//! assert_eq!(renamed, expected);
//! ```

use crate::encode;
use crate::frame::Header;
use crate::text::before_nul;

/// Appends the front of a Parse frame: a header with the new length, and `new_name`.
#[inline]
pub fn parse(out: &mut Vec<u8>, original: Header, old_name_len: usize, new_name: &[u8]) {
    let new_name = before_nul(new_name);
    header(out, original, old_name_len, new_name.len());
    string(out, new_name);
}

/// Appends the front of a Bind frame: a header with the new length, `portal` as it was, and `new_statement`.
#[inline]
pub fn bind(
    out: &mut Vec<u8>,
    original: Header,
    portal: &[u8],
    old_statement_len: usize,
    new_statement: &[u8],
) {
    let new_statement = before_nul(new_statement);
    header(out, original, old_statement_len, new_statement.len());
    string(out, portal);
    string(out, new_statement);
}

/// Appends a whole Describe or Close (`tag`) of the statement or portal (`kind`, `b'S'` or `b'P'`) `new_name`.
#[inline]
pub fn target(out: &mut Vec<u8>, tag: u8, kind: u8, new_name: &[u8]) {
    encode::target(out, tag, kind, new_name);
}

/// A header whose length accounts for the change of name. A length that no longer fits (a frame of almost
/// 2 GiB) is written as one that every receiver refuses, so that nobody can read the rest as other frames.
fn header(out: &mut Vec<u8>, original: Header, old_len: usize, new_len: usize) {
    let declared = u64::from(original.frame_bytes.saturating_sub(1))
        .checked_sub(old_len as u64)
        .and_then(|bytes| bytes.checked_add(new_len as u64));
    out.push(original.tag);
    out.extend_from_slice(&encode::declared(declared).to_be_bytes());
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(text);
    out.push(0);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{frame, frontend, tag};

    #[test]
    fn a_renamed_parse_is_the_parse_of_the_other_name() {
        for (old, new) in [(&b"a"[..], &b"weir_17"[..]), (b"a_long_name", b"w"), (b"", b"w1"), (b"x", b"")] {
            let (mut original, mut expected, mut renamed) = (Vec::new(), Vec::new(), Vec::new());
            encode::parse(&mut original, old, b"SELECT $1", &[23]);
            encode::parse(&mut expected, new, b"SELECT $1", &[23]);
            let header = frame::header(&original).unwrap().unwrap();
            let body = &original[frame::HEADER_BYTES..];
            let (name, rest) = frontend::parse_name(body).complete().unwrap();
            parse(&mut renamed, header, name.len(), new);
            renamed.extend_from_slice(&body[rest..]);
            assert_eq!(renamed, expected);
        }
    }

    #[test]
    fn a_renamed_bind_is_the_bind_of_the_other_name() {
        let (mut original, mut expected, mut renamed) = (Vec::new(), Vec::new(), Vec::new());
        encode::bind_simple(&mut original, b"portal", b"old", &[Some(b"1"), None]);
        encode::bind_simple(&mut expected, b"portal", b"weir_17", &[Some(b"1"), None]);
        let header = frame::header(&original).unwrap().unwrap();
        let body = &original[frame::HEADER_BYTES..];
        let (portal, old, rest) = frontend::bind_names(body).complete().unwrap();
        bind(&mut renamed, header, portal, old.len(), b"weir_17");
        renamed.extend_from_slice(&body[rest..]);
        assert_eq!(renamed, expected);
    }

    #[test]
    fn a_length_that_does_not_fit_is_one_that_is_refused() {
        for (frame_bytes, old_len) in [(0x8000_0000, 0), (9, 100)] {
            let mut out = Vec::new();
            parse(&mut out, Header { tag: tag::frontend::PARSE, frame_bytes }, old_len, b"name");
            assert!(frame::header(&out).is_err());
        }
    }

    #[test]
    fn targets_are_whole_messages() {
        let mut out = Vec::new();
        target(&mut out, tag::frontend::DESCRIBE, b'S', b"w1");
        assert_eq!(out, b"D\0\0\0\x08Sw1\0");
    }
}
