//! The first message of an idle client: whether a server has to be checked out for it.

use wire::frame::{HEADER_BYTES, Header};
use wire::tag::frontend as tag;

use super::header;
use crate::ClientFault;

/// What the first bytes of an idle client need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstMessage {
    /// A server.
    NeedsServer,
    /// More bytes before it can be judged.
    Incomplete,
    /// Nothing: this many bytes are a whole frame that PostgreSQL ignores outside a COPY, or a Flush of nothing. A
    /// server checked out for it would have no reply to end with.
    Ignored(usize),
    /// The client disconnects.
    Terminate,
    /// A message that no client may send.
    Fault(ClientFault),
}

/// Judges the first frame of an idle client, before a server is taken for it.
///
/// ```
/// use weir_session::{FirstMessage, first_message};
/// use wire::encode;
///
/// let mut bytes = Vec::new();
/// encode::query(&mut bytes, b"select 1");
/// assert_eq!(first_message(&bytes, 1 << 20), FirstMessage::NeedsServer);
/// assert_eq!(first_message(&bytes[..4], 1 << 20), FirstMessage::Incomplete);
/// assert_eq!(first_message(b"H\0\0\0\x04", 1 << 20), FirstMessage::Ignored(5), "a Flush of nothing");
/// ```
#[must_use]
pub fn first_message(bytes: &[u8], frame_bytes_max: u32) -> FirstMessage {
    match header(bytes, frame_bytes_max) {
        Err(fault) => FirstMessage::Fault(fault),
        Ok(None) => FirstMessage::Incomplete,
        Ok(Some(header)) => match header.tag {
            tag::TERMINATE => FirstMessage::Terminate,
            tag::PASSWORD => FirstMessage::Fault(ClientFault::PasswordAfterLogin),
            tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL | tag::FLUSH
                if bytes.len() >= header.frame_bytes as usize =>
            {
                FirstMessage::Ignored(header.frame_bytes as usize)
            }
            known if wire::tag::is_frontend(known) => FirstMessage::NeedsServer,
            other => FirstMessage::Fault(ClientFault::UnknownTag(other)),
        },
    }
}

/// Whether this Query is a BEGIN and nothing else; None if that cannot be said before more of it is here.
#[inline(always)]
pub(super) fn begins_block(header: Header, rest: &[u8]) -> Option<bool> {
    const BYTES: u32 = 64;
    if header.frame_bytes > BYTES {
        return Some(false);
    }
    if header.frame_bytes as usize == HEADER_BYTES || !rest.get(HEADER_BYTES)?.eq_ignore_ascii_case(&b'b') {
        return Some(false);
    }
    let text = rest.get(HEADER_BYTES..header.frame_bytes as usize)?;
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    Some(!text.strip_suffix(b";").unwrap_or(text).contains(&b';'))
}
