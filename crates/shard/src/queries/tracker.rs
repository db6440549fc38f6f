//! The requests of one client, read beside the relay: which kinds of queries each of them consists of.
//!
//! Owns the client's place in its own stream, apart from the relay's. Statements are fingerprinted when they are prepared,
//! simple queries each time. A Query and a Sync end a request; ReadyForQuery answers it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sql::TraceParent;
use telemetry::queries::QueryFingerprint;
use telemetry::{ServerWait, ServerWaits, Wait, Waits};
use wire::frame::Splitter;
use wire::frontend;
use wire::frontend::Found;
use wire::tag::frontend as tag;

use super::shapes::Shapes;

/// What is looked at of a message that comes in pieces.
const LOOKED_AT: usize = 8 * 1024;

/// Statements of one request that are told apart; of further ones nothing is counted.
const STATEMENTS: usize = 64;

/// What one client's names may take; beyond that they are looked up anew. A Parse that the server refuses leaves its name here.
const NAMES_BYTES: usize = 1024 * 1024;

/// What a name takes beside itself.
const NAME_BYTES: usize = 64;

/// Requests that may be unanswered: more than the relay sends, so that those beyond have no answer (a Sync inside a COPY).
const ASKED: usize = 16 * 1024;

/// What was asked and is answered by one ReadyForQuery.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) shapes: Vec<Arc<QueryFingerprint>>,
    pub(crate) failed: bool,
    /// The sampled trace that it belongs to.
    pub(crate) trace: Option<TraceParent>,
    /// What its client waited for until it was answered.
    pub(crate) waits: Waits,
    /// What its server was found waiting for (`track_lock_waits`).
    pub(crate) server_waits: Option<Box<ServerWaits>>,
}

impl Request {
    /// From when its client sent it, where the server had it for so long: the time in which the client did not read is part of that.
    pub(crate) fn took_us(&self, server_us: u64) -> u64 {
        server_us + self.waits.total_us() - self.waits.us(Wait::Reader)
    }
}

/// One client's requests.
#[derive(Debug, Default)]
pub(crate) struct QueryTracker {
    splitter: Splitter,
    /// The front of a message whose rest has not come.
    front: Vec<u8>,
    /// By the client's names for them; the one without a name has the empty one.
    prepared: BTreeMap<Box<[u8]>, Arc<QueryFingerprint>>,
    /// What those names have taken since there was none.
    names_bytes: usize,
    /// Run since the last Sync.
    run: Vec<Arc<QueryFingerprint>>,
    /// Not answered yet, oldest first.
    asked: VecDeque<Request>,
    /// The first of the statements that have come since the last request that belongs to a sampled trace has this.
    trace: Option<TraceParent>,
    /// What the client has waited for in all, and since the last answer.
    waits: Waits,
    waits_of_request: Waits,
    /// What the client's servers were found waiting for in all.
    server_waits: ServerWaits,
}

/// The Parse of a statement that was prepared before it was watched, from its text on.
type Prepared<'a> = &'a dyn Fn(&[u8]) -> Option<&'a Arc<[u8]>>;

impl QueryTracker {
    /// Reads more of the client's stream.
    pub(super) fn hear(&mut self, mut bytes: &[u8], shapes: &mut Shapes, prepared: Prepared<'_>) {
        while let Ok(Some(piece)) = self.splitter.next(&mut bytes) {
            if !matches!(
                piece.header.tag,
                tag::QUERY | tag::PARSE | tag::BIND | tag::CLOSE | tag::SYNC | tag::FUNCTION_CALL
            ) {
                continue;
            }
            if piece.begins && piece.ends {
                self.message(piece.header.tag, piece.body, shapes, prepared);
                continue;
            }
            let room = LOOKED_AT - self.front.len();
            self.front.extend_from_slice(&piece.body[..piece.body.len().min(room)]);
            if piece.ends {
                let front = std::mem::take(&mut self.front);
                self.message(piece.header.tag, &front, shapes, prepared);
            }
        }
    }

    /// A message, or as much of its front as is looked at.
    fn message(&mut self, frame_tag: u8, body: &[u8], shapes: &mut Shapes, prepared: Prepared<'_>) {
        match frame_tag {
            tag::QUERY => {
                self.traced(body);
                self.run.push(shapes.of(until_nul(body)));
                self.request_ends();
            }
            tag::SYNC | tag::FUNCTION_CALL => self.request_ends(),
            tag::PARSE => {
                if let Found::Yes((name, rest)) = frontend::parse_name(body) {
                    let shape = shapes.of(until_nul(&body[rest..]));
                    self.traced(&body[rest..]);
                    self.prepare(name, shape);
                }
            }
            tag::BIND => {
                if let Found::Yes((_, name, _)) = frontend::bind_names(body) {
                    self.bound(name, shapes, prepared);
                }
            }
            _ => {
                if let Found::Yes((b'S', name)) = frontend::target(body) {
                    self.prepared.remove(name);
                }
            }
        }
    }

    fn bound(&mut self, name: &[u8], shapes: &mut Shapes, prepared: Prepared<'_>) {
        if self.run.len() >= STATEMENTS {
            return;
        }
        if let Some(shape) = self.prepared.get(name) {
            return self.run.push(Arc::clone(shape));
        }
        if let Some(rest) = prepared(name) {
            let shape = shapes.of(until_nul(rest));
            self.run.push(Arc::clone(&shape));
            self.prepare(name, shape);
        }
    }

    fn prepare(&mut self, name: &[u8], shape: Arc<QueryFingerprint>) {
        if let Some(known) = self.prepared.get_mut(name) {
            *known = shape;
            return;
        }
        if self.prepared.is_empty() || self.names_bytes > NAMES_BYTES {
            (self.prepared, self.names_bytes) = (BTreeMap::new(), 0);
        }
        self.names_bytes += name.len() + NAME_BYTES;
        self.prepared.insert(name.into(), shape);
    }

    /// The request belongs to the trace of its first statement that has a sampled one.
    fn traced(&mut self, sql: &[u8]) {
        if self.trace.is_none() {
            self.trace = sql::trace_parent(sql).filter(|trace| trace.is_sampled);
        }
    }

    fn request_ends(&mut self) {
        let shapes = std::mem::take(&mut self.run);
        let trace = self.trace.take();
        if self.asked.len() < ASKED {
            self.asked.push_back(Request { shapes, trace, ..Request::default() });
        }
    }

    /// The client has waited, for a request that has not been answered.
    pub(crate) fn waited(&mut self, wait: Wait, us: u64) {
        self.waits.add(wait, us);
        self.waits_of_request.add(wait, us);
    }

    /// What the client has waited for in all.
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    /// The server that runs the oldest request was found waiting.
    pub(crate) fn server_waited(&mut self, wait: ServerWait, us: u64) {
        self.server_waits.add(wait, us);
        if let Some(request) = self.asked.front_mut() {
            request.server_waits.get_or_insert_default().add(wait, us);
        }
    }

    /// What the client's servers were found waiting for in all.
    pub(crate) fn server_waits(&self) -> &ServerWaits {
        &self.server_waits
    }

    /// The oldest request has been answered: what was waited for is its own.
    pub(super) fn answered(&mut self) -> Option<Request> {
        let waits = std::mem::take(&mut self.waits_of_request);
        self.asked.pop_front().map(|request| Request { waits, ..request })
    }

    /// The request behind this many others ended in an error.
    pub(crate) fn failed(&mut self, behind: usize) {
        if let Some(request) = self.asked.get_mut(behind) {
            request.failed = true;
        }
    }

    /// What was asked is asked again.
    pub(crate) fn repeats(&mut self) {
        self.rest();
    }

    /// The server owes nothing: whatever was counted otherwise is at an end too (a Sync inside a COPY has no answer).
    pub(super) fn rest(&mut self) {
        self.asked = VecDeque::new();
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.iter().position(|byte| *byte == 0).map_or(bytes, |end| &bytes[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::encode;

    fn said(out: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        out(&mut bytes);
        bytes
    }

    fn texts(query_tracker: &mut QueryTracker) -> Vec<Vec<String>> {
        let text = |request: Request| request.shapes.iter().map(|shape| shape.text.clone()).collect();
        std::iter::from_fn(|| query_tracker.answered()).map(text).collect()
    }

    #[test]
    fn requests_are_the_same_however_they_are_cut() {
        let bytes = said(|out| {
            encode::query(out, b"SELECT 1");
            encode::parse(out, b"s", b"select $1 -- x", &[]);
            encode::bind_simple(out, b"", b"s", &[Some(b"v")]);
            encode::execute(out, b"", 0);
            encode::bind_simple(out, b"", b"s", &[None]);
            encode::sync(out);
            encode::close(out, b'S', b"s");
            encode::bind_simple(out, b"", b"s", &[]);
            encode::sync(out);
        });
        let expected = [vec!["select ?"], vec!["select ?", "select ?"], vec![]];
        for cut in 0..bytes.len() {
            let (mut query_tracker, mut shapes) = (QueryTracker::default(), Shapes::default());
            for piece in [&bytes[..cut], &bytes[cut..]] {
                query_tracker.hear(piece, &mut shapes, &|_| None);
            }
            assert_eq!(texts(&mut query_tracker), expected, "cut at {cut}");
            assert!(query_tracker.front.capacity() == 0, "an idle client owns no buffer");
        }
    }

    #[test]
    fn what_was_prepared_before_is_looked_up_once() {
        let (mut query_tracker, mut shapes) = (QueryTracker::default(), Shapes::default());
        let rest: Arc<[u8]> = Arc::from(&b"select 5\0\0\0"[..]);
        let bind = said(|out| {
            encode::bind_simple(out, b"", b"s", &[]);
            encode::sync(out);
        });
        query_tracker.hear(&bind, &mut shapes, &|_| Some(&rest));
        query_tracker.hear(&bind, &mut shapes, &|_| None);
        query_tracker.failed(1);
        assert!(!query_tracker.answered().expect("the first").failed);
        let second = query_tracker.answered().expect("the second");
        assert!(second.failed && second.shapes[0].text == "select ?");
    }

    #[test]
    fn names_and_requests_are_kept_within_bounds() {
        let (mut query_tracker, mut shapes) = (QueryTracker::default(), Shapes::default());
        for number in 0..40_000 {
            let refused = said(|out| {
                encode::parse(out, format!("{number:0>100}").as_bytes(), b"selec", &[]);
                encode::sync(out);
            });
            query_tracker.hear(&refused, &mut shapes, &|_| None);
        }
        let bytes: usize = query_tracker.prepared.keys().map(|name| name.len()).sum();
        assert!(bytes <= NAMES_BYTES, "{bytes}");
        assert_eq!(query_tracker.asked.len(), ASKED);
    }

    #[test]
    fn a_long_statement_is_known_by_its_front() {
        let (mut query_tracker, mut shapes) = (QueryTracker::default(), Shapes::default());
        let long = said(|out| encode::query(out, &[&b"select '"[..], &vec![b'x'; 1 << 20]].concat()));
        for piece in long.chunks(4096) {
            query_tracker.hear(piece, &mut shapes, &|_| None);
            assert!(query_tracker.front.len() <= LOOKED_AT);
        }
        assert_eq!(texts(&mut query_tracker), [["select ?"]]);
    }
}
