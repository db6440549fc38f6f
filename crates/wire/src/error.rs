//! The fields of an ErrorResponse or a NoticeResponse, read where they lie.
//! Never fails: a body that is cut short has the fields it has. Meanings: PostgreSQL documentation, section
//! "Error and Notice Message Fields".

use crate::text;

/// The fields of one error or notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorFields<'a> {
    body: &'a [u8],
}

/// The view of a body (the bytes after the five-byte header), complete or not.
#[inline]
#[must_use]
pub const fn parse(body: &[u8]) -> ErrorFields<'_> {
    ErrorFields { body }
}

impl<'a> ErrorFields<'a> {
    /// Field types and values in order, up to the NUL that ends them or the first field that is cut short.
    pub fn fields(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let mut rest = self.body;
        std::iter::from_fn(move || {
            let (&kind, after) = rest.split_first().filter(|(kind, _)| **kind != 0)?;
            let (value, after) = text::split(after)?;
            rest = after;
            Some((kind, value))
        })
    }

    /// The first field of a type, such as `b'D'` for the detail.
    #[must_use]
    pub fn field(&self, kind: u8) -> Option<&'a [u8]> {
        self.fields().find(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    /// The severity in English (`ERROR`, `FATAL`, `PANIC`, `WARNING` ...); from a server before 9.6, which
    /// has no such field, the severity in the server's language.
    #[must_use]
    pub fn severity(&self) -> Option<&'a [u8]> {
        self.field(b'V').or_else(|| self.field(b'S'))
    }

    /// The SQLSTATE; `None` when the field is missing.
    #[must_use]
    pub fn code(&self) -> Option<&'a [u8]> {
        self.field(b'C')
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> Option<&'a [u8]> {
        self.field(b'M')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_by_type() {
        let error = parse(b"SFEHLER\0VERROR\0C42601\0Mbad\0\0");
        assert_eq!(error.severity(), Some(&b"ERROR"[..]));
        assert_eq!(error.code(), Some(&b"42601"[..]));
        assert_eq!(error.message(), Some(&b"bad"[..]));
        assert_eq!(error.field(b'D'), None);
        assert_eq!(error.fields().count(), 4);
        assert_eq!(parse(b"SFATAL\0\0").severity(), Some(&b"FATAL"[..]));
    }

    #[test]
    fn an_error_cut_short_has_the_fields_it_has() {
        let error = parse(b"SERROR\0C426");
        assert_eq!(error.severity(), Some(&b"ERROR"[..]));
        assert_eq!(error.code(), None);
        assert_eq!(parse(b"").fields().count(), 0);
        assert_eq!(parse(b"\0C42601\0").code(), None);
    }
}
