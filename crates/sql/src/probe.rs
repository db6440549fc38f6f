//! The lexer under arbitrary bytes (I11 of ARCHITECTURE.md), for fuzzers and for the tests below.
//! Owns what must hold of every input; never used by the program.

use crate::lexer::{Kind, Lexer, Token};
use crate::{Access, Backslash, Changes, Command, Fingerprint, HiddenEffect, TEXT_BYTES};
use crate::{Routing, RoutingNames};

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

/// A text and its shape have the same tokens, but for strings and numbers, and so has the shape of the shape.
///
/// # Panics
/// If that does not hold: that is what fuzzing looks for.
pub fn shape(bytes: &[u8]) {
    let (mut shape, mut again) = (Vec::new(), Vec::new());
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let Ok(text) = std::str::from_utf8(text) else { return };
    if !crate::shape(text.as_bytes(), &mut shape) {
        return;
    }
    let of_shape = String::from_utf8_lossy(&shape);
    let token = |token: Token<'_>| {
        let is_value = token.kind == Kind::Value && !token.text.starts_with('$');
        (token.kind, if is_value { String::new() } else { token.text.to_owned() })
    };
    let tokens: Vec<_> = Lexer::new(text).map(token).collect();
    assert_eq!(Lexer::new(&of_shape).map(token).collect::<Vec<_>>(), tokens, "of {text:?}");
    assert!(crate::shape(&shape, &mut again) && again == shape, "of {text:?}");
}

/// Below what is looked at, in bytes.
const MAX_FOLLOWED: usize = 16 * 1024;

/// Any bytes are some statements, whatever a backslash means; nothing that is not recognised counts as clean, and no statement changes what was found before it.
///
/// # Panics
/// If that does not hold: that is what fuzzing looks for.
pub fn statements(bytes: &[u8]) {
    for backslash in [Backslash::Literal, Backslash::Escape] {
        let found = crate::statements(bytes, backslash);
        assert!(found.len() <= bytes.len() + 1, "{} statements", found.len());
        for statement in &found {
            let reads_and_stays_clean =
                statement.access == Access::Reads && statement.changes == Changes::NONE;
            let is_known = !matches!(
                statement.command,
                Command::Other | Command::Code | Command::Modify | Command::Utility
            );
            assert!(is_known || !reads_and_stays_clean, "{statement:?}");
            assert!(statement.calls.iter().all(|call| call.name.len() <= 63), "{statement:?}");
        }
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        if crate::plainly_hides_nothing(bytes) {
            let judged = crate::judged_effect(text).effect;
            assert_eq!(judged, HiddenEffect::None, "of {:?}", String::from_utf8_lossy(bytes));
        }
        // A statement behind it changes nothing of what was found before.
        let mut followed = bytes.to_vec();
        followed.extend_from_slice(b"\n;select 1");
        let more = crate::statements(&followed, backslash);
        if followed.len() <= MAX_FOLLOWED && more.len() > found.len() {
            assert_eq!(more[..found.len()], found, "of {:?}", String::from_utf8_lossy(bytes));
        }
    }
}

/// What writes is no read, whatever a backslash means; a glance says what the tokens say, which is the same for all texts of a shape; and knowing more names
/// that count makes no text a read.
///
/// # Panics
/// If that does not hold: that is what fuzzing looks for.
pub fn routing(bytes: &[u8]) {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let shown = || String::from_utf8_lossy(text);
    let names = RoutingNames::new(["mine".to_owned()], [], []);
    let more = ["a", "b x", "t", "te"].map(str::to_owned);
    let more = RoutingNames::new(["mine".to_owned()], more, ["-".to_owned(), "?|".to_owned()]);
    assert!(crate::routing(bytes, &RoutingNames::unknown()) != Routing::Read, "{:?}", shown());
    let _ = crate::route_hint(bytes);
    if let Some(trace) = crate::trace_parent(bytes) {
        assert!(trace.trace_id != [0; 16] && trace.span_id != [0; 8], "{:?}", shown());
    }
    let (mut seen, other) = (crate::SeenTexts::default(), other_numbers(bytes));
    seen.remember(bytes, ());
    let is_alike = seen.find(&other).is_some();
    assert!(!is_alike || crate::route_hint(bytes) == crate::route_hint(&other), "{:?}", shown());
    for (names, fewer) in [(&names, None), (&more, Some(&names))] {
        if is_alike {
            let at_a_glance = |text: &[u8]| crate::routing_at_a_glance(text, names);
            assert_eq!(at_a_glance(bytes), at_a_glance(&other), "{:?}", shown());
        }
        let judged = crate::routing::judged(text, names);
        // What calls nothing needs no decision on what a backslash means.
        if !text.contains(&b'\\') && crate::routing_at_a_glance(bytes, names) == Some(Routing::Read) {
            assert_eq!(judged, Routing::Read, "{:?}", shown());
        }
        let mut shape = Vec::new();
        if crate::shape(text, &mut shape) {
            assert_eq!(crate::routing::judged(&shape, names), judged, "{:?}", shown());
        }
        if judged != Routing::Read {
            continue;
        }
        assert!(fewer.is_none_or(|fewer| crate::routing::judged(text, fewer) == judged), "{:?}", shown());
        for backslash in [Backslash::Literal, Backslash::Escape] {
            let found = crate::statements(text, backslash);
            assert!(found.len() == 1 && found[0].access != Access::Writes, "{:?}: {found:?}", shown());
        }
    }
}

/// The bytes with other numbers, of other lengths; also where a number is the end of a name.
fn other_numbers(bytes: &[u8]) -> Vec<u8> {
    let runs = bytes.chunk_by(|one, next| one.is_ascii_digit() == next.is_ascii_digit());
    let other = |run: &[u8]| match run {
        [b'0'..=b'9', _, ..] => b"4".to_vec(),
        [b'0'..=b'9'] => b"123456789".to_vec(),
        run => run.to_vec(),
    };
    runs.flat_map(other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: &[&str] = &[
        "select mine(a), te.t from t where b = $1 for update of t",
        "with a as materialized (select 1 +! 2) select count(*) filter (where a ?| '{}') over () into t from a",
        "explain (analyze) select 'it\\'s' || nextval('s'), \"b x\" from pg_locks /* weir: standby */; begin read only",
        "SELECT a.b, count(*) FROM \"T x\" WHERE c = 'it''s' AND d IN (1, -2, $3);",
        "insert into t (a, b) values (1, 'x'), (2, mine(3))",
        "insert into t values (1, E'\\'', $$x$$), (2, b'01', $t$ ' $t$)",
        "update t set a[1] = a::int -1 -- c\n where b ->> 'k' = U&'x' /* d /* e */ */",
        "select 1.5e-3 : :: := :::: .5 ?| ? $ $a @- =- --",
        "declare é cursor for select * from f(?)",
        "set local a.b = 'x', -1; reset all; explain (analyze) with x as (delete from t) select set_config('a', $1, true) over ()",
        "select $0$$'$$, 1$g$'$g$, 'x'",
        "create function f() begin atomic select case 1 end; end; prepare p (int) as copy t (a) from stdin; listen \"x\"",
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
            shape(&bytes);
            statements(&bytes);
            routing(&bytes);
        }
    }

    #[test]
    fn long_inputs_take_no_longer_than_their_length() {
        for piece in [
            "'",
            "''",
            "\"",
            "/*",
            "/* */",
            "--\n",
            "a ",
            "(",
            "1,",
            "(1),",
            "$",
            "$a$",
            ":",
            "- ",
            "é",
            "explain (",
            "f(",
            "on conflict (",
            "a.",
            "filter (",
            "/",
            "select (",
            "explain ((",
        ] {
            let text = piece.repeat((1 << 20) / piece.len());
            fingerprint(text.as_bytes());
            shape(text.as_bytes());
            statements(text.as_bytes());
            routing(text.as_bytes());
        }
    }
}
