//! Frames of PostgreSQL's protocol 3.0, cut and written for the models alone.
//!
//! Written apart from `wire` on purpose: the judge must not share an error with the judged. Trusts no length.

/// The longest frame that a model believes in.
const LONGEST: usize = 1 << 24;

/// Type and length.
pub(crate) const HEADER_BYTES: usize = 5;

/// Bytes of one direction, cut into frames.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    taken: usize,
}

/// What [`Frames::next`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Not enough bytes yet.
    Partial,
    /// A frame of this type (0: a startup packet, which has none).
    Frame(u8),
    /// Nothing sensible can follow.
    Malformed,
}

/// What becomes of a Query, FunctionCall or Sync that a server has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    /// ReadyForQuery answers it.
    Answered,
    /// Nothing does: it is skipped, or comes amidst the data of a COPY. `awaits_sync`: what it was sent in ends with a Sync that is to come.
    Ignored { awaits_sync: bool },
}

impl Frames {
    /// Adds bytes as they came.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 && self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        } else if self.taken > 4096 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether no byte waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    /// The next typed frame; its body (without type and length) replaces what was in `body`.
    pub(crate) fn next(&mut self, body: &mut Vec<u8>) -> Next {
        let Some(kind) = self.bytes.get(self.taken).copied() else { return Next::Partial };
        self.cut(1, kind, body)
    }

    /// The next untyped packet, as a connection begins with.
    pub(crate) fn next_startup(&mut self, body: &mut Vec<u8>) -> Next {
        self.cut(0, 0, body)
    }

    /// The next byte; the answer to SSLRequest is but one.
    pub(crate) fn peek_byte(&self) -> Option<u8> {
        self.bytes.get(self.taken).copied()
    }

    /// Takes it.
    pub(crate) fn skip_byte(&mut self) {
        self.taken += 1;
    }

    fn cut(&mut self, head: usize, kind: u8, body: &mut Vec<u8>) -> Next {
        let rest = &self.bytes[self.taken..];
        let Some(length) = rest.get(head..head + 4).and_then(|length| length.try_into().ok()) else {
            return Next::Partial;
        };
        let length = u32::from_be_bytes(length) as usize;
        if !(4..LONGEST).contains(&length) {
            return Next::Malformed;
        }
        let Some(found) = rest.get(head + 4..head + length) else { return Next::Partial };
        body.clear();
        body.extend_from_slice(found);
        self.taken += head + length;
        Next::Frame(kind)
    }
}

/// Appends one message; `fill` writes its body.
pub(crate) fn message(out: &mut Vec<u8>, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    untyped(out, fill);
}

/// Appends one message without a type.
pub(crate) fn untyped(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    fill(out);
    let length = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a text and its NUL.
pub(crate) fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(text);
    out.push(0);
}

/// Reads a body field by field; None where it is too short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    /// A text up to its NUL.
    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Some(text)
    }

    /// This many bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Two bytes as a number.
    pub(crate) fn short(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.bytes(2)?.try_into().ok()?))
    }

    /// Four bytes as a number.
    pub(crate) fn long(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.bytes(4)?.try_into().ok()?))
    }

    /// A length (-1: NULL, given as an empty text here) and that number of bytes.
    pub(crate) fn value(&mut self) -> Option<&'a [u8]> {
        match self.long()? {
            u32::MAX => Some(&[]),
            length => self.bytes(length as usize),
        }
    }
}

/// A field of an ErrorResponse or NoticeResponse.
pub(crate) fn error_field(body: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut fields = Fields(body);
    loop {
        let kind = *fields.bytes(1)?.first()?;
        if kind == 0 {
            return None;
        }
        let value = fields.text()?;
        if kind == wanted {
            return Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_the_same_however_they_come() {
        let mut stream = Vec::new();
        message(&mut stream, b'Q', |body| text(body, b"SELECT 1"));
        message(&mut stream, b'S', |_| ());
        for step in 1..stream.len() {
            let (mut frames, mut body, mut found) = (Frames::default(), Vec::new(), Vec::new());
            for piece in stream.chunks(step) {
                frames.push(piece);
                while let Next::Frame(kind) = frames.next(&mut body) {
                    found.push((kind, body.clone()));
                }
            }
            assert_eq!(found, [(b'Q', b"SELECT 1\0".to_vec()), (b'S', Vec::new())]);
            assert!(frames.is_empty());
        }
    }

    #[test]
    fn lengths_are_not_believed() {
        for length in [0_u32, 3, u32::MAX] {
            let mut frames = Frames::default();
            frames.push(b"Q");
            frames.push(&length.to_be_bytes());
            assert_eq!(frames.next(&mut Vec::new()), Next::Malformed);
        }
    }

    #[test]
    fn error_fields_are_found() {
        let body = b"SERROR\0C42601\0Mno\0\0";
        assert_eq!(error_field(body, b'C'), Some(&b"42601"[..]));
        assert_eq!(error_field(body, b'X'), None);
    }
}
