//! The words of a text, found for each query on its way, and a filter that tells at once which of them are not among some.
//!
//! Owns that this is quick: 64 bytes at a time, without a branch for each. Words are runs of ASCII letters, digits and `_`, wherever they stand.

/// Bits of the filter for each word in it.
const BITS_PER_WORD: usize = 16;

/// Makes letters lower case. Of what else is part of a word, no two are the same with it.
const CASE: u64 = 0x2020_2020_2020_2020;

/// Whether `allows` holds for each word; false too if the text is not ASCII.
#[inline]
pub(super) fn all(text: &[u8], mut allows: impl FnMut(Word<'_>) -> bool) -> bool {
    let mut begun = None;
    for (at, block) in text.chunks(64).enumerate() {
        let Some(mut words) = words_of_block(block) else { return false };
        let first = at * 64;
        if let Some(begin) = begun {
            let length = words.trailing_ones();
            if length == u64::BITS {
                continue;
            }
            if !allows(Word::of(text, begin, first + bytes(length))) {
                return false;
            }
            begun = None;
            words = words >> length << length;
        }
        while words != 0 {
            let begin = words.trailing_zeros();
            let length = (words >> begin).trailing_ones();
            if begin + length == u64::BITS {
                begun = Some(first + bytes(begin));
                break;
            }
            if !allows(Word::of(text, first + bytes(begin), first + bytes(begin + length))) {
                return false;
            }
            words = words >> (begin + length) << (begin + length);
        }
    }
    begun.is_none_or(|begin| allows(Word::of(text, begin, text.len())))
}

/// A letter of ASCII, a digit or `_`.
#[inline]
pub(super) fn is_part_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn bytes(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// A bit for each of up to 64 bytes that is part of a word. None if one is not ASCII.
#[inline]
fn words_of_block(block: &[u8]) -> Option<u64> {
    let mut padded = [0; 64];
    padded[..block.len()].copy_from_slice(block);
    // Without a branch, so that the processor's wide registers do it.
    let (mut found, mut all) = ([0_u8; 64], 0);
    for (byte, found) in padded.iter().zip(&mut found) {
        let letter = (byte | 0x20).wrapping_sub(b'a') < 26;
        *found = u8::from(letter | (byte.wrapping_sub(b'0') < 10) | (*byte == b'_'));
        all |= byte;
    }
    let mut words = 0;
    for (at, eight) in found.as_chunks::<8>().0.iter().enumerate() {
        // Byte i has its bit at 8i, and 8i + 7(8 - i) is 56 + i.
        words |= (u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (at * 8);
    }
    all.is_ascii().then_some(words)
}

/// A word, with what its filter needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<'a> {
    pub(super) text: &'a [u8],
    /// The first eight bytes and the last, or all of them twice; in lower case.
    head: u64,
    tail: u64,
}

impl<'a> Word<'a> {
    #[inline]
    fn of(text: &'a [u8], begin: usize, end: usize) -> Word<'a> {
        let word = &text[begin..end];
        let unused = 64 - 8 * u64::try_from(word.len().min(8)).unwrap_or(8);
        let (head, tail) = match (text[begin..].first_chunk::<8>(), text[..end].last_chunk::<8>()) {
            (Some(head), Some(tail)) if unused < 64 => {
                (u64::from_le_bytes(*head) << unused >> unused, u64::from_le_bytes(*tail) >> unused)
            }
            _ => Word::ends(word),
        };
        Word { text: word, head: head | CASE, tail: tail | CASE }
    }

    /// The same, where there is nothing around it.
    fn ends(word: &[u8]) -> (u64, u64) {
        let chunk = |part: &[u8]| {
            let mut chunk = [0; 8];
            chunk[..part.len()].copy_from_slice(part);
            u64::from_le_bytes(chunk)
        };
        let length = word.len().min(8);
        (chunk(&word[..length]), chunk(&word[word.len() - length..]))
    }

    /// It begins with `pg_`.
    #[inline]
    pub(super) fn has_prefix(&self) -> bool {
        const PREFIX: u64 = u64::from_le_bytes([b'p', b'g', b'_' | 0x20, 0, 0, 0, 0, 0]);
        self.head & 0xff_ffff == PREFIX
    }
}

/// Bits for words: one that has no bit is not among them.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    bits: Box<[u64]>,
    shift: u32,
}

impl Filter {
    pub(super) fn of<'a>(words: impl ExactSizeIterator<Item = &'a [u8]>) -> Filter {
        let size = (words.len() * BITS_PER_WORD).next_power_of_two().max(1 << 10);
        let shift = u64::BITS - size.trailing_zeros();
        let mut filter = Filter { bits: vec![0; size / 64].into(), shift };
        for word in words {
            let (at, bit) = filter.place(Word::of(word, 0, word.len()));
            filter.bits[at] |= bit;
        }
        filter
    }

    #[inline]
    pub(super) fn may_have(&self, word: Word<'_>) -> bool {
        let (at, bit) = self.place(word);
        self.bits.get(at).is_none_or(|bits| bits & bit != 0)
    }

    #[inline]
    fn place(&self, word: Word<'_>) -> (usize, u64) {
        let length = u64::try_from(word.text.len()).unwrap_or(u64::MAX);
        let mixed = word.head.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ word.tail.rotate_left(32).wrapping_mul(0xc2b2_ae3d_27d4_eb4f)
            ^ length;
        let hash = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        (usize::try_from(hash / 64).unwrap_or(usize::MAX), 1 << (hash % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        all(text, |word| {
            assert_eq!((word.head, word.tail), {
                let (head, tail) = Word::ends(word.text);
                (head | CASE, tail | CASE)
            });
            found.push(word.text.to_vec());
            true
        })
        .then_some(found)
    }

    #[test]
    fn each_byte_is_part_of_a_word_or_not() {
        for byte in 0..=u8::MAX {
            let expected = byte.is_ascii_alphanumeric() || byte == b'_';
            let words = if expected { vec![vec![byte]] } else { Vec::new() };
            assert_eq!(found(&[byte]), byte.is_ascii().then(|| words.clone()), "{byte}");
            for place in 0..64 {
                let mut block = [b' '; 64];
                block[place] = byte;
                let bits = byte.is_ascii().then(|| u64::from(expected) << place);
                assert_eq!(words_of_block(&block), bits, "{byte} at {place}");
            }
        }
    }

    #[test]
    fn words_are_found_wherever_they_begin_and_end() {
        for blanks in 0..130 {
            for length in 1..130 {
                let (blank, word) = (b" ".repeat(blanks), b"Ab_1".repeat(length)[..length].to_vec());
                for behind in [&b""[..], b" ", b"; x"] {
                    let text = [&blank, &word, behind].concat();
                    let mut expected = vec![word.clone()];
                    expected.extend((behind.len() > 1).then(|| b"x".to_vec()));
                    assert_eq!(found(&text), Some(expected), "{blanks} {length}");
                }
            }
        }
        assert_eq!(found(b""), Some(vec![]));
        assert_eq!(found("select 'é'".as_bytes()), None);
    }

    #[test]
    fn the_filter_has_its_words_in_whatever_case_and_few_others() {
        let words: Vec<String> = (0..5000).map(|number| format!("some_table_{number}")).collect();
        let filter = Filter::of(words.iter().map(String::as_bytes));
        let has = |word: &str| !all(word.as_bytes(), |word| !filter.may_have(word));
        assert!(words.iter().all(|word| has(word) && has(&word.to_ascii_uppercase())));
        let others = (0..5000).filter(|number| has(&format!("other_table_{number}"))).count();
        assert!(others < 1000, "{others}");
    }
}
