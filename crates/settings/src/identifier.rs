//! Identifiers as PostgreSQL writes and shortens them: a doubled quote is one inside quotes, and a user or database has the
//! same name here and there. Values in connection strings and secrets are quoted likewise.

/// The longest name of a user or database, in bytes (NAMEDATALEN - 1).
pub(crate) const MAX_NAME_BYTES: usize = 63;

/// Truncates a name as PostgreSQL does before any lookup: to 63 bytes, never inside a character (`pg_mbcliplen`).
#[must_use]
pub fn truncate_identifier(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME_BYTES)]
}

/// The text up to the closing quote, and what follows it; `None` without a closing quote.
/// `text` begins behind the opening quote.
pub(crate) fn unquote(text: &str, quote: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once(quote)?;
        value.push_str(before);
        match after.strip_prefix(quote) {
            Some(more) => {
                value.push(quote);
                rest = more;
            }
            None => return Some((value, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_between_characters() {
        assert_eq!(truncate_identifier(&"u".repeat(63)), "u".repeat(63));
        assert_eq!(truncate_identifier(&"u".repeat(64)), "u".repeat(63));
        assert_eq!(truncate_identifier(&"ü".repeat(40)), "ü".repeat(31));
        assert_eq!(truncate_identifier(""), "");
    }

    #[test]
    fn a_doubled_quote_is_one() {
        assert_eq!(unquote("a''b' c", '\''), Some(("a'b".to_owned(), " c")));
        assert_eq!(unquote("\"\"\"", '"'), Some(("\"".to_owned(), "")));
        assert_eq!(unquote("\"", '"'), Some((String::new(), "")));
    }

    #[test]
    fn without_an_end_it_is_no_quoted_text() {
        assert_eq!(unquote("", '"'), None);
        assert_eq!(unquote("ab", '"'), None);
        assert_eq!(unquote("ab\"\"", '"'), None);
    }
}
