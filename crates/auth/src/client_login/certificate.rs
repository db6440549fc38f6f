//! Clients that are known by the names in their TLS certificate, which the handshake has checked already.
//! Names are compared byte by byte: two users may differ in case alone. It never looks at a chain or a date.

use super::{State, reject};
use crate::fault::{CertificateFault, ClientFault};
use crate::{Accepted, Step};
use settings::ident::IdentMap;

/// What a client has shown of itself in TLS.
#[derive(Clone, Copy, Debug)]
pub enum Shown<'a> {
    /// It does not use TLS.
    NoTls,
    /// It has no certificate, or was not asked for one.
    NoCertificate,
    /// The common name and the alternative names of its certificate.
    Names(&'a [&'a str]),
}

/// The verdict, which nothing need be asked for.
pub(super) fn judge(user: &str, known: bool, shown: Shown<'_>, map: Option<&IdentMap>) -> (State, Step) {
    let fault = match (shown, map) {
        (Shown::NoTls, _) => CertificateFault::NoTls,
        (Shown::NoCertificate, _) => CertificateFault::Missing,
        _ if !known => CertificateFault::UnknownUser,
        (Shown::Names(names), None) if names.contains(&user) => return pass(),
        (Shown::Names(_), None) => CertificateFault::Name,
        (Shown::Names(names), Some(map)) if map.allows(user, |name| names.contains(&name)) => return pass(),
        (Shown::Names(_), Some(_)) => CertificateFault::Map,
    };
    reject(ClientFault::Certificate(fault))
}

fn pass() -> (State, Step) {
    (State::Finished, Step::Accept(Accepted::default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fault;

    fn verdict(user: &str, shown: Shown<'_>, with_map: bool) -> Result<(), CertificateFault> {
        let (maps, _) = settings::ident::parse(&"ident".into(), b"m \"CN, with comma\" alice\nm boss all");
        let map = maps.get("m").filter(|_| with_map).map(AsRef::as_ref);
        match judge(user, user != "mallory", shown, map).1 {
            Step::Accept(_) => Ok(()),
            Step::Reject(Fault::Client(ClientFault::Certificate(fault))) => Err(fault),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_a_map_one_of_the_names_is_the_users() {
        assert_eq!(verdict("alice", Shown::Names(&["alice"]), false), Ok(()));
        assert_eq!(verdict("alice", Shown::Names(&["x", "alice"]), false), Ok(()));
        for names in [&["Alice"][..], &["alice.example"], &["*"], &[]] {
            assert_eq!(
                verdict("alice", Shown::Names(names), false),
                Err(CertificateFault::Name),
                "{names:?}"
            );
        }
    }

    #[test]
    fn a_map_says_who_may_be_whom() {
        assert_eq!(verdict("alice", Shown::Names(&["CN, with comma"]), true), Ok(()));
        assert_eq!(verdict("bob", Shown::Names(&["boss"]), true), Ok(()));
        assert_eq!(verdict("bob", Shown::Names(&["CN, with comma"]), true), Err(CertificateFault::Map));
        assert_eq!(verdict("alice", Shown::Names(&["alice"]), true), Err(CertificateFault::Map));
    }

    #[test]
    fn what_is_missing_is_told_apart_in_the_log() {
        assert_eq!(verdict("alice", Shown::NoTls, false), Err(CertificateFault::NoTls));
        assert_eq!(verdict("alice", Shown::NoCertificate, true), Err(CertificateFault::Missing));
        assert_eq!(verdict("mallory", Shown::Names(&["mallory"]), false), Err(CertificateFault::UnknownUser));
        assert_eq!(verdict("mallory", Shown::Names(&["boss"]), true), Err(CertificateFault::UnknownUser));
    }
}
