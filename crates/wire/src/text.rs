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

/// One of eight bytes is NUL: only of such a byte does taking 1 from each set a highest bit that was not set.
#[inline]
fn has_nul(bytes: [u8; 8]) -> bool {
    let word = u64::from_ne_bytes(bytes);
    word.wrapping_sub(u64::MAX / 0xff) & !word & (u64::MAX / 0xff * 0x80) != 0
}

/// `bytes` up to its first NUL: what a receiver would read of it.
#[inline]
pub(crate) fn before_nul(bytes: &[u8]) -> &[u8] {
    // Most are names of 8 to 16 bytes without one: the first word and the last are all of it.
    if let (8..=16, Some(first), Some(last)) = (bytes.len(), bytes.first_chunk(), bytes.last_chunk())
        && !has_nul(*first)
        && !has_nul(*last)
    {
        return bytes;
    }
    split(bytes).map_or(bytes, |(text, _)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_before_its_first_nul_wherever_that_is() {
        for bytes in 0..20 {
            let text: Vec<u8> = (0..bytes).map(|at| if at % 3 == 0 { 0x80 } else { at + 1 }).collect();
            assert_eq!(before_nul(&text), text);
            for at in 0..text.len() {
                let mut cut = text.clone();
                cut[at] = 0;
                assert_eq!(before_nul(&cut), &text[..at], "{bytes} bytes, NUL at {at}");
            }
        }
    }
}
