//! Connections that listen for all clients of a pool, as far as they count in the limits of its database and user.
//!
//! Owns that they never take the last connection that a limit allows, over all pools and shards: one is left for transactions. Which connection
//! listens is its owner's to say.

use std::sync::Arc;

use crate::{ConnectionCounts, Pool};

/// The right to one connection that listens, kept while there is one and while another one is sought for it.
#[derive(Debug)]
pub struct ListenerUnit {
    database: Arc<ConnectionCounts>,
    user: Arc<ConnectionCounts>,
}

impl Drop for ListenerUnit {
    fn drop(&mut self) {
        self.database.listeners.release();
        self.user.listeners.release();
    }
}

impl Pool {
    /// Limits leave room for a connection that listens and one for transactions.
    #[must_use]
    pub fn may_listen(&self) -> bool {
        self.limits.max_db_connections != 1 && self.limits.max_user_connections != 1
    }

    /// A connection may listen for the clients of this pool, until the unit is dropped.
    #[must_use]
    pub fn take_listener(&self) -> Option<ListenerUnit> {
        let (database, user) = (Arc::clone(self.database()), Arc::clone(self.user()));
        if !self.may_listen() || !database.listeners.take(self.limits.max_db_connections.saturating_sub(1)) {
            return None;
        }
        if !user.listeners.take(self.limits.max_user_connections.saturating_sub(1)) {
            database.listeners.release();
            return None;
        }
        Some(ListenerUnit { database, user })
    }

    /// The same, whatever the limits are: another process has had it.
    #[must_use]
    pub fn import_listener(&self) -> ListenerUnit {
        let (database, user) = (Arc::clone(self.database()), Arc::clone(self.user()));
        database.listeners.take(0);
        user.listeners.take(0);
        ListenerUnit { database, user }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::pool::tests::limits;

    #[test]
    fn they_leave_one_connection_that_a_limit_allows() {
        let (database, user) = (Arc::<ConnectionCounts>::default(), Arc::<ConnectionCounts>::default());
        let pool = |max_db_connections, max_user_connections| {
            let limits = Limits { max_db_connections, max_user_connections, ..limits(9) };
            Pool::new(limits, Arc::default(), Arc::clone(&database), Arc::clone(&user))
        };
        assert!(pool(1, 0).take_listener().is_none() && pool(0, 1).take_listener().is_none());
        let first = pool(2, 0).take_listener();
        assert!(
            first.is_some() && pool(2, 0).take_listener().is_none() && pool(0, 2).take_listener().is_none()
        );
        let imported = pool(2, 0).import_listener();
        assert_eq!((database.listeners.taken(), user.listeners.taken()), (2, 2));
        drop((first, imported));
        assert!(pool(2, 2).take_listener().is_some());
    }
}
