//! The credentials for a server login, in PgBouncer's order. Owns that one user's credentials never serve another.
//! Never queries anything: all that is known is known when the server is opened.

use auth::{Credentials, Secret};

use crate::local_pools::local_pool::LocalPool;

/// The entry's own password, a password that a directory confirmed, or the stored secret of the pool's user (`stored`),
/// which for SCRAM needs the keys of a client's exchange.
///
/// Where the entry forces a user, clients are other users: their credentials are not that user's, and sending them to the
/// server would reveal them. The `auth_user` of such an entry has a pool of its own.
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
