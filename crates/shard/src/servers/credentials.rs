//! What Weir proves itself with to a server, in PgBouncer's order. Owns that one user's proof never serves another.
//! Never asks anybody: all that is known is known when the server is opened.

use auth::{Credentials, Secret};

use crate::state::Part;

/// The entry's own password, a password that a directory confirmed, or the stored secret of the pool's user (`stored`),
/// which for SCRAM needs the keys of a client's exchange.
///
/// Where the entry forces a user, clients are somebody else: what they proved says nothing about that user, and showing
/// it to the server would give it away. The `auth_user` of such an entry has a pool of its own, and is nobody's servant.
pub(crate) fn credentials(part: &Part, stored: Option<&Secret>) -> Credentials {
    if part.is_forced() {
        let own = part.database.password.as_deref().map(Secret::parse);
        return Credentials::from_secret(own.as_ref().or(stored), None);
    }
    match &part.password {
        Some(password) => Credentials::Plain(password.clone()),
        None => Credentials::from_secret(stored, part.keys.as_ref()),
    }
}
