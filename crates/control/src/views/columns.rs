//! The columns of the views that the panel reads, as enums by which a row is indexed: a column that a view does not have
//! does not compile. Never makes a row.

use std::marker::PhantomData;

use messages::Column;

use super::stats::TOTALS;
use super::{int, numeric, text};

/// The columns of a view, in their order.
pub trait ViewColumn: Copy {
    /// Name and type of each.
    const COLUMNS: &'static [Column];

    /// Its place in a row.
    fn index(self) -> usize;
}

/// A view with the type of its columns.
#[derive(Clone, Copy, Debug)]
pub struct TypedView<C> {
    /// Its name after SHOW.
    pub name: &'static str,
    columns: PhantomData<C>,
}

impl<C> TypedView<C> {
    const fn new(name: &'static str) -> TypedView<C> {
        TypedView { name, columns: PhantomData }
    }
}

macro_rules! columns {
    ($(#[$doc:meta])* $name:ident { $($column:ident: $kind:ident $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $(#[doc = concat!("`", $text, "`.")] $column,)* }

        impl ViewColumn for $name {
            const COLUMNS: &'static [Column] = &[$($kind($text),)*];

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

columns! {
    /// The columns of SHOW POOLS.
    PoolColumn {
        Database: text "database",
        User: text "user",
        ClActive: int "cl_active",
        ClWaiting: int "cl_waiting",
        ClActiveCancelReq: int "cl_active_cancel_req",
        ClWaitingCancelReq: int "cl_waiting_cancel_req",
        SvActive: int "sv_active",
        SvActiveCancel: int "sv_active_cancel",
        SvBeingCanceled: int "sv_being_canceled",
        SvIdle: int "sv_idle",
        SvUsed: int "sv_used",
        SvTested: int "sv_tested",
        SvLogin: int "sv_login",
        Maxwait: int "maxwait",
        MaxwaitUs: int "maxwait_us",
        PoolMode: text "pool_mode",
        LoadBalanceHosts: text "load_balance_hosts",
    }
}

columns! {
    /// The columns of SHOW SERVER_ERRORS.
    ServerErrorColumn {
        Database: text "database",
        User: text "user",
        Since: text "since",
        LastTime: text "last_time",
        Message: text "message",
    }
}

columns! {
    /// The columns of SHOW HISTOGRAMS.
    HistogramColumn {
        Database: text "database",
        User: text "user",
        Measure: text "measure",
        Count: numeric "count",
        SumUs: numeric "sum_us",
        P50Us: int "p50_us",
        P95Us: int "p95_us",
        P99Us: int "p99_us",
        Buckets: text "buckets",
    }
}

columns! {
    /// The columns of SHOW ERRORS.
    ErrorColumn {
        Database: text "database",
        Sqlstate: text "sqlstate",
        Count: numeric "count",
    }
}

columns! {
    /// The columns of SHOW QUERIES.
    QueryColumn {
        Database: text "database",
        Fingerprint: text "fingerprint",
        Calls: numeric "calls",
        Errors: numeric "errors",
        TotalUs: numeric "total_us",
        MeanUs: int "mean_us",
        P95Us: int "p95_us",
        MaxUs: int "max_us",
        QueueUs: numeric "queue_us",
        ConnectUs: numeric "connect_us",
        SettingsUs: numeric "settings_us",
        ReaderUs: numeric "reader_us",
        LockUs: numeric "lock_us",
        IoUs: numeric "io_us",
        OtherUs: numeric "other_us",
        Since: text "since",
        Query: text "query",
    }
}

columns! {
    /// The columns of SHOW QUERY_HISTOGRAMS.
    QueryHistogramColumn {
        Database: text "database",
        Fingerprint: text "fingerprint",
        Errors: numeric "errors",
        TotalUs: numeric "total_us",
        MaxUs: int "max_us",
        Buckets: text "buckets",
    }
}

columns! {
    /// The columns of SHOW QUERY_TEXTS.
    QueryTextColumn {
        Database: text "database",
        Fingerprint: text "fingerprint",
        Statement: text "statement",
    }
}

columns! {
    /// The columns of SHOW DATABASES.
    DatabaseColumn {
        Name: text "name",
        Host: text "host",
        Port: int "port",
        Database: text "database",
        ForceUser: text "force_user",
        PoolSize: int "pool_size",
        MinPoolSize: int "min_pool_size",
        ReservePoolSize: int "reserve_pool_size",
        ServerLifetime: int "server_lifetime",
        PoolMode: text "pool_mode",
        LoadBalanceHosts: text "load_balance_hosts",
        MaxConnections: int "max_connections",
        CurrentConnections: int "current_connections",
        MaxClientConnections: int "max_client_connections",
        CurrentClientConnections: int "current_client_connections",
        Paused: int "paused",
        Disabled: int "disabled",
    }
}

columns! {
    /// The columns of SHOW CONFIG.
    ConfigColumn {
        Key: text "key",
        Value: text "value",
        Default: text "default",
        Changeable: text "changeable",
    }
}

columns! {
    /// The columns of SHOW LISTS.
    ListColumn {
        List: text "list",
        Items: int "items",
    }
}

columns! {
    /// The columns of SHOW SHARDS.
    ShardColumn {
        Shard: int "shard",
        Clients: int "clients",
        Logins: int "logins",
        Servers: int "servers",
        Pools: int "pools",
        BusyPercent: int "busy_percent",
        Transactions: int "transactions",
        ListenerLosses: int "listener_losses",
    }
}

columns! {
    /// The columns of SHOW SHARD_CLIENTS and SHARD_SERVERS.
    SocketColumn {
        Type: text "type",
        User: text "user",
        Database: text "database",
        Replication: text "replication",
        State: text "state",
        Addr: text "addr",
        Port: int "port",
        LocalAddr: text "local_addr",
        LocalPort: int "local_port",
        ConnectTime: text "connect_time",
        RequestTime: text "request_time",
        Wait: int "wait",
        WaitUs: int "wait_us",
        CloseNeeded: int "close_needed",
        Ptr: text "ptr",
        Link: text "link",
        RemotePid: int "remote_pid",
        Tls: text "tls",
        ApplicationName: text "application_name",
        PreparedStatements: int "prepared_statements",
        Id: int "id",
        Shard: int "shard",
        Pinned: text "pinned",
        PinnedSince: text "pinned_since",
    }
}

columns! {
    /// The columns of SHOW HOSTS.
    HostColumn {
        Database: text "database",
        Host: text "host",
        Port: int "port",
        State: text "state",
        Detached: int "detached",
        Since: text "since",
        Timeline: int "timeline",
        ReplayLsn: text "replay_lsn",
        LagBytes: int "lag_bytes",
        LagMs: int "lag_ms",
        Reads: numeric "reads",
        ServerActive: int "server_active",
        ServerIdle: int "server_idle",
        ServerLogin: int "server_login",
        LastError: text "last_error",
    }
}

columns! {
    /// The columns of SHOW CACHE.
    CacheColumn {
        Database: text "database",
        State: text "state",
        Detail: text "detail",
        StalenessMs: int "staleness_ms",
        Answers: int "answers",
        Bytes: int "bytes",
        MaxBytes: int "max_bytes",
        Hits: numeric "hits",
        Misses: numeric "misses",
        Invalidations: numeric "invalidations",
        Evictions: numeric "evictions",
    }
}

columns! {
    /// The columns of SHOW POOL_SIZES.
    PoolSizeColumn {
        Database: text "database",
        User: text "user",
        Host: text "host",
        Mode: text "mode",
        Min: int "min",
        Max: int "max",
        Size: int "size",
        Found: int "found",
        Open: int "open",
        State: text "state",
        Hold: text "hold",
        ChangedSeconds: int "changed_s",
        Change: text "change",
        Changes: numeric "changes",
    }
}

columns! {
    /// The columns of SHOW QUEUES.
    QueueColumn {
        Database: text "database",
        User: text "user",
        Host: text "host",
        QueueBy: text "queue_by",
        Subject: text "subject",
        Weight: int "weight",
        Waiting: int "waiting",
        Active: int "active",
        MaxWaitUs: int "maxwait_us",
        Turns: numeric "turns",
        ServerTimeUs: numeric "server_time_us",
    }
}

columns! {
    /// The columns of SHOW SPANS.
    SpanColumn {
        Shard: int "shard",
        Number: numeric "number",
        TraceId: text "trace_id",
        ParentId: text "parent_id",
        Database: text "database",
        User: text "user",
        EndUs: numeric "end_us",
        TookUs: numeric "took_us",
        QueueUs: numeric "queue_us",
        ConnectUs: numeric "connect_us",
        SettingsUs: numeric "settings_us",
        ReaderUs: numeric "reader_us",
        Failed: int "failed",
        Query: text "query",
    }
}

columns! {
    /// The columns of SHOW WAITS.
    WaitColumn {
        Database: text "database",
        User: text "user",
        Wait: text "wait",
        Count: numeric "count",
        TimeUs: numeric "time_us",
        AvgUs: int "avg_us",
    }
}

columns! {
    /// The columns of SHOW CLIENT_WAITS.
    ClientWaitColumn {
        Database: text "database",
        User: text "user",
        ClientId: int "client_id",
        Addr: text "addr",
        Port: int "port",
        ApplicationName: text "application_name",
        State: text "state",
        WaitUs: int "wait_us",
        LoginUs: int "login_us",
        QueueUs: numeric "queue_us",
        ConnectUs: numeric "connect_us",
        SettingsUs: numeric "settings_us",
        ReaderUs: numeric "reader_us",
        LockUs: numeric "lock_us",
        IoUs: numeric "io_us",
        OtherUs: numeric "other_us",
    }
}

columns! {
    /// The columns of SHOW FLEET.
    FleetColumn {
        Node: text "node",
        IsOwn: int "is_own",
        State: text "state",
        Address: text "address",
        Version: text "version",
        Clients: int "clients",
        Servers: int "servers",
        Leased: numeric "leased",
        Wanted: numeric "wanted",
        Pools: numeric "pools",
        Detail: text "detail",
    }
}

columns! {
    /// The columns of SHOW FLEET_BUDGETS.
    FleetBudgetColumn {
        Kind: text "kind",
        Database: text "database",
        User: text "user",
        Host: text "host",
        Limit: int "limit",
        Floor: int "floor",
        Shared: int "shared",
        Leased: int "leased",
        LeasedTotal: int "leased_total",
        WantedTotal: int "wanted_total",
        Orphaned: int "orphaned",
        Detail: text "detail",
    }
}

columns! {
    /// The columns of SHOW FLEET_LIMITS.
    FleetLimitColumn {
        Kind: text "kind",
        Database: text "database",
        User: text "user",
        Limit: int "limit",
        Clients: int "clients",
        External: int "external",
    }
}

columns! {
    /// The columns of SHOW QUOTAS.
    QuotaColumn {
        Subject: text "subject",
        Name: text "name",
        Resource: text "resource",
        Period: text "period",
        Used: numeric "used",
        Soft: numeric "soft",
        Hard: numeric "hard",
        GraceEnds: text "grace_ends",
        PeriodEnds: text "period_ends",
        State: text "state",
        Members: numeric "members",
        External: numeric "external",
    }
}

columns! {
    /// The columns of SHOW CLUSTERS.
    ClusterColumn {
        Database: text "database",
        Hosts: int "hosts",
        Standbys: int "standbys",
        Primary: text "primary",
        Timeline: int "timeline",
        SystemIdentifier: text "system_identifier",
        State: text "state",
        Detail: text "detail",
        Topology: text "topology",
        TopologyState: text "topology_state",
        TopologyDetail: text "topology_detail",
    }
}

columns! {
    /// The columns of SHOW PINS.
    PinColumn {
        Database: text "database",
        User: text "user",
        ClientId: int "client_id",
        Addr: text "addr",
        Port: int "port",
        ApplicationName: text "application_name",
        State: text "state",
        Reasons: text "reasons",
        Since: text "since",
        Seconds: int "seconds",
        ServerPid: int "server_pid",
        Shard: int "shard",
    }
}

columns! {
    /// The columns of SHOW PIN_TOTALS.
    PinTotalColumn {
        Database: text "database",
        User: text "user",
        MaxPinned: int "max_pinned",
        MaxPinnedAction: text "max_pinned_action",
        Pinned: int "pinned",
        Waiting: int "waiting",
        Reasons: text "reasons",
        Pins: numeric "pins",
        PinnedUs: numeric "pinned_us",
        Waits: numeric "waits",
        Refused: numeric "refused",
    }
}

/// The columns of SHOW STATS_TOTALS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TotalsColumn {
    /// `database`.
    Database,
    /// A counter, by its place in [`telemetry::COUNTERS`].
    Counter(usize),
}

impl ViewColumn for TotalsColumn {
    const COLUMNS: &'static [Column] = &TOTALS;

    fn index(self) -> usize {
        match self {
            TotalsColumn::Database => 0,
            TotalsColumn::Counter(place) => 1 + place,
        }
    }
}

/// SHOW POOLS.
pub const POOLS: TypedView<PoolColumn> = TypedView::new("POOLS");

/// SHOW SERVER_ERRORS.
pub const SERVER_ERRORS: TypedView<ServerErrorColumn> = TypedView::new("SERVER_ERRORS");

/// SHOW HISTOGRAMS.
pub const HISTOGRAMS: TypedView<HistogramColumn> = TypedView::new("HISTOGRAMS");

/// SHOW ERRORS.
pub const ERRORS: TypedView<ErrorColumn> = TypedView::new("ERRORS");

/// SHOW QUERIES.
pub const QUERIES: TypedView<QueryColumn> = TypedView::new("QUERIES");

/// SHOW QUERY_HISTOGRAMS.
pub const QUERY_HISTOGRAMS: TypedView<QueryHistogramColumn> = TypedView::new("QUERY_HISTOGRAMS");

/// SHOW QUERY_TEXTS.
pub const QUERY_TEXTS: TypedView<QueryTextColumn> = TypedView::new("QUERY_TEXTS");

/// SHOW DATABASES.
pub const DATABASES: TypedView<DatabaseColumn> = TypedView::new("DATABASES");

/// SHOW CONFIG.
pub const CONFIG: TypedView<ConfigColumn> = TypedView::new("CONFIG");

/// SHOW LISTS.
pub const LISTS: TypedView<ListColumn> = TypedView::new("LISTS");

/// SHOW SHARDS.
pub const SHARDS: TypedView<ShardColumn> = TypedView::new("SHARDS");

/// SHOW HOSTS.
pub const HOSTS: TypedView<HostColumn> = TypedView::new("HOSTS");

/// SHOW CACHE.
pub const CACHE: TypedView<CacheColumn> = TypedView::new("CACHE");

/// SHOW SPANS.
pub const SPANS: TypedView<SpanColumn> = TypedView::new("SPANS");

/// SHOW WAITS.
pub const WAITS: TypedView<WaitColumn> = TypedView::new("WAITS");

/// SHOW CLIENT_WAITS.
pub const CLIENT_WAITS: TypedView<ClientWaitColumn> = TypedView::new("CLIENT_WAITS");

/// SHOW POOL_SIZES.
pub const POOL_SIZES: TypedView<PoolSizeColumn> = TypedView::new("POOL_SIZES");

/// SHOW QUEUES.
pub const QUEUES: TypedView<QueueColumn> = TypedView::new("QUEUES");

/// SHOW FLEET.
pub const FLEET: TypedView<FleetColumn> = TypedView::new("FLEET");

/// SHOW FLEET_BUDGETS.
pub const FLEET_BUDGETS: TypedView<FleetBudgetColumn> = TypedView::new("FLEET_BUDGETS");

/// SHOW FLEET_LIMITS.
pub const FLEET_LIMITS: TypedView<FleetLimitColumn> = TypedView::new("FLEET_LIMITS");

/// SHOW QUOTAS.
pub const QUOTAS: TypedView<QuotaColumn> = TypedView::new("QUOTAS");

/// SHOW CLUSTERS.
pub const CLUSTERS: TypedView<ClusterColumn> = TypedView::new("CLUSTERS");

/// SHOW PINS.
pub const PINS: TypedView<PinColumn> = TypedView::new("PINS");

/// SHOW PIN_TOTALS.
pub const PIN_TOTALS: TypedView<PinTotalColumn> = TypedView::new("PIN_TOTALS");

/// SHOW SHARD_CLIENTS.
pub const SHARD_CLIENTS: TypedView<SocketColumn> = TypedView::new("SHARD_CLIENTS");

/// SHOW SHARD_SERVERS.
pub const SHARD_SERVERS: TypedView<SocketColumn> = TypedView::new("SHARD_SERVERS");

/// SHOW STATS_TOTALS.
pub const STATS_TOTALS: TypedView<TotalsColumn> = TypedView::new("STATS_TOTALS");
