//! What must hold for any bytes (I11 of ARCHITECTURE.md): a request and its cut halves are the same request, and so is a reply; `options` never
//! panics. Tests run these over mutated seeds, fuzzers over whatever they find.

use wire::encode;

use crate::{
    Boundary, ClientStatements, ClientStream, Output, Parameters, ReplyContext, RequestContext,
    RequestOutcome, Row, ServerProtocol, StatementRegistry, Tracked, options,
};

/// What went to each side.
#[derive(Default, Debug, PartialEq, Eq)]
struct Heap {
    passed: Vec<u8>,
    client: Vec<u8>,
}

impl Output for Heap {
    fn forward(&mut self, input: &[u8], start: usize, end: usize) {
        self.passed.extend_from_slice(&input[start..end]);
    }

    fn to_client(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.client);
    }

    fn to_server(&mut self, _: Boundary, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.passed);
    }
}

/// Any bytes of a client, whole and cut at every place of the first hundred: the same goes to the server.
pub fn request(bytes: &[u8]) {
    let whole = request_outcome(&[bytes]);
    for cut in 0..bytes.len().min(100) {
        let (head, tail) = bytes.split_at(cut);
        assert_eq!(request_outcome(&[head, tail]), whole, "cut at {cut}");
    }
}

/// Feeds a client's bytes to a fresh pair, as a shard does.
fn request_outcome(pieces: &[&[u8]]) -> (Heap, Option<RequestOutcome>) {
    let tracked = Tracked::new([]);
    let mut server = ServerProtocol::new(Parameters::unknown(&tracked));
    let (mut request, mut registry, mut heap) =
        (ClientStream::default(), StatementRegistry::default(), Heap::default());
    for piece in pieces {
        let mut input = std::mem::take(&mut request.held);
        input.extend_from_slice(piece);
        let mut context = RequestContext {
            registry: &mut registry,
            statements_max: 2,
            frame_bytes_max: 1 << 20,
            resets: Some(&tracked),
            refuses_simple: false,
            one_at_a_time: false,
            guard: None,
            client: 1,
            parsed: 0,
            parsed_on_server: 0,
            bound: 0,
        };
        let outcome = request.step(&mut server, &mut context, &input, &mut heap);
        if outcome != RequestOutcome::All {
            return (heap, Some(outcome));
        }
    }
    (heap, None)
}

/// Any bytes of a server that owes answers to a pipeline, whole and cut: the same goes to the client, the same faults.
pub fn reply(bytes: &[u8]) {
    let whole = reply_outcome(&[bytes]);
    for cut in 0..bytes.len().min(100) {
        let (head, tail) = bytes.split_at(cut);
        let parts = reply_outcome(&[head, tail]);
        assert_eq!(parts.1, whole.1, "cut at {cut}");
        if !whole.1 {
            assert_eq!(parts.0, whole.0, "cut at {cut}");
        }
    }
}

/// True if the server was found at fault.
fn reply_outcome(pieces: &[&[u8]]) -> (Heap, bool) {
    let tracked = Tracked::new([]);
    let mut server = ServerProtocol::new(Parameters::unknown(&tracked));
    let (mut request, mut registry) = (ClientStream::default(), StatementRegistry::default());
    let mut context = RequestContext {
        registry: &mut registry,
        statements_max: 2,
        frame_bytes_max: 1 << 20,
        resets: None,
        refuses_simple: false,
        one_at_a_time: false,
        guard: None,
        client: 1,
        parsed: 0,
        parsed_on_server: 0,
        bound: 0,
    };
    request.step(&mut server, &mut context, &pipeline(), &mut Heap::default());
    let (mut heap, mut internal_error) = (Heap::default(), None);
    for piece in pieces {
        let mut context = ReplyContext {
            registry: &mut registry,
            tracked: &tracked,
            names: request.statements.as_deref_mut().map(|names: &mut ClientStatements| names),
            internal_error: &mut internal_error,
            errors_seen: &mut Vec::new(),
            listening: None,
            has_client: true,
            releases_between_transactions: false,
            refuses_blocks: false,
            startup: None,
            default_params: None,
            body_max: i32::MAX.unsigned_abs() - 4,
        };
        if server.step(&mut context, piece, &mut heap).fault.is_some() {
            return (heap, true);
        }
    }
    (heap, false)
}

/// Any bytes of a server that owes the answer to a question of Weir's own, whole and cut: the same rows, nothing passed
/// on.
pub fn internal_result(bytes: &[u8]) {
    let whole = answered(&[bytes]);
    for cut in 0..bytes.len().min(100) {
        let (head, tail) = bytes.split_at(cut);
        let parts = answered(&[head, tail]);
        assert_eq!(parts.1, whole.1, "cut at {cut}");
        if !whole.1 {
            assert_eq!(parts.0, whole.0, "cut at {cut}");
        }
    }
}

/// The rows, and true if the server was found at fault.
fn answered(pieces: &[&[u8]]) -> (Vec<Row>, bool) {
    let tracked = Tracked::new([]);
    let mut server = ServerProtocol::new(Parameters::unknown(&tracked));
    let at = server.boundary().expect("nothing was sent");
    server.send_internal_select(at, &mut Vec::new(), "select where false", "select $1", &["x".to_owned()]);
    let (mut registry, mut heap, mut internal_error) = (StatementRegistry::default(), Heap::default(), None);
    let mut fault = false;
    for piece in pieces {
        let mut context = ReplyContext {
            registry: &mut registry,
            tracked: &tracked,
            names: None,
            internal_error: &mut internal_error,
            errors_seen: &mut Vec::new(),
            listening: None,
            has_client: false,
            releases_between_transactions: false,
            refuses_blocks: false,
            startup: None,
            default_params: None,
            body_max: i32::MAX.unsigned_abs() - 4,
        };
        if server.step(&mut context, piece, &mut heap).fault.is_some() {
            fault = true;
            break;
        }
    }
    assert_eq!(heap, Heap::default(), "nothing of it is a client's business");
    (server.take_internal_result().into_rows(), fault)
}

/// One of everything that is answered.
fn pipeline() -> Vec<u8> {
    let mut out = Vec::new();
    encode::parse(&mut out, b"s", b"select 1", &[]);
    encode::bind_simple(&mut out, b"", b"s", &[]);
    encode::describe(&mut out, b'P', b"");
    encode::execute(&mut out, b"", 0);
    encode::close(&mut out, b'S', b"s");
    encode::sync(&mut out);
    encode::query(&mut out, b"select 2");
    out
}

/// Any text as `options`.
pub fn startup_options(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = options::settings(text);
    }
}

#[cfg(test)]
mod tests {
    use wire::backend::Status;

    use super::*;

    /// The answers to [`pipeline`].
    fn answers() -> Vec<u8> {
        let mut out = Vec::new();
        encode::parse_complete(&mut out);
        encode::bind_complete(&mut out);
        encode::no_data(&mut out);
        encode::command_complete(&mut out, "SELECT 1");
        encode::notice(&mut out, "NOTICE", "00000", "x");
        encode::ready(&mut out, Status::Idle);
        encode::error(&mut out, "ERROR", "42601", "no");
        encode::ready(&mut out, Status::Idle);
        out
    }

    /// A repeatable stream of numbers.
    fn next(state: &mut u64) -> usize {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        usize::try_from(*state >> 33).unwrap_or(0)
    }

    fn mutations(seed: &[u8], times: usize, probe: fn(&[u8])) {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        probe(seed);
        for _ in 0..times {
            let mut bytes = seed.to_vec();
            for _ in 0..=next(&mut state) % 3 {
                let place = next(&mut state) % bytes.len();
                match next(&mut state) % 3 {
                    0 => bytes[place] = u8::try_from(next(&mut state) % 256).unwrap_or(0),
                    1 => bytes.truncate(place.max(1)),
                    _ => bytes.insert(place, b"SQPBDECXZ\0"[next(&mut state) % 10]),
                }
            }
            probe(&bytes);
        }
    }

    #[test]
    fn requests_are_the_same_however_they_are_cut() {
        mutations(&pipeline(), 2_000, request);
    }

    /// Its text has not even its NUL; the Bind behind it is no part of it.
    #[test]
    fn an_empty_query_message_ends_where_it_ends() {
        for behind in
            [&b"B\0\x01Q\0_\xbe;\0\x01\0\0\0\0\0\0\t\x01"[..], b"B\0\x04B\0\0\xc2B\0\0\0\0\x04\xc2n\0\0"]
        {
            request(&[b"Q\0\0\0\x04", behind].concat());
        }
    }

    #[test]
    fn replies_are_the_same_however_they_are_cut() {
        mutations(&answers(), 2_000, reply);
    }

    #[test]
    fn internal_results_are_the_same_however_they_are_cut() {
        let mut rows = Vec::new();
        encode::parse_complete(&mut rows);
        encode::bind_complete(&mut rows);
        encode::row_description(&mut rows, &[encode::Column { name: "a", type_oid: 25, type_bytes: -1 }]);
        encode::data_row(&mut rows, [Some(&b"x"[..])]);
        encode::data_row(&mut rows, [None]);
        encode::command_complete(&mut rows, "SELECT 2");
        encode::ready(&mut rows, Status::Idle);
        assert_eq!(answered(&[&rows]), (vec![vec![Some(b"x".to_vec())], vec![None]], false));
        mutations(&rows, 300, internal_result);
    }

    #[test]
    fn no_options_panic() {
        mutations(br"-c a=1 --b=2 -cc=\ 3", 5_000, startup_options);
    }
}
