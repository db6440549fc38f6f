//! The values of a Bind: formats, values and the formats wanted of the result (PostgreSQL chapter 55.7).
//! Reads a complete body behind its names; never needed to pass a Bind on, only by who answers it itself.

/// What a Bind binds; values point into its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound<'a> {
    /// Each value with whether it is binary; `None` is NULL.
    pub values: Vec<(Option<&'a [u8]>, bool)>,
    /// The formats wanted of the result's columns: none (all text), one for all, or one for each; 1 is binary.
    pub result_formats: Vec<u16>,
}

/// The rest of a Bind behind its names; `None` when it is anything else.
#[must_use]
pub fn bind_rest(rest: &[u8]) -> Option<Bound<'_>> {
    let mut rest = Rest(rest);
    let formats = rest.shorts()?;
    let count = usize::from(rest.short()?);
    if !matches!(formats.len(), 0 | 1) && formats.len() != count {
        return None;
    }
    let mut values = Vec::new();
    for index in 0..count {
        let format = if formats.len() == 1 { formats.first() } else { formats.get(index) };
        values.push((rest.value()?, format == Some(&BINARY)));
    }
    let result_formats = rest.shorts()?;
    let known = formats.iter().chain(&result_formats).all(|format| *format <= BINARY);
    (known && rest.0.is_empty()).then_some(Bound { values, result_formats })
}

/// The format code of binary; text is 0, and there is no other.
const BINARY: u16 = 1;

/// What has not been read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn short(&mut self) -> Option<u16> {
        self.take(2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_be_bytes)
    }

    fn shorts(&mut self) -> Option<Vec<u16>> {
        let count = usize::from(self.short()?);
        let (pairs, _) = self.take(count * 2)?.as_chunks::<2>();
        Some(pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect())
    }

    /// Some(None) is NULL.
    #[allow(clippy::option_option)]
    fn value(&mut self) -> Option<Option<&'a [u8]>> {
        let length = i32::from_be_bytes(self.take(4)?.try_into().ok()?);
        if length == -1 {
            return Some(None);
        }
        self.take(usize::try_from(length).ok()?).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_none_one_or_one_for_each() {
        let none = bind_rest(b"\0\0\0\x02\0\0\0\x01a\xff\xff\xff\xff\0\0").expect("a Bind");
        assert_eq!(none.values, [(Some(&b"a"[..]), false), (None, false)]);
        let one = bind_rest(b"\0\x01\0\x01\0\x02\0\0\0\0\0\0\0\0\0\x01\0\x01").expect("a Bind");
        assert_eq!(one.values, [(Some(&b""[..]), true), (Some(&b""[..]), true)]);
        assert_eq!(one.result_formats, [1]);
        let each = bind_rest(b"\0\x02\0\0\0\x01\0\x02\0\0\0\0\0\0\0\0\0\0").expect("a Bind");
        assert_eq!(each.values.iter().map(|value| value.1).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn anything_else_is_none() {
        for bad in [
            &b""[..],
            b"\0\0",
            b"\0\0\0\x01\0\0\0\x05a",
            b"\0\0\0\x01\xff\xff\xff\xfe\0\0",
            b"\0\x01\0\x02\0\0\0\0",
            b"\0\x02\0\0\0\0\0\x01\0\0\0\0\0\0",
            b"\0\0\0\0\0\0more",
            b"\xff\xff",
        ] {
            assert_eq!(bind_rest(bad), None, "{bad:?}");
        }
    }
}
