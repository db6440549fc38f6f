//! Whether a client's request may run on a standby (`read_write_split`).
//!
//! Owns where a request ends, that all of its texts only read, and whether it can be repeated: a Query, or the messages of the extended protocol up to Sync, as
//! far as they are here. What of a text reads is the `sql` crate's.

use sql::{RouteHint, Routing, route_hint};
use wire::frame::{self, HEADER_BYTES};
use wire::frontend::{self, Found};
use wire::tag::frontend as tag;

use crate::{ClientStatements, StatementId, StatementRegistry};

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

/// A request that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgedRequest {
    /// What it is.
    pub routing: RequestRouting,
    /// Where it ends, in bytes from its beginning, if it was looked at that far.
    pub end: Option<usize>,
    /// It leaves a client as it was as long as nothing of its answer was passed on, for it prepares and closes no statement that has a name. False if it was not
    /// looked at to its end.
    pub is_repeatable: bool,
}

impl JudgedRequest {
    /// It may write, and was not looked at to its end.
    pub const WRITE: JudgedRequest = JudgedRequest::without_end(RequestRouting::Write);

    /// It was not looked at to its end.
    #[must_use]
    pub const fn without_end(routing: RequestRouting) -> JudgedRequest {
        JudgedRequest { routing, end: None, is_repeatable: false }
    }
}

/// What one text of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRouting {
    /// What a comment says.
    hint: Option<RouteHint>,
    routing: Routing,
}

impl TextRouting {
    /// `routing` says what a text without a hint is.
    #[inline]
    pub fn of(text: &[u8], routing: impl FnOnce(&[u8]) -> Routing) -> TextRouting {
        let hint = route_hint(text);
        let routing = match hint {
            Some(RouteHint::Primary) => Routing::Write,
            Some(RouteHint::Standby) => Routing::Read,
            None => routing(text),
        };
        TextRouting { hint, routing }
    }
}

/// Says what texts are.
pub trait TextJudge {
    /// What this text is.
    fn text(&mut self, text: &[u8]) -> TextRouting;

    /// The same of a prepared statement of the registry, which may be remembered by its number.
    fn statement(&mut self, statement: StatementId, registry: &StatementRegistry) -> Option<TextRouting> {
        registry.rest(statement).map(|text| self.text(text))
    }
}

/// Says what texts without a hint are.
impl<F: FnMut(&[u8]) -> Routing> TextJudge for F {
    fn text(&mut self, text: &[u8]) -> TextRouting {
        TextRouting::of(text, self)
    }
}

/// What the first request of these bytes is. `names` are the client's prepared statements, and whether those that it prepares can be used on
/// any server.
#[must_use]
pub fn request_routing(
    bytes: &[u8],
    (names, maps_names): (Option<&ClientStatements>, bool),
    registry: &StatementRegistry,
    judge: &mut impl TextJudge,
) -> JudgedRequest {
    let mut request = Request {
        names,
        registry,
        judge,
        found: None,
        hint: None,
        parsed: Vec::new(),
        maps_names,
        binds_unnamed: false,
        is_bound: false,
        is_repeatable: true,
    };
    let mut at = 0;
    loop {
        let Ok(Some(header)) = frame::header(&bytes[at..]) else {
            return JudgedRequest::WRITE;
        };
        let end = at + header.frame_bytes as usize;
        let Some(body) = bytes.get(at + HEADER_BYTES..end) else {
            return JudgedRequest::WRITE;
        };
        match header.tag {
            tag::QUERY if at == 0 => {
                let found = request.judge.text(body);
                request.note(found);
                return request.ends(end);
            }
            tag::SYNC => return request.ends(end),
            frame_tag => {
                if request.look_at(frame_tag, body).is_none() {
                    return JudgedRequest::WRITE;
                }
            }
        }
        if request.found == Some(Routing::Write) {
            return JudgedRequest::without_end(request.writes());
        }
        at = end;
    }
}

/// A request as far as it has been looked at.
struct Request<'a, J> {
    names: Option<&'a ClientStatements>,
    registry: &'a StatementRegistry,
    judge: &'a mut J,
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
    is_repeatable: bool,
}

impl<'a, J: TextJudge> Request<'a, J> {
    /// A message of the extended protocol in front of its end; None if it may do anything.
    #[inline]
    fn look_at(&mut self, frame_tag: u8, body: &'a [u8]) -> Option<()> {
        match frame_tag {
            tag::PARSE => {
                let Found::Yes((name, rest)) = frontend::parse_name(body) else { return None };
                let found = self.judge.text(&body[rest..]);
                self.note(found);
                self.parsed.push(name);
                self.is_repeatable &= name.is_empty();
            }
            tag::BIND => {
                let Found::Yes((_, name, _)) = frontend::bind_names(body) else { return None };
                self.note_statement(name);
                self.is_bound = true;
                self.binds_unnamed |= name.is_empty();
            }
            tag::DESCRIBE => match frontend::target(body) {
                Found::Yes((b'S', name)) => self.note_statement(name),
                Found::Yes(_) => {}
                _ => return None,
            },
            tag::EXECUTE if self.is_bound => {}
            tag::CLOSE => self.is_repeatable &= matches!(frontend::target(body), Found::Yes((b'P', _))),
            tag::FLUSH => self.is_repeatable = false,
            _ => return None,
        }
        Some(())
    }

    /// A statement of this name is used.
    fn note_statement(&mut self, name: &[u8]) {
        if self.parsed.contains(&name) {
            return;
        }
        let statement = self.names.and_then(|names| names.expected(name));
        let found = statement.and_then(|id| self.judge.statement(id, self.registry));
        self.note(found.unwrap_or(TextRouting { hint: None, routing: Routing::Write }));
    }

    fn note(&mut self, TextRouting { hint, routing }: TextRouting) {
        self.hint = hint.or(self.hint);
        self.found = Some(match (self.found, routing) {
            (None, routing) => routing,
            (Some(Routing::Read), Routing::ReadOnlyTransaction)
            | (Some(Routing::ReadOnlyTransaction), Routing::Read) => Routing::ReadOnlyTransaction,
            (Some(found), routing) if found == routing => routing,
            _ => Routing::Write,
        });
    }

    /// What it parses is left on one server for a later request.
    fn leaves_statement(&self) -> bool {
        self.parsed.iter().any(|name| if name.is_empty() { !self.binds_unnamed } else { !self.maps_names })
    }

    fn ends(&self, end: usize) -> JudgedRequest {
        JudgedRequest { routing: self.routing(), end: Some(end), is_repeatable: self.is_repeatable }
    }

    fn routing(&self) -> RequestRouting {
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

#[cfg(test)]
mod tests {
    use super::*;
    use wire::encode;

    fn judged(bytes: &[u8]) -> JudgedRequest {
        let mut reads = |_: &[u8]| Routing::Read;
        request_routing(bytes, (None, true), &StatementRegistry::default(), &mut reads)
    }

    #[test]
    fn a_request_that_prepares_a_statement_is_not_repeatable() {
        let said = |name: &[u8], close: u8| {
            let mut bytes = Vec::new();
            encode::parse(&mut bytes, name, b"select 1", &[]);
            encode::bind_simple(&mut bytes, b"", name, &[]);
            encode::execute(&mut bytes, b"", 0);
            encode::close(&mut bytes, close, b"");
            encode::sync(&mut bytes);
            bytes
        };
        let is_repeatable = |bytes: &[u8]| judged(bytes).is_repeatable;
        assert!(is_repeatable(&said(b"", b'P')));
        assert!(!is_repeatable(&said(b"s", b'P')) && !is_repeatable(&said(b"", b'S')));
        let mut query = Vec::new();
        encode::query(&mut query, b"select 1");
        assert!(is_repeatable(&query) && !is_repeatable(&query[..query.len() - 1]));
        let mut flushed = Vec::new();
        encode::flush(&mut flushed);
        encode::sync(&mut flushed);
        assert!(!is_repeatable(&flushed), "its client waits for answers before it is whole");
    }

    #[test]
    fn a_request_ends_with_its_query_or_sync() {
        let mut bytes = Vec::new();
        encode::parse(&mut bytes, b"", b"select 1", &[]);
        encode::bind_simple(&mut bytes, b"", b"", &[]);
        assert_eq!(judged(&bytes), JudgedRequest::WRITE, "not all of it is here");
        encode::sync(&mut bytes);
        let end = bytes.len();
        encode::query(&mut bytes, b"select 2");
        let expected = JudgedRequest { routing: RequestRouting::Read, end: Some(end), is_repeatable: true };
        assert_eq!(judged(&bytes), expected);
        assert_eq!(judged(&bytes[end..]).end, Some(bytes.len() - end));
    }
}
