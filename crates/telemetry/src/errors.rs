//! Errors sent to clients, by SQLSTATE.
//!
//! Bounded by [`MAX_CODES`]: user-defined codes (`RAISE … USING ERRCODE`) cannot exhaust memory.

use std::collections::BTreeMap;

/// Five characters (PostgreSQL documentation, appendix "PostgreSQL Error Codes").
pub type Sqlstate = [u8; 5];

/// Number of codes counted individually; the others are counted together as [`OTHER`].
pub const MAX_CODES: usize = 64;

/// Counts all further codes, and invalid ones.
pub const OTHER: Sqlstate = *b"other";

/// Errors of one database, by code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SqlstateCounts {
    counts: BTreeMap<Sqlstate, u64>,
}

impl SqlstateCounts {
    /// Counts an error.
    pub fn count(&mut self, code: &[u8]) {
        self.add(&sqlstate(code), 1);
    }

    /// Adds another shard's.
    pub fn merge(&mut self, other: &SqlstateCounts) {
        other.counts.iter().for_each(|(code, count)| self.add(code, *count));
    }

    /// Each code with its count, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counts.iter().map(|(code, count)| (str::from_utf8(code).unwrap_or("other"), *count))
    }

    /// All together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    fn add(&mut self, code: &Sqlstate, count: u64) {
        let has_place = self.counts.contains_key(code) || self.own_codes() < MAX_CODES;
        *self.counts.entry(if has_place { *code } else { OTHER }).or_default() += count;
    }

    fn own_codes(&self) -> usize {
        self.counts.len() - usize::from(self.counts.contains_key(&OTHER))
    }
}

/// A code as an ErrorResponse has it: five digits and capital letters, else [`OTHER`].
#[must_use]
pub fn sqlstate(code: &[u8]) -> Sqlstate {
    let is_code = |code: &&Sqlstate| code.iter().all(|c| c.is_ascii_digit() || c.is_ascii_uppercase());
    code.as_array::<5>().filter(is_code).copied().unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_codes_fill_no_memory() {
        let mut errors = SqlstateCounts::default();
        for number in 0..1_000 {
            errors.count(format!("U{number:04}").as_bytes());
        }
        assert_eq!((errors.iter().count(), errors.total()), (MAX_CODES + 1, 1_000));
        errors.count(b"U0001");
        let counts: BTreeMap<_, _> = errors.iter().collect();
        assert_eq!((counts["U0001"], counts["other"]), (2, 1_000 - MAX_CODES as u64));
    }

    #[test]
    fn what_is_no_code_is_another() {
        for code in [&b""[..], b"2350", b"235055", b"abcde", b"23\"05", b"23\n05", b"\xff\xff\xff\xff\xff"] {
            assert_eq!(sqlstate(code), OTHER);
        }
        assert_eq!(sqlstate(b"08P01"), *b"08P01");
    }

    #[test]
    fn shards_are_added_up() {
        let mut one = SqlstateCounts::default();
        one.count(b"23505");
        let mut sum = one.clone();
        sum.merge(&one);
        assert_eq!(sum.iter().collect::<Vec<_>>(), [("23505", 2)]);
    }
}
