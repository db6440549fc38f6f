//! The `options` startup parameter: `-c name=value`, `-cname=value` and `--name=value`, with `\` before blanks.
//!
//! Owns that little language (PostgreSQL chapter 55.7, `pg_split_opts`); never decides which names are allowed.

use crate::ClientFault;

/// The settings in `options`, in order.
///
/// ```
/// let found = weir_session::options::settings(r"-c geqo=off --search-path=a\ b").unwrap();
/// let expected = [("geqo", "off"), ("search_path", "a b")];
/// assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
/// ```
///
/// # Errors
/// [`ClientFault::UnsupportedOptions`] for any other switch.
pub fn settings(options: &str) -> Result<Vec<(String, String)>, ClientFault> {
    let mut words = words(options).into_iter();
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let setting = if word == "-c" {
            words.next().ok_or(ClientFault::UnsupportedOptions)?
        } else if let Some(rest) = word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
            rest.to_owned()
        } else {
            return Err(ClientFault::UnsupportedOptions);
        };
        let (name, value) = setting.split_once('=').ok_or(ClientFault::UnsupportedOptions)?;
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

/// Splits at blanks; a backslash takes the next character as it is.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            blank if blank.is_ascii_whitespace() => words.extend(word.take()),
            '\\' => word.get_or_insert_default().extend(characters.next()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn all_three_spellings_and_escapes() {
        let found = settings(r"-c a=1  -cb=2 --search-path=x\ y -c d=back\\slash").unwrap();
        let found: Vec<(&str, &str)> = found.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(found, [("a", "1"), ("b", "2"), ("search_path", "x y"), ("d", r"back\slash")]);
    }

    #[test]
    fn nothing_else_is_taken() {
        for bad in ["-d 3", "-c", "-c a", "x=1", "--a"] {
            assert_eq!(settings(bad), Err(ClientFault::UnsupportedOptions), "{bad}");
        }
        assert_eq!(settings("   "), Ok(vec![]));
    }

    #[test]
    fn an_empty_name_is_a_name_like_others_and_the_rest_is_read() {
        for text in ["-c=1 -cb=2", "-c =1 -c b=2", "--=1 --b=2"] {
            let found = settings(text).unwrap();
            let found: Vec<(&str, &str)> = found.iter().map(|(name, value)| (&**name, &**value)).collect();
            assert_eq!(found, [("", "1"), ("b", "2")], "{text}");
        }
        assert_eq!(settings("-c="), Ok(vec![(String::new(), String::new())]));
    }
}
