//! The requests whose answers may be used again (`query_cache`), by their form: one statement, run to its end, that leaves nothing in the session.
//!
//! Owns what of a request decides its answer besides the settings of its session. Whether the statement only reads is `request_routing`'s; what it depends
//! on, the `sql` crate's.

use std::sync::Arc;

use sql::has_special_time;
use wire::backend::Status;
use wire::frame::{self, HEADER_BYTES};
use wire::frontend::{self, Found};
use wire::tag::{backend, frontend as tag};

use crate::{ClientStatements, StatementId, StatementRegistry};

/// A longer request is not looked at.
const MAX_REQUEST_BYTES: usize = 16 * 1024;

/// A request of one statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedRequest<'a> {
    /// The prepared statement with a name that is run.
    pub statement: Option<StatementId>,
    /// It prepares the statement without a name, which the server will not have if the request is not sent to it.
    pub parses_unnamed: bool,
    /// It asks for the description of a statement with a name, or of its portal.
    pub describes_named: bool,
    text: Option<&'a [u8]>,
}

impl<'a> CachedRequest<'a> {
    /// The request that these bytes are, all of it and nothing behind it; None if its answer is not to be used again.
    #[must_use]
    pub fn read(bytes: &'a [u8], names: Option<&ClientStatements>) -> Option<CachedRequest<'a>> {
        if bytes.len() > MAX_REQUEST_BYTES {
            return None;
        }
        let (first, body, rest) = split(bytes)?;
        match first {
            tag::QUERY if rest.is_empty() => Some(CachedRequest::unnamed(body, false)),
            tag::PARSE => {
                let Found::Yes((b"", at)) = frontend::parse_name(body) else { return None };
                CachedRequest::unnamed(&body[at..], true).bound(rest, names)
            }
            tag::BIND => {
                CachedRequest { text: None, ..CachedRequest::unnamed(b"", false) }.bound(bytes, names)
            }
            _ => None,
        }
    }

    fn unnamed(text: &'a [u8], parses_unnamed: bool) -> CachedRequest<'a> {
        CachedRequest { statement: None, parses_unnamed, describes_named: false, text: Some(text) }
    }

    /// Bind, perhaps Describe, Execute of all rows, and Sync, of the portal without a name.
    fn bound(mut self, bytes: &'a [u8], names: Option<&ClientStatements>) -> Option<CachedRequest<'a>> {
        let (tag::BIND, bind, mut rest) = split(bytes)? else { return None };
        let Found::Yes((b"", name, at)) = frontend::bind_names(bind) else { return None };
        if has_special_time(&bind[at..]) {
            return None;
        }
        match (name, self.text) {
            (b"", Some(_)) => {}
            (name, None) if !name.is_empty() => {
                self.statement = Some(names.filter(|names| names.is_settled())?.expected(name)?)
            }
            _ => return None,
        }
        if let (tag::DESCRIBE, target, behind) = split(rest)? {
            match frontend::target(target) {
                Found::Yes((b'P', b"")) => {}
                Found::Yes((b'S', described)) if described == name => {}
                _ => return None,
            }
            self.describes_named = self.statement.is_some();
            rest = behind;
        }
        let (tag::EXECUTE, execute, behind) = split(rest)? else { return None };
        let (tag::SYNC, [], []) = split(behind)? else { return None };
        (execute == [0; 5]).then_some(self)
    }

    /// The statement's text, up to a NUL.
    #[must_use]
    pub fn text<'b>(&self, registry: &'b StatementRegistry) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        match (self.text, self.statement) {
            (Some(text), _) => Some(text),
            (None, Some(statement)) => registry.rest(statement).map(Arc::as_ref),
            (None, None) => None,
        }
    }
}

/// The tag and the body of the first message, all of which is here, and what is behind it.
fn split(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let header = frame::header(bytes).ok().flatten()?;
    let (message, rest) = bytes.split_at_checked(header.frame_bytes as usize)?;
    Some((header.tag, &message[HEADER_BYTES..], rest))
}

/// How the answer to a request of one statement goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerEnd {
    /// It is not whole.
    Open,
    /// It ends here, outside a transaction, and is rows and nothing else.
    At(usize),
    /// It is another answer: an error, a notice, a changed setting.
    Other,
}

/// How far the whole messages of an answer go, from `checked` on, which is where one begins; and how it goes on behind them.
#[must_use]
pub fn answer_end(answer: &[u8], mut checked: usize) -> (usize, AnswerEnd) {
    loop {
        let rest = answer.get(checked..).unwrap_or_default();
        let Some(tag) = rest.first() else { return (checked, AnswerEnd::Open) };
        let is_of_rows = matches!(
            *tag,
            backend::PARSE_COMPLETE
                | backend::BIND_COMPLETE
                | backend::PARAMETER_DESCRIPTION
                | backend::ROW_DESCRIPTION
                | backend::NO_DATA
                | backend::DATA_ROW
                | backend::COMMAND_COMPLETE
                | backend::READY
        );
        let header = match frame::header(rest) {
            Ok(Some(header)) if is_of_rows => header,
            Ok(None) if is_of_rows => return (checked, AnswerEnd::Open),
            _ => return (checked, AnswerEnd::Other),
        };
        let Some(message) = rest.get(..header.frame_bytes as usize) else {
            return (checked, AnswerEnd::Open);
        };
        checked += message.len();
        if header.tag == backend::READY {
            let is_idle = message.get(HEADER_BYTES) == Some(&Status::Idle.byte());
            return (checked, if is_idle { AnswerEnd::At(checked) } else { AnswerEnd::Other });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use wire::encode;

    use super::*;
    use crate::StatementRegistry;

    fn sent(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes);
        bytes
    }

    fn extended(values: &[Option<&[u8]>], rows: u32, describe: u8) -> Vec<u8> {
        sent(|out| {
            encode::parse(out, b"", b"select a from t where b = $1", &[]);
            encode::bind_simple(out, b"", b"", values);
            encode::describe(out, describe, b"");
            encode::execute(out, b"", rows);
            encode::sync(out);
        })
    }

    #[test]
    fn one_statement_of_either_protocol_is_read() {
        let registry = StatementRegistry::default();
        let query = sent(|out| encode::query(out, b"select a from t"));
        let read = CachedRequest::read(&query, None).unwrap();
        assert_eq!(read.text(&registry), Some(&b"select a from t\0"[..]));
        assert!(!read.parses_unnamed && !read.describes_named);
        for describe in [b'P', b'S'] {
            let bytes = extended(&[Some(b"7")], 0, describe);
            let read = CachedRequest::read(&bytes, None).unwrap();
            assert!(read.parses_unnamed && read.statement.is_none() && !read.describes_named);
            assert!(read.text(&registry).unwrap().starts_with(b"select a from t where b = $1\0"));
        }
    }

    #[test]
    fn what_is_not_one_whole_statement_is_not() {
        let whole = extended(&[Some(b"7")], 0, b'P');
        for end in 0..whole.len() {
            assert_eq!(CachedRequest::read(&whole[..end], None), None, "{end} bytes");
        }
        let query = sent(|out| encode::query(out, b"select a from t"));
        let pair = [&query[..], &query].concat();
        let named = sent(|out| encode::parse(out, b"a", b"select a from t", &[]));
        let unknown = sent(|out| {
            encode::bind_simple(out, b"", b"a", &[]);
            encode::execute(out, b"", 0);
            encode::sync(out);
        });
        let not_parsed = sent(|out| {
            encode::bind_simple(out, b"", b"", &[]);
            encode::execute(out, b"", 0);
            encode::sync(out);
        });
        let portal = sent(|out| {
            encode::parse(out, b"", b"select a from t", &[]);
            encode::bind_simple(out, b"p", b"", &[]);
            encode::execute(out, b"p", 0);
            encode::sync(out);
        });
        let some_rows = extended(&[], 1, b'P');
        let time = extended(&[Some(b"today")], 0, b'P');
        let behind = [&whole[..], &query].concat();
        for bytes in [&pair, &named, &unknown, &not_parsed, &portal, &some_rows, &time, &behind] {
            assert_eq!(CachedRequest::read(bytes, None), None, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn an_answer_of_rows_ends_with_ready_for_query() {
        let rows = sent(|out| {
            encode::parse_complete(out);
            encode::bind_complete(out);
            encode::row_description(out, &[encode::Column { name: "a", type_oid: 25, type_bytes: -1 }]);
            encode::data_row(out, [Some(&b"x"[..])]);
            encode::command_complete(out, "SELECT 1");
            encode::ready(out, Status::Idle);
        });
        let mut checked = 0;
        for end in 0..rows.len() {
            let (next, found) = answer_end(&rows[..end], checked);
            assert!(next >= checked && next <= end && found == AnswerEnd::Open, "{end} bytes: {found:?}");
            checked = next;
        }
        let more = [&rows[..], b"more"].concat();
        assert_eq!(answer_end(&more, checked), (rows.len(), AnswerEnd::At(rows.len())));
        for other in [
            sent(|out| encode::error(out, "ERROR", "42601", "no")),
            sent(|out| encode::notice(out, "NOTICE", "00000", "x")),
            sent(|out| encode::ready(out, Status::InTransaction)),
            b"S\0\0\0\x04".to_vec(),
        ] {
            assert_eq!(answer_end(&other, 0).1, AnswerEnd::Other);
        }
    }
}
