//! Texts that were decided at a glance, so that one which differs from an earlier one by its numbers only is decided by comparing the two.
//!
//! Owns which texts are as good as the same: [`crate::routing_at_a_glance`] takes no notice of a number that is a word of its own.

use super::words;

/// Where texts are remembered: each in the place that its beginning says.
const PLACES: usize = 64;

/// Shorter texts are decided as quickly.
const LEAST_BYTES: usize = 24;

/// Longer ones are not remembered.
const MOST_BYTES: usize = 512;

/// Texts, and what each was decided to be.
#[derive(Clone, Debug)]
pub struct SeenTexts<T> {
    /// Empty until there is one.
    places: Vec<(Vec<u8>, Option<T>)>,
}

impl<T> Default for SeenTexts<T> {
    fn default() -> SeenTexts<T> {
        SeenTexts { places: Vec::new() }
    }
}

impl<T: Copy> SeenTexts<T> {
    /// What a text like this one was decided to be.
    ///
    /// ```
    /// let mut seen = sql::SeenTexts::default();
    /// seen.remember(b"SELECT abalance FROM pgbench_accounts WHERE aid = 1;", true);
    /// assert_eq!(seen.find(b"SELECT abalance FROM pgbench_accounts WHERE aid = 234;"), Some(true));
    /// assert_eq!(seen.find(b"SELECT abalance FROM pgbench_accounts WHERE bid = 1;"), None);
    /// ```
    #[inline]
    #[must_use]
    pub fn find(&self, text: &[u8]) -> Option<T> {
        let (seen, found) = self.places.get(place(text)?)?;
        found.filter(|_| differ_in_numbers_only(seen, text))
    }

    /// This text was decided, by what takes no notice of numbers: at a glance.
    pub fn remember(&mut self, text: &[u8], found: T) {
        let Some(place) = place(text) else { return };
        self.places.resize_with(PLACES, || (Vec::new(), None));
        let (seen, known) = &mut self.places[place];
        seen.clear();
        seen.extend_from_slice(text);
        *known = Some(found);
    }

    /// What decides has changed.
    pub fn clear(&mut self) {
        self.places.clear();
    }
}

/// The place of a text, by how it begins; None if it is not remembered.
#[inline]
fn place(text: &[u8]) -> Option<usize> {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let head = text.first_chunk::<LEAST_BYTES>().filter(|_| text.len() <= MOST_BYTES)?;
    let mix =
        |mixed: u64, eight: &[u8; 8]| (mixed ^ u64::from_le_bytes(*eight)).wrapping_mul(ODD).rotate_left(29);
    let mixed = head.as_chunks::<8>().0.iter().fold(0, mix);
    usize::try_from(mixed % PLACES as u64).ok()
}

/// The two are the same but for numbers that are words of their own.
#[inline]
fn differ_in_numbers_only(one: &[u8], other: &[u8]) -> bool {
    let (mut one, mut other) = (one, other);
    loop {
        let same = common_bytes(one, other);
        if same == one.len() && same == other.len() {
            return true;
        }
        let number = same - one[..same].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        if number > 0 && is_part_of_word(one[number - 1]) {
            return false;
        }
        let (Some(one_rest), Some(other_rest)) =
            (behind_number(&one[number..]), behind_number(&other[number..]))
        else {
            return false;
        };
        // What they go on with is no digit: the next number is another one.
        if one_rest.first() != other_rest.first() {
            return false;
        }
        (one, other) = (one_rest, other_rest);
    }
}

/// How many bytes both begin with.
#[inline]
fn common_bytes(one: &[u8], other: &[u8]) -> usize {
    let (eights, other_eights) = (one.as_chunks::<8>().0, other.as_chunks::<8>().0);
    let same = eights.iter().zip(other_eights).take_while(|(one, other)| one == other).count() * 8;
    let rest = one[same..].iter().zip(&other[same..]);
    same + rest.take_while(|(one, other)| one == other).count()
}

/// What stands behind the number that a text begins with; None if it begins with none, or with a longer word.
#[inline]
fn behind_number(text: &[u8]) -> Option<&[u8]> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = &text[digits..];
    (digits > 0 && !rest.first().is_some_and(|byte| is_part_of_word(*byte))).then_some(rest)
}

/// Other letters than those of ASCII may be part of the tag of a string.
#[inline]
fn is_part_of_word(byte: u8) -> bool {
    words::is_part_of_word(byte) || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_words_make_no_difference_and_all_else_does() {
        for (one, other) in [
            ("a = 1", "a = 1"),
            ("a = 1", "a = 22"),
            ("a = 1;", "a = 345;"),
            ("a = 12 and b = 3", "a = 1 and b = 45678901234567890"),
            ("12", "3"),
            ("a in 1,2,3", "a in 11,2,44"),
            ("1.5", "27.25"),
        ] {
            assert!(differ_in_numbers_only(one.as_bytes(), other.as_bytes()), "{one} | {other}");
            assert!(differ_in_numbers_only(other.as_bytes(), one.as_bytes()), "{other} | {one}");
        }
        for (one, other) in [
            ("a = 1", "a = b"),
            ("a = 1", "a ="),
            ("a = 1", "a = 1 "),
            ("a = 1", "a = "),
            ("a1", "a2"),
            ("a_1", "a_2"),
            ("t12", "t123"),
            ("1a", "2a"),
            ("1into", "12into"),
            ("$é1$ x $é2$", "$é1$ x $é1$"),
            ("1 into", "1into"),
            ("a = 1 or", "a = 12 of"),
            ("1,2", "1,2,3"),
            ("1 2", "12"),
            ("", "1"),
        ] {
            assert!(!differ_in_numbers_only(one.as_bytes(), other.as_bytes()), "{one} | {other}");
            assert!(!differ_in_numbers_only(other.as_bytes(), one.as_bytes()), "{other} | {one}");
        }
    }

    #[test]
    fn a_text_takes_the_place_of_another_that_begins_like_it() {
        let mut seen = SeenTexts::default();
        let begin = "select something_of_24_bytes";
        seen.remember(format!("{begin} where a = 1").as_bytes(), 1);
        seen.remember(format!("{begin} where b = 1").as_bytes(), 2);
        assert_eq!(seen.find(format!("{begin} where a = 1").as_bytes()), None);
        assert_eq!(seen.find(format!("{begin} where b = 7").as_bytes()), Some(2));
        seen.clear();
        assert_eq!(seen.find(format!("{begin} where b = 7").as_bytes()), None);
        for length in [LEAST_BYTES - 1, LEAST_BYTES, MOST_BYTES, MOST_BYTES + 1] {
            let text = vec![b'x'; length];
            seen.remember(&text, 3);
            assert_eq!(seen.find(&text).is_some(), (LEAST_BYTES..=MOST_BYTES).contains(&length), "{length}");
        }
    }
}
