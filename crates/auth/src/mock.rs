//! Mock secrets for unknown users, so that logins do not reveal which users exist: a stable salt per name, and stored
//! values that nothing matches. The exchange that uses a mock makes the login fail.

use crate::scram;
use crate::secret::Kind;
use std::fmt;
use zeroize::Zeroizing;

/// The secret key that mock secrets are derived from. All shards share one; if kept over a restart, the salts of unknown
/// users stay the same.
#[derive(Clone)]
pub struct MockKey {
    key: Zeroizing<[u8; 32]>,
    kind: Kind,
}

impl MockKey {
    /// A key of 32 unpredictable bytes; mocks look like users with plain secrets.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self { key: Zeroizing::new(key), kind: Kind::Plain }
    }

    /// The same key, mocking users whose secrets are of this kind. It decides what an unknown user meets under
    /// `md5` (MD5 or SCRAM) and what `plain` costs; set it to the kind that most entries of the auth_file have.
    #[must_use]
    pub fn imitating(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// The same key, mocking users like most of those whose secrets are these texts.
    #[must_use]
    pub fn imitating_most<'a>(self, secrets: impl ExactSizeIterator<Item = &'a str>) -> Self {
        let all = secrets.len();
        let scram = secrets.filter(|secret| secret.starts_with(SCRAM)).count();
        self.imitating(if scram > all / 2 { Kind::Scram } else { Kind::Plain })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The SCRAM salt shown for this user. Ad-hoc verifiers of plain secrets use it as well: a salt that only
    /// known users had would give them away.
    pub(crate) fn salt(&self, user: &str) -> Vec<u8> {
        self.derive("salt", user)[..SALT_LENGTH].to_vec()
    }

    /// Stands in for StoredKey; no client key hashes to it except by breaking SHA-256.
    pub(crate) fn stored_key(&self, user: &str) -> [u8; 32] {
        self.derive("stored", user)
    }

    /// Stands in for stored MD5 digits.
    pub(crate) fn md5(&self, user: &str) -> [u8; 32] {
        self.derive("md5", user)
    }

    /// Another key, for something that has nothing to do with mocks; the same for all shards of a process.
    #[must_use]
    pub fn subkey(&self, purpose: &str) -> [u8; 16] {
        let [subkey @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = self.derive(purpose, "");
        subkey
    }

    fn derive(&self, purpose: &str, user: &str) -> [u8; 32] {
        scram::hmac(&*self.key, &[purpose.as_bytes(), b"\0", user.as_bytes()])
    }
}

impl fmt::Debug for MockKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

/// How a stored verifier begins; whether all of it is well-formed does not matter to a majority.
const SCRAM: &str = "SCRAM-SHA-256$";
/// PostgreSQL's own salt length (`scram-common.h`, `SCRAM_DEFAULT_SALT_LEN`), so that mocks are indistinguishable.
const SALT_LENGTH: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_is_imitated() {
        let kind =
            |secrets: &[&'static str]| MockKey::new([7; 32]).imitating_most(secrets.iter().copied()).kind();
        assert_eq!(kind(&[]), Kind::Plain);
        assert_eq!(kind(&["a", "SCRAM-SHA-256$1"]), Kind::Plain);
        assert_eq!(kind(&["a", "SCRAM-SHA-256$1", "SCRAM-SHA-256$2"]), Kind::Scram);
    }

    #[test]
    fn a_salt_depends_on_key_and_user_only() {
        let key = MockKey::new([7; 32]);
        assert_eq!(key.salt("alice"), key.clone().imitating(Kind::Scram).salt("alice"));
        assert_ne!(key.salt("alice"), key.salt("bob"));
        assert_ne!(key.salt("alice"), MockKey::new([8; 32]).salt("alice"));
        assert_eq!(key.salt("alice").len(), 16);
    }
}
