//! The trace that a statement belongs to, by a comment in the way of sqlcommenter: `/*traceparent='00-…-…-01'*/` (W3C Trace Context, section 3.2).
//!
//! Owns what is valid. Comments in strings are none.

use crate::lexer::Lexer;

/// In longer texts it is not looked for.
const LONGEST_BYTES: usize = 64 * 1024;

/// The caller's part of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; not all zero.
    pub trace_id: [u8; 16],
    /// The caller's span; not all zero.
    pub span_id: [u8; 8],
    /// The caller keeps what it records.
    pub is_sampled: bool,
}

/// The first valid one in the comments of a text, up to a NUL.
///
/// ```
/// let text = b"SELECT 1 /*application='x',traceparent='00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'*/";
/// let trace = sql::trace_parent(text).expect("a trace");
/// assert_eq!((trace.trace_id[0], trace.span_id[7], trace.is_sampled), (0x0a, 0x31, true));
/// assert_eq!(sql::trace_parent(b"SELECT '/*traceparent=''00-'"), None);
/// ```
#[must_use]
pub fn trace_parent(text: &[u8]) -> Option<TraceParent> {
    memchr::memmem::find(text, KEY.as_bytes())?;
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.len() > LONGEST_BYTES {
        return None;
    }
    let seen = String::from_utf8_lossy(text);
    let mut lexer = Lexer::new(&seen);
    loop {
        let found = lexer.comment().and_then(in_comment);
        if found.is_some() || lexer.is_at_end() {
            return found;
        }
    }
}

const KEY: &str = "traceparent";

/// One of the keys of a comment, `key='value'` with commas between them.
fn in_comment(comment: &str) -> Option<TraceParent> {
    comment.split(',').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        let value = value.trim().strip_prefix('\'')?.strip_suffix('\'')?;
        (key.trim() == KEY).then(|| value_of(value)).flatten()
    })
}

fn value_of(value: &str) -> Option<TraceParent> {
    let mut parts = value.split('-');
    let [version] = hex::<1>(parts.next()?)?;
    let (trace_id, span_id) = (hex(parts.next()?)?, hex(parts.next()?)?);
    let [flags] = hex::<1>(parts.next()?)?;
    // Later versions may have more parts; the first has not.
    let is_valid = version != 0xff
        && (version > 0 || parts.next().is_none())
        && trace_id != [0; 16]
        && span_id != [0; 8];
    is_valid.then_some(TraceParent { trace_id, span_id, is_sampled: flags & 1 == 1 })
}

/// `N` bytes as hexadecimal digits in lower case, and nothing else.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(digits[0])? << 4 | digit(digits[1])?;
    }
    Some(bytes)
}

fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: &str = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";

    #[test]
    fn a_trace_is_found_in_comments_alone() {
        for text in [
            format!("select 1 /*traceparent='00-{IDS}-01'*/"),
            format!("select 1 /* x='y,z' , traceparent='00-{IDS}-01' */;"),
            format!("/*traceparent='00-{IDS}-01'*/ select 1"),
            format!("select '/*' /*a*/ || '*/' /*traceparent='00-{IDS}-01',tracestate='a%3Db'*/"),
            format!("select 1 /*traceparent='01-{IDS}-03-more'*/"),
            format!("select '{}' /*traceparent='00-{IDS}-01'*/", "x".repeat(LONGEST_BYTES - 200)),
        ] {
            assert_eq!(trace_parent(text.as_bytes()).map(|trace| trace.is_sampled), Some(true), "{text:.80}");
        }
        let unsampled = format!("select 1 /*traceparent='00-{IDS}-00'*/");
        assert_eq!(trace_parent(unsampled.as_bytes()).map(|trace| trace.is_sampled), Some(false));
    }

    #[test]
    fn what_is_invalid_is_no_trace() {
        let zeros = format!("{}-b7ad6b7169203331", "0".repeat(32));
        let no_span = format!("{}-{}", "1".repeat(32), "0".repeat(16));
        for value in [
            format!("00-{IDS}-01-more"),
            format!("ff-{IDS}-01"),
            format!("00-{IDS}"),
            format!("00-{}-01", IDS.to_uppercase()),
            format!("00-{zeros}-01"),
            format!("00-{no_span}-01"),
            format!("00-{IDS}-1"),
            String::new(),
        ] {
            let text = format!("select 1 /*traceparent='{value}'*/");
            assert_eq!(trace_parent(text.as_bytes()), None, "{value}");
        }
        for text in [
            format!("select '/*traceparent=''00-{IDS}-01''*/'"),
            format!("select 1 -- /*traceparent='00-{IDS}-01'*/"),
            format!("select $x$/*traceparent='00-{IDS}-01'*/$x$"),
            format!("select 1 /*traceparent=00-{IDS}-01*/"),
            format!("select 1\0/*traceparent='00-{IDS}-01'*/"),
            format!("select '{}' /*traceparent='00-{IDS}-01'*/", "x".repeat(LONGEST_BYTES)),
        ] {
            assert_eq!(trace_parent(text.as_bytes()), None, "{text:.80}");
        }
    }
}
