//! Whether a client's request may run on a standby (`read_write_split`).
//!
//! Owns where a request ends, and that all of its texts only read: a Query, or the messages of the extended protocol up to Sync, as far as they
//! are here. What of a text reads is the `sql` crate's.

use sql::{RouteHint, Routing, route_hint};
use wire::frame::{self, HEADER_BYTES};
use wire::frontend::{self, Found};
use wire::tag::frontend as tag;

use crate::{ClientStatements, StatementRegistry};

/// What a request is for the choice between a primary and its standbys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestRouting {
    /// It reads.
    Read,
    /// A comment says that it is a standby's.
    Standby,
    /// It begins a transaction that is declared READ ONLY.
    ReadOnlyTransaction,
    /// A comment says that it is the primary's.
    Primary,
    /// It is the primary's, and writes nothing.
    Session,
    /// It may write, or not all of it is here.
    Write,
}

/// What the first request of these bytes is. `names` are the client's prepared statements, and whether those that it prepares can be used on
/// any server; `routing` says what a text without a hint is.
#[must_use]
pub fn request_routing(
    bytes: &[u8],
    (names, maps_names): (Option<&ClientStatements>, bool),
    registry: &StatementRegistry,
    routing: impl FnMut(&[u8]) -> Routing,
) -> RequestRouting {
    let mut request = Request {
        names,
        registry,
        routing,
        found: None,
        hint: None,
        parsed: Vec::new(),
        maps_names,
        binds_unnamed: false,
        is_bound: false,
    };
    let mut at = 0;
    loop {
        let Ok(Some(header)) = frame::header(&bytes[at..]) else { return RequestRouting::Write };
        let end = at + header.frame_bytes as usize;
        let Some(body) = bytes.get(at + HEADER_BYTES..end) else { return RequestRouting::Write };
        match header.tag {
            tag::QUERY if at == 0 => {
                request.note_text(body);
                return request.ends();
            }
            tag::SYNC => return request.ends(),
            tag::PARSE => {
                let Found::Yes((name, rest)) = frontend::parse_name(body) else {
                    return RequestRouting::Write;
                };
                request.note_text(&body[rest..]);
                request.parsed.push(name);
            }
            tag::BIND => {
                let Found::Yes((_, name, _)) = frontend::bind_names(body) else {
                    return RequestRouting::Write;
                };
                request.note_statement(name);
                request.is_bound = true;
                request.binds_unnamed |= name.is_empty();
            }
            tag::DESCRIBE => match frontend::target(body) {
                Found::Yes((b'S', name)) => request.note_statement(name),
                Found::Yes(_) => {}
                _ => return RequestRouting::Write,
            },
            tag::EXECUTE if request.is_bound => {}
            tag::CLOSE | tag::FLUSH => {}
            _ => return RequestRouting::Write,
        }
        if request.found == Some(Routing::Write) {
            return request.writes();
        }
        at = end;
    }
}

/// A request as far as it has been looked at.
struct Request<'a, F> {
    names: Option<&'a ClientStatements>,
    registry: &'a StatementRegistry,
    routing: F,
    /// What its texts are together.
    found: Option<Routing>,
    /// What a comment says.
    hint: Option<RouteHint>,
    /// The names of the statements that it parses.
    parsed: Vec<&'a [u8]>,
    /// Statements with names can be used on any server.
    maps_names: bool,
    /// The unnamed statement is used.
    binds_unnamed: bool,
    is_bound: bool,
}

impl<F: FnMut(&[u8]) -> Routing> Request<'_, F> {
    fn note_text(&mut self, text: &[u8]) {
        let hint = route_hint(text);
        self.hint = hint.or(self.hint);
        let found = match hint {
            Some(RouteHint::Primary) => Routing::Write,
            Some(RouteHint::Standby) => Routing::Read,
            None => (self.routing)(text),
        };
        self.note(found);
    }

    /// A statement of this name is used.
    fn note_statement(&mut self, name: &[u8]) {
        if self.parsed.contains(&name) {
            return;
        }
        let statement = self.names.and_then(|names| names.expected(name));
        match statement.and_then(|statement| self.registry.rest(statement)) {
            Some(text) => self.note_text(text),
            None => self.note(Routing::Write),
        }
    }

    fn note(&mut self, text: Routing) {
        self.found = Some(match (self.found, text) {
            (None, text) => text,
            (Some(Routing::Read), Routing::ReadOnlyTransaction)
            | (Some(Routing::ReadOnlyTransaction), Routing::Read) => Routing::ReadOnlyTransaction,
            (Some(found), text) if found == text => text,
            _ => Routing::Write,
        });
    }

    /// What it parses is left on one server for a later request.
    fn leaves_statement(&self) -> bool {
        self.parsed.iter().any(|name| if name.is_empty() { !self.binds_unnamed } else { !self.maps_names })
    }

    fn ends(&self) -> RequestRouting {
        if self.leaves_statement() {
            return RequestRouting::Write;
        }
        match self.found {
            None | Some(Routing::Session) => RequestRouting::Session,
            Some(Routing::Write) => self.writes(),
            Some(Routing::Read | Routing::ReadOnlyTransaction) if self.hint.is_some() => {
                RequestRouting::Standby
            }
            Some(Routing::Read) => RequestRouting::Read,
            Some(Routing::ReadOnlyTransaction) => RequestRouting::ReadOnlyTransaction,
        }
    }

    fn writes(&self) -> RequestRouting {
        if self.hint == Some(RouteHint::Primary) { RequestRouting::Primary } else { RequestRouting::Write }
    }
}

/// The end of the first request of these bytes, if all of it is here: of a message that is answered at once, or of a Sync.
#[must_use]
pub fn request_end(bytes: &[u8]) -> Option<usize> {
    frames(bytes).find(|(frame_tag, _)| !is_followed(*frame_tag)).map(|(_, end)| end)
}

/// A Flush is among these messages: the client waits for answers before it sends the rest of its request.
#[must_use]
pub fn has_flush(bytes: &[u8]) -> bool {
    frames(bytes).any(|(frame_tag, _)| frame_tag == tag::FLUSH)
}

/// The tag of each whole frame, and where it ends.
fn frames(bytes: &[u8]) -> impl Iterator<Item = (u8, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let header = frame::header(bytes.get(at..)?).ok().flatten()?;
        at += header.frame_bytes as usize;
        (at <= bytes.len()).then_some((header.tag, at))
    })
}

/// More of the same request follows, or the server says nothing to it.
fn is_followed(frame_tag: u8) -> bool {
    matches!(
        frame_tag,
        tag::PARSE
            | tag::BIND
            | tag::DESCRIBE
            | tag::EXECUTE
            | tag::CLOSE
            | tag::FLUSH
            | tag::COPY_DATA
            | tag::COPY_DONE
            | tag::COPY_FAIL
    )
}
