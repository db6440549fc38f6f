//! What Weir proves itself with to a server, in PgBouncer's order. Owns that one user's proof never serves another.
//! Never asks anybody: all that is known is known when the server is opened.

use auth::{Credentials, Secret};

use crate::state::LocalPool;

/// The entry's own password, a password that a directory confirmed, or the stored secret of the pool's user (`stored`),
/// which for SCRAM needs the keys of a client's exchange.
///
/// Where the entry forces a user, clients are somebody else: what they proved says nothing about that user, and showing
/// it to the server would give it away. The `auth_user` of such an entry has a pool of its own, and is nobody's servant.
pub(crate) fn credentials(local_pool: &LocalPool, stored: Option<&Secret>) -> Credentials {
    if local_pool.is_forced() {
        let own = local_pool.database.password.as_deref().map(Secret::parse);
        return Credentials::from_secret(own.as_ref().or(stored), None);
    }
    match &local_pool.password {
        Some(password) => Credentials::Plain(password.clone()),
        None => Credentials::from_secret(stored, local_pool.keys.as_ref()),
    }
}
