//! What PostgreSQL 14 to 18 have built in, as far as it decides where a text may run.
//!
//! Owns the lists, one word a line and in the order of bytes, which the query for the catalog uses, too. Positive where calls are concerned: a
//! function that a later version brings runs on the primary until it is listed.

/// Functions of which each overload is immutable or stable, and answers from its arguments and replicated data alone. Those that run SQL given as text are not among them.
pub const READERS: &str = include_str!("readers.txt");

/// All words that begin with `pg_` and mean the same on a standby: catalogs and views over them, and functions that only read those.
pub const REPLICATED: &str = include_str!("replicated.txt");

/// Other words that mean something else on each server or in each session, hide what they run, or change something.
pub const PRIMARY_ONLY: &str = include_str!("primary_only.txt");

/// Words that a parenthesis may follow though they call nothing. They may name a function, too, which the catalog shows.
const SYNTAX: &[&str] =
    &["columns", "cube", "escape", "ilike", "join", "materialized", "operator", "rollup", "xmlnamespaces"];

/// Keywords that no statement that only reads has. `TREAT(a AS b)` calls the function `b`.
pub(super) const WRITING: &[&str] = &["delete", "insert", "into", "merge", "share", "treat", "update"];

/// What begins the names of the catalogs and of most functions that are about the server.
pub(crate) const PREFIX: &str = "pg_";

/// Calling the function of this name, in lower case, only reads.
pub(super) fn is_reader(name: &str) -> bool {
    is_listed(READERS, name) || is_listed(REPLICATED, name) || SYNTAX.contains(&name)
}

/// Calling the function of this name, in lower case, answers from its arguments, settings, and what is not of the server; or from the catalog, where that is said elsewhere.
pub(crate) fn is_cached(name: &str) -> bool {
    let is_about_server = name.starts_with(PREFIX) || name.starts_with("has_") || name.starts_with("to_reg");
    !is_about_server && (is_listed(READERS, name) || SYNTAX.contains(&name))
}

/// The word, in lower case, is PostgreSQL's own for what only the primary may answer.
pub(super) fn is_primary_only(word: &str) -> bool {
    if word.starts_with(PREFIX) { !is_listed(REPLICATED, word) } else { is_listed(PRIMARY_ONLY, word) }
}

/// The word is a line of the list, which is in order.
fn is_listed(list: &str, word: &str) -> bool {
    let (list, word) = (list.as_bytes(), word.as_bytes());
    let (mut low, mut high) = (0, list.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let begin = list[low..middle].iter().rposition(|byte| *byte == b'\n').map_or(low, |at| low + at + 1);
        let end = list[middle..].iter().position(|byte| *byte == b'\n').map_or(list.len(), |at| middle + at);
        match list[begin..end].cmp(word) {
            std::cmp::Ordering::Equal => return true,
            std::cmp::Ordering::Less => low = end + 1,
            std::cmp::Ordering::Greater => high = begin,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_in_order_and_each_word_is_found() {
        for list in [READERS, REPLICATED, PRIMARY_ONLY] {
            let words: Vec<&str> = list.lines().collect();
            assert!(words.is_sorted_by(|one, other| one < other));
            for word in words {
                assert!(is_listed(list, word), "{word}");
                assert!(!is_listed(list, &word[1..word.len() - 1]) || word.len() > 4, "{word}");
                assert!(!is_listed(list, &format!("{word}_x")), "{word}");
            }
            assert!(!is_listed(list, "") && !is_listed(list, "\n") && !is_listed(list, "zzz"));
        }
        assert!(READERS.lines().chain(REPLICATED.lines()).all(|word| !is_primary_only(word)));
        assert!(REPLICATED.lines().all(|word| word.starts_with(PREFIX)));
    }
}
