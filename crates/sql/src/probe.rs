//! The lexer under arbitrary bytes (I11 of ARCHITECTURE.md), for fuzzers and for the tests below.
//! Owns what must hold of every input; never used by the program.

use crate::{Fingerprint, TEXT_BYTES};

/// Any bytes have a fingerprint whose text is short, printable and its own fingerprint.
///
/// # Panics
/// If that does not hold: that is what fuzzing looks for.
pub fn fingerprint(bytes: &[u8]) {
    let found = Fingerprint::of(bytes);
    assert!(found.text.len() <= TEXT_BYTES, "{} bytes", found.text.len());
    assert!(!found.text.chars().any(|c| c.is_ascii_control()), "{:?}", found.text);
    if found.text.len() < TEXT_BYTES - 8 {
        let again = Fingerprint::of(found.text.as_bytes());
        assert_eq!(again, found, "of {:?}", String::from_utf8_lossy(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: &[&str] = &[
        "SELECT a.b, count(*) FROM \"T x\" WHERE c = 'it''s' AND d IN (1, -2, $3);",
        "insert into t values (1, E'\\'', $$x$$), (2, b'01', $t$ ' $t$)",
        "update t set a[1] = a::int -1 -- c\n where b ->> 'k' = U&'x' /* d /* e */ */",
        "select 1.5e-3 : :: := :::: .5 ?| ? $ $a @- =- --",
        "declare é cursor for select * from f(?)",
    ];

    /// Every seed with bytes replaced, dropped and doubled; reproducible.
    #[test]
    fn mutated_statements_keep_their_fingerprint() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = move |limit: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % limit as u64).unwrap_or(0)
        };
        for _ in 0..30_000 {
            let mut bytes = SEEDS[below(SEEDS.len())].as_bytes().to_vec();
            for _ in 0..=below(4) {
                let at = below(bytes.len().max(1));
                match below(4) {
                    0 if !bytes.is_empty() => bytes[at] = b"'\";=-/* \n\\ab\xc3\x00$(),.:?+[]@"[below(24)],
                    1 if !bytes.is_empty() => drop(bytes.remove(at)),
                    2 => bytes.extend_from_within(at.min(bytes.len())..),
                    _ => bytes.extend(SEEDS[below(SEEDS.len())].bytes().take(9)),
                }
            }
            fingerprint(&bytes);
        }
    }

    #[test]
    fn long_inputs_take_no_longer_than_their_length() {
        for piece in
            ["'", "''", "\"", "/*", "/* */", "--\n", "a ", "(", "1,", "(1),", "$", "$a$", ":", "- ", "é"]
        {
            fingerprint(piece.repeat((1 << 20) / piece.len()).as_bytes());
        }
    }
}
