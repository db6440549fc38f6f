//! Numbered fields in a row of bytes: how state travels from one process to the next (`-R`).
//!
//! Two processes of different versions use it, so an unknown field is skipped and a missing one has a default. Owns the layout (number, length, bytes; big-endian) and never what a field means.

/// Fields being written.
#[derive(Debug, Default)]
pub struct FieldsOut(Vec<u8>);

impl FieldsOut {
    /// No fields yet.
    #[must_use]
    pub fn new() -> FieldsOut {
        FieldsOut::default()
    }

    /// Adds bytes; the same number may stand several times.
    pub fn bytes(&mut self, number: u16, bytes: &[u8]) {
        let Ok(length) = u32::try_from(bytes.len()) else { return };
        self.0.extend_from_slice(&number.to_be_bytes());
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(bytes);
    }

    /// Adds text.
    pub fn text(&mut self, number: u16, text: &str) {
        self.bytes(number, text.as_bytes());
    }

    /// Adds a number.
    pub fn number(&mut self, number: u16, value: u64) {
        self.bytes(number, &value.to_be_bytes());
    }

    /// Everything that was added.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Fields that another process has written.
#[derive(Clone, Debug)]
pub struct Fields<'a>(Vec<(u16, &'a [u8])>);

impl<'a> Fields<'a> {
    /// Takes a row of bytes apart; None if it is not one.
    #[must_use]
    pub fn read(mut bytes: &'a [u8]) -> Option<Fields<'a>> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let (number, rest) = bytes.split_first_chunk()?;
            let (length, rest) = rest.split_first_chunk()?;
            let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
            let (field, rest) = rest.split_at_checked(length)?;
            fields.push((u16::from_be_bytes(*number), field));
            bytes = rest;
        }
        Some(Fields(fields))
    }

    /// Every field with this number, in order.
    pub fn all(&self, number: u16) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter(move |(known, _)| *known == number).map(|(_, field)| *field)
    }

    /// The last field with this number.
    #[must_use]
    pub fn bytes(&self, number: u16) -> Option<&'a [u8]> {
        self.all(number).last()
    }

    /// That as text.
    #[must_use]
    pub fn text(&self, number: u16) -> Option<&'a str> {
        std::str::from_utf8(self.bytes(number)?).ok()
    }

    /// That as a number.
    #[must_use]
    pub fn number(&self, number: u16) -> Option<u64> {
        Some(u64::from_be_bytes(self.bytes(number)?.try_into().ok()?))
    }

    /// That as a number of 32 bits.
    #[must_use]
    pub fn small(&self, number: u16) -> Option<u32> {
        self.number(number)?.try_into().ok()
    }
}

/// A name and what follows its NUL.
#[must_use]
pub fn pair(field: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = field.iter().position(|byte| *byte == 0)?;
    Some((&field[..end], &field[end + 1..]))
}

/// The opposite of [`pair`]; the name holds no NUL.
#[must_use]
pub fn paired(name: &[u8], value: &[u8]) -> Vec<u8> {
    [name, &[0], value].concat()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut out = FieldsOut::new();
        out.number(1, 7);
        out.text(2, "a");
        out.text(2, "b");
        out.bytes(3, &paired(b"n", b"\0v"));
        let bytes = out.into_bytes();
        let fields = Fields::read(&bytes).unwrap();
        assert_eq!((fields.number(1), fields.text(2), fields.number(9)), (Some(7), Some("b"), None));
        assert_eq!(fields.all(2).count(), 2);
        assert_eq!(pair(fields.bytes(3).unwrap()), Some((&b"n"[..], &b"\0v"[..])));
    }

    #[test]
    fn what_is_cut_off_is_nothing() {
        let mut out = FieldsOut::new();
        out.text(1, "abc");
        let bytes = out.into_bytes();
        for cut in 1..bytes.len() {
            assert!(Fields::read(&bytes[..cut]).is_none());
        }
        assert!(Fields::read(&[0, 1, 0xff, 0xff, 0xff, 0xff]).is_none());
    }
}
