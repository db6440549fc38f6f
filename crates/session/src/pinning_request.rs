//! Whether a request is known, before it is sent, to leave in its session what keeps its client on the server (`max_pinned`).
//!
//! Owns where its text stands. What of a text pins is the `sql` crate's to say; what is not known before shows when the server is asked.

use std::cell::Cell;

use settings::Priority;
use sql::PriorityHint;
use wire::frame::{self, HEADER_BYTES};
use wire::frontend::{self, Found};
use wire::tag::frontend as tag;

use crate::{ClientStatements, StatementRegistry};

/// The first message of these bytes asks for what is known to pin. `names` are the client's prepared statements.
///
/// ```
/// use weir_session::{StatementRegistry, Tracked, request_pins};
/// use wire::encode;
///
/// let registry = StatementRegistry::new(&Tracked::new([]));
/// let mut message = Vec::new();
/// encode::query(&mut message, b"CREATE TEMP TABLE t (a int)");
/// assert!(request_pins(&message, None, &registry));
/// message.clear();
/// encode::query(&mut message, b"SELECT 1");
/// assert!(!request_pins(&message, None, &registry));
/// ```
#[must_use]
pub fn request_pins(bytes: &[u8], names: Option<&ClientStatements>, registry: &StatementRegistry) -> bool {
    first_text_is(bytes, names, registry, sql::plainly_pins)
}

/// The first message of these bytes asks for what `nextval` has left in the session, by `currval` or `lastval`.
#[must_use]
pub fn asks_for_sequence_values(
    bytes: &[u8],
    names: Option<&ClientStatements>,
    registry: &StatementRegistry,
) -> bool {
    first_text_is(bytes, names, registry, |text| {
        !sql::plainly_hides_nothing(text) && sql::judged_effect(text).asks_for_values
    })
}

/// The first message of these bytes asks for a SELECT, whatever that does.
#[must_use]
pub fn request_selects(bytes: &[u8], names: Option<&ClientStatements>, registry: &StatementRegistry) -> bool {
    const WORD: &[u8] = b"select";
    let selects = |text: &[u8]| {
        text.trim_ascii_start().get(..WORD.len()).is_some_and(|word| word.eq_ignore_ascii_case(WORD))
    };
    first_text_is(bytes, names, registry, selects)
}

/// The class in which the first message of these bytes wants to wait, by a comment in its text.
#[must_use]
pub fn request_priority(
    bytes: &[u8],
    names: Option<&ClientStatements>,
    registry: &StatementRegistry,
) -> Option<Priority> {
    let found = Cell::new(None);
    first_text_is(bytes, names, registry, |text| {
        found.set(sql::priority_hint(text));
        true
    });
    found.get().map(|hint| match hint {
        PriorityHint::High => Priority::High,
        PriorityHint::Normal => Priority::Normal,
        PriorityHint::Low => Priority::Low,
    })
}

/// The text that the first message has, or whose statement it binds, is such a one.
fn first_text_is(
    bytes: &[u8],
    names: Option<&ClientStatements>,
    registry: &StatementRegistry,
    is_one: impl Fn(&[u8]) -> bool,
) -> bool {
    let Ok(Some(header)) = frame::header(bytes) else { return false };
    let body = &bytes[HEADER_BYTES..bytes.len().min(header.frame_bytes as usize)];
    match header.tag {
        tag::QUERY => is_one(body),
        tag::PARSE => match frontend::parse_name(body) {
            Found::Yes((_, rest)) => is_one(&body[rest..]),
            Found::More | Found::Malformed => false,
        },
        tag::BIND => match frontend::bind_names(body) {
            Found::Yes((_, name, _)) => {
                let statement = names.and_then(|names| names.expected(name));
                statement.and_then(|id| registry.rest(id)).is_some_and(|text| is_one(text))
            }
            Found::More | Found::Malformed => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tracked;

    fn message(frame_tag: u8, body: &[u8]) -> Vec<u8> {
        let mut message = vec![frame_tag];
        message.extend_from_slice(&u32::try_from(body.len() + 4).expect("short").to_be_bytes());
        message.extend_from_slice(body);
        message
    }

    #[test]
    fn a_parse_has_its_text_and_a_bind_that_of_its_statement() {
        let mut registry = StatementRegistry::new(&Tracked::new([]));
        let mut names = ClientStatements::default();
        let rest = b"SELECT pg_advisory_lock($1)\0\0\0";
        names.parse(b"lock", rest, None, 1, &mut registry).expect("kept");
        let parse = message(b'P', &[b"other\0", &rest[..]].concat());
        assert!(request_pins(&parse, None, &registry));
        assert_eq!(request_priority(&parse, None, &registry), None);
        let rest = b"/* weir: priority=low */ SELECT 1\0\0\0";
        names.parse(b"low", rest, None, 1, &mut registry).expect("kept");
        let bind_low = message(b'B', b"\0low\0\0\0\0\0\0");
        assert_eq!(request_priority(&bind_low, Some(&names), &registry), Some(Priority::Low));
        assert_eq!(
            request_priority(&message(b'Q', b"/*weir:priority=high*/\0"), None, &registry),
            Some(Priority::High)
        );
        let bind = |name: &str| message(b'B', format!("\0{name}\0\0\0\0\0").as_bytes());
        assert!(request_pins(&bind("lock"), Some(&names), &registry));
        assert!(!request_pins(&bind("free"), Some(&names), &registry));
        assert!(!request_pins(&bind("lock"), None, &registry));
        assert!(!request_pins(&message(b'S', b""), Some(&names), &registry));
        assert!(!request_pins(&bind("lock")[..7], Some(&names), &registry), "cut");
    }
}
