//! `name=value` pairs as pg_hba.conf and `auth_ldap_options` write them.
//! Owns quotes, blanks and commas. Never knows an option's name.

use super::OptionsError;

/// The pairs of a text, in order. Blanks and commas outside quotes end a pair; quotes go, and of two inside quotes one
/// stays. A word that begins with `#` begins a comment.
///
/// # Errors
/// [`OptionsError::Syntax`] for a piece without a name or without `=`, and for a quote that is never closed.
pub(super) fn pairs(text: &str) -> Result<Vec<(String, String)>, OptionsError> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start_matches(is_between);
    while !rest.is_empty() && !rest.starts_with('#') {
        let wrong = OptionsError::Syntax(text.len() - rest.len() + 1);
        let Some((word, behind)) = word(rest) else { return Err(wrong) };
        match word.split_once('=') {
            Some((name, value)) if !name.is_empty() => pairs.push((name.to_owned(), value.to_owned())),
            _ => return Err(wrong),
        }
        rest = behind.trim_start_matches(is_between);
    }
    Ok(pairs)
}

/// The first word of a text that begins with one, without its quotes, and what follows it; None if a quote stays open.
fn word(text: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut quoted = false;
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' if quoted && letters.next_if(|(_, next)| *next == '"').is_some() => word.push('"'),
            '"' => quoted = !quoted,
            _ if !quoted && is_between(letter) => return Some((word, &text[at..])),
            _ => word.push(letter),
        }
    }
    (!quoted).then_some((word, ""))
}

fn is_between(letter: char) -> bool {
    letter == ',' || letter.is_ascii_whitespace()
}
