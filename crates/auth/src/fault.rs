//! Why an exchange failed, and on which side; determines the SQLSTATE and the text for the peer.
//! Details for the log only are in `detail`; no fault contains a secret or reveals whether a user exists.

use std::fmt;
use wire::sqlstate::{INTERNAL_ERROR, INVALID_AUTHORIZATION, INVALID_PASSWORD, PROTOCOL_VIOLATION};

/// A failed exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The client failed to authenticate, or violated the protocol.
    Client(ClientFault),
    /// The server rejected us, violated the protocol, or failed to authenticate.
    Server(ServerFault),
    /// The owner called the state machine out of order: a result without a task, a message while a task is pending.
    Bug,
}

/// Faults of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFault {
    /// Unknown user where only known ones pass.
    Trust,
    /// The password (clear text or MD5) does not fit, or the user is unknown.
    Password,
    /// The SCRAM proof does not fit, or the user is unknown.
    Proof,
    /// The stored secret is MD5, which cannot answer SCRAM. Looks like [`ClientFault::Proof`] from outside.
    WrongPasswordType,
    /// The system user at the other end is another one, or there is none: it came over TCP.
    Peer,
    /// The system user at the other end may not be this user by its map. Looks like [`ClientFault::Peer`] from outside.
    PeerMap,
    /// The client's certificate does not say that it is this user.
    Certificate(CertificateFault),
    /// LDAP rejected the password, or was unavailable.
    Ldap,
    /// PAM rejected the password, or was unavailable.
    Pam,
    /// The client chose a SASL mechanism that was not offered.
    Mechanism,
    /// The message is not well-formed.
    Malformed(Malformed),
}

/// Faults of a client's certificate. The client gets the same error for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateFault {
    /// The connection does not use TLS.
    NoTls,
    /// There is none.
    Missing,
    /// None of its names is the user's.
    Name,
    /// By the map, none of its names may be this user.
    Map,
    /// There is no such user.
    UnknownUser,
}

/// How a message was not well-formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Longer than [`crate::MAX_BODY`].
    TooLong,
    /// Not laid out as its message has to be: too short, bytes left over, a string without its end.
    Layout,
    /// SCRAM text that is not UTF-8 or holds a NUL.
    Text,
    /// An attribute is missing, out of order or empty.
    Attribute,
    /// A mandatory extension (`m=`), which must not be ignored.
    Extension,
    /// Not base64, or of the wrong size.
    Base64,
    /// An iteration count that is no number from 1 up.
    Iterations,
    /// The nonce is not ours with something added.
    Nonce,
    /// Channel binding was not offered, or the final message binds something else than the first announced.
    ChannelBinding,
    /// An authorization identity, which PostgreSQL does not know.
    AuthorizationIdentity,
}

/// Faults of a server, or missing credentials for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFault {
    /// It wants a method that the kind of secret we hold cannot answer.
    WrongPasswordType,
    /// SCRAM keys are at hand, but for another salt or iteration count.
    KeysDoNotFit,
    /// It offers no SASL mechanism that we speak.
    Mechanism,
    /// It asks for a method we do not speak; its code in AuthenticationRequest.
    Method(u32),
    /// It demands more than [`crate::MAX_ITERATIONS`] rounds.
    TooManyIterations,
    /// It refused inside SCRAM (`e=`).
    Refused,
    /// Its signature is wrong: it does not know the secret, so it is not who it claims to be.
    Signature,
    /// It said AuthenticationOk before it proved itself.
    SkippedProof,
    /// A message that does not belong here.
    OutOfTurn,
    /// The message is not well-formed.
    Malformed(Malformed),
}

impl Fault {
    /// The SQLSTATE that goes with it (PostgreSQL appendix A).
    #[must_use]
    pub fn sqlstate(self) -> &'static str {
        match self {
            Self::Client(ClientFault::Mechanism | ClientFault::Malformed(_)) => PROTOCOL_VIOLATION,
            Self::Client(ClientFault::Peer | ClientFault::PeerMap | ClientFault::Certificate(_)) => {
                INVALID_AUTHORIZATION
            }
            // As in PostgreSQL, the error does not reveal that the password was wrong.
            Self::Client(ClientFault::Ldap | ClientFault::Pam) => INVALID_AUTHORIZATION,
            Self::Client(_) => INVALID_PASSWORD,
            Self::Server(ServerFault::WrongPasswordType | ServerFault::KeysDoNotFit) => INVALID_PASSWORD,
            Self::Server(_) => PROTOCOL_VIOLATION,
            Self::Bug => INTERNAL_ERROR,
        }
    }

    /// The text for the peer and for `closing because:`, PgBouncer's where it has one. For a server's fault it
    /// follows on `server login failed: `.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::Client(fault) => client_message(fault),
            Self::Server(fault) => server_message(fault),
            Self::Bug => "authentication step out of turn",
        }
    }

    /// Details for the log only, beyond [`Fault::message`].
    #[must_use]
    pub fn detail(self) -> Option<&'static str> {
        match self {
            Self::Client(ClientFault::WrongPasswordType) => {
                Some("SCRAM authentication failed: user has MD5 secret")
            }
            Self::Client(ClientFault::Certificate(fault)) => certificate_detail(fault),
            Self::Client(ClientFault::PeerMap) => Some("ident map cannot be matched"),
            Self::Client(ClientFault::Malformed(malformed))
            | Self::Server(ServerFault::Malformed(malformed)) => Some(malformed_detail(malformed)),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.message())
    }
}

impl std::error::Error for Fault {}

impl From<ClientFault> for Fault {
    fn from(fault: ClientFault) -> Self {
        Self::Client(fault)
    }
}

impl From<ServerFault> for Fault {
    fn from(fault: ServerFault) -> Self {
        Self::Server(fault)
    }
}

impl From<Malformed> for ClientFault {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<Malformed> for ServerFault {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

fn client_message(fault: ClientFault) -> &'static str {
    match fault {
        ClientFault::Trust => "\"trust\" authentication failed",
        ClientFault::Password => "password authentication failed",
        ClientFault::Proof | ClientFault::WrongPasswordType => "SASL authentication failed",
        ClientFault::Peer | ClientFault::PeerMap => "unix socket login rejected",
        ClientFault::Certificate(_) => "certificate authentication failed",
        ClientFault::Ldap => "LDAP authentication failed",
        ClientFault::Pam => "PAM authentication failed",
        ClientFault::Mechanism => "client selected an invalid SASL authentication mechanism",
        ClientFault::Malformed(Malformed::TooLong) => "authentication message too long",
        ClientFault::Malformed(Malformed::Layout) => "invalid authentication message",
        ClientFault::Malformed(_) => "SASL authentication failed",
    }
}

fn certificate_detail(fault: CertificateFault) -> Option<&'static str> {
    match fault {
        CertificateFault::NoTls => Some("TLS connection required"),
        CertificateFault::Missing => Some("TLS client certificate required"),
        CertificateFault::Name => Some("TLS certificate name mismatch"),
        CertificateFault::Map => Some("ident map does not have a match"),
        CertificateFault::UnknownUser => None,
    }
}

fn server_message(fault: ServerFault) -> &'static str {
    match fault {
        ServerFault::WrongPasswordType => "wrong password type",
        ServerFault::KeysDoNotFit => "SCRAM keys of the client do not fit the server's salt and iterations",
        ServerFault::Mechanism => "server offers no SASL mechanism that is supported",
        ServerFault::Method(_) => "unsupported authentication method requested by server",
        ServerFault::TooManyIterations => "server demands too many SCRAM iterations",
        ServerFault::Refused => "server refused SCRAM authentication",
        ServerFault::Signature => "invalid server signature",
        ServerFault::SkippedProof => "server skipped its part of the SCRAM exchange",
        ServerFault::OutOfTurn => "authentication message out of turn",
        ServerFault::Malformed(_) => "malformed authentication message from server",
    }
}

fn malformed_detail(malformed: Malformed) -> &'static str {
    match malformed {
        Malformed::TooLong => "message too long",
        Malformed::Layout => "fields do not fill the message",
        Malformed::Text => "SCRAM message is not text",
        Malformed::Attribute => "SCRAM attribute missing or out of order",
        Malformed::Extension => "SCRAM extension is not supported",
        Malformed::Base64 => "invalid base64",
        Malformed::Iterations => "invalid iteration count",
        Malformed::Nonce => "SCRAM nonce does not match",
        Malformed::ChannelBinding => "SCRAM channel binding does not match",
        Malformed::AuthorizationIdentity => "SCRAM authorization identity is not supported",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_password_type_looks_like_a_wrong_proof() {
        let (hidden, plain) =
            (Fault::Client(ClientFault::WrongPasswordType), Fault::Client(ClientFault::Proof));
        assert_eq!((hidden.message(), hidden.sqlstate()), (plain.message(), plain.sqlstate()));
        assert_eq!(hidden.detail(), Some("SCRAM authentication failed: user has MD5 secret"));
    }

    #[test]
    fn broken_messages_are_protocol_violations() {
        assert_eq!(Fault::Client(Malformed::Nonce.into()).sqlstate(), "08P01");
        assert_eq!(Fault::Client(ClientFault::Password).sqlstate(), "28P01");
        assert_eq!(Fault::Server(ServerFault::Signature).sqlstate(), "08P01");
    }
}
