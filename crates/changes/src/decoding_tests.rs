//! Tests of reading the stream.
#![allow(clippy::unwrap_used)]

use super::*;

/// What the follower's messages begin with.
const OWN: &str = "weir_cache_7";

fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    bytes.extend(body);
    bytes
}

/// A line of the plugin, at a position.
pub(crate) fn line(position: u64, text: &[u8]) -> Vec<u8> {
    let mut body = vec![b'w'];
    body.extend(position.to_be_bytes());
    body.extend([0; 16]);
    body.extend(text);
    frame(b'd', &body)
}

fn keepalive(position: u64, wants_reply: bool) -> Vec<u8> {
    let mut body = vec![b'k'];
    body.extend(position.to_be_bytes());
    body.extend([0; 8]);
    body.push(u8::from(wants_reply));
    frame(b'd', &body)
}

fn events_in(is_utf8: bool, bytes: &[u8]) -> Result<Vec<Event>, StreamFault> {
    let mut events = Vec::new();
    Stream::new(is_utf8, OWN).receive(bytes, &mut events).map(|()| events)
}

fn transactions(lines: &[&[u8]]) -> Vec<Transaction> {
    let bytes: Vec<u8> = lines.iter().zip(1..).flat_map(|(text, at)| line(at, text)).collect();
    let events = events_in(true, &bytes).unwrap();
    let committed = events.into_iter().filter_map(|event| match event {
        Event::Committed(transaction) => Some(transaction),
        _ => None,
    });
    committed.collect()
}

fn what(lines: &[&[u8]]) -> Effect {
    let all = [&[&b"BEGIN 7"[..]][..], lines, &[b"COMMIT 7"]].concat();
    transactions(&all).pop().unwrap().what
}

fn rows(names: &[&str]) -> Effect {
    Effect::Rows(names.iter().map(|name| (*name).into()).collect())
}

#[test]
fn a_transaction_is_its_relations_and_the_end_of_its_commit() {
    let lines: [&[u8]; 4] = [
        b"BEGIN 743",
        b"table public.t: INSERT: id[integer]:1 a[text]:'x'",
        b"table other.\"T2\": DELETE: (no-tuple-data)",
        b"COMMIT 743",
    ];
    let expected = Transaction { xid: 743, end: 4, what: rows(&["t", "t2"]) };
    assert_eq!(transactions(&lines), [expected]);
    let timed: [&[u8]; 2] = [b"BEGIN 4294967295", b"COMMIT 4294967295 (at 2026-01-01 00:00:00+00)"];
    assert_eq!(transactions(&timed)[0].xid, u32::MAX);
}

#[test]
fn names_may_hold_anything() {
    for (text, names) in [
        (&b"table \"a: b\".\"c, d.e: INSERT: f\": UPDATE: x"[..], &["c, d.e: insert: f"][..]),
        (b"table public.\"say \"\"hi\"\"\": INSERT: a[text]:': '", &["say \"hi\""]),
        ("table public.\"\u{dc}ber\": INSERT: x".as_bytes(), &["\u{dc}ber"]),
        (b"table a.b, \"C\".\"D\", e.f: TRUNCATE: (no-flags)", &["b", "d", "f"]),
        (b"table public._1: INSERT: ", &["_1"]),
    ] {
        assert_eq!(what(&[text]), rows(names), "{}", String::from_utf8_lossy(text));
    }
}

#[test]
fn a_transaction_without_a_row_may_have_changed_anything() {
    assert_eq!(what(&[]), Effect::Unknown);
    for odd in [
        &b"table public.t"[..],
        b"table t: INSERT: x",
        b"table public.\"t: INSERT: x",
        b"table public.\"\": INSERT: x",
        b"table public.T: INSERT: x",
        b"table public.\"\xff\": INSERT: x",
        b"sequence public.s: transactional:1",
        b"",
    ] {
        assert_eq!(what(&[b"table public.t: INSERT: x", odd]), Effect::Unknown);
    }
}

#[test]
fn names_beyond_ascii_are_compared_in_utf8_alone() {
    let bytes =
        [line(1, b"BEGIN 7"), line(2, "table public.\"\u{e9}\": INSERT: x".as_bytes()), line(3, b"COMMIT 7")]
            .concat();
    let first = |is_utf8| events_in(is_utf8, &bytes).unwrap().swap_remove(0);
    let transaction = |what| Event::Committed(Transaction { xid: 7, end: 3, what });
    assert_eq!(first(true), transaction(rows(&["\u{e9}"])));
    assert_eq!(first(false), transaction(Effect::Unknown));
}

#[test]
fn messages_are_no_changes_and_own_ones_not_even_transactions() {
    let own: &[u8] = b"message: transactional: 1 prefix: weir_cache_7, sz: 0 content:";
    let others: &[u8] = b"message: transactional: 1 prefix: weir_cache, sz: 1 content:x";
    assert_eq!(what(&[others]), rows(&[]));
    assert_eq!(what(&[own, b"table a.b: INSERT: x"]), rows(&["b"]));
    assert_eq!(transactions(&[b"BEGIN 7", own, b"COMMIT 7"]), []);
    assert_eq!(what(&[own, others]), rows(&[]));
    let bytes = line(5, b"message: transactional: 0 prefix: p, sz: 2 content:BEGIN 7");
    assert_eq!(events_in(true, &bytes), Ok(vec![]));
}

#[test]
fn many_names_are_as_good_as_all() {
    let names: Vec<Vec<u8>> =
        (0..=MAX_NAMES).map(|at| format!("table public.t{at}: INSERT: x").into_bytes()).collect();
    let lines: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    assert_eq!(what(&lines), Effect::Unknown);
    assert!(matches!(what(&lines[1..]), Effect::Rows(names) if names.len() == MAX_NAMES));
    let long = format!("table {}public.z: TRUNCATE: (no-flags)", "public.abcdefgh, ".repeat(300));
    assert_eq!(what(&[long.as_bytes()]), Effect::Unknown, "the list is longer than what is kept of it");
}

#[test]
fn values_are_skipped_however_long_they_are_and_however_they_are_cut() {
    let mut row = b"table public.t: INSERT: a[text]:'".to_vec();
    row.resize(100_000, b'x');
    let bytes =
        [line(1, b"BEGIN 7"), line(2, &row), keepalive(9, true), line(10, b"COMMIT 7"), keepalive(12, false)]
            .concat();
    let expected = vec![
        Event::Reached { lsn: 9, wants_reply: true },
        Event::Committed(Transaction { xid: 7, end: 10, what: rows(&["t"]) }),
        Event::Reached { lsn: 10, wants_reply: false },
        Event::Reached { lsn: 12, wants_reply: false },
    ];
    for size in [1, 2, 3, 7, 25, 26, 31, 4095, 4096, 4097, bytes.len()] {
        let (mut stream, mut events) = (Stream::new(true, OWN), Vec::new());
        for chunk in bytes.chunks(size) {
            stream.receive(chunk, &mut events).unwrap();
            assert!(stream.partial.capacity() <= 2 * PREFIX_BYTES);
        }
        assert_eq!(events, expected, "{size}");
    }
}

#[test]
fn the_end_of_the_stream_is_told() {
    let error = frame(b'E', b"SFATAL\0C57P01\0Mterminating\0\0");
    let told = events_in(true, &error).unwrap();
    let [Event::Error(body)] = &told[..] else { panic!("{told:?}") };
    assert!(body.starts_with(b"SFATAL"));
    assert_eq!(events_in(true, &frame(b'c', b"")), Ok(vec![Event::Ended]));
    assert_eq!(events_in(true, &frame(b'N', b"notice\0")), Ok(vec![]));
}

#[test]
fn what_is_no_stream_is_refused() {
    let commit = |text: &[u8]| line(3, text);
    for (bytes, fault) in [
        (frame(b'T', b""), StreamFault::Tag(b'T')),
        (frame(b'd', b""), StreamFault::Message),
        (frame(b'd', b"x1234567890123456"), StreamFault::Message),
        (frame(b'd', b"k123456789012345"), StreamFault::Message),
        (frame(b'd', b"w12345678901234567890123"), StreamFault::Message),
        (commit(b"COMMIT 7"), StreamFault::Line),
        (commit(b"BEGIN 7x"), StreamFault::Line),
        (commit(b"BEGIN "), StreamFault::Line),
        (commit(b"BEGIN 4294967296"), StreamFault::Line),
        (commit(b"table public.t: INSERT: x"), StreamFault::Line),
        ([commit(b"BEGIN 7"), commit(b"BEGIN 8")].concat(), StreamFault::Line),
        ([commit(b"BEGIN 7"), commit(b"COMMIT 8")].concat(), StreamFault::Line),
    ] {
        assert_eq!(events_in(true, &bytes), Err(fault));
    }
    assert!(matches!(events_in(true, b"d\0\0\0\x03"), Err(StreamFault::Length(_))));
}

#[test]
fn the_probe_holds_for_mutations_of_a_stream() {
    let seed = include_bytes!("../../../fuzz/seeds/changes/transaction").to_vec();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound as u64).unwrap()
    };
    crate::probe::stream(&seed);
    for _ in 0..20_000 {
        let mut bytes = seed.clone();
        for _ in 0..=below(3) {
            let at = below(bytes.len());
            match below(3) {
                0 => bytes[at] = u8::try_from(below(256)).unwrap(),
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, u8::try_from(below(256)).unwrap()),
            }
        }
        crate::probe::stream(&bytes);
    }
}
