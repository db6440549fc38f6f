//! The one SASL message with an inner layout: SASLInitialResponse.
//! Owns that layout only; never the mechanism's data, which `auth` reads.

use crate::text;

/// The mechanism's name and its first data, `None` when the client sent none; the outer `None` when the
/// complete `body` is anything but a name, a length, and as many bytes as it says.
#[must_use]
pub fn initial_response(body: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (mechanism, rest) = text::split(body)?;
    let (length, data) = rest.split_first_chunk::<4>()?;
    match i32::from_be_bytes(*length) {
        -1 if data.is_empty() => Some((mechanism, None)),
        length if usize::try_from(length) == Ok(data.len()) => Some((mechanism, Some(data))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_must_agree() {
        assert_eq!(initial_response(b"M\0\0\0\0\x02ab"), Some((&b"M"[..], Some(&b"ab"[..]))));
        assert_eq!(initial_response(b"M\0\0\0\0\0"), Some((&b"M"[..], Some(&b""[..]))));
        assert_eq!(initial_response(b"M\0\xff\xff\xff\xff"), Some((&b"M"[..], None)));
        for bad in [
            &b""[..],
            b"M",
            b"M\0",
            b"M\0\0\0\0",
            b"M\0\0\0\0\x02a",
            b"M\0\0\0\0\x02abc",
            b"M\0\xff\xff\xff\xffa",
            b"M\0\xff\xff\xff\xfe",
        ] {
            assert_eq!(initial_response(bad), None, "{bad:?}");
        }
    }
}
