//! The grammar under arbitrary bytes (I11 of ARCHITECTURE.md), for fuzzers and for the test below.
//! Owns what must hold of every input; never used by the program.

use super::{LONGEST, parse};
use crate::statement::Statement;

/// Reads bytes as a statement and checks what must hold whatever they are.
///
/// # Panics
/// If the grammar loses or invents something: that is what fuzzing looks for.
pub fn probe(bytes: &[u8]) {
    let sql = String::from_utf8_lossy(bytes);
    let Ok(statement) = parse(&sql, None) else { return };
    let respelled = match &statement {
        Statement::Empty => String::from("; -- nothing"),
        Statement::Command { word, argument: None } => format!("{};", quoted(word, '"')),
        Statement::Command { word, argument: Some(argument) } => {
            format!("{} {}", quoted(word, '"'), quoted(argument, '"'))
        }
        Statement::HostCommand { word, database, host } => {
            let to = if word.eq_ignore_ascii_case("switchover") { "TO " } else { "" };
            format!("{} {} {to}{}", quoted(word, '"'), quoted(database, '"'), quoted(host, '"'))
        }
        Statement::Set { key, value } => format!("SET {} TO {}", quoted(key, '"'), quoted(value, '\'')),
    };
    if respelled.len() <= LONGEST {
        assert!(parse(&respelled, None) == Ok(statement), "{sql:.200?} is not {respelled:.200?}");
    }
}

fn quoted(text: &str, quote: char) -> String {
    format!("{quote}{}{quote}", text.replace(quote, &format!("{quote}{quote}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: &[&str] = &[
        "SHOW POOLS;",
        "set pool_mode = 'trans''action'",
        "PAUSE \"a \"\" b\";",
        "/* x /* y */ */ KILL_CLIENT 12 -- z\n;",
        "SET client_encoding TO \"UTF8\"",
        "SHUTDOWN wait_for_clients",
        "DETACH \"a b\" db2:5432;",
        "SWITCHOVER \"a b\" TO db2:5432;",
        "é = 'ü' \u{0}",
    ];

    /// Every seed with bytes replaced, dropped and doubled; reproducible.
    #[test]
    fn mutated_statements_break_nothing() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = move |limit: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % limit as u64).unwrap_or(0)
        };
        for _ in 0..20_000 {
            let mut bytes = SEEDS[below(SEEDS.len())].as_bytes().to_vec();
            for _ in 0..=below(4) {
                let at = below(bytes.len().max(1));
                match below(4) {
                    0 if !bytes.is_empty() => bytes[at] = b"'\";=-/* \n\\ab\xc3\x00"[below(14)],
                    1 if !bytes.is_empty() => drop(bytes.remove(at)),
                    2 => bytes.extend_from_within(at.min(bytes.len())..),
                    _ => bytes.extend(SEEDS[below(SEEDS.len())].bytes().take(9)),
                }
            }
            probe(&bytes);
        }
    }

    #[test]
    fn long_inputs_take_no_longer_than_their_length() {
        for piece in ["'", "''", "\"\"", "/*", "/* */", "--\n", "a ", "=", "a-"] {
            probe(piece.repeat(LONGEST / piece.len()).as_bytes());
        }
    }
}
