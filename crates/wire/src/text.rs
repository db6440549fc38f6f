//! Strings on the wire: bytes up to a NUL, in whatever encoding the session has.
//! Finds and cuts them; never looks at their encoding.

/// The bytes before the first NUL and the bytes after it; `None` when there is no NUL.
#[inline]
pub(crate) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// The string when `bytes` is one string and its NUL, and nothing else.
#[inline]
pub(crate) fn sole(bytes: &[u8]) -> Option<&[u8]> {
    match split(bytes)? {
        (text, []) => Some(text),
        _ => None,
    }
}

/// `bytes` up to its first NUL: what a receiver would read of it.
#[inline]
pub(crate) fn before_nul(bytes: &[u8]) -> &[u8] {
    split(bytes).map_or(bytes, |(text, _)| text)
}
