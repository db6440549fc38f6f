//! What a client may send that may read only: which of its messages could end that.
//!
//! Owns what each of its prepared statements does, noted when it is parsed, and that nothing follows the end of a transaction in the same request: before the next one Weir looks at
//! the server's setting again. A statement that was not seen being parsed may do anything.

use std::collections::HashMap;

use sql::{READ_ONLY_TEXT_BYTES, ReadOnlyText, read_only};
use wire::frame::{HEADER_BYTES, Header};
use wire::frontend::{self, Found};
use wire::tag::frontend as tag;

/// Statements of a client that are noted; what it prepares beyond them counts as not seen.
const MAX_NAMES: usize = 4096;

/// How its client's requests are held to reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuardMode {
    /// Not at all: what it prepares is noted.
    #[default]
    Notes,
    /// PostgreSQL holds the transaction to reading.
    ReadOnly,
    /// The transaction could write: only words that read are passed on, and those that free storage if that is allowed.
    Words {
        /// DELETE, TRUNCATE and DROP are allowed.
        deletes: bool,
    },
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guarded {
    Passes,
    /// It has to be here to its end.
    Incomplete,
    /// It is not to be sent.
    Refused,
}

/// The statements of a client, and what it may do with them.
#[derive(Debug, Default)]
pub struct StatementGuard {
    names: HashMap<Box<[u8]>, ReadOnlyText>,
    mode: GuardMode,
    /// What was bound before in this request ends its transaction.
    has_ended: bool,
}

impl StatementGuard {
    /// How what comes next is held to reading.
    pub fn set_mode(&mut self, mode: GuardMode) {
        self.mode = mode;
    }

    /// Another request begins.
    pub fn begin(&mut self) {
        self.has_ended = false;
    }

    /// Whether a text is refused before it is sent, by what its words say.
    #[must_use]
    pub fn refuses_text(text: ReadOnlyText, mode: GuardMode) -> bool {
        match mode {
            GuardMode::Notes => false,
            GuardMode::ReadOnly => text.leaves,
            GuardMode::Words { deletes } => {
                text.leaves || text.writes || text.is_unknown || text.deletes && !deletes
            }
        }
    }

    /// Whether a request that begins with this message is refused as a whole, so that its client can be told why: it writes, whatever PostgreSQL would say.
    #[must_use]
    pub fn refuses_first(&self, message: &[u8], mode: GuardMode) -> bool {
        let refuses = |text: ReadOnlyText| {
            let frees = text.deletes && mode != (GuardMode::Words { deletes: true });
            text.writes || frees || StatementGuard::refuses_text(text, mode)
        };
        let Ok(Some(header)) = wire::frame::header(message) else { return false };
        let Some(body) = message.get(HEADER_BYTES..header.frame_bytes as usize) else { return false };
        match header.tag {
            tag::QUERY => refuses(read_only(body)),
            tag::PARSE => match frontend::parse_name(body) {
                Found::Yes((_, at)) => refuses(read_only(body.get(at..).unwrap_or_default())),
                Found::More | Found::Malformed => false,
            },
            tag::BIND => match frontend::bind_names(body) {
                Found::Yes((_, name, _)) => refuses(self.of(name)),
                Found::More | Found::Malformed => false,
            },
            tag::FUNCTION_CALL => true,
            _ => false,
        }
    }

    fn of(&self, name: &[u8]) -> ReadOnlyText {
        self.names.get(name).copied().unwrap_or(ReadOnlyText::UNSEEN)
    }

    /// A message of the client's, as far as it is here, in its place.
    #[cold]
    #[inline(never)]
    pub(crate) fn judge(&mut self, header: Header, rest: &[u8]) -> Guarded {
        if !matches!(
            header.tag,
            tag::QUERY | tag::PARSE | tag::BIND | tag::CLOSE | tag::FUNCTION_CALL | tag::SYNC
        ) {
            return Guarded::Passes;
        }
        let whole = header.frame_bytes as usize;
        let body = &rest[HEADER_BYTES..rest.len().min(whole).max(HEADER_BYTES)];
        let is_whole = rest.len() >= whole;
        let is_guarded = self.mode != GuardMode::Notes;
        let waits = !is_whole && whole <= READ_ONLY_TEXT_BYTES;
        match header.tag {
            tag::SYNC => {
                self.has_ended = false;
                Guarded::Passes
            }
            tag::QUERY if !is_guarded => Guarded::Passes,
            tag::QUERY if waits => Guarded::Incomplete,
            tag::QUERY => {
                let text = if is_whole { read_only(body) } else { ReadOnlyText::UNSEEN };
                let is_refused = self.has_ended || StatementGuard::refuses_text(text, self.mode);
                self.has_ended = false;
                if is_refused { Guarded::Refused } else { Guarded::Passes }
            }
            tag::FUNCTION_CALL => {
                if is_guarded {
                    Guarded::Refused
                } else {
                    Guarded::Passes
                }
            }
            tag::PARSE if waits => Guarded::Incomplete,
            tag::PARSE => {
                self.parsed(body, is_whole);
                Guarded::Passes
            }
            tag::CLOSE => match frontend::target(body) {
                Found::Yes((b'S', name)) => {
                    self.names.remove(name);
                    Guarded::Passes
                }
                Found::More if !is_whole => Guarded::Incomplete,
                _ => Guarded::Passes,
            },
            _ if !is_guarded => Guarded::Passes,
            _ => match frontend::bind_names(body) {
                Found::Yes((_, name, _)) => {
                    let text = self.of(name);
                    let is_refused = self.has_ended || StatementGuard::refuses_text(text, self.mode);
                    self.has_ended |= text.ends;
                    if is_refused { Guarded::Refused } else { Guarded::Passes }
                }
                Found::More if !is_whole => Guarded::Incomplete,
                _ => Guarded::Passes,
            },
        }
    }

    fn parsed(&mut self, body: &[u8], is_whole: bool) {
        let Found::Yes((name, at)) = frontend::parse_name(body) else { return };
        let text = match is_whole {
            true => read_only(body.get(at..).unwrap_or_default()),
            false => ReadOnlyText::UNSEEN,
        };
        // A name stays what it was where the server refuses the Parse: then it counts as the worse of both.
        let before = self.names.get(name).copied().filter(|_| !name.is_empty());
        let text = before.map_or(text, |before| before.and(text));
        if self.names.len() < MAX_NAMES || self.names.contains_key(name) {
            self.names.insert(name.into(), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::encode;

    use super::*;

    fn judged(guard: &mut StatementGuard, write: impl FnOnce(&mut Vec<u8>)) -> Vec<Guarded> {
        let (mut bytes, mut found, mut at) = (Vec::new(), Vec::new(), 0);
        write(&mut bytes);
        while let Ok(Some(header)) = wire::frame::header(&bytes[at..]) {
            found.push(guard.judge(header, &bytes[at..]));
            at += header.frame_bytes as usize;
        }
        found
    }

    fn bind(out: &mut Vec<u8>, name: &[u8]) {
        let start = out.len();
        out.extend_from_slice(b"B\0\0\0\0\0");
        out.extend_from_slice(name);
        out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0]);
        let length = u32::try_from(out.len() - start - 1).unwrap_or(0);
        out[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
    }

    #[test]
    fn what_was_prepared_before_is_known_when_it_is_bound() {
        let mut guard = StatementGuard::default();
        let before = judged(&mut guard, |out| {
            encode::parse(out, b"mode", b"set transaction read write", &[]);
            encode::parse(out, b"call", b"call p()", &[]);
            encode::parse(out, b"read", b"select 1", &[]);
            bind(out, b"mode");
            encode::query(out, b"call p()");
        });
        assert!(before.iter().all(|one| *one == Guarded::Passes));
        guard.set_mode(GuardMode::ReadOnly);
        for (name, expected) in [
            (b"mode", Guarded::Refused),
            (b"call", Guarded::Refused),
            (b"gone", Guarded::Refused),
            (b"read", Guarded::Passes),
        ] {
            guard.begin();
            assert_eq!(judged(&mut guard, |out| bind(out, name)), [expected]);
        }
        let again = judged(&mut guard, |out| {
            encode::parse(out, b"call", b"select 2", &[]);
            bind(out, b"call");
        });
        assert_eq!(again[1], Guarded::Refused, "the server may have refused the second Parse");
    }

    #[test]
    fn nothing_follows_the_end_of_a_transaction_in_its_request() {
        let mut guard = StatementGuard::default();
        guard.set_mode(GuardMode::ReadOnly);
        let found = judged(&mut guard, |out| {
            encode::parse(out, b"c", b"commit", &[]);
            encode::parse(out, b"i", b"insert into t values (1)", &[]);
            bind(out, b"i");
            bind(out, b"c");
            encode::sync(out);
            bind(out, b"i");
            bind(out, b"c");
            bind(out, b"i");
        });
        let (last, others) = found.split_last().unwrap_or((&Guarded::Passes, &[]));
        assert_eq!(*last, Guarded::Refused);
        assert!(others.iter().all(|one| *one == Guarded::Passes), "{others:?}");
        guard.begin();
        let found = judged(&mut guard, |out| {
            bind(out, b"c");
            encode::query(out, b"insert into t values (1)");
        });
        assert_eq!(found, [Guarded::Passes, Guarded::Refused]);
    }

    #[test]
    fn where_the_transaction_could_write_only_words_that_read_pass() {
        for (mode, text, expected) in [
            (GuardMode::Words { deletes: false }, "select 1", Guarded::Passes),
            (GuardMode::Words { deletes: false }, "commit", Guarded::Passes),
            (GuardMode::Words { deletes: false }, "delete from t", Guarded::Refused),
            (GuardMode::Words { deletes: true }, "delete from t", Guarded::Passes),
            (GuardMode::Words { deletes: true }, "insert into t values (1)", Guarded::Refused),
            (GuardMode::Words { deletes: true }, "execute a", Guarded::Refused),
            (GuardMode::ReadOnly, "insert into t values (1)", Guarded::Passes),
            (GuardMode::ReadOnly, "do 'x'", Guarded::Refused),
            (GuardMode::Notes, "do 'x'", Guarded::Passes),
        ] {
            let mut guard = StatementGuard::default();
            guard.set_mode(mode);
            assert_eq!(
                judged(&mut guard, |out| encode::query(out, text.as_bytes())),
                [expected],
                "{mode:?} {text}"
            );
        }
    }

    #[test]
    fn a_text_in_pieces_is_awaited_and_a_very_long_one_is_refused() {
        let mut guard = StatementGuard::default();
        guard.set_mode(GuardMode::ReadOnly);
        let mut bytes = Vec::new();
        encode::query(&mut bytes, b"select 1");
        let header = wire::frame::header(&bytes).ok().flatten().expect("a header");
        assert_eq!(guard.judge(header, &bytes[..7]), Guarded::Incomplete);
        let long = Header { frame_bytes: u32::MAX / 2, ..header };
        assert_eq!(guard.judge(long, &bytes[..7]), Guarded::Refused);
    }

    #[test]
    fn names_do_not_fill_the_memory() {
        let mut guard = StatementGuard::default();
        for number in 0..MAX_NAMES + 10 {
            judged(&mut guard, |out| encode::parse(out, number.to_string().as_bytes(), b"select 1", &[]));
        }
        assert_eq!(guard.names.len(), MAX_NAMES);
        assert_eq!(guard.of((MAX_NAMES + 5).to_string().as_bytes()), ReadOnlyText::UNSEEN);
    }
}
