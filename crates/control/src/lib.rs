//! The control thread as a state machine: commands of operators, and their replies.
//!
//! [`Control`] takes inputs (a report of a shard, a signal, the clock) and returns outputs (a command to a shard, a log
//! line, reading the file again, exit). Commands and views are one table each ([`COMMANDS`], [`VIEWS`]); [`console`] reads
//! what operators type. It knows of a
//! shard only what `messages` carries; it holds no socket, reads no clock or file, and never blocks.
#![forbid(unsafe_code)]

mod aggregate;
mod command_error;
pub mod console;
mod interface;
mod machine;
mod pause_state;
mod pools;
mod request;
mod statement;
mod statistics;
mod topology;
mod views;

pub use command_error::CommandError;
pub use interface::{
    ExplainOutcome, ExplainRequest, Input, Operation, OperationKind, Output, ProcessInfo, TakeoverEvent,
};
pub use machine::{Argument, COMMANDS, CommandRow, Control};
pub use messages::Signal;
pub use pools::{
    Budget, Cluster, PoolChange, PoolError, PoolOutcome, PoolRequest, PoolSpec, RequestedSize, ServerInfo,
    WriteFault, cluster_id, clusters, is_pool_setting, pool_settings,
};
pub use statement::{PanelQuery, ParseError, Statement};
pub use topology::{PatroniError, Switchover};
pub use views::{
    CACHE, CLIENT_WAITS, CLUSTERS, CONFIG, CacheColumn, ClientWaitColumn, ClusterColumn, ConfigColumn,
    DATABASES, DatabaseColumn, ERRORS, ErrorColumn, FLEET, FLEET_BUDGETS, FLEET_LIMITS, FleetBudgetColumn,
    FleetColumn, FleetLimitColumn, HISTOGRAMS, HOSTS, HistogramColumn, HostColumn, LISTS, ListColumn,
    ListItem, Measure, PIN_TOTALS, PINS, POOL_SIZES, POOLS, PinColumn, PinTotalColumn, PoolColumn,
    PoolSizeColumn, QUERIES, QUERY_HISTOGRAMS, QUERY_TEXTS, QUEUES, QUOTAS, QueryColumn,
    QueryHistogramColumn, QueryTextColumn, QueueColumn, QuotaColumn, SERVER_ERRORS, SHARD_CLIENTS,
    SHARD_SERVERS, SHARDS, SPANS, STATS_TOTALS, ServerErrorColumn, ShardColumn, SocketColumn, SpanColumn,
    TotalsColumn, TypedView, VIEWS, View, ViewColumn, WAITS, WaitColumn,
};

/// The database that is the console, and the name of its user and of its pool.
pub const CONSOLE: &str = "pgbouncer";

/// What SHOW VERSION answers and `--version` prints first.
pub const VERSION: &str = concat!("PgBouncer 1.25.2 (Weir ", env!("CARGO_PKG_VERSION"), ")");

#[cfg(test)]
mod harness;
