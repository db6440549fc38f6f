//! What a text is but for the values that stand in it, in one pass over its bytes: a key under which an analysis is kept.
//!
//! Owns which texts have one. Unlike [`crate::Fingerprint`] it is made for each query on its way, keeps blanks and case, and is exact: texts of one
//! shape consist of the same tokens, but for what is inside of strings and for numbers.

/// Longer texts have no shape.
const MAX_BYTES: usize = 4 * 1024;

/// Replaces `shape` by the shape of a text (up to a NUL, if it has one). False if it has none: it is too long, or what its tokens are
/// depends on settings or is not seen at once (backslashes, dollar quotes, what is not closed).
///
/// ```
/// let (mut one, mut other) = (Vec::new(), Vec::new());
/// assert!(sql::shape(b"UPDATE t SET a = 12 WHERE b = 'it''s'", &mut one));
/// assert!(sql::shape(b"UPDATE t SET a = 7 WHERE b = ''", &mut other));
/// assert_eq!(one, other);
/// assert!(!sql::shape(b"SELECT $$x$$", &mut one));
/// ```
#[must_use]
pub fn shape(text: &[u8], shape: &mut Vec<u8>) -> bool {
    shape.clear();
    let text = &text[..text.len().min(MAX_BYTES + 1)];
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.len() > MAX_BYTES {
        return false;
    }
    let mut rest = text;
    let mut before = b' ';
    let mut is_behind_string = false;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'\'' => match end_of_string(behind) {
                Some(behind) => {
                    shape.push(byte);
                    rest = behind;
                }
                None => return false,
            },
            b'"' => match end_of(behind, b'"') {
                Some(after) => {
                    shape.push(byte);
                    shape.extend_from_slice(&behind[..behind.len() - after.len() - 1]);
                    rest = after;
                }
                None => return false,
            },
            b'0'..=b'9' if !continues_name(before) => {
                rest = &behind[behind.iter().take_while(|byte| byte.is_ascii_digit()).count()..];
                shape.push(b'0');
                (before, is_behind_string) = (b'0', false);
                continue;
            }
            b'\\' => return false,
            // A dollar quote, behind a number or a parameter too. Names with a dollar sign have no shape either.
            b'$' if !behind.first().is_some_and(u8::is_ascii_digit) => return false,
            b'-' if behind.first() == Some(&b'-') => {
                rest = &behind[behind.iter().take_while(|byte| !matches!(byte, b'\n' | b'\r')).count()..];
                shape.push(b' ');
                before = b' ';
                continue;
            }
            b'/' if behind.first() == Some(&b'*') => match end_of_comment(&behind[1..]) {
                Some(behind) => {
                    (rest, before) = (behind, b' ');
                    // Two strings with a line break between them are one, but not with such a comment.
                    shape.extend_from_slice(if is_behind_string { b"/**/" } else { b" " });
                    continue;
                }
                None => return false,
            },
            _ => {}
        }
        is_behind_string = byte == b'\'' || is_behind_string && (byte.is_ascii_whitespace() || byte == 0x0b);
        shape.push(byte);
        before = byte;
    }
    true
}

/// A digit behind this byte belongs to a name, a parameter or a number.
fn continues_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii()
}

/// What is behind the end of a string, in which two quotes are one.
fn end_of_string(text: &[u8]) -> Option<&[u8]> {
    let mut rest = end_of(text, b'\'')?;
    while let Some(more) = rest.strip_prefix(b"'") {
        rest = end_of(more, b'\'')?;
    }
    Some(rest)
}

/// What is behind the next `quote`. None if there is a backslash before it, or none.
fn end_of(text: &[u8], quote: u8) -> Option<&[u8]> {
    let end = text.iter().position(|byte| *byte == quote || *byte == b'\\')?;
    (text[end] == quote).then(|| &text[end + 1..])
}

/// What is behind the end of a comment, which has no other inside.
fn end_of_comment(text: &[u8]) -> Option<&[u8]> {
    let end = text.array_windows().position(|pair| matches!(pair, b"*/" | b"/*"))?;
    (text[end] == b'*').then(|| &text[end + 2..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<String> {
        let mut found = b"left over".to_vec();
        shape(text.as_bytes(), &mut found).then(|| String::from_utf8_lossy(&found).into_owned())
    }

    #[test]
    fn values_and_comments_make_no_difference() {
        for (text, expected) in [
            ("select 'it''s', 12 from t -- 'x\nwhere a=1.5e3", "select '', 0 from t  \nwhere a=0.0e3"),
            ("select a1, b_2, $1 /* it's */ from t", "select a1, b_2, $1   from t"),
            ("select \"a 'b' 12\".\"c\"\"d\"", "select \"a 'b' 12\".\"c\"\"d\""),
            ("select 1\0behind", "select 0"),
            ("select 'a'\n'b' /* c */", "select ''\n'' /**/"),
            ("select 'a' \u{b}/* c */\n'b'", "select '' \u{b}/**/\n''"),
        ] {
            assert_eq!(of(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_seen_at_once_has_no_shape() {
        for text in [
            "select '\\'",
            "select $$x$$",
            "select $a$",
            "select $1$$'$$, 'x'",
            "select 1$a$'$a$, 'x'",
            "select 'x",
            "select \"x",
            "/* /* */ */ a",
            "/* a",
            "\\",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(of(&"x".repeat(MAX_BYTES + 1)), None);
    }

    #[test]
    fn names_with_digits_are_kept() {
        assert_ne!(of("select f1()"), of("select f2()"));
        assert_ne!(of("select é1()"), of("select é2()"));
        assert_ne!(of("select $1"), of("select $2"));
        assert_ne!(of("select \"1\""), of("select \"2\""));
        assert_eq!(of("select-1"), of("select-22"));
        assert_ne!(of("select a --\n b"), of("select a -\n b"));
    }
}
