//! Whole messages, appended to a buffer: what a server says and what a client says.
//! Never sends and never remembers.
//!
//! Two promises hold for every function here. A string ends at its first NUL, because its reader would stop
//! there too: nothing put into a message can pass for another of its fields. A length too large for its field
//! is written as one that every receiver refuses: nothing can be read as another message.

mod backend;
mod frontend;

pub use backend::*;
pub use frontend::*;

use crate::text::before_nul;

/// What stands in a length field when the true length does not fit: as a signed number, -1.
const REFUSED: u32 = u32::MAX;

/// The length to declare, or one that is refused.
#[inline]
pub(crate) fn declared(bytes: Option<u64>) -> u32 {
    match bytes.map(i32::try_from) {
        Some(Ok(length)) => length.unsigned_abs(),
        _ => REFUSED,
    }
}

/// Appends a CopyData: a stretch of a COPY in either direction.
pub fn copy_data(out: &mut Vec<u8>, data: &[u8]) {
    Message::tagged(out, crate::tag::backend::COPY_DATA).bytes(data).end();
}

/// Appends a CopyDone: the end of a COPY in either direction.
pub fn copy_done(out: &mut Vec<u8>) {
    Message::tagged(out, crate::tag::backend::COPY_DONE).end();
}

/// A message under construction at the end of `out`.
struct Message<'a> {
    out: &'a mut Vec<u8>,
    /// Where the length field is.
    length_at: usize,
}

impl<'a> Message<'a> {
    #[inline]
    fn tagged(out: &'a mut Vec<u8>, tag: u8) -> Self {
        out.push(tag);
        Self::untagged(out)
    }

    #[inline]
    fn untagged(out: &'a mut Vec<u8>) -> Self {
        let length_at = out.len();
        out.extend_from_slice(&[0; 4]);
        Self { out, length_at }
    }

    #[inline]
    fn byte(self, byte: u8) -> Self {
        self.out.push(byte);
        self
    }

    #[inline]
    fn bytes(self, bytes: &[u8]) -> Self {
        self.out.extend_from_slice(bytes);
        self
    }

    #[inline]
    fn text(self, text: &[u8]) -> Self {
        self.bytes(before_nul(text)).byte(0)
    }

    #[inline]
    fn number(self, number: u32) -> Self {
        self.bytes(&number.to_be_bytes())
    }

    #[inline]
    fn short(self, number: u16) -> Self {
        self.bytes(&number.to_be_bytes())
    }

    /// A count of what follows; one that does not fit leaves a message its receiver finds too long.
    #[inline]
    fn count(self, count: usize) -> Self {
        self.short(u16::try_from(count).unwrap_or(u16::MAX))
    }

    /// A value that may be NULL: its length, or -1, and its bytes.
    #[inline]
    fn value(self, value: Option<&[u8]>) -> Self {
        match value {
            Some(value) => self.number(declared(Some(value.len() as u64))).bytes(value),
            None => self.number(u32::MAX),
        }
    }

    /// Fills in the length.
    #[inline]
    fn end(self) {
        let length = declared(Some((self.out.len() - self.length_at) as u64));
        self.out[self.length_at..self.length_at + 4].copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_in_a_string_ends_it() {
        let mut out = Vec::new();
        error(&mut out, "ERROR", "42601", "no\0Dforged\0");
        assert_eq!(out, b"E\0\0\0\x1eSERROR\0VERROR\0C42601\0Mno\0\0");
        out.clear();
        query(&mut out, b"SELECT 1\0; DROP");
        assert_eq!(out, b"Q\0\0\0\x0dSELECT 1\0");
    }

    #[test]
    fn lengths_beyond_the_signed_maximum_are_refused_ones() {
        assert_eq!(declared(Some(0x7fff_ffff)), 0x7fff_ffff);
        assert_eq!(declared(Some(0x8000_0000)), REFUSED);
        assert_eq!(declared(None), REFUSED);
    }

    #[test]
    fn messages_are_appended() {
        let mut out = b"before".to_vec();
        sync(&mut out);
        copy_data(&mut out, b"x\0y");
        copy_done(&mut out);
        assert_eq!(out, b"beforeS\0\0\0\x04d\0\0\0\x07x\0yc\0\0\0\x04");
    }
}
