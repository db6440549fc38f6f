//! The few protocol messages that authentication sends, and the fields of those it receives
//! (PostgreSQL chapter "Message Formats"). It never keeps bytes and never allocates by a declared length.

use crate::fault::Malformed;

/// Codes of the `R` message.
pub(crate) const OK: i32 = 0;
pub(crate) const CLEARTEXT_PASSWORD: i32 = 3;
pub(crate) const MD5_PASSWORD: i32 = 5;
pub(crate) const SASL: i32 = 10;
pub(crate) const SASL_CONTINUE: i32 = 11;
pub(crate) const SASL_FINAL: i32 = 12;

/// An `R` message with this code and payload.
pub(crate) fn request(code: i32, payload: &[u8]) -> Vec<u8> {
    frame(b'R', &[&code.to_be_bytes(), payload])
}

/// AuthenticationSASL with one mechanism.
pub(crate) fn sasl_request(mechanism: &str) -> Vec<u8> {
    frame(b'R', &[&SASL.to_be_bytes(), mechanism.as_bytes(), b"\0\0"])
}

/// PasswordMessage.
pub(crate) fn password(text: &[u8]) -> Vec<u8> {
    frame(b'p', &[text, b"\0"])
}

/// SASLInitialResponse.
pub(crate) fn sasl_initial(mechanism: &str, data: &[u8]) -> Vec<u8> {
    // Written by us from our own nonce: far below any limit, so saturating never happens.
    let length = i32::try_from(data.len()).unwrap_or(i32::MAX);
    frame(b'p', &[mechanism.as_bytes(), b"\0", &length.to_be_bytes(), data])
}

/// SASLResponse.
pub(crate) fn sasl_response(data: &[u8]) -> Vec<u8> {
    frame(b'p', &[data])
}

/// The text of a PasswordMessage: everything up to the NUL that must end the body.
pub(crate) fn read_password(body: &[u8]) -> Result<&[u8], Malformed> {
    let (text, rest) = read_text(body)?;
    if rest.is_empty() { Ok(text) } else { Err(Malformed::Length) }
}

/// Mechanism and data of a SASLInitialResponse.
pub(crate) fn read_sasl_initial(body: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (mechanism, rest) = read_text(body)?;
    let (length, data) = read_int(rest)?;
    // -1 stands for "no data"; SCRAM always has some, so it fails as an empty message does.
    let declared = if length == -1 { Some(0) } else { usize::try_from(length).ok() };
    if declared == Some(data.len()) { Ok((mechanism, data)) } else { Err(Malformed::Length) }
}

/// The code of an `R` message and what follows it.
pub(crate) fn read_request(body: &[u8]) -> Result<(i32, &[u8]), Malformed> {
    read_int(body)
}

/// The mechanisms of AuthenticationSASL, up to the empty name that must end them.
pub(crate) fn read_mechanisms(mut payload: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    let mut mechanisms = Vec::new();
    loop {
        let (mechanism, rest) = read_text(payload)?;
        if mechanism.is_empty() {
            return if rest.is_empty() { Ok(mechanisms) } else { Err(Malformed::Length) };
        }
        mechanisms.push(mechanism);
        payload = rest;
    }
}

fn read_text(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let end = bytes.iter().position(|&byte| byte == 0).ok_or(Malformed::Text)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

fn read_int(bytes: &[u8]) -> Result<(i32, &[u8]), Malformed> {
    let (int, rest) = bytes.split_first_chunk::<4>().ok_or(Malformed::Length)?;
    Ok((i32::from_be_bytes(*int), rest))
}

fn frame(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length = 4 + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut bytes = Vec::with_capacity(1 + length);
    bytes.push(tag);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    for part in parts {
        bytes.extend_from_slice(part);
    }
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn frames_have_the_protocols_bytes() {
        assert_eq!(request(MD5_PASSWORD, b"salt"), b"R\0\0\0\x0c\0\0\0\x05salt");
        assert_eq!(sasl_request("SCRAM-SHA-256"), b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0");
        assert_eq!(password(b"x"), b"p\0\0\0\x06x\0");
        assert_eq!(sasl_initial("M", b"ab"), b"p\0\0\0\x0cM\0\0\0\0\x02ab");
    }

    #[test]
    fn a_declared_length_must_be_the_real_one() {
        assert_eq!(read_sasl_initial(b"M\0\0\0\0\x02ab").unwrap(), (&b"M"[..], &b"ab"[..]));
        assert_eq!(read_sasl_initial(b"M\0\xff\xff\xff\xff").unwrap(), (&b"M"[..], &b""[..]));
        for body in [&b"M\0\x7f\xff\xff\xffab"[..], b"M\0\0\0\0\x01ab", b"M\0\xff\xff\xff\xfeab", b"M\0\0\0"]
        {
            assert_eq!(read_sasl_initial(body), Err(Malformed::Length));
        }
        assert_eq!(read_sasl_initial(b"M"), Err(Malformed::Text));
    }

    #[test]
    fn a_password_ends_with_the_body() {
        assert_eq!(read_password(b"x\0"), Ok(&b"x"[..]));
        assert_eq!(read_password(b"x"), Err(Malformed::Text));
        assert_eq!(read_password(b"x\0y"), Err(Malformed::Length));
    }

    #[test]
    fn a_mechanism_list_ends_with_an_empty_name() {
        assert_eq!(read_mechanisms(b"A\0B\0\0").unwrap(), [b"A", b"B"]);
        assert_eq!(read_mechanisms(b"A\0"), Err(Malformed::Text));
        assert_eq!(read_mechanisms(b"\0A"), Err(Malformed::Length));
    }
}
