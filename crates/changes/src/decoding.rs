//! Reads what a WAL sender streams of a logical slot of `test_decoding` (PostgreSQL: "Streaming Replication Protocol", "test_decoding").
//!
//! Owns the messages inside CopyData and the lines of the plugin. Takes bytes however they are cut, skips the values of rows without keeping them, and never does I/O.

use std::collections::BTreeSet;

use wire::frame::{BadLength, Piece, Splitter};
use wire::tag::backend as tag;

/// What is kept of a message: enough for a keepalive, the names in the line of a row, an error's texts. A longer list of names is not read.
const PREFIX_BYTES: usize = 4096;

/// More relations than this in one transaction are as good as all.
pub(crate) const MAX_NAMES: usize = 1000;

/// Bytes before the data of an XLogData: `w`, two positions and a time.
const DATA_HEADER_BYTES: usize = 25;

/// A transaction that has committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transaction {
    /// Its number, without the epoch.
    pub(crate) xid: u32,
    /// The end of its commit record.
    pub(crate) end: u64,
    /// What it has changed.
    pub(crate) what: Effect,
}

/// What a transaction has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Rows of these relations (none: it has written messages alone); what else is not shown.
    Rows(BTreeSet<Box<str>>),
    /// Nothing that decoding shows, or too much: a catalog, or anything.
    Unknown,
}

/// What the stream says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A transaction has committed.
    Committed(Transaction),
    /// All transactions that end before this position have been streamed.
    Reached {
        /// The position, in bytes of WAL.
        lsn: u64,
        /// The server waits for an answer.
        wants_reply: bool,
    },
    /// An ErrorResponse, as far as it was kept: the stream ends.
    Error(Box<[u8]>),
    /// The server ends the stream.
    Ended,
}

/// The server's fault: what it sends cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFault {
    /// A frame with an impossible length.
    Length(BadLength),
    /// A message that does not belong there.
    Tag(u8),
    /// A message of CopyData that is none.
    Message,
    /// A line of the plugin outside of its transaction, or one that cannot be read.
    Line,
}

/// The transaction whose lines arrive.
#[derive(Debug)]
struct Open {
    xid: u32,
    names: BTreeSet<Box<str>>,
    has_lines: bool,
    is_own: bool,
    is_unknown: bool,
}

/// The stream so far.
#[derive(Debug)]
pub(crate) struct Stream {
    splitter: Splitter,
    /// The beginning of a message that has not arrived as far as it is kept.
    partial: Vec<u8>,
    /// That message has been read; the rest is skipped.
    is_read: bool,
    open: Option<Open>,
    /// Names beyond ASCII are in UTF-8, so that they can be compared.
    is_utf8: bool,
    /// The prefix of the messages that the follower writes to the WAL, which others do not know: a transaction of nothing else changes nothing.
    own_messages: Box<str>,
}

impl Stream {
    /// A stream behind its CopyBothResponse; `is_utf8`: the database's encoding is UTF-8.
    #[must_use]
    pub(crate) fn new(is_utf8: bool, own_messages: &str) -> Stream {
        Stream {
            splitter: Splitter::new(),
            partial: Vec::new(),
            is_read: false,
            open: None,
            is_utf8,
            own_messages: own_messages.into(),
        }
    }

    /// Takes bytes; appends what they say.
    ///
    /// # Errors
    /// [`StreamFault`]: the stream is of no further use.
    pub(crate) fn receive(&mut self, mut bytes: &[u8], events: &mut Vec<Event>) -> Result<(), StreamFault> {
        while let Some(piece) = self.splitter.next(&mut bytes).map_err(StreamFault::Length)? {
            self.piece(piece, events)?;
        }
        Ok(())
    }

    fn piece(&mut self, piece: Piece<'_>, events: &mut Vec<Event>) -> Result<(), StreamFault> {
        if piece.begins {
            self.partial.clear();
            self.is_read = false;
        }
        if self.is_read {
            return Ok(());
        }
        let tag = piece.header.tag;
        let is_enough = |bytes: usize| piece.ends || bytes >= PREFIX_BYTES;
        if self.partial.is_empty() && is_enough(piece.body.len()) {
            self.is_read = true;
            let kept = piece.body.len().min(PREFIX_BYTES);
            return self.message(tag, piece.body.get(..kept).unwrap_or_default(), events);
        }
        let room = PREFIX_BYTES - self.partial.len();
        let taken = piece.body.len().min(room);
        self.partial.extend_from_slice(piece.body.get(..taken).unwrap_or_default());
        if !is_enough(self.partial.len()) {
            return Ok(());
        }
        self.is_read = true;
        let body = std::mem::take(&mut self.partial);
        let outcome = self.message(tag, &body, events);
        self.partial = body;
        self.partial.clear();
        outcome
    }

    /// A message, or its first [`PREFIX_BYTES`].
    fn message(&mut self, tag: u8, body: &[u8], events: &mut Vec<Event>) -> Result<(), StreamFault> {
        match tag {
            tag::COPY_DATA => self.copied(body, events),
            tag::ERROR => {
                events.push(Event::Error(body.into()));
                Ok(())
            }
            tag::NOTICE | tag::PARAMETER_STATUS => Ok(()),
            tag::COPY_DONE | tag::COMMAND_COMPLETE | tag::READY => {
                events.push(Event::Ended);
                Ok(())
            }
            other => Err(StreamFault::Tag(other)),
        }
    }

    fn copied(&mut self, body: &[u8], events: &mut Vec<Event>) -> Result<(), StreamFault> {
        match body {
            [b'w', header @ ..] if body.len() >= DATA_HEADER_BYTES => {
                let end = number(header).ok_or(StreamFault::Message)?;
                self.line(body.get(DATA_HEADER_BYTES..).unwrap_or_default(), end, events)
            }
            [b'k', rest @ ..] if rest.len() == 17 => {
                let lsn = number(rest).ok_or(StreamFault::Message)?;
                events.push(Event::Reached { lsn, wants_reply: rest.last() == Some(&1) });
                Ok(())
            }
            _ => Err(StreamFault::Message),
        }
    }

    /// A line of the plugin. `end` is where the record that it is about was, for COMMIT the end of the record.
    fn line(&mut self, line: &[u8], end: u64, events: &mut Vec<Event>) -> Result<(), StreamFault> {
        if let Some(rest) = line.strip_prefix(b"BEGIN ") {
            let xid = xid(rest).filter(|_| self.open.is_none()).ok_or(StreamFault::Line)?;
            let names = BTreeSet::new();
            self.open = Some(Open { xid, names, has_lines: false, is_own: true, is_unknown: false });
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix(b"COMMIT ") {
            let xid = xid(rest).ok_or(StreamFault::Line)?;
            let open = self.open.take().filter(|open| open.xid == xid).ok_or(StreamFault::Line)?;
            events.extend(open.committed(end).map(Event::Committed));
            events.push(Event::Reached { lsn: end, wants_reply: false });
            return Ok(());
        }
        if line.starts_with(b"message: transactional: 0 ") {
            return Ok(());
        }
        let is_utf8 = self.is_utf8;
        let open = self.open.as_mut().ok_or(StreamFault::Line)?;
        open.has_lines = true;
        if let Some(rest) = line.strip_prefix(b"message: transactional: 1 prefix: ") {
            let rest = rest.strip_prefix(self.own_messages.as_bytes());
            open.is_own &= rest.is_some_and(|rest| rest.starts_with(b", sz: "));
            return Ok(());
        }
        open.is_own = false;
        match line.strip_prefix(b"table ").and_then(relations) {
            Some(names) if is_utf8 || names.iter().all(|name| name.is_ascii()) => open.names.extend(names),
            // Names that cannot be read or compared, or a line of a later version.
            _ => open.is_unknown = true,
        }
        if open.names.len() > MAX_NAMES {
            open.names.clear();
            open.is_unknown = true;
        }
        Ok(())
    }
}

impl Open {
    /// None: it has written nothing but the follower's own messages.
    fn committed(self, end: u64) -> Option<Transaction> {
        let what = if self.is_unknown || !self.has_lines {
            Effect::Unknown
        } else if self.is_own {
            return None;
        } else {
            Effect::Rows(self.names)
        };
        Some(Transaction { xid: self.xid, end, what })
    }
}

/// The big-endian number at the beginning.
fn number(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes))
}

/// A transaction's number; behind it may be more (a time).
fn xid(text: &[u8]) -> Option<u32> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(digits)?;
    let is_end = rest.is_empty() || rest.starts_with(b" ");
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|_| is_end)
}

/// The relations in `schema.name: …` or `schema.name, schema.name: TRUNCATE: …`, without their schemas; None if they are not all here.
fn relations(mut text: &[u8]) -> Option<Vec<Box<str>>> {
    let mut names = Vec::new();
    loop {
        let (_, rest) = identifier(text)?;
        let (name, rest) = identifier(rest.strip_prefix(b".")?)?;
        let mut name = String::from_utf8(name).ok()?;
        name.make_ascii_lowercase();
        names.push(name.into_boxed_str());
        match rest.strip_prefix(b", ") {
            Some(rest) => text = rest,
            None => return rest.starts_with(b": ").then_some(names),
        }
    }
}

/// An identifier as `quote_identifier()` writes it, and what is behind.
fn identifier(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let is_plain = |byte: &&u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
        let (name, rest) = text.split_at_checked(text.iter().take_while(is_plain).count())?;
        return (!name.is_empty()).then(|| (name.to_vec(), rest));
    };
    let (mut name, mut rest) = (Vec::new(), quoted);
    loop {
        let (first, behind) = rest.split_first()?;
        rest = behind;
        match (first, behind) {
            (b'"', [b'"', after @ ..]) => {
                name.push(b'"');
                rest = after;
            }
            (b'"', _) => return (!name.is_empty()).then_some((name, rest)),
            (byte, _) => name.push(*byte),
        }
    }
}

#[cfg(test)]
#[path = "decoding_tests.rs"]
mod tests;
