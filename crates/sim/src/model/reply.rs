//! Messages that a model server sends.

use crate::protocol::{message, text};
use crate::sql::Tag;

/// Five characters of an ErrorResponse.
pub(crate) type Sqlstate = &'static str;

/// An ErrorResponse (`E`) or NoticeResponse (`N`). With a tag, the text says whose request it was.
pub(crate) fn report(
    out: &mut Vec<u8>,
    kind: u8,
    severity: &str,
    sqlstate: &str,
    words: &str,
    tag: Option<Tag>,
) {
    message(out, kind, |body| {
        for (field, value) in [(b'S', severity), (b'V', severity), (b'C', sqlstate)] {
            body.push(field);
            text(body, value.as_bytes());
        }
        body.push(b'M');
        body.extend_from_slice(words.as_bytes());
        if let Some(tag) = tag {
            body.extend_from_slice(format!(" [{tag}]").as_bytes());
        }
        body.extend_from_slice(&[0, 0]);
    });
}

/// ParameterStatus.
pub(crate) fn parameter(out: &mut Vec<u8>, name: &str, value: &str) {
    message(out, b'S', |body| {
        text(body, name.as_bytes());
        text(body, value.as_bytes());
    });
}

/// CommandComplete.
pub(crate) fn complete(out: &mut Vec<u8>, tag: &str) {
    message(out, b'C', |body| text(body, tag.as_bytes()));
}

/// ReadyForQuery.
pub(crate) fn ready(out: &mut Vec<u8>, status: u8) {
    message(out, b'Z', |body| body.push(status));
}

/// RowDescription with a number of columns of type text.
pub(crate) fn description(out: &mut Vec<u8>, columns: u16) {
    message(out, b'T', |body| {
        body.extend_from_slice(&columns.to_be_bytes());
        for _ in 0..columns {
            text(body, b"?column?");
            body.extend_from_slice(&[0; 6]);
            body.extend_from_slice(&25_u32.to_be_bytes());
            body.extend_from_slice(&u16::MAX.to_be_bytes());
            body.extend_from_slice(&u32::MAX.to_be_bytes());
            body.extend_from_slice(&[0; 2]);
        }
    });
}

/// DataRow with these values, of which some are NULL.
pub(crate) fn row_with_nulls(out: &mut Vec<u8>, values: &[Option<&[u8]>]) {
    message(out, b'D', |body| {
        body.extend_from_slice(&u16::try_from(values.len()).unwrap_or(0).to_be_bytes());
        for value in values {
            let length = value.map_or(-1, |value| i32::try_from(value.len()).unwrap_or(0));
            body.extend_from_slice(&length.to_be_bytes());
            body.extend_from_slice(value.unwrap_or_default());
        }
    });
}

/// DataRow with these values.
pub(crate) fn row(out: &mut Vec<u8>, values: &[&[u8]]) {
    message(out, b'D', |body| {
        body.extend_from_slice(&u16::try_from(values.len()).unwrap_or(0).to_be_bytes());
        for value in values {
            body.extend_from_slice(&u32::try_from(value.len()).unwrap_or(0).to_be_bytes());
            body.extend_from_slice(value);
        }
    });
}

/// CopyInResponse (`G`) or CopyOutResponse (`H`), textual, one column.
pub(crate) fn copy_begins(out: &mut Vec<u8>, kind: u8) {
    message(out, kind, |body| body.extend_from_slice(&[0, 0, 1, 0, 0]));
}

/// CopyBothResponse (`W`), textual, no columns.
pub(crate) fn stream_begins(out: &mut Vec<u8>) {
    message(out, b'W', |body| body.extend_from_slice(&[0; 3]));
}

/// A message without a body.
pub(crate) fn bare(out: &mut Vec<u8>, kind: u8) {
    message(out, kind, |_| ());
}
