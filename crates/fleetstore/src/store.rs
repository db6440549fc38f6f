//! The store as the thread of the fleet uses it: requests in, events out.
//!
//! Owns that every request is answered in time, and how many are under way at once.

use std::sync::Arc;

use fleet::{Event, Request};
use settings::Config;

use crate::backends::BackendQuery;
use crate::etcd::{EtcdOptions, OptionsError};

/// A store, with the PostgreSQL servers that are asked for their client backends.
pub struct Store {}

impl Store {
    /// A store in etcd. The first request connects. Called in the tokio runtime (with IO and time) that will carry requests out.
    ///
    /// # Errors
    /// [`OptionsError`]: a certificate or key cannot be used. Whether etcd can be reached is not known yet.
    pub fn etcd(options: EtcdOptions, backends: BackendQuery) -> Result<Store, OptionsError> {
        let _ = (options, backends);
        Ok(Store {})
    }

    /// Begins to carry a request out; never waits. [`Store::next`] yields its answer within the request timeout (that of [`Request::ListBackends`]: within
    /// [`crate::BackendQuery::LIMIT`]).
    pub fn submit(&mut self, request: Request) {
        let _ = request;
    }

    /// The next event. Never ends; may be dropped and called again. It has to be called again soon: events wait, and requests with them.
    pub async fn next(&mut self) -> Event {
        std::future::pending().await
    }

    /// Another configuration says where PostgreSQL servers are.
    pub fn configure(&mut self, config: &Arc<Config>, user: Option<String>) {
        let _ = (config, user);
    }
}
