//! The messages of a script, and their bytes. Never decides which is sent.

use std::fmt;

use crate::protocol::{message, text};

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Query(String),
    Parse(String, String),
    /// Portal, statement, value.
    Bind(String, String, Option<String>),
    Describe(u8, String),
    Execute(String, u32),
    Close(u8, String),
    Sync,
    Flush,
    CopyData(String),
    CopyDone,
    CopyFail,
    Function(u32),
    Unknown(u8),
}

impl Message {
    /// Its bytes.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Message::Query(words) => message(out, b'Q', |body| text(body, words.as_bytes())),
            Message::Parse(name, words) => message(out, b'P', |body| {
                text(body, name.as_bytes());
                text(body, words.as_bytes());
                body.extend_from_slice(&[0; 2]);
            }),
            Message::Bind(portal, name, value) => message(out, b'B', |body| {
                text(body, portal.as_bytes());
                text(body, name.as_bytes());
                write_values(body, value.as_slice());
                body.extend_from_slice(&[0; 2]);
            }),
            Message::Describe(kind, name) => write_target(out, b'D', *kind, name),
            Message::Close(kind, name) => write_target(out, b'C', *kind, name),
            Message::Execute(portal, limit) => message(out, b'E', |body| {
                text(body, portal.as_bytes());
                body.extend_from_slice(&limit.to_be_bytes());
            }),
            Message::CopyData(rows) => message(out, b'd', |body| body.extend_from_slice(rows.as_bytes())),
            Message::CopyFail => message(out, b'f', |body| text(body, b"no more")),
            Message::Function(oid) => message(out, b'F', |body| {
                body.extend_from_slice(&oid.to_be_bytes());
                write_values(body, &["1".to_owned(), "2".to_owned()]);
                body.extend_from_slice(&[0; 2]);
            }),
            Message::Sync => message(out, b'S', |_| ()),
            Message::Flush => message(out, b'H', |_| ()),
            Message::CopyDone => message(out, b'c', |_| ()),
            Message::Unknown(kind) => message(out, *kind, |_| ()),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self:?}")
    }
}

fn write_target(out: &mut Vec<u8>, kind: u8, what: u8, name: &str) {
    message(out, kind, |body| {
        body.push(what);
        text(body, name.as_bytes());
    });
}

/// No formats, then textual values.
fn write_values(body: &mut Vec<u8>, values: &[String]) {
    body.extend_from_slice(&[0; 2]);
    body.extend_from_slice(&u16::try_from(values.len()).unwrap_or(0).to_be_bytes());
    for value in values {
        body.extend_from_slice(&u32::try_from(value.len()).unwrap_or(0).to_be_bytes());
        body.extend_from_slice(value.as_bytes());
    }
}
