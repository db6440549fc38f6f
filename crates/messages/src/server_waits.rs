//! What the backends of one server were found waiting for (`track_lock_waits`): from the thread that asks to every shard.

use std::net::IpAddr;
use std::sync::Arc;

use telemetry::ServerWait;

/// One look at pg_stat_activity. Which of the backends are whose, the shards know.
#[derive(Clone, Debug)]
pub struct ServerWaitSample {
    /// The server's host as configured, or the path of its unix socket.
    pub host: Arc<str>,
    /// Its port; 0 beside a path.
    pub port: u16,
    /// Its address, unless it was reached by a unix socket.
    pub address: Option<IpAddr>,
    /// How long ago it was looked at before, in microseconds.
    pub us: u64,
    /// Process ids in ascending order, and what each waits for.
    pub backends: Arc<[(u32, ServerWait)]>,
}
