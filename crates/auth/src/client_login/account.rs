//! PostgreSQL's `peer` authentication: by the system user at the other end of a unix socket.
//! The name is looked up in the system, never taken from the client.

use super::{State, reject};
use crate::fault::ClientFault;
use crate::{Accepted, OffloadedTask, Step};
use settings::ident::IdentMap;
use std::sync::Arc;

/// Waits for the name of the system user.
pub(super) struct ExpectAccount {
    user: String,
    known: bool,
    map: Option<Arc<IdentMap>>,
}

impl ExpectAccount {
    /// `user_id` is the peer's, None over TCP, where the login fails.
    pub(super) fn begin(
        user: &str,
        known: bool,
        user_id: Option<u32>,
        map: Option<Arc<IdentMap>>,
    ) -> (State, Step) {
        let Some(user_id) = user_id else { return reject(ClientFault::Peer) };
        let expect = Self { user: user.to_owned(), known, map };
        (State::Account(expect), Step::Ask(OffloadedTask::Account { user_id }))
    }

    pub(super) fn answer(self, account: Option<&str>) -> (State, Step) {
        let is_name = |name: &str| Some(name) == account;
        let (fits, fault) = match &self.map {
            Some(map) => (map.allows(&self.user, is_name), ClientFault::PeerMap),
            None => (is_name(&self.user), ClientFault::Peer),
        };
        match (self.known, fits) {
            (true, true) => (State::Finished, Step::Accept(Accepted::default())),
            (true, false) => reject(fault),
            (false, _) => reject(ClientFault::Peer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientLogin, DerivedCache, Fault, TaskResult};

    const MAP: &str = "m root alice\nm root bob\nm ops all\n";

    /// The result of a login as `user` by the system user `account`.
    fn login(user: &str, known: bool, account: Option<&str>, with_map: bool) -> Result<(), Fault> {
        let (maps, _) = settings::ident::parse(&"ident".into(), MAP.as_bytes());
        let map = maps.get("m").filter(|_| with_map).cloned();
        let (mut login, step) = ClientLogin::peer(user, known, Some(7), map);
        assert!(matches!(step, Step::Ask(OffloadedTask::Account { user_id: 7 })));
        match login.answer(TaskResult::Account(account.map(str::to_owned)), &mut DerivedCache::default()) {
            Step::Accept(_) => Ok(()),
            Step::Reject(fault) => Err(fault),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_a_map_names_must_be_the_same() {
        assert_eq!(login("alice", true, Some("alice"), false), Ok(()));
        for account in [Some("bob"), Some(""), None] {
            assert_eq!(login("alice", true, account, false), Err(ClientFault::Peer.into()));
        }
        assert_eq!(login("alice", false, Some("alice"), false), Err(ClientFault::Peer.into()));
    }

    #[test]
    fn a_map_says_who_may_be_whom_and_names_alone_do_not_count() {
        assert_eq!(login("alice", true, Some("root"), true), Ok(()));
        assert_eq!(login("bob", true, Some("root"), true), Ok(()));
        assert_eq!(login("carol", true, Some("ops"), true), Ok(()));
        assert_eq!(login("carol", true, Some("root"), true), Err(ClientFault::PeerMap.into()));
        assert_eq!(login("alice", true, Some("alice"), true), Err(ClientFault::PeerMap.into()));
        assert_eq!(login("alice", false, Some("root"), true), Err(ClientFault::Peer.into()));
    }

    #[test]
    fn nobody_comes_by_tcp() {
        let (_, step) = ClientLogin::peer("alice", true, None, None);
        assert!(matches!(step, Step::Reject(Fault::Client(ClientFault::Peer))));
    }
}
