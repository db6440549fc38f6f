//! What a database's catalog says about the names in a text: which functions only read, and what a standby must not be asked for.
//!
//! Owns the look-up of a name, exact, and the quick one of a text's words. How the names are found is the session crate's.

use std::collections::HashSet;

use super::built_in::{self, PREFIX, PRIMARY_ONLY, WRITING};

/// PostgreSQL's NAMEDATALEN less its end: longer names are cut.
pub(super) const NAME_BYTES: usize = 63;

/// Bits of the filter for each word in it.
const FILTER_BITS: usize = 16;

/// Operators that PostgreSQL uses for other words: IN, BETWEEN, LIKE, DISTINCT, ORDER BY, UNION, USING.
const IMPLIED: &[&str] = &["=", "<>", "<", "<=", ">", ">=", "~", "!~", "~~", "~~*", "!~~", "!~~*"];

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
    /// All names have ASCII letters, digits and `_` only: the words of a text show them.
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
            filter: Filter::of(flagged.iter().map(AsRef::as_ref), flagged.len()),
            are_words: primary_only.iter().all(|name| name.bytes().all(is_part_of_word)),
            are_ascii: primary_only.iter().all(|name| name.is_ascii()),
            is_unknown: operators
                .iter()
                .any(|symbol| symbol.is_empty() || IMPLIED.contains(&symbol.as_ref())),
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
        let mut rest = text;
        while let Some((first, behind)) = rest.split_first() {
            if !is_part_of_word(*first) {
                if !first.is_ascii() {
                    return false;
                }
                rest = behind;
                continue;
            }
            let length = rest.iter().position(|byte| !is_part_of_word(*byte)).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(length);
            if !self.allows(word) {
                return false;
            }
            rest = behind;
        }
        self.operators.is_empty() || !self.operators.iter().any(|symbol| contains(text, symbol.as_bytes()))
    }

    #[inline]
    fn allows(&self, word: &[u8]) -> bool {
        if word[0].is_ascii_digit() {
            // `1into` are two words to older versions.
            return word.iter().all(u8::is_ascii_digit);
        }
        let is_built_in = word.len() > PREFIX.len()
            && (word[0] | 0x20) == b'p'
            && (word[1] | 0x20) == b'g'
            && word[2] == b'_';
        !is_built_in && word.len() <= NAME_BYTES && !(self.filter.may_have(word) && self.flags(word))
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

fn is_part_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|here| here == part)
}

/// Bits for words; where a word has none, it is not among them.
#[derive(Clone, Debug)]
struct Filter {
    bits: Box<[u64]>,
    shift: u32,
}

impl Filter {
    fn of<'a>(words: impl Iterator<Item = &'a [u8]>, count: usize) -> Filter {
        let size = (count * FILTER_BITS).next_power_of_two().max(1 << 10);
        let shift = u64::BITS - size.trailing_zeros();
        let mut filter = Filter { bits: vec![0; size / 64].into(), shift };
        for word in words.filter(|word| !word.is_empty()) {
            let (at, bit) = filter.place(word);
            filter.bits[at] |= bit;
        }
        filter
    }

    #[inline]
    fn may_have(&self, word: &[u8]) -> bool {
        let (at, bit) = self.place(word);
        self.bits.get(at).is_none_or(|bits| bits & bit != 0)
    }

    /// Of a word that is not empty; the same in whatever case.
    #[inline]
    fn place(&self, word: &[u8]) -> (usize, u64) {
        let (head, tail) = match (word.first_chunk::<8>(), word.last_chunk::<8>()) {
            (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
            _ => match (word.first_chunk::<4>(), word.last_chunk::<4>()) {
                (Some(head), Some(tail)) => {
                    (u64::from(u32::from_le_bytes(*head)), u64::from(u32::from_le_bytes(*tail)))
                }
                _ => (
                    u64::from(word[0]) << 8 | u64::from(word[word.len() / 2]),
                    u64::from(word[word.len() - 1]),
                ),
            },
        };
        const CASE: u64 = 0x2020_2020_2020_2020;
        let length = word.len() as u64;
        let mixed = (head | CASE).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ (tail | CASE).rotate_left(32).wrapping_mul(0xc2b2_ae3d_27d4_eb4f)
            ^ length;
        let hash = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        (usize::try_from(hash / 64).unwrap_or(usize::MAX), 1 << (hash % 64))
    }
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
    fn the_filter_leaves_few_words_to_the_exact_look_up() {
        let words: Vec<String> = (0..5000).map(|number| format!("some_table_{number}")).collect();
        let filter = Filter::of(words.iter().map(String::as_bytes), words.len());
        let others =
            (0..5000).filter(|number| filter.may_have(format!("other_table_{number}").as_bytes())).count();
        assert!(others < 1000, "{others}");
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
