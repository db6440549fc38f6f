//! Why a pool has no server: noted where a login fails, for SHOW.
//! Never decides anything by it; retries are the pool's.

use crate::ConnId;
use crate::core::Core;

impl Core {
    /// Notes the reason; the first failure in a row counts as the beginning.
    pub(super) fn login_failed(&mut self, conn: ConnId, text: &str) {
        let now_us = self.now.wall_us;
        let Some(local_pool) = self.server(conn).map(|server| server.pool) else { return };
        let Some(local_pool) = self.local_pools.get_mut(local_pool) else { return };
        let since_us = local_pool.server_error.as_ref().map_or(now_us, |error| error.since_us);
        let error = messages::ServerError { message: text.to_owned(), since_us, last_us: now_us };
        local_pool.server_error = Some(Box::new(error));
    }
}
