//! What a database's catalog says about the names in a text: which functions only read, and what a standby must not be asked for.
//!
//! Owns the look-up of a name, exact, and the quick one of a text's words. How the names are found is the session crate's.

use std::collections::HashSet;

use super::built_in::{self, PRIMARY_ONLY, WRITING};
use super::words::{self, Filter, Word};

/// PostgreSQL's NAMEDATALEN less its end: longer names are cut.
pub(super) const NAME_BYTES: usize = 63;

/// Operators that PostgreSQL uses for other words: IN, BETWEEN, LIKE, DISTINCT, ORDER BY, UNION, USING.
const IMPLIED: &[&str] = &["=", "<>", "<", "<=", ">", ">=", "~", "!~", "~~", "~~*", "!~~", "!~~*"];

/// A text that does not show this operator may use it all the same.
#[must_use]
pub fn is_implied_operator(symbol: &str) -> bool {
    IMPLIED.contains(&symbol)
}

/// The names of one database.
#[derive(Clone, Debug)]
pub struct RoutingNames {
    /// Functions that are not built in and of which each overload reads only; as they stand in the catalog.
    readers: HashSet<Box<str>>,
    /// In lower case: what a standby must not be asked for.
    primary_only: HashSet<Box<str>>,
    /// The symbols of operators whose functions are not readers.
    operators: Vec<Box<str>>,
    /// What may make a text other than a read: `primary_only`, and the words that are built in.
    filter: Filter,
    flagged: HashSet<Box<[u8]>>,
    /// All names have ASCII letters, digits and `_` only, and begin with no digit: the words of a text show them.
    are_words: bool,
    /// All names are ASCII.
    are_ascii: bool,
    /// No text is known to read only.
    is_unknown: bool,
}

impl RoutingNames {
    /// Nothing is known of the catalog: no text reads only.
    #[must_use]
    pub fn unknown() -> RoutingNames {
        RoutingNames { is_unknown: true, ..RoutingNames::new([], [], []) }
    }

    /// `readers`: the functions, but for those that are built in, of whose overloads each only reads, as the catalog has them. `primary_only`: names of
    /// relations, types and functions that a text for a standby must not have. `operators`: symbols that call something else.
    #[must_use]
    pub fn new(
        readers: impl IntoIterator<Item = String>,
        primary_only: impl IntoIterator<Item = String>,
        operators: impl IntoIterator<Item = String>,
    ) -> RoutingNames {
        let boxed = |name: String| name.into_boxed_str();
        let readers: HashSet<Box<str>> = readers.into_iter().map(boxed).collect();
        let lower = |name: String| boxed(name.to_ascii_lowercase());
        let primary_only: HashSet<Box<str>> = primary_only.into_iter().map(lower).collect();
        let operators: Vec<Box<str>> = operators.into_iter().map(boxed).collect();
        let built_in = WRITING.iter().copied().chain(PRIMARY_ONLY.lines());
        let flagged: HashSet<Box<[u8]>> = primary_only
            .iter()
            .map(AsRef::as_ref)
            .chain(built_in)
            .map(|word: &str| word.as_bytes().into())
            .collect();
        RoutingNames {
            filter: Filter::of(flagged.iter().map(AsRef::as_ref)),
            are_words: primary_only.iter().all(|name| is_word(name)),
            are_ascii: primary_only.iter().all(|name| name.is_ascii()),
            is_unknown: operators.iter().any(|symbol| symbol.is_empty() || is_implied_operator(symbol)),
            flagged,
            readers,
            primary_only,
            operators,
        }
    }

    /// How many names there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.readers.len() + self.primary_only.len() + self.operators.len()
    }

    /// The catalog has no name that matters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// No text is known to read only: the catalog is not known, or has what no text shows.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// Calling the function of this name, as PostgreSQL folds it, only reads. What [`RoutingNames::is_primary_only`] says counts first.
    pub(super) fn is_reader(&self, name: &str) -> bool {
        self.readers.contains(name) || built_in::is_reader(name)
    }

    /// A name that stands in a text, without its quotes, may mean what only the primary may answer.
    pub(super) fn is_primary_only(&self, name: &str) -> bool {
        let lower = name[..name.floor_char_boundary(NAME_BYTES)].to_ascii_lowercase();
        // In another encoding than UTF-8 other bytes are the same name.
        built_in::is_primary_only(&lower)
            || self.primary_only.contains(lower.as_str())
            || !self.are_ascii && !name.is_ascii()
    }

    /// A run of operator characters may be, or have in it, an operator that does not only read.
    pub(super) fn has_operator(&self, run: &str) -> bool {
        self.operators.iter().any(|symbol| run.contains(symbol.as_ref()))
    }

    /// No word of the text, wherever it stands, can make it other than a read. If false, one may.
    #[inline]
    pub(super) fn allow_all_words(&self, text: &[u8]) -> bool {
        if !self.are_words {
            return false;
        }
        if !words::all(text, |word| self.allows(word)) {
            return false;
        }
        self.operators.is_empty() || !self.operators.iter().any(|symbol| contains(text, symbol.as_bytes()))
    }

    #[inline]
    fn allows(&self, word: Word<'_>) -> bool {
        if word.text.first().is_some_and(u8::is_ascii_digit) {
            // `1into` are two words to older versions.
            return word.text.iter().all(u8::is_ascii_digit);
        }
        let is_short = word.text.len() <= NAME_BYTES;
        is_short && !word.has_prefix() && !(self.filter.may_have(word) && self.flags(word.text))
    }

    #[cold]
    fn flags(&self, word: &[u8]) -> bool {
        let mut lower = [0; NAME_BYTES];
        let lower = &mut lower[..word.len()];
        lower.copy_from_slice(word);
        lower.make_ascii_lowercase();
        self.flagged.contains(&*lower)
    }
}

impl Default for RoutingNames {
    fn default() -> RoutingNames {
        RoutingNames::unknown()
    }
}

/// It stands in a text as one word that is no number.
fn is_word(name: &str) -> bool {
    name.bytes().all(words::is_part_of_word) && !name.starts_with(|first: char| first.is_ascii_digit())
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|here| here == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(primary_only: &[&str]) -> RoutingNames {
        RoutingNames::new([], primary_only.iter().map(|name| (*name).to_owned()), [])
    }

    #[test]
    fn each_word_is_found_in_whatever_case() {
        let many: Vec<String> =
            (0..5000).map(|number| format!("{}{number}", "t".repeat(number % 50))).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).filter(|name| name.starts_with('t')).collect();
        let names = names(&many);
        for word in many.iter().copied().chain(WRITING.iter().copied()).chain(PRIMARY_ONLY.lines()) {
            for word in [word.to_owned(), word.to_ascii_uppercase()] {
                assert!(!names.allow_all_words(format!("select \"{word}\"").as_bytes()), "{word}");
            }
        }
        for text in ["select abalance from pgbench_accounts where aid = 12345", "", "select 'é'", "t"] {
            assert_eq!(names.allow_all_words(text.as_bytes()), text.is_ascii(), "{text}");
        }
    }

    #[test]
    fn a_name_that_begins_with_a_digit_is_not_taken_for_a_number() {
        for name in ["2024", "1a"] {
            assert!(
                !names(&[name]).allow_all_words(format!("select * from \"{name}\"").as_bytes()),
                "{name}"
            );
        }
    }

    #[test]
    fn names_are_cut_as_postgresql_cuts_them() {
        let name = "a".repeat(NAME_BYTES);
        assert!(names(&[&name]).is_primary_only(&format!("{name}b")));
        assert!(!names(&[&name]).is_primary_only(&name[1..]));
        assert!(!names(&[]).allow_all_words(format!("select {name}b").as_bytes()));
    }

    #[test]
    fn operators_that_other_words_use_leave_nothing_known() {
        let with = |symbol: &str| RoutingNames::new([], [], [symbol.to_owned()]);
        assert!(with("=").is_unknown() && with("").is_unknown() && !with("+!").is_unknown());
        assert!(with("+!").has_operator("-+!") && !with("+!").has_operator("+"));
        assert!(!with("+!").allow_all_words(b"select 1 +! 2") && with("+!").allow_all_words(b"select 1 + 2"));
    }
}
