//! Certificate authentication: by the names in the client's certificate, which the handshake has verified.
//! Names are compared byte by byte: two users may differ in case alone. It never looks at a chain or a date.

use super::{State, reject};
use crate::fault::{CertificateFault, ClientFault};
use crate::{Accepted, Step};
use settings::ident::IdentMap;

/// The certificate a client presented in TLS.
#[derive(Clone, Copy, Debug)]
pub enum PresentedCertificate<'a> {
    /// It does not use TLS.
    NoTls,
    /// It has no certificate, or none was requested.
    NoCertificate,
    /// The common name and the alternative names of its certificate.
    Names(&'a [&'a str]),
}

/// The result; needs no further message.
pub(super) fn judge(
    user: &str,
    known: bool,
    shown: PresentedCertificate<'_>,
    map: Option<&IdentMap>,
) -> (State, Step) {
    let fault = match (shown, map) {
        (PresentedCertificate::NoTls, _) => CertificateFault::NoTls,
        (PresentedCertificate::NoCertificate, _) => CertificateFault::Missing,
        _ if !known => CertificateFault::UnknownUser,
        (PresentedCertificate::Names(names), None) if names.contains(&user) => return pass(),
        (PresentedCertificate::Names(_), None) => CertificateFault::Name,
        (PresentedCertificate::Names(names), Some(map)) if map.allows(user, |name| names.contains(&name)) => {
            return pass();
        }
        (PresentedCertificate::Names(_), Some(_)) => CertificateFault::Map,
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

    fn verdict(user: &str, shown: PresentedCertificate<'_>, with_map: bool) -> Result<(), CertificateFault> {
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
        assert_eq!(verdict("alice", PresentedCertificate::Names(&["alice"]), false), Ok(()));
        assert_eq!(verdict("alice", PresentedCertificate::Names(&["x", "alice"]), false), Ok(()));
        for names in [&["Alice"][..], &["alice.example"], &["*"], &[]] {
            assert_eq!(
                verdict("alice", PresentedCertificate::Names(names), false),
                Err(CertificateFault::Name),
                "{names:?}"
            );
        }
    }

    #[test]
    fn a_map_says_who_may_be_whom() {
        assert_eq!(verdict("alice", PresentedCertificate::Names(&["CN, with comma"]), true), Ok(()));
        assert_eq!(verdict("bob", PresentedCertificate::Names(&["boss"]), true), Ok(()));
        assert_eq!(
            verdict("bob", PresentedCertificate::Names(&["CN, with comma"]), true),
            Err(CertificateFault::Map)
        );
        assert_eq!(
            verdict("alice", PresentedCertificate::Names(&["alice"]), true),
            Err(CertificateFault::Map)
        );
    }

    #[test]
    fn what_is_missing_is_told_apart_in_the_log() {
        assert_eq!(verdict("alice", PresentedCertificate::NoTls, false), Err(CertificateFault::NoTls));
        assert_eq!(
            verdict("alice", PresentedCertificate::NoCertificate, true),
            Err(CertificateFault::Missing)
        );
        assert_eq!(
            verdict("mallory", PresentedCertificate::Names(&["mallory"]), false),
            Err(CertificateFault::UnknownUser)
        );
        assert_eq!(
            verdict("mallory", PresentedCertificate::Names(&["boss"]), true),
            Err(CertificateFault::UnknownUser)
        );
    }
}
