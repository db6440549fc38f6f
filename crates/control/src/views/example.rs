//! Example rows of one shard for the tests of the views: one row of each subject, all different.

use messages::{
    CacheRow, ClusterHostRow, ClusterRow, DatabaseRow, FleetBudgetRow, FleetLimitRow, FleetNodeRow, HostLag,
    HostRole, Listing, PoolRow, PoolSizeRow, QueueRow, ShardRow, SocketRow, Subject, UserRow,
};
use telemetry::{Counters, ServerWait, ServerWaits, Wait, Waits};

/// The example row of each subject.
pub(super) fn of_shards(subject: Subject) -> Listing {
    match subject {
        Subject::Pools => pools(),
        Subject::Databases => databases(),
        Subject::Users => users(),
        Subject::Shards => shards(),
        Subject::Clients | Subject::Servers => sockets(subject),
        Subject::Descriptors => descriptors(),
        Subject::Memory => memory(),
        Subject::PeerPools => peer_pools(),
        Subject::Histograms => histograms(),
        Subject::Queries => queries(),
        Subject::Errors => errors(),
        Subject::Listeners => listeners(),
        Subject::Hosts => hosts(),
        Subject::Zones => zones(),
        Subject::Clusters => clusters(),
        Subject::ProbedHosts => Listing::Clusters(Vec::new()),
        Subject::Caches => caches(),
        Subject::Queues => queues(),
        Subject::Spans => spans(),
        Subject::Quotas => quotas(),
        Subject::PoolSizes => pool_sizes(),
        Subject::FleetNodes => fleet_nodes(),
        Subject::FleetBudgets => fleet_budgets(),
        Subject::FleetLimits => fleet_limits(),
    }
}

fn pools() -> Listing {
    let counters = Counters { xact_count: 60, query_count: 120, query_time: 600, ..Counters::default() };
    Listing::Pools(vec![PoolRow {
        database: "app".into(),
        user: "ann".into(),
        client_active: 4,
        client_waiting: 2,
        server_active: 1,
        max_wait_us: 2_000_003,
        mode: Some(settings::PoolMode::Transaction),
        server_error: Some(messages::ServerError {
            message: "connect failed: refused".into(),
            since_us: 1_000_000,
            last_us: 61_000_000,
        }),
        counters,
        pinned: 2,
        pinned_by_reason: [("temporary", 2), ("cursor", 1)].into(),
        pinned_us: 9,
        waiting_for_pin: 1,
        pins: messages::PinCounters { begun: 5, ended_us: 2, waited: 3, refused: 4 },
        ..PoolRow::default()
    }])
}

fn databases() -> Listing {
    Listing::Databases(vec![DatabaseRow { name: "app".into(), servers: 1, clients: 6, ..Default::default() }])
}

fn users() -> Listing {
    Listing::Users(vec![UserRow { name: "bob".into(), servers: 1, clients: 6 }])
}

fn shards() -> Listing {
    Listing::Shards(vec![ShardRow {
        clients: 6,
        logins: 1,
        servers: 1,
        pools: 2,
        busy_percent: 70,
        transactions: 60,
        listener_losses: 3,
        ..ShardRow::default()
    }])
}

fn sockets(subject: Subject) -> Listing {
    Listing::Sockets(vec![SocketRow {
        id: 31,
        shard: 3,
        pinned: "transaction",
        pins: "temporary,cursor".into(),
        pinned_since_us: 951_782_402_000_000,
        pinned_us: 7_000_000,
        server_pid: 4711,
        user: "ann".into(),
        database: "app".into(),
        state: "active",
        address: "127.0.0.1".into(),
        port: 5,
        local_address: "127.0.0.1".into(),
        local_port: 6432,
        connect_time_us: 951_782_400_000_000,
        request_time_us: 951_782_401_000_000,
        wait_us: 1_000_002,
        login_us: 900,
        waits: Some(waits([(Wait::Queue, 100), (Wait::Connect, 200), (Wait::Reader, 300)])),
        server_waits: Some(server_waits([(ServerWait::Lock, 40)])),
        link: 16,
        is_server: subject == Subject::Servers,
        ..SocketRow::default()
    }])
}

fn descriptors() -> Listing {
    Listing::Descriptors(vec![messages::DescriptorRow {
        descriptor: 9,
        link: 10,
        user: "ann".into(),
        database: "app".into(),
        address: "unix".into(),
        port: 6432,
        cancel: 7,
        parameters: [Some("UTF8".into()), None, Some("ISO".into()), None],
        ..messages::DescriptorRow::default()
    }])
}

fn memory() -> Listing {
    Listing::Memory(vec![messages::MemoryRow { name: "client_cache", size: 10, used: 3, free: 2 }])
}

fn peer_pools() -> Listing {
    Listing::PeerPools(vec![messages::PeerPoolRow {
        peer_id: 2,
        client_active_cancel: 1,
        server_login: 1,
        ..messages::PeerPoolRow::default()
    }])
}

fn histograms() -> Listing {
    let mut histograms = Box::new(telemetry::Histograms::default());
    (0..120).for_each(|_| histograms.query.add(5));
    histograms.waits = waits([(Wait::Login, 70), (Wait::Queue, 40), (Wait::Queue, 43)]);
    histograms.server_waits =
        server_waits([(ServerWait::Lock, 900_000), (ServerWait::Other, 30), (ServerWait::Lock, 1_000_000)]);
    Listing::Histograms(vec![messages::HistogramRow {
        database: "app".into(),
        user: "ann".into(),
        histograms,
    }])
}

fn waits<const N: usize>(of: [(Wait, u64); N]) -> Waits {
    let mut waits = Waits::default();
    of.into_iter().for_each(|(wait, us)| waits.add(wait, us));
    waits
}

fn server_waits<const N: usize>(of: [(ServerWait, u64); N]) -> ServerWaits {
    let mut waits = ServerWaits::default();
    of.into_iter().for_each(|(wait, us)| waits.add(wait, us));
    waits
}

fn shape() -> std::sync::Arc<telemetry::queries::QueryFingerprint> {
    std::sync::Arc::new(telemetry::queries::QueryFingerprint {
        number: 0xab,
        text: "select ?".into(),
        parameterized: Some("select $1".into()),
    })
}

fn spans() -> Listing {
    let span = telemetry::spans::Span {
        trace_id: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes(),
        parent_id: 0xb7ad_6b71_6920_3331_u64.to_be_bytes(),
        database: "app".into(),
        user: "ann".into(),
        end_us: 1_795_000_000_000_000,
        took_us: 1_500,
        waits: waits([(Wait::Queue, 400)]),
        failed: true,
        shape: Some(shape()),
    };
    Listing::Spans(vec![messages::SpanRow { shard: 3, number: 8, span }])
}

fn queries() -> Listing {
    let waits = waits([(Wait::Settings, 3)]);
    let mut figures = telemetry::queries::QueryStats::default();
    [5, 7].into_iter().for_each(|us| figures.count(us, us == 7, &waits, 1_000_000));
    figures.server_waits = server_waits([(ServerWait::Io, 4)]);
    Listing::Queries(vec![messages::QueryRow { database: "app".into(), shape: shape(), figures }])
}

fn errors() -> Listing {
    let mut errors = telemetry::SqlstateCounts::default();
    errors.count(b"23505");
    Listing::Errors(vec![messages::ErrorRow { database: "app".into(), errors }])
}

fn listeners() -> Listing {
    Listing::Listeners(vec![messages::ListenerRow { descriptor: 5, address: "127.0.0.1".into(), port: 6432 }])
}

fn hosts() -> Listing {
    Listing::Hosts(vec![messages::HostRow {
        name: "db.test".into(),
        known: true,
        underway: 2,
        ttl_s: 7,
        addresses: vec!["10.0.0.1".parse().expect("an address"), "::1".parse().expect("an address")],
    }])
}

fn zones() -> Listing {
    Listing::Zones(vec![messages::ZoneRow { name: "test".into(), serial: 4_000_000_000, hosts: 1 }])
}

fn clusters() -> Listing {
    let host = |label: &str, role| ClusterHostRow {
        label: label.to_owned(),
        role,
        since_us: 1_000_000,
        seen_us: 61_000_000,
        timeline: 3,
        lsn: Some(0x16_b374_d848),
        reads: 8,
        server_active: 1,
        server_idle: 2,
        ..ClusterHostRow::default()
    };
    let lag = Some(HostLag { bytes: 4_096, time_us: 12_999 });
    Listing::Clusters(vec![ClusterRow {
        database: "app".into(),
        system: 7_300_000_000_000_000_001,
        timeline: 3,
        hosts: vec![
            host("h1:5432", HostRole::Primary),
            ClusterHostRow { lag, ..host("h2:5432", HostRole::Standby) },
        ],
    }])
}

fn queues() -> Listing {
    Listing::Queues(vec![QueueRow {
        database: "app".into(),
        user: "web".into(),
        subject: "alice".into(),
        weight: 1,
        waiting: 3,
        active: 2,
        longest_wait_us: 1_500,
        turns: 120,
        server_us: 84_000,
        ..QueueRow::default()
    }])
}

fn quotas() -> Listing {
    let Ok(measure) = quota::Measure::read("queries/day") else { return Listing::Quotas(Vec::new()) };
    Listing::Quotas(vec![quota::QuotaRow {
        subject: quota::Subject::named(quota::SubjectKind::User, "alice"),
        measure,
        used: 104_220,
        soft: 100_000,
        hard: 120_000,
        grace_ends_s: Some(1_764_806_400),
        period_ends_s: Some(1_764_288_000),
        state: quota::State::Soft,
        members: None,
        external: 0,
    }])
}

fn fleet_nodes() -> Listing {
    Listing::FleetNodes(vec![FleetNodeRow {
        node: "weir-0".into(),
        is_own: true,
        state: "up",
        version: env!("CARGO_PKG_VERSION").into(),
        clients: Some(40),
        servers: Some(6),
        leased: 5,
        wanted: 5,
        pools: Some(3),
        ..FleetNodeRow::default()
    }])
}

fn fleet_limits() -> Listing {
    Listing::FleetLimits(vec![FleetLimitRow {
        kind: "database",
        database: "app".into(),
        limit: 100,
        clients: 40,
        external: 31,
        ..FleetLimitRow::default()
    }])
}

fn fleet_budgets() -> Listing {
    Listing::FleetBudgets(vec![FleetBudgetRow {
        kind: "database",
        database: "app".into(),
        limit: 20,
        floor: 1,
        shared: 17,
        leased: 5,
        leased_total: 11,
        wanted_total: 11,
        ..FleetBudgetRow::default()
    }])
}

fn pool_sizes() -> Listing {
    Listing::PoolSizes(vec![PoolSizeRow {
        database: "app".into(),
        user: "web".into(),
        mode: "auto",
        min: 2,
        max: 50,
        size: 8,
        found: 8,
        open: 8,
        state: "rests",
        changed_us: Some(41_000_000),
        change: "6 -> 8: 2310 transactions/s instead of 2080".into(),
        changes: 5,
        ..PoolSizeRow::default()
    }])
}

fn caches() -> Listing {
    Listing::Caches(vec![CacheRow {
        database: "app".into(),
        staleness_us: Some(104_999),
        answers: 12,
        bytes: 34_567,
        hits: 900,
        misses: 100,
        invalidations: 70,
        evictions: 3,
        ..CacheRow::default()
    }])
}
