//! Views of what a server sends. A *body* is the complete bytes after the five-byte header; every view gives
//! `None` for a body that is not exactly what its message has to be.
//! Reads only what a pooler acts upon; errors and notices are in [`crate::error`].

use crate::startup::Version;
use crate::text;

/// What a server wants before it lets a client in, or that it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// Nothing more: the client is in.
    Ok,
    /// The password as it is.
    CleartextPassword,
    /// The password hashed twice, the second time with this salt.
    Md5 {
        /// The salt.
        salt: [u8; 4],
    },
    /// A SASL exchange by one of these mechanisms.
    Sasl {
        /// Names, the server's favourite first; at least one.
        mechanisms: Mechanisms<'a>,
    },
    /// The exchange goes on: the mechanism's data.
    SaslContinue(&'a [u8]),
    /// The exchange is over: the mechanism's last data. [`Authentication::Ok`] follows.
    SaslFinal(&'a [u8]),
    /// A method a pooler does not speak (Kerberos 2, GSS 7 and 8, SSPI 9), or an unknown one.
    Other(u32),
}

/// The names of SASL mechanisms, in the order the server gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mechanisms<'a>(&'a [u8]);

impl<'a> Iterator for Mechanisms<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (name, rest) = text::split(self.0).filter(|(name, _)| !name.is_empty())?;
        self.0 = rest;
        Some(name)
    }
}

/// Where a server stands, as it says with each ReadyForQuery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Outside a transaction.
    Idle,
    /// Inside a transaction.
    InTransaction,
    /// Inside a transaction that can only be rolled back.
    Failed,
}

impl Status {
    /// The status a byte stands for.
    #[inline]
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'I' => Some(Self::Idle),
            b'T' => Some(Self::InTransaction),
            b'E' => Some(Self::Failed),
            _ => None,
        }
    }

    /// The byte on the wire.
    #[inline]
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::InTransaction => b'T',
            Self::Failed => b'E',
        }
    }
}

/// An Authentication message.
#[must_use]
pub fn authentication(body: &[u8]) -> Option<Authentication<'_>> {
    let (code, rest) = body.split_first_chunk::<4>()?;
    match (u32::from_be_bytes(*code), rest) {
        (0, []) => Some(Authentication::Ok),
        (3, []) => Some(Authentication::CleartextPassword),
        (5, salt) => Some(Authentication::Md5 { salt: salt.try_into().ok()? }),
        (10, list) => mechanisms(list).map(|mechanisms| Authentication::Sasl { mechanisms }),
        (11, data) => Some(Authentication::SaslContinue(data)),
        (12, data) => Some(Authentication::SaslFinal(data)),
        (0 | 3, _) => None,
        (other, _) => Some(Authentication::Other(other)),
    }
}

/// Names, each with its NUL, and one NUL at the end; at least one name.
fn mechanisms(list: &[u8]) -> Option<Mechanisms<'_>> {
    let mut names = Mechanisms(list);
    let count = names.by_ref().count();
    (count > 0 && names.0 == [0]).then_some(Mechanisms(list))
}

/// A ParameterStatus: name and value.
#[must_use]
pub fn parameter_status(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, rest) = text::split(body)?;
    Some((name, text::sole(rest)?))
}

/// A BackendKeyData: process number and secret, 4 to 256 bytes (always 4 before protocol 3.2).
#[must_use]
pub fn key_data(body: &[u8]) -> Option<(u32, &[u8])> {
    let (process_id, secret) = body.split_first_chunk::<4>()?;
    (4..=256).contains(&secret.len()).then_some((u32::from_be_bytes(*process_id), secret))
}

/// A ReadyForQuery's status.
#[inline]
#[must_use]
pub fn ready_status(body: &[u8]) -> Option<Status> {
    match *body {
        [byte] => Status::from_byte(byte),
        _ => None,
    }
}

/// A CommandComplete's tag, such as `INSERT 0 1`.
#[inline]
#[must_use]
pub fn command_tag(body: &[u8]) -> Option<&[u8]> {
    text::sole(body)
}

/// A NegotiateProtocolVersion: the version the server will speak, and the `_pq_.` parameters it does not know.
#[must_use]
pub fn negotiate(body: &[u8]) -> Option<(Version, Vec<&[u8]>)> {
    let (version, rest) = body.split_first_chunk::<4>()?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut names = Vec::new();
    while let Some((name, after)) = text::split(rest) {
        names.push(name);
        rest = after;
    }
    let whole = rest.is_empty() && u32::try_from(names.len()) == Ok(u32::from_be_bytes(*count));
    whole.then_some((Version::from_number(u32::from_be_bytes(*version)), names))
}

/// The values of a DataRow, left to right; the inner `None` is NULL.
#[derive(Clone, Debug)]
pub struct Values<'a> {
    left: u16,
    rest: &'a [u8],
}

impl<'a> Values<'a> {
    fn is_used_up(&self) -> bool {
        self.left == 0 && self.rest.is_empty()
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Option<&'a [u8]>> {
        let (length, rest) = self.rest.split_first_chunk::<4>().filter(|_| self.left > 0)?;
        let (value, rest) = match i32::from_be_bytes(*length) {
            -1 => (None, rest),
            length => {
                let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                (Some(value), rest)
            }
        };
        self.left -= 1;
        self.rest = rest;
        Some(value)
    }
}

/// A DataRow's values.
#[must_use]
pub fn data_row(body: &[u8]) -> Option<Values<'_>> {
    let (count, rest) = body.split_first_chunk::<2>()?;
    let values = Values { left: u16::from_be_bytes(*count), rest };
    let mut walk = values.clone();
    walk.by_ref().for_each(drop);
    walk.is_used_up().then_some(values)
}

/// The type numbers of a ParameterDescription, in the order of the parameters.
#[must_use]
pub fn parameter_types(body: &[u8]) -> Option<impl ExactSizeIterator<Item = u32>> {
    let (count, types) = body.split_first_chunk::<2>()?;
    let (types, odd) = types.as_chunks::<4>();
    let whole = odd.is_empty() && types.len() == usize::from(u16::from_be_bytes(*count));
    whole.then(|| types.iter().map(|oid| u32::from_be_bytes(*oid)))
}

/// What a RowDescription says of a column by which its values are read, but for their format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowColumn<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The type's number in `pg_type`.
    pub type_oid: u32,
    /// The type's modifier, such as the length of a varchar; -1 for none.
    pub type_modifier: i32,
}

/// The columns of a RowDescription, left to right.
#[derive(Clone, Debug)]
pub struct RowColumns<'a> {
    left: u16,
    rest: &'a [u8],
}

impl<'a> Iterator for RowColumns<'a> {
    type Item = RowColumn<'a>;

    fn next(&mut self) -> Option<RowColumn<'a>> {
        // Behind the name: table, column, type, size of the type, its modifier, format.
        let (name, rest) = text::split(self.rest).filter(|_| self.left > 0)?;
        let ([_, _, _, _, _, _, oid @ .., _, _, m0, m1, m2, m3, _, _], rest) =
            rest.split_first_chunk::<18>()?;
        let oid = oid.first_chunk::<4>()?;
        (self.left, self.rest) = (self.left - 1, rest);
        let type_modifier = i32::from_be_bytes([*m0, *m1, *m2, *m3]);
        Some(RowColumn { name, type_oid: u32::from_be_bytes(*oid), type_modifier })
    }
}

/// A RowDescription's columns.
#[must_use]
pub fn row_columns(body: &[u8]) -> Option<RowColumns<'_>> {
    let (count, rest) = body.split_first_chunk::<2>()?;
    let columns = RowColumns { left: u16::from_be_bytes(*count), rest };
    let mut walk = columns.clone();
    walk.by_ref().for_each(drop);
    (walk.left == 0 && walk.rest.is_empty()).then_some(columns)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn authentication_by_code() {
        assert_eq!(authentication(b"\0\0\0\0"), Some(Authentication::Ok));
        assert_eq!(authentication(b"\0\0\0\x03"), Some(Authentication::CleartextPassword));
        assert_eq!(authentication(b"\0\0\0\x05salt"), Some(Authentication::Md5 { salt: *b"salt" }));
        assert_eq!(authentication(b"\0\0\0\x0bdata"), Some(Authentication::SaslContinue(b"data")));
        assert_eq!(authentication(b"\0\0\0\x0c"), Some(Authentication::SaslFinal(b"")));
        assert_eq!(authentication(b"\0\0\0\x07"), Some(Authentication::Other(7)));
        for bad in [&b""[..], b"\0\0\0", b"\0\0\0\0x", b"\0\0\0\x03x", b"\0\0\0\x05sal", b"\0\0\0\x05salty"] {
            assert_eq!(authentication(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn mechanisms_are_named_and_closed() {
        let Some(Authentication::Sasl { mechanisms }) = authentication(b"\0\0\0\x0aA\0BC\0\0") else {
            panic!("sasl")
        };
        assert_eq!(mechanisms.collect::<Vec<_>>(), [&b"A"[..], b"BC"]);
        for bad in
            [&b"\0\0\0\x0a"[..], b"\0\0\0\x0a\0", b"\0\0\0\x0aA", b"\0\0\0\x0aA\0", b"\0\0\0\x0aA\0\0x"]
        {
            assert_eq!(authentication(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn small_messages() {
        assert_eq!(parameter_status(b"TimeZone\0UTC\0"), Some((&b"TimeZone"[..], &b"UTC"[..])));
        assert_eq!(parameter_status(b"TimeZone\0UTC"), None);
        assert_eq!(parameter_status(b"TimeZone\0UTC\0x"), None);
        assert_eq!(key_data(b"\0\0\0\x07abcd"), Some((7, &b"abcd"[..])));
        assert_eq!(key_data(b"\0\0\0\x07abc"), None);
        assert_eq!(ready_status(b"T"), Some(Status::InTransaction));
        assert_eq!(ready_status(b"X"), None);
        assert_eq!(ready_status(b"II"), None);
        assert_eq!(command_tag(b"BEGIN\0"), Some(&b"BEGIN"[..]));
        assert_eq!(command_tag(b"BEGIN"), None);
    }

    #[test]
    fn a_row_must_hold_what_it_counts() {
        let row = data_row(b"\0\x03\0\0\0\x01a\xff\xff\xff\xff\0\0\0\0").unwrap();
        assert_eq!(row.collect::<Vec<_>>(), [Some(&b"a"[..]), None, Some(&b""[..])]);
        for bad in [
            &b"\0"[..],
            b"\0\x01",
            b"\0\0x",
            b"\0\x01\0\0\0\x02a",
            b"\0\x01\0\0\0\x01ab",
            b"\0\x01\xff\xff\xff\xfe",
        ] {
            assert!(data_row(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn descriptions_must_hold_what_they_count() {
        let types: Vec<u32> = parameter_types(b"\0\x02\0\0\0\x17\0\0\0\x19").unwrap().collect();
        assert_eq!(types, [23, 25]);
        for bad in [&b"\0"[..], b"\0\x01", b"\0\0x", b"\0\x01\0\0\0\x17\0"] {
            assert!(parameter_types(bad).is_none(), "{bad:?}");
        }
        let column = b"a\0\0\0\0\x05\0\x01\0\0\x04\x13\xff\xff\0\0\0\x24\0\0";
        let row = [&b"\0\x01"[..], column].concat();
        let columns: Vec<RowColumn<'_>> = row_columns(&row).unwrap().collect();
        assert_eq!(columns, [RowColumn { name: b"a", type_oid: 1043, type_modifier: 36 }]);
        assert_eq!(row_columns(b"\0\0").unwrap().count(), 0);
        for cut in 0..row.len() {
            assert!(row_columns(&row[..cut]).is_none(), "{cut}");
        }
        assert!(row_columns(&[&row[..], b"x"].concat()).is_none());
    }

    #[test]
    fn negotiation_names_what_it_does_not_know() {
        assert_eq!(negotiate(b"\0\x03\0\x02\0\0\0\x01_pq_.x\0"), Some((Version::V3_2, vec![&b"_pq_.x"[..]])));
        assert_eq!(negotiate(b"\0\x03\0\0\0\0\0\0"), Some((Version::V3_0, vec![])));
        assert_eq!(negotiate(b"\0\x03\0\0\0\0\0\x01"), None);
        assert_eq!(negotiate(b"\0\x03\0\0\0\0\0\x01x"), None);
    }
}
