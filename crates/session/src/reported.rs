//! The stored form of parameter values that a server reports in bytes other than ASCII. Which text they are depends on the
//! client_encoding in force, which may differ where the value is set again.
//!
//! Owns the forms of such values among the others. They begin with NUL, so that no client can ask for them.

use std::borrow::Cow;

/// Stands for a value that is not known. Followed by a number it equals only itself.
pub(crate) const UNKNOWN: &str = "\0";

/// Encodings in which the same bytes are always the same text: those of one byte per character, and SQL_ASCII, which is never
/// converted. In the others PostgreSQL may write several characters as the same bytes.
const ONE_TO_ONE: [&str; 5] = ["LATIN", "WIN", "KOI8", "ISO_8859_", "SQL_ASCII"];

/// Parameters reported in bytes other than ASCII for the oldest pending reply. If client_encoding is reported after them, they
/// are in the encoding of before (PostgreSQL 13 and older) or of after (newer servers report everything at the end).
#[derive(Debug, Default)]
pub(crate) struct NonAscii {
    /// The reply's number.
    pub(crate) request: u64,
    /// Bits by position.
    pub(crate) positions: u64,
}

/// The stored form of a value that was reported under this client_encoding; `number` is used for no other value.
pub(crate) fn stored(value: &[u8], encoding: Option<&str>, number: u64) -> String {
    match (encoding, std::str::from_utf8(value)) {
        (_, Ok(text)) if text.is_ascii() => text.to_owned(),
        (Some(encoding), Ok(text)) if is_utf8(encoding) => text.to_owned(),
        (Some(encoding), _) if is_one_to_one(encoding) => {
            let mut stored = format!("{UNKNOWN}{encoding} ");
            push_hex(&mut stored, value);
            stored
        }
        _ => unknown(number),
    }
}

/// A value of which only the identity is known.
pub(crate) fn unknown(number: u64) -> String {
    format!("{UNKNOWN}{number}")
}

/// It cannot be set, because its text is not known.
pub(crate) fn is_unknown(stored: &str) -> bool {
    stored.starts_with(UNKNOWN) && encoded(stored).is_none()
}

/// It is stored as text.
pub(crate) fn is_text(stored: &str) -> bool {
    !stored.starts_with(UNKNOWN)
}

/// The encoding and the hexadecimal bytes of a value that is stored in them.
pub(crate) fn encoded(stored: &str) -> Option<(&str, &str)> {
    stored.strip_prefix(UNKNOWN)?.split_once(' ')
}

/// The bytes in which a client with this client_encoding is sent the value; None if they are not known.
pub(crate) fn for_client<'a>(stored: &'a str, encoding: Option<&str>) -> Option<Cow<'a, [u8]>> {
    match encoded(stored) {
        Some((own, digits)) => (Some(own) == encoding).then(|| bytes_of(digits).into()),
        None => {
            let is_same = stored.is_ascii() || encoding.is_none_or(is_utf8);
            (is_text(stored) && is_same).then(|| stored.as_bytes().into())
        }
    }
}

/// UNICODE is the one alias that PostgreSQL does not replace in its report.
pub(crate) fn is_utf8(encoding: &str) -> bool {
    encoding == "UTF8" || encoding == "UNICODE"
}

fn is_one_to_one(encoding: &str) -> bool {
    let is_name = encoding.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name && ONE_TO_ONE.iter().any(|known| encoding.starts_with(known))
}

pub(crate) fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(digit.into(), 16));
        }
    }
}

/// The bytes that these digits stand for; None if they are none.
pub(crate) fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
    digits.chunks(2).map(byte).collect()
}

fn bytes_of(digits: &str) -> Vec<u8> {
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pairs = digits.as_bytes().as_chunks::<2>().0;
    pairs.iter().filter_map(|[high, low]| Some(value(*high)? << 4 | value(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_stored_as_text_with_their_encoding_or_as_unknown() {
        let stored = |value: &[u8], encoding| stored(value, encoding, 7);
        assert_eq!(stored(b"UTC", None), "UTC");
        assert_eq!(stored("\u{e4}".as_bytes(), Some("UTF8")), "\u{e4}");
        assert_eq!(stored("\u{e4}".as_bytes(), Some("UNICODE")), "\u{e4}");
        assert_eq!(stored(b"\xe4", Some("LATIN1")), "\0LATIN1 e4");
        assert_eq!(stored("\u{e4}".as_bytes(), Some("LATIN1")), "\0LATIN1 c3a4", "other text in LATIN1");
        for (value, encoding) in [
            (&b"\xe4"[..], Some("UTF8")),
            (b"\xe4", None),
            ("\u{e4}".as_bytes(), None),
            (b"\x81\x60", Some("SJIS")),
            (b"\xa1\xaa", Some("GBK")),
            (b"\xe4", Some("LATIN1'")),
            (b"\xe4", Some("\09")),
        ] {
            assert_eq!(stored(value, encoding), unknown(7), "{value:?} {encoding:?}");
        }
    }

    #[test]
    fn a_value_is_sent_in_the_bytes_that_it_came_in() {
        let raw = stored(b"<\xfc>-03", Some("LATIN1"), 1);
        assert!(!is_text(&raw) && !is_unknown(&raw));
        assert_eq!(for_client(&raw, Some("LATIN1")).as_deref(), Some(&b"<\xfc>-03"[..]));
        assert_eq!(for_client(&raw, Some("UTF8")), None);
        assert_eq!(for_client("UTC", None).as_deref(), Some(&b"UTC"[..]));
        assert!(is_unknown(&unknown(1)) && is_unknown(UNKNOWN) && for_client(&unknown(1), None).is_none());
    }
}
