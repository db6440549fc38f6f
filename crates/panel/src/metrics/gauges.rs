//! What is there now: clients, servers, pools, databases, limits, threads.
//! Owns the names; the columns are the console's.

use control::{DatabaseColumn, ListColumn, ListItem, PoolColumn, ShardColumn};
use settings::Config;

use super::MetricTables;
use super::family::{Family, MetricKind, MetricUnit, MetricWriter, number, seconds};
use crate::table::{ViewRow, ViewTable};

/// Rows of SHOW LISTS and what they are called.
const LISTS: &[(ListItem, &str, &str)] = &[
    (ListItem::Databases, "databases", "Databases."),
    (ListItem::Users, "users", "Users."),
    (ListItem::Pools, "pools", "Pools."),
    (ListItem::FreeClients, "free_clients", "Client slots that are allocated and free."),
    (ListItem::UsedClients, "used_clients", "Clients."),
    (ListItem::LoginClients, "login_clients", "Clients that are logging in."),
    (ListItem::FreeServers, "free_servers", "Server slots that are allocated and free."),
    (ListItem::UsedServers, "used_servers", "Server connections."),
    (ListItem::DnsNames, "cached_dns_names", "Host names that are known."),
    (ListItem::DnsZones, "cached_dns_zones", "Zones of host names that are known."),
    (ListItem::DnsQueries, "in_flight_dns_queries", "Host names that are being looked up."),
];

/// Columns of SHOW DATABASES and what they are called.
const DATABASES: &[(DatabaseColumn, &str, &str)] = &[
    (DatabaseColumn::PoolSize, "pool_size", "Server connections that a pool of the database may have."),
    (DatabaseColumn::ReservePoolSize, "reserve_pool", "Additional ones for clients that wait too long."),
    (
        DatabaseColumn::MaxConnections,
        "max_connections",
        "Server connections that the database may have; 0 is no limit.",
    ),
    (DatabaseColumn::CurrentConnections, "current_connections", "Server connections of the database."),
    (DatabaseColumn::Paused, "paused", "1 if the database is paused."),
    (DatabaseColumn::Disabled, "disabled", "1 if the database is disabled."),
];

/// Columns of SHOW POOLS and what they are called.
const POOLS: &[(PoolColumn, &str, &str)] = &[
    (PoolColumn::ClActive, "client_active", "Clients that have a server or are idle."),
    (
        PoolColumn::ClActiveCancelReq,
        "client_active_cancel",
        "Cancel requests that were forwarded and are not finished.",
    ),
    (PoolColumn::ClWaiting, "client_waiting", "Clients that wait for a server."),
    (PoolColumn::ClWaitingCancelReq, "client_waiting_cancel", "Cancel requests that wait to be forwarded."),
    (PoolColumn::SvActive, "server_active", "Servers assigned to a client."),
    (PoolColumn::SvActiveCancel, "server_active_cancel", "Server connections that forward a cancel."),
    (PoolColumn::SvBeingCanceled, "server_being_canceled", "Servers that wait for a cancel to finish."),
    (PoolColumn::SvIdle, "server_idle", "Idle servers."),
    (PoolColumn::SvUsed, "server_used", "Servers idle for long enough to be checked before use."),
    (PoolColumn::SvTested, "server_testing", "Servers that are being reset or checked."),
    (PoolColumn::SvLogin, "server_login", "Servers that are logging in."),
];

/// Columns of SHOW SHARDS and what they are called.
const SHARDS: &[(ShardColumn, MetricKind, &str, &str)] = &[
    (ShardColumn::Clients, MetricKind::Gauge, "clients", "Clients of a thread."),
    (ShardColumn::Servers, MetricKind::Gauge, "servers", "Server connections of a thread."),
    (ShardColumn::Pools, MetricKind::Gauge, "pools", "Pools that a thread has a part of."),
    (ShardColumn::Transactions, MetricKind::Counter, "transactions", "Transactions that a thread passed on."),
    (
        ShardColumn::ListenerLosses,
        MetricKind::Counter,
        "listener_losses",
        "Times a connection was lost on which clients listened (LISTEN).",
    ),
];

/// What most of them count.
const CONNECTIONS: MetricUnit = MetricUnit::Number("connection");

fn gauge<'a>(name: &'a str, unit: MetricUnit, help: &'a str) -> Family<'a> {
    Family::new(name, MetricKind::Gauge, unit, help)
}

pub(super) fn write(page: &mut dyn MetricWriter, tables: &MetricTables, config: &Config, version: &str) {
    let none = MetricUnit::Number("");
    page.single(&gauge("pgbouncer.up", none, "1: a process that answers is up.").alias(), 1.0);
    let help = "Always 1; the version is the label.";
    for family in [gauge("pgbouncer.version_info", none, help).alias(), gauge("weir.build_info", none, help)]
    {
        page.family(&family);
        page.sample(&[("version", version)], 1.0);
    }
    lists(page, &tables.lists);
    let limits = [
        ("client", config.global.max_client_conn, "Clients that there may be (max_client_conn)."),
        (
            "user",
            config.global.max_user_connections,
            "Server connections of a user (max_user_connections); 0 is no limit.",
        ),
    ];
    for (name, limit, help) in limits {
        let name = format!("pgbouncer.config.max_{name}_connections");
        page.single(&gauge(&name, CONNECTIONS, help), f64::from(limit));
    }
    databases(page, &tables.databases);
    pools(page, &tables.pools, config);
    clients(page, tables);
    shards(page, &tables.shards);
}

fn lists(page: &mut dyn MetricWriter, table: &ViewTable<ListColumn>) {
    for (item, name, help) in LISTS {
        // The rows of SHOW LISTS are in the order of the enum.
        if let Some(row) = table.row(*item as usize) {
            let name = format!("pgbouncer.{name}");
            page.single(&gauge(&name, MetricUnit::Number(""), help), number(row.number(ListColumn::Items)));
        }
    }
}

fn databases(page: &mut dyn MetricWriter, table: &ViewTable<DatabaseColumn>) {
    for (column, name, help) in DATABASES {
        page.family(&gauge(&format!("pgbouncer.databases.{name}"), MetricUnit::Number(""), help));
        for row in table.iter() {
            let port = row.number(DatabaseColumn::Port).to_string();
            let text = |column| row.text(column).unwrap_or_default();
            let labels = [
                ("name", text(DatabaseColumn::Name)),
                ("host", text(DatabaseColumn::Host)),
                ("port", port.as_str()),
                ("database", text(DatabaseColumn::Database)),
                ("force_user", text(DatabaseColumn::ForceUser)),
                ("pool_mode", text(DatabaseColumn::PoolMode)),
            ];
            page.sample(&labels, number(row.number(*column)));
        }
    }
}

fn pools(page: &mut dyn MetricWriter, table: &ViewTable<PoolColumn>, config: &Config) {
    for (column, name, help) in POOLS {
        let name = format!("pgbouncer.pools.{name}_connections");
        of_pools(page, table, &gauge(&name, CONNECTIONS, help), |row| Some(number(row.number(*column))));
    }
    let longest = "How long the longest waiting client has waited.";
    let longest = gauge("pgbouncer.pools.client_maxwait", MetricUnit::Seconds, longest);
    of_pools(page, table, &longest, |row| {
        Some(number(row.number(PoolColumn::Maxwait)) + seconds(row.number(PoolColumn::MaxwaitUs)))
    });
    let size = gauge("weir.pool.size_connections", CONNECTIONS, "Server connections that the pool may have.");
    of_pools(page, table, &size, |row| {
        let database = config.database(row.text(PoolColumn::Database)?)?;
        let user = config.user(row.text(PoolColumn::User)?).map(|user| &**user);
        Some(f64::from(config.pool_size(&database, user).largest()))
    });
}

fn of_pools(
    page: &mut dyn MetricWriter,
    table: &ViewTable<PoolColumn>,
    family: &Family<'_>,
    value: impl Fn(ViewRow<'_, PoolColumn>) -> Option<f64>,
) {
    page.family(family);
    for row in table.iter() {
        let text = |column| row.text(column).unwrap_or_default();
        if let Some(value) = value(row) {
            page.sample(&[("database", text(PoolColumn::Database)), ("user", text(PoolColumn::User))], value);
        }
    }
}

fn clients(page: &mut dyn MetricWriter, tables: &MetricTables) {
    let help = "Clients by application_name and state.";
    page.family(&gauge("pgbouncer.client_connections", CONNECTIONS, help));
    for ([database, user, application, state], count) in &tables.clients {
        let labels =
            [("database", database), ("user", user), ("application_name", application), ("state", state)];
        page.sample(&labels.map(|(label, text)| (label, text.as_str())), number(*count));
    }
}

fn shards(page: &mut dyn MetricWriter, table: &ViewTable<ShardColumn>) {
    for (column, kind, name, help) in SHARDS {
        page.family(&Family::new(&format!("weir.shard.{name}"), *kind, MetricUnit::Number(""), help));
        for row in table.iter() {
            page.sample(
                &[("shard", &row.number(ShardColumn::Shard).to_string())],
                number(row.number(*column)),
            );
        }
    }
    let help = "Share of the last second that a thread was busy.";
    page.family(&gauge("weir.shard.busy", MetricUnit::Ratio, help));
    for row in table.iter() {
        let busy = number(row.number(ShardColumn::BusyPercent)) / 100.0;
        page.sample(&[("shard", &row.number(ShardColumn::Shard).to_string())], busy);
    }
}
