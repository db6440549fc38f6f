//! Why a member did not do what it was asked, in plain words.

use std::error::Error;

use tonic::{Code, Status};

use super::options::EtcdTls;

/// A call that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: Kind,
    /// etcd's own words, or those of the network and of TLS.
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// No answer of the member: the network's or the member's fault.
    Transport,
    /// The member cannot answer now: it has no leader, or it stops.
    Unavailable,
    /// The login is not valid any more.
    Login,
    /// An answer.
    Answer(Code),
}

impl Failure {
    /// Of a connection.
    pub(crate) fn transport(why: &(dyn Error + 'static)) -> Failure {
        Failure { kind: Kind::Transport, message: chain(why) }
    }

    /// An answer that has no meaning.
    pub(crate) fn answer(message: &str) -> Failure {
        Failure { kind: Kind::Answer(Code::Unknown), message: message.to_owned() }
    }

    /// Of the first request on a connection: one that is closed then was not agreed on.
    pub(crate) fn of_first_request(mut self, tls: Option<&EtcdTls>) -> Failure {
        if self.kind == Kind::Transport && !self.message.contains("received fatal alert") {
            self.message.push_str(match tls {
                None => "; the member speaks TLS on this port, it seems, and fleet_tls_ca_file is not set",
                Some(EtcdTls { identity: None, .. }) => {
                    "; etcd demands a client certificate, it seems (fleet_tls_cert_file)"
                }
                Some(_) => "",
            });
        }
        self
    }

    /// The member may be the reason: another one may do better.
    pub(crate) fn is_of_member(&self) -> bool {
        matches!(self.kind, Kind::Transport | Kind::Unavailable | Kind::Login)
    }

    /// Nothing was done, and another login helps.
    pub(crate) fn is_of_login(&self) -> bool {
        self.kind == Kind::Login
    }

    /// What has happened, and what helps where that is known; `prefix` and `user` are the settings'.
    pub(crate) fn words(&self, prefix: &str, user: Option<&str>) -> String {
        let text = &self.message;
        let has = |part: &str| text.contains(part);
        if has("authentication failed") {
            return format!("user \"{}\" or its password is wrong", user.unwrap_or_default());
        }
        if has("user name is empty") {
            return "etcd demands a user: etcd://USER:PASSWORD@HOST/PREFIX".to_owned();
        }
        if self.kind == Kind::Answer(Code::PermissionDenied) || has("permission denied") {
            let who =
                user.map_or("the client certificate's user".to_owned(), |user| format!("user \"{user}\""));
            return format!(
                "{who} may not read and write keys below {prefix}/ (etcd: {text}); grant its role readwrite on that prefix"
            );
        }
        let advice = if has("UnknownIssuer") {
            "; no certificate in fleet_tls_ca_file has signed the member's"
        } else if has("not valid for name") {
            "; the member's certificate is for another name than the URL's"
        } else if has("received fatal alert") {
            "; etcd demands a client certificate, or does not accept this one (fleet_tls_cert_file)"
        } else if has("InvalidContentType") || has("tls handshake eof") {
            "; the member does not speak TLS on this port, it seems, and fleet_tls_ca_file is set"
        } else if has("no leader") || has("etcdserver: request timed out") {
            "; the etcd cluster has no quorum, or this member is cut off"
        } else if has("database space exceeded") {
            "; etcd is full: compact and defragment it, then disarm the alarm"
        } else {
            ""
        };
        format!("{text}{advice}")
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        let has = |part: &str| status.message().contains(part);
        let kind = match status.code() {
            Code::Unauthenticated => Kind::Login,
            Code::InvalidArgument
                if has("revision in header is old") || has("revision of auth store is old") =>
            {
                Kind::Login
            }
            Code::Unknown if has("invalid auth token") => Kind::Login,
            // What etcd refuses with Unknown begins with its name; anything else is the connection's.
            Code::Unknown | Code::Internal | Code::Cancelled if status.source().is_some() => Kind::Transport,
            Code::Unavailable if status.source().is_some() => Kind::Transport,
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => Kind::Unavailable,
            code => Kind::Answer(code),
        };
        let message = match status.source() {
            Some(source) if kind == Kind::Transport => chain(source),
            _ => status.message().to_owned(),
        };
        Failure { kind, message }
    }
}

/// An error's words and those of its causes.
fn chain(why: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(why);
    while let Some(error) = next {
        let text = error.to_string();
        // One that repeats its cause is left out.
        if texts.last().is_none_or(|last| !last.contains(&text)) && text != "transport error" {
            texts.retain(|earlier| !text.contains(earlier.as_str()));
            texts.push(text);
        }
        next = error.source();
    }
    if texts.is_empty() { "the connection was lost".to_owned() } else { texts.join(": ") }
}

pub(crate) fn is_auth_disabled(failure: &Failure) -> bool {
    failure.message.contains("authentication is not enabled")
}

pub(crate) fn is_lease_missing(failure: &Failure) -> bool {
    failure.message.contains("requested lease not found")
}

pub(crate) fn is_lease_there(failure: &Failure) -> bool {
    failure.message.contains("lease already exists")
}
