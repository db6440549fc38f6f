//! Login sessions: cookies of this process, in memory only.
//! Owns how long a session lasts and how many there are. Never knows what a session may: its key's line says that.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq as _;

use crate::access::credentials::TokenCredential;
use crate::access::token::{entropy, hash, hex};

/// A session ends this long after the login.
const LIFETIME: Duration = Duration::from_secs(12 * 3_600);

/// The oldest is ended for a further one.
const MAX_SESSIONS: usize = 1_000;

/// What a login was made with. Whether it still counts is checked at every request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Proof {
    /// The password of a user.
    Password(crate::access::credentials::PasswordCredential),
    /// A token of the file.
    Token(TokenCredential),
    /// The start token.
    Start,
}

/// Names a session without being its cookie: the SHA-256 of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionId([u8; 32]);

impl SessionId {
    pub(crate) fn of(cookie: &str) -> SessionId {
        SessionId(hash(cookie))
    }
}

/// One login.
#[derive(Clone, Debug)]
pub(crate) struct LoginSession {
    pub(crate) proof: Proof,
    /// What the header `X-Weir-CSRF` must say.
    pub(crate) csrf: String,
    since: Instant,
}

impl LoginSession {
    /// In constant time.
    pub(crate) fn has_csrf(&self, said: &str) -> bool {
        self.csrf.as_bytes().ct_eq(said.as_bytes()).into()
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct Sessions(HashMap<SessionId, LoginSession>);

impl Sessions {
    /// Begins a session; gives its cookie and what it is.
    pub(crate) fn begin(&mut self, proof: Proof, now: Instant) -> (String, LoginSession) {
        self.0.retain(|_, session| now.duration_since(session.since) < LIFETIME);
        if self.0.len() >= MAX_SESSIONS {
            let oldest = self.0.iter().min_by_key(|(_, session)| session.since).map(|(id, _)| *id);
            oldest.map(|id| self.0.remove(&id));
        }
        let cookie = hex(&entropy::<32>());
        let session = LoginSession { proof, csrf: hex(&entropy::<16>()), since: now };
        self.0.insert(SessionId::of(&cookie), session.clone());
        (cookie, session)
    }

    /// The session of this id, unless it has ended.
    pub(crate) fn find(&self, id: SessionId, now: Instant) -> Option<&LoginSession> {
        self.0.get(&id).filter(|session| now.duration_since(session.since) < LIFETIME)
    }

    /// Ends a session.
    pub(crate) fn end(&mut self, id: SessionId) {
        self.0.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_its_cookies_and_ends() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let (cookie, session) = sessions.begin(Proof::Start, now);
        let id = SessionId::of(&cookie);
        assert!(sessions.find(id, now).is_some_and(|found| found.has_csrf(&session.csrf)));
        assert!(!session.has_csrf("") && sessions.find(SessionId::of(""), now).is_none());
        assert!(sessions.find(id, now + LIFETIME).is_none());
        sessions.end(id);
        assert!(sessions.find(id, now).is_none());
    }

    #[test]
    fn there_are_never_more_than_so_many() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let (oldest, _) = sessions.begin(Proof::Start, now);
        for _ in 0..MAX_SESSIONS {
            sessions.begin(Proof::Start, now + Duration::from_secs(1));
        }
        assert_eq!(sessions.0.len(), MAX_SESSIONS);
        assert!(sessions.find(SessionId::of(&oldest), now).is_none());
    }
}
