//! The first packet of a connection, the only one without a tag: a request for TLS or GSS encryption, a
//! cancel, or a startup with its parameters.
//! Never answers, never judges a minor version or a parameter, and never reads past the declared length:
//! what a client sent behind a TLS request stays with the caller, who must refuse it.

use crate::text;

/// The longest first packet taken, in bytes, its length field included. PostgreSQL draws the same line.
pub const MAX_STARTUP_BYTES: usize = 10_000;

/// The codes in the place of a version: major 1234, which no protocol will ever have.
pub(crate) const CANCEL_CODE: u32 = (1234 << 16) | 5678;
pub(crate) const SSL_CODE: u32 = (1234 << 16) | 5679;
pub(crate) const GSS_CODE: u32 = (1234 << 16) | 5680;

/// Bytes of a length field and a code: all of an encryption request, the least of any first packet.
const MIN_BYTES: u32 = 8;

/// A protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 3 for anything newer than PostgreSQL 7.3.
    pub major: u16,
    /// 0, or 2 since PostgreSQL 18.
    pub minor: u16,
}

impl Version {
    /// Protocol 3.0, which every peer speaks.
    pub const V3_0: Self = Self { major: 3, minor: 0 };
    /// Protocol 3.2: secrets of up to 256 bytes.
    pub const V3_2: Self = Self { major: 3, minor: 2 };

    /// The number on the wire: major in the upper half.
    #[must_use]
    pub const fn number(self) -> u32 {
        (self.major as u32) << 16 | self.minor as u32
    }

    /// The version a number on the wire stands for.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        let [a, b, c, d] = number.to_be_bytes();
        Self { major: u16::from_be_bytes([a, b]), minor: u16::from_be_bytes([c, d]) }
    }
}

/// What a connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First<'a> {
    /// SSLRequest.
    Ssl,
    /// GSSENCRequest.
    Gss,
    /// CancelRequest.
    Cancel(Cancel<'a>),
    /// StartupMessage.
    Startup(Startup<'a>),
}

/// A request to cancel what another connection runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancel<'a> {
    /// The process the key data named.
    pub process_id: u32,
    /// The secret the key data gave: 4 to 256 bytes (always 4 before protocol 3.2).
    pub secret: &'a [u8],
}

/// A startup: its layout is checked, its parameters are read where they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Startup<'a> {
    /// The version asked for; its major is 3.
    pub version: Version,
    /// Names and values, each with its NUL, and the NUL that ends them.
    pairs: &'a [u8],
}

impl<'a> Startup<'a> {
    /// Names and values as sent, in order, repeated ones too, `_pq_.` ones too.
    pub fn parameters(&self) -> impl Iterator<Item = Pair<'a>> + use<'a> {
        let mut rest = self.pairs;
        std::iter::from_fn(move || {
            let (pair, after) = pair(rest)?;
            rest = after;
            Some(pair)
        })
    }

    /// The value of the last parameter of that name, as PostgreSQL takes it; `None` when it was not sent.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&'a [u8]> {
        self.parameters().filter(|(key, _)| *key == name.as_bytes()).last().map(|(_, value)| value)
    }
}

/// The client's fault in its first packet. There is no telling where a next packet would begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupFault {
    /// The declared length, as an unsigned number: below 8, above [`MAX_STARTUP_BYTES`], or not 8 for an
    /// encryption request. Another protocol (TLS at once, HTTP) ends here.
    Length(u32),
    /// Parameters that do not pair up, or no NUL, or not one NUL only, at the end.
    Layout,
    /// A major version other than 3.
    Version(Version),
    /// A cancel whose secret is not 4 to 256 bytes.
    CancelLength,
}

/// Reads the first packet and how many bytes it took; `None` when it is not complete.
///
/// # Errors
/// [`StartupFault`]: a bad length as soon as four bytes are there, the others when the packet is complete.
///
/// ```
/// use wire::encode;
/// use wire::startup::{First, Version, first};
///
/// let mut bytes = Vec::new();
/// encode::startup(&mut bytes, Version::V3_0, &[(b"user", b"alice"), (b"database", b"shop")]);
/// let Ok(Some((First::Startup(startup), length))) = first(&bytes) else { panic!("a startup packet") };
/// assert_eq!((startup.parameter("user"), length), (Some(&b"alice"[..]), bytes.len()));
/// assert_eq!(first(&bytes[..6]), Ok(None), "more bytes are needed");
/// ```
pub fn first(bytes: &[u8]) -> Result<Option<(First<'_>, usize)>, StartupFault> {
    let Some((&length, _)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let declared = u32::from_be_bytes(length);
    let packet_bytes = match usize::try_from(declared) {
        Ok(length) if declared >= MIN_BYTES && length <= MAX_STARTUP_BYTES => length,
        _ => return Err(StartupFault::Length(declared)),
    };
    let Some(packet) = bytes.get(..packet_bytes) else { return Ok(None) };
    let Some((&code, rest)) = packet[4..].split_first_chunk::<4>() else {
        return Err(StartupFault::Length(declared));
    };
    let first = match u32::from_be_bytes(code) {
        SSL_CODE | GSS_CODE if declared != MIN_BYTES => return Err(StartupFault::Length(declared)),
        SSL_CODE => First::Ssl,
        GSS_CODE => First::Gss,
        CANCEL_CODE => First::Cancel(cancel(rest)?),
        number => First::Startup(startup(Version::from_number(number), rest)?),
    };
    Ok(Some((first, packet_bytes)))
}

fn cancel(rest: &[u8]) -> Result<Cancel<'_>, StartupFault> {
    let (process_id, secret) = rest.split_first_chunk::<4>().ok_or(StartupFault::CancelLength)?;
    if !(4..=256).contains(&secret.len()) {
        return Err(StartupFault::CancelLength);
    }
    Ok(Cancel { process_id: u32::from_be_bytes(*process_id), secret })
}

fn startup(version: Version, pairs: &[u8]) -> Result<Startup<'_>, StartupFault> {
    if version.major != 3 {
        return Err(StartupFault::Version(version));
    }
    let mut rest = pairs;
    while let Some((_, after)) = pair(rest) {
        rest = after;
    }
    if rest == [0] { Ok(Startup { version, pairs }) } else { Err(StartupFault::Layout) }
}

/// A parameter's name and its value.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// One name and value and what follows; `None` at the empty name that ends them, or at anything else.
fn pair(bytes: &[u8]) -> Option<(Pair<'_>, &[u8])> {
    let (name, rest) = text::split(bytes).filter(|(name, _)| !name.is_empty())?;
    let (value, rest) = text::split(rest)?;
    Some(((name, value), rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::encode;

    fn packet(number: u32, rest: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(rest.len() + 8).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(&number.to_be_bytes());
        bytes.extend_from_slice(rest);
        bytes
    }

    fn fault(bytes: &[u8]) -> StartupFault {
        first(bytes).unwrap_err()
    }

    #[test]
    fn parameters_come_in_order_and_the_last_of_a_name_counts() {
        let mut bytes = Vec::new();
        let sent: [(&[u8], &[u8]); 4] =
            [(b"user", b"u"), (b"database", b""), (b"_pq_.x", b"1"), (b"user", b"v")];
        encode::startup(&mut bytes, Version::V3_2, &sent);
        let (First::Startup(startup), consumed) = first(&bytes).unwrap().unwrap() else { panic!("startup") };
        assert_eq!(consumed, bytes.len());
        assert_eq!(startup.version, Version::V3_2);
        assert_eq!(startup.parameters().collect::<Vec<_>>(), sent);
        assert_eq!(startup.parameter("user"), Some(&b"v"[..]));
        assert_eq!(startup.parameter("database"), Some(&b""[..]));
        assert_eq!(startup.parameter("options"), None);
    }

    #[test]
    fn what_follows_the_packet_is_left_to_the_caller() {
        let mut bytes = Vec::new();
        encode::ssl_request(&mut bytes);
        bytes.extend_from_slice(b"stuffed");
        assert_eq!(first(&bytes), Ok(Some((First::Ssl, 8))));
        assert_eq!(first(&packet(GSS_CODE, b"")), Ok(Some((First::Gss, 8))));
        assert_eq!(fault(&packet(SSL_CODE, b"more")), StartupFault::Length(12));
    }

    #[test]
    fn other_protocols_are_a_bad_length_at_four_bytes() {
        assert_eq!(fault(b"\x16\x03\x01\x02"), StartupFault::Length(0x1603_0102));
        assert_eq!(fault(b"GET "), StartupFault::Length(0x4745_5420));
        assert_eq!(fault(b"\0\0\0\x07"), StartupFault::Length(7));
        assert_eq!(fault(b"\xff\xff\xff\xff"), StartupFault::Length(u32::MAX));
        assert_eq!(fault(b"\0\0\x27\x11"), StartupFault::Length(10_001));
        assert_eq!(first(b"\0\0\x27\x10"), Ok(None));
    }

    #[test]
    fn a_layout_must_be_pairs_and_one_nul() {
        let number = Version::V3_0.number();
        for rest in
            [&b""[..], b"user", b"user\0", b"user\0u", b"user\0u\0", b"user\0u\0\0x", b"\0\0", b"user\0\0"]
        {
            assert_eq!(fault(&packet(number, rest)), StartupFault::Layout, "{rest:?}");
        }
        assert!(first(&packet(number, b"\0")).is_ok());
        assert_eq!(fault(&packet(2 << 16, b"\0")), StartupFault::Version(Version { major: 2, minor: 0 }));
    }

    #[test]
    fn a_cancel_has_a_secret_of_4_to_256_bytes() {
        for (secret_bytes, good) in [(0, false), (3, false), (4, true), (32, true), (256, true), (257, false)]
        {
            let secret = vec![7; secret_bytes];
            let mut bytes = Vec::new();
            encode::cancel_request(&mut bytes, 99, &secret);
            let expected = if good {
                Ok(Some((First::Cancel(Cancel { process_id: 99, secret: &secret }), bytes.len())))
            } else {
                Err(StartupFault::CancelLength)
            };
            assert_eq!(first(&bytes), expected);
            assert_eq!(bytes.len(), 12 + secret_bytes);
        }
        assert_eq!(fault(&packet(CANCEL_CODE, b"")), StartupFault::CancelLength);
    }
}
