//! An authenticated client that moves to the shard that has its pool.

use std::sync::Arc;

use auth::{Accepted, Zeroizing};
use session::StartupRequest;
use settings::Database;

use crate::client::Client;

/// The state of a client that moves from one shard to another: opaque to the driver.
pub struct ClientMove {
    pub(crate) client: Box<Client>,
    pub(crate) database: Arc<Database>,
    pub(crate) pool_user: String,
    pub(crate) startup_request: StartupRequest,
    pub(crate) accepted: Accepted,
    /// The secret of `pool_user` from `auth_query`.
    pub(crate) found: Option<Zeroizing<String>>,
    /// Its TLS; put in by the record layer.
    pub(crate) session: Option<Box<tls::TlsConnection>>,
}

impl std::fmt::Debug for ClientMove {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "Handover {{ client: {}, pool: {}/{} }}",
            self.client.id, self.database.name, self.pool_user
        )
    }
}
