//! The state of one shard: the core, and the owners that use it.
//!
//! Owns the parts; never decides anything.

use std::sync::Arc;

use auth::{Entropy, MockKey, ServerKeyCache};
use messages::ShardId;
use pool::PoolRegistry;
use settings::Config;
use telemetry::Counters;
use tls::TlsConfig;

use crate::administration::Administration;
use crate::auth_query::AuthQueries;
use crate::cancel::Cancels;
use crate::core::Core;
use crate::error_counts::ErrorCounts;
use crate::link::freed::Freed;
use crate::login::Logins;
use crate::pools::spread::ThreadLoad;
use crate::queries::QueryTracking;
use crate::tls_layer::TlsRequest;
use crate::transfer::export::ExportState;

/// Derived keys that are remembered at most.
const KEYS_KEPT: usize = 1024;

/// The core, and the owners beside each other that use it.
pub(crate) struct ShardState {
    pub(crate) core: Core,
    pub(crate) cancels: Cancels,
    pub(crate) administration: Administration,
    pub(crate) server_keys: ServerKeyCache,
    /// What TLS is like, on both sides.
    pub(crate) tls: TlsConfig,
    /// Requests to the TLS layer, handled before the event ends.
    pub(crate) tls_requests: Vec<TlsRequest>,
    pub(crate) freed: Freed,
    /// Another process takes over from this one.
    pub(crate) exporting: Option<ExportState>,
    pub(crate) load: ThreadLoad,
    pub(crate) next_tick_us: Option<u64>,
    pub(crate) logins: Logins,
    pub(crate) auth_queries: AuthQueries,
    /// The console counts like a pool.
    pub(crate) console: Counters,
    /// Errors that clients got.
    pub(crate) errors: ErrorCounts,
    /// Statistics of queries, while they are kept.
    pub(crate) tracking: Option<Box<QueryTracking>>,
}

impl ShardState {
    pub(crate) fn new(
        id: ShardId,
        config: Arc<Config>,
        pool_registry: Arc<dyn PoolRegistry>,
        entropy: Box<dyn Entropy>,
        mock: Arc<MockKey>,
    ) -> ShardState {
        ShardState {
            cancels: Cancels::new(&mock),
            administration: Administration::default(),
            logins: Logins::new(&mock, &config),
            server_keys: ServerKeyCache::new(KEYS_KEPT),
            // At the start of a process the caller has checked these settings and reported any error.
            tls: TlsConfig::new(&config).unwrap_or_else(|_| TlsConfig::none()),
            tls_requests: Vec::new(),
            freed: Freed::default(),
            exporting: None,
            load: ThreadLoad::default(),
            next_tick_us: None,
            auth_queries: AuthQueries::default(),
            console: Counters::default(),
            errors: ErrorCounts::default(),
            tracking: config.global.track_queries.then(Box::default),
            core: Core::new(id, config, pool_registry, entropy),
        }
    }
}
