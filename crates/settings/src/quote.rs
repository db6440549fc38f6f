//! Quoted texts in which a doubled quote is one: in connection strings, in names and in the file of secrets.
//! Never decides what may stand before or after them.

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
