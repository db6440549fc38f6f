//! Protocol violations by the client or the server, and the error that the client gets.
//!
//! Owns texts and SQLSTATEs of protocol faults; texts that people match are PgBouncer's. Limits and timeouts are the
//! shard's, authentication's faults are `auth`'s.

use std::borrow::Cow;

use wire::sqlstate;

/// The client did something that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientFault {
    /// A frame whose length is no length, or above `max_packet_size`.
    FrameLength,
    /// A tag that no client sends.
    UnknownTag(u8),
    /// A password message after login.
    PasswordAfterLogin,
    /// A simple query under `disable_pqexec`.
    SimpleQuery,
    /// A statement that could end that its client may read only.
    ReadOnly,
    /// A frame that has to be read and cannot be.
    Malformed,
    /// More prepared text than one client may keep.
    StatementTooLarge,
    /// A startup packet with a parameter that is neither tracked nor ignored.
    UnsupportedParameter(String),
    /// `options` holds something else than settings.
    UnsupportedOptions,
    /// `options` sets a parameter that is neither tracked nor ignored.
    UnsupportedOption(String),
    /// No user name.
    NoUser,
    /// A user name that is longer than any is.
    LongUser,
    /// A name that is not UTF-8.
    BadName,
    /// A `replication` parameter that says neither yes nor no.
    ReplicationValue(String),
}

impl ClientFault {
    /// The SQLSTATE of the FATAL error that the client gets.
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            ClientFault::StatementTooLarge => sqlstate::PROGRAM_LIMIT,
            ClientFault::ReadOnly => sqlstate::CONFIGURATION_LIMIT,
            ClientFault::NoUser => sqlstate::INVALID_AUTHORIZATION,
            ClientFault::ReplicationValue(_) => sqlstate::INVALID_PARAMETER,
            _ => sqlstate::PROTOCOL_VIOLATION,
        }
    }

    /// The text of that error.
    #[must_use]
    pub fn message(&self) -> Cow<'static, str> {
        match self {
            ClientFault::FrameLength => "invalid message length".into(),
            ClientFault::UnknownTag(tag) => format!("invalid frontend message type {tag}").into(),
            ClientFault::PasswordAfterLogin => "unexpected password message".into(),
            ClientFault::SimpleQuery => "PQexec disallowed".into(),
            ClientFault::ReadOnly => "the connection is read-only".into(),
            ClientFault::Malformed => "invalid message format".into(),
            ClientFault::StatementTooLarge => "too much prepared statement text".into(),
            ClientFault::UnsupportedParameter(name) => {
                format!("unsupported startup parameter: {name}").into()
            }
            ClientFault::UnsupportedOptions => {
                "unsupported options startup parameter: only '-c config=val' and '--config=val' are allowed"
                    .into()
            }
            ClientFault::UnsupportedOption(name) => {
                format!("unsupported startup parameter in options: {name}").into()
            }
            ClientFault::NoUser => "no PostgreSQL user name specified in startup packet".into(),
            ClientFault::LongUser => "username too long".into(),
            ClientFault::BadName => "invalid user or database name".into(),
            ClientFault::ReplicationValue(value) => {
                format!("invalid value for parameter \"replication\": \"{value}\"").into()
            }
        }
    }
}

/// The server violated the protocol: its connection is closed, and its client gets this error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFault {
    /// A frame whose length is no length.
    FrameLength,
    /// A tag that no server sends at this point.
    UnexpectedTag(u8),
    /// A reply to something that was not asked: the streams have lost step.
    OutOfStep(u8),
    /// A frame that has to be read and cannot be.
    Malformed,
    /// A login that does not end.
    LongLogin,
    /// A BEGIN that the client had been told to have succeeded.
    BeginRefused,
    /// A setting of the client's, in front of its request.
    SettingRefused,
}

impl ServerFault {
    /// One text for the log and the client.
    #[must_use]
    pub fn message(self) -> Cow<'static, str> {
        match self {
            ServerFault::FrameLength => "bad packet length from server".into(),
            ServerFault::UnexpectedTag(tag) => format!("unknown packet type from server: {tag:#04x}").into(),
            ServerFault::OutOfStep(tag) => format!("server reply out of step: {tag:#04x}").into(),
            ServerFault::Malformed => "bad packet from server".into(),
            ServerFault::LongLogin => "server sent too much before it was ready".into(),
            ServerFault::BeginRefused => {
                "server refused the deferred BEGIN; the request was not executed".into()
            }
            ServerFault::SettingRefused => {
                "server refused a setting of the client's; the request was not executed".into()
            }
        }
    }
}
