//! Which client gets which server connection, and when.
//!
//! Owns the queue, the limits, the idle list, lifetimes and pauses as pure decisions. Never sees a byte or a session.
//!
//! ```
//! use settings::{PoolMode, SizeBounds};
//! use weir_pool::{Limits, OpenFor, Permit, Pool};
//!
//! let limits = Limits {
//!     mode: PoolMode::Transaction,
//!     follows_sessions: false,
//!     assigns_at_login: false,
//!     defers_begin: false,
//!     max_pinned: 0,
//!     waits_for_pin: false,
//!     pool_size: SizeBounds::Fixed(1),
//!     min_pool_size: 0,
//!     keeps_own: false,
//!     reserve_pool_size: 0,
//!     reserve_pool_timeout_us: 0,
//!     max_db_connections: 0,
//!     max_user_connections: 0,
//!     sharing: None,
//!     fair: None,
//!     queue_burst_us: 0,
//!     priority: None,
//!     queue_limit: 0,
//!     queue_target_us: 0,
//!     in_fleet: false,
//!     server_login_retry_us: 15_000_000,
//!     round_robin: false,
//!     counts_writes: true,
//! };
//! let mut pool = Pool::new(limits, Default::default(), Default::default(), Default::default());
//!
//! // No server is idle: the client waits, and a connection may be opened for it.
//! assert_eq!(pool.checkout(None, 0), None);
//! pool.queue.join(7, 0);
//! assert_eq!(pool.next_to_open(0, false), Some(OpenFor::Any));
//! assert_eq!(pool.take_permit(OpenFor::Any, 0), Permit::Taken { reserve: false });
//! assert_eq!(pool.take_permit(OpenFor::Any, 0), Permit::PoolFull);
//!
//! // The server (number 1) has logged in, and the client that has waited longest gets it.
//! pool.return_idle(1, 50);
//! let idle = pool.checkout_for_waiter(50).unwrap();
//! assert_eq!((idle.server, pool.queue.serve().unwrap().client), (1, 7));
//! ```
#![forbid(unsafe_code)]

mod auto_size;
mod cache_budget;
mod class_lanes;
mod dedicated;
mod fair_lane;
mod fair_share;
pub mod global_limits;
mod known_cluster;
mod lane;
mod listeners;
mod logins;
mod pins;
pub mod pool;
pub mod queue;
mod share_out;
mod shares;
mod sharing;
mod slots;
mod uncounted_writes;

pub use auto_size::{
    SizeChange, SizeChangeKind, SizeController, SizeFigures, SizeHold, SizeInterval, SizeReport, SizeState,
};
pub use cache_budget::CacheBudget;
pub use fair_share::{FairPool, FairShare, FairShares, FairTurn, ShareUse};
pub use global_limits::{
    CancelKeyPrefix, ConnectionCounts, Counted, ExternalClients, FleetCounts, PermitCounter, PoolRegistry,
    ProcessCounts, SharedPool,
};
pub use known_cluster::{KnownCluster, Mismatch, ProbedCluster, ProbedPrimary};
pub use lane::Waiter;
pub use listeners::ListenerUnit;
pub use logins::OpenFor;
pub use pins::PinUnit;
pub use pool::{IdleServer, Limits, Permit, Pool};
pub use queue::{Queue, QueuePosition};
pub use share_out::share_out;
pub use shares::{Budget, PoolShare, Sharing, TENURE_US};
pub use slots::{Full, Lease, SlotCounter};
