//! Where each frame begins and ends: one tag byte, a length that counts itself but not the tag, a body.
//! Owns lengths only; never looks into a body and never decides whether a tag is known.

/// Bytes of a frame's tag and length.
pub const HEADER_BYTES: usize = 5;

/// The least a length field may say: itself.
const MIN_DECLARED: u32 = 4;
/// The most a length field may say: the field is a signed 32-bit number.
const MAX_DECLARED: u32 = i32::MAX.unsigned_abs();

/// The first five bytes of a frame, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The frame's tag, see [`crate::tag`].
    pub tag: u8,
    /// Bytes of the whole frame, tag included: the declared length and one. Between 5 and 2^31.
    pub frame_bytes: u32,
}

impl Header {
    /// Bytes of the body, what follows the header.
    #[inline]
    #[must_use]
    pub const fn body_bytes(self) -> u32 {
        self.frame_bytes.saturating_sub(MIN_DECLARED + 1)
    }
}

/// The peer's fault: a length that is no length, so nothing after it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLength {
    /// The tag of the frame.
    pub tag: u8,
    /// The length as declared: below 4, above `i32::MAX`, or above the limit given to [`Frames`].
    pub declared: u32,
}

/// Reads the header at the start of `bytes`; `None` when fewer than five bytes are there.
///
/// ```
/// use wire::frame::{BadLength, Header, header};
///
/// assert_eq!(header(b"Q\0\0\0\x0dselect 1\0"), Ok(Some(Header { tag: b'Q', frame_bytes: 14 })));
/// assert_eq!(header(b"Q\0\0"), Ok(None));
/// assert_eq!(header(b"Q\0\0\0\x03"), Err(BadLength { tag: b'Q', declared: 3 }));
/// ```
///
/// # Errors
/// [`BadLength`] when the declared length is below 4 or above `i32::MAX`.
#[inline]
pub fn header(bytes: &[u8]) -> Result<Option<Header>, BadLength> {
    header_within(bytes, MAX_DECLARED - MIN_DECLARED)
}

/// The same where a body may be too long before that: `body_max` bounds its bytes.
///
/// # Errors
/// [`BadLength`] when the declared length is below 4 or says a longer body.
#[inline]
pub fn header_within(bytes: &[u8], body_max: u32) -> Result<Option<Header>, BadLength> {
    let Some(&[tag, a, b, c, d]) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let declared = u32::from_be_bytes([a, b, c, d]);
    // Both bounds in one comparison: what is below the least wraps around to the largest.
    if declared.wrapping_sub(MIN_DECLARED) <= body_max {
        Ok(Some(Header { tag, frame_bytes: declared.saturating_add(1) }))
    } else {
        Err(BadLength { tag, declared })
    }
}

/// A part of one frame's body, as far as the input reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The frame this belongs to.
    pub header: Header,
    /// The body bytes that are here; empty for a frame without body, or when only the header was here.
    pub body: &'a [u8],
    /// True for the first piece of a frame.
    pub begins: bool,
    /// True for the last piece of a frame.
    pub ends: bool,
}

/// Follows frame boundaries through input that arrives in arbitrary pieces, holding at most one header.
#[derive(Clone, Debug, Default)]
pub struct Splitter {
    partial: [u8; HEADER_BYTES],
    partial_bytes: usize,
    current: Option<(Header, u32)>,
}

impl Splitter {
    /// A splitter that expects the first byte of a frame.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True between frames: nothing is half read.
    #[inline]
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        self.current.is_none() && self.partial_bytes == 0
    }

    /// Takes the next piece off the front of `bytes`; `None` when `bytes` is used up. Each frame yields a
    /// piece when its header is complete, then one for each further stretch of its body.
    ///
    /// # Errors
    /// [`BadLength`] as [`header`]; the splitter is of no further use then.
    #[inline]
    pub fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Piece<'a>>, BadLength> {
        let begins = self.current.is_none();
        let (header, left) = match self.current {
            Some(current) if bytes.is_empty() => {
                debug_assert!(current.1 > 0);
                return Ok(None);
            }
            Some(current) => current,
            None => match self.complete_header(bytes)? {
                Some(header) => (header, header.body_bytes()),
                None => return Ok(None),
            },
        };
        let body_bytes = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let (body, rest) = bytes.split_at(body_bytes);
        *bytes = rest;
        let left = left - u32::try_from(body_bytes).unwrap_or(left);
        self.current = (left > 0).then_some((header, left));
        Ok(Some(Piece { header, body, begins, ends: left == 0 }))
    }

    /// Moves bytes into the partial header until it is whole.
    #[inline]
    fn complete_header(&mut self, bytes: &mut &[u8]) -> Result<Option<Header>, BadLength> {
        let taken = bytes.len().min(HEADER_BYTES - self.partial_bytes);
        let (front, rest) = bytes.split_at(taken);
        self.partial[self.partial_bytes..self.partial_bytes + taken].copy_from_slice(front);
        self.partial_bytes += taken;
        *bytes = rest;
        let found = header(&self.partial[..self.partial_bytes])?;
        if found.is_some() {
            self.partial_bytes = 0;
        }
        Ok(found)
    }
}

/// Collects whole frames from input that arrives in arbitrary pieces. Copies, so not for the hot path: for
/// tests, the simulator and tools.
#[derive(Clone, Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    read: usize,
    limit_bytes: u32,
}

impl Frames {
    /// Collects frames of at most `limit_bytes` bytes, header included.
    #[must_use]
    pub fn new(limit_bytes: u32) -> Self {
        Self { bytes: Vec::new(), read: 0, limit_bytes }
    }

    /// Adds input.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole frame, as tag and body; `None` when none is complete.
    ///
    /// # Errors
    /// [`BadLength`] as [`header`], and for a frame above the limit: as soon as its header is there.
    pub fn pop(&mut self) -> Result<Option<(u8, Vec<u8>)>, BadLength> {
        let unread = &self.bytes[self.read..];
        let Some(found) = header(unread)? else { return Ok(None) };
        if found.frame_bytes > self.limit_bytes {
            return Err(BadLength { tag: found.tag, declared: found.frame_bytes - 1 });
        }
        let frame_bytes = usize::try_from(found.frame_bytes).unwrap_or(usize::MAX);
        let Some(frame) = unread.get(..frame_bytes) else { return Ok(None) };
        let body = frame[HEADER_BYTES..].to_vec();
        self.read += frame_bytes;
        Ok(Some((found.tag, body)))
    }

    /// Bytes held that no frame was made of yet.
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.read..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_needs_five_bytes() {
        assert_eq!(header(b"Z\0\0\0"), Ok(None));
        assert_eq!(header(b"Z\0\0\0\x05I"), Ok(Some(Header { tag: b'Z', frame_bytes: 6 })));
    }

    #[test]
    fn lengths_outside_four_to_the_signed_maximum_are_refused() {
        assert_eq!(header(b"Q\0\0\0\x03"), Err(BadLength { tag: b'Q', declared: 3 }));
        assert_eq!(header(b"Q\x80\0\0\0"), Err(BadLength { tag: b'Q', declared: 0x8000_0000 }));
        assert_eq!(header(b"Q\x7f\xff\xff\xff"), Ok(Some(Header { tag: b'Q', frame_bytes: 0x8000_0000 })));
        assert_eq!(header(b"S\0\0\0\x04").map(|found| found.map(Header::body_bytes)), Ok(Some(0)));
    }

    #[test]
    fn a_splitter_yields_pieces_as_they_come() {
        let mut splitter = Splitter::new();
        let mut input: &[u8] = b"S\0\0\0\x04Q\0\0\0\x07a";
        let header = Header { tag: b'S', frame_bytes: 5 };
        assert_eq!(
            splitter.next(&mut input),
            Ok(Some(Piece { header, body: b"", begins: true, ends: true }))
        );
        let header = Header { tag: b'Q', frame_bytes: 8 };
        assert_eq!(
            splitter.next(&mut input),
            Ok(Some(Piece { header, body: b"a", begins: true, ends: false }))
        );
        assert_eq!(splitter.next(&mut input), Ok(None));
        assert!(!splitter.is_between_frames());
        let mut input: &[u8] = b"b\0Z";
        assert_eq!(
            splitter.next(&mut input),
            Ok(Some(Piece { header, body: b"b\0", begins: false, ends: true }))
        );
        assert!(splitter.is_between_frames());
        assert_eq!(splitter.next(&mut input), Ok(None));
        assert!(!splitter.is_between_frames());
    }

    #[test]
    fn frames_refuse_what_is_above_their_limit_from_the_header_alone() {
        let mut frames = Frames::new(8);
        frames.push(b"Q\0\0\0\x07ab\0Q\0\0\0\x08");
        assert_eq!(frames.pop(), Ok(Some((b'Q', b"ab\0".to_vec()))));
        assert_eq!(frames.pop(), Err(BadLength { tag: b'Q', declared: 8 }));
    }
}
