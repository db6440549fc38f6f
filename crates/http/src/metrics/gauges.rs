//! What is there now: clients, servers, pools, databases, limits, threads.
//! Owns the names; the columns are the console's.

use settings::Config;

use super::Looked;
use super::family::{Family, Kind, Page, Unit, number, seconds};
use crate::table::{Row, Table};

/// Rows of SHOW LISTS and what they are called.
const LISTS: &[(&str, &str, &str)] = &[
    ("databases", "databases", "Databases."),
    ("users", "users", "Users."),
    ("pools", "pools", "Pools."),
    ("free_clients", "free_clients", "Places for clients that are kept ready."),
    ("used_clients", "used_clients", "Clients."),
    ("login_clients", "login_clients", "Clients that are logging in."),
    ("free_servers", "free_servers", "Places for servers that are kept ready."),
    ("used_servers", "used_servers", "Server connections."),
    ("dns_names", "cached_dns_names", "Host names that are known."),
    ("dns_zones", "cached_dns_zones", "Zones of host names that are known."),
    ("dns_queries", "in_flight_dns_queries", "Host names that are being looked up."),
];

/// Columns of SHOW DATABASES and what they are called.
const DATABASES: &[(&str, &str, &str)] = &[
    ("pool_size", "pool_size", "Server connections that a pool of the database may have."),
    ("reserve_pool_size", "reserve_pool", "Further ones for clients that wait too long."),
    ("max_connections", "max_connections", "Server connections that the database may have; 0 is no limit."),
    ("current_connections", "current_connections", "Server connections of the database."),
    ("paused", "paused", "1 if the database is paused."),
    ("disabled", "disabled", "1 if the database is disabled."),
];

/// Columns of SHOW POOLS and what they are called.
const POOLS: &[(&str, &str, &str)] = &[
    ("cl_active", "client_active", "Clients that have a server or ask for nothing."),
    (
        "cl_active_cancel_req",
        "client_active_cancel",
        "Cancel requests that were forwarded and are not at an end.",
    ),
    ("cl_waiting", "client_waiting", "Clients that wait for a server."),
    ("cl_waiting_cancel_req", "client_waiting_cancel", "Cancel requests that wait to be forwarded."),
    ("sv_active", "server_active", "Servers that a client has."),
    ("sv_active_cancel", "server_active_cancel", "Server connections that forward a cancel."),
    ("sv_being_canceled", "server_being_canceled", "Servers that a cancel keeps from being used."),
    ("sv_idle", "server_idle", "Servers that are free."),
    ("sv_used", "server_used", "Servers that were free for so long that they are checked first."),
    ("sv_tested", "server_testing", "Servers that are being reset or checked."),
    ("sv_login", "server_login", "Servers that are logging in."),
];

/// Columns of SHOW SHARDS and what they are called.
const SHARDS: &[(&str, Kind, &str, &str)] = &[
    ("clients", Kind::Gauge, "clients", "Clients of a thread."),
    ("servers", Kind::Gauge, "servers", "Server connections of a thread."),
    ("pools", Kind::Gauge, "pools", "Pools that a thread has a part of."),
    ("transactions", Kind::Counter, "transactions", "Transactions that a thread passed on."),
];

/// What most of them count.
const CONNECTIONS: Unit = Unit::Number("connection");

fn gauge<'a>(name: &'a str, unit: Unit, help: &'a str) -> Family<'a> {
    Family::new(name, Kind::Gauge, unit, help)
}

pub(super) fn write(page: &mut dyn Page, looked: &Looked, config: &Config, version: &str) {
    let none = Unit::Number("");
    page.single(&gauge("pgbouncer.up", none, "1: whoever answers is up.").alias(), 1.0);
    let help = "Always 1; the version is the label.";
    for family in [gauge("pgbouncer.version_info", none, help).alias(), gauge("weir.build_info", none, help)]
    {
        page.family(&family);
        page.sample(&[("version", version)], 1.0);
    }
    lists(page, &looked.lists);
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
    databases(page, &looked.databases);
    pools(page, &looked.pools, config);
    clients(page, looked);
    shards(page, &looked.shards);
}

fn lists(page: &mut dyn Page, table: &Table) {
    for (list, name, help) in LISTS {
        if let Some(row) = table.iter().find(|row| row.text("list") == Some(list)) {
            let name = format!("pgbouncer.{name}");
            page.single(&gauge(&name, Unit::Number(""), help), number(row.number("items")));
        }
    }
}

fn databases(page: &mut dyn Page, table: &Table) {
    for (column, name, help) in DATABASES {
        page.family(&gauge(&format!("pgbouncer.databases.{name}"), Unit::Number(""), help));
        for row in table.iter() {
            let port = row.number("port").to_string();
            let text = |column| row.text(column).unwrap_or_default();
            let labels = [
                ("name", text("name")),
                ("host", text("host")),
                ("port", port.as_str()),
                ("database", text("database")),
                ("force_user", text("force_user")),
                ("pool_mode", text("pool_mode")),
            ];
            page.sample(&labels, number(row.number(column)));
        }
    }
}

fn pools(page: &mut dyn Page, table: &Table, config: &Config) {
    for (column, name, help) in POOLS {
        let name = format!("pgbouncer.pools.{name}_connections");
        of_pools(page, table, &gauge(&name, CONNECTIONS, help), |row| Some(number(row.number(column))));
    }
    let longest = "How long the client has waited that has waited longest.";
    let longest = gauge("pgbouncer.pools.client_maxwait", Unit::Seconds, longest);
    of_pools(page, table, &longest, |row| {
        Some(number(row.number("maxwait")) + seconds(row.number("maxwait_us")))
    });
    let size = gauge("weir.pool.size_connections", CONNECTIONS, "Server connections that the pool may have.");
    of_pools(page, table, &size, |row| {
        let database = config.database(row.text("database")?)?;
        let user = config.user(row.text("user")?).map(|user| &**user);
        Some(f64::from(config.pool_size(&database, user)))
    });
}

fn of_pools(page: &mut dyn Page, table: &Table, family: &Family<'_>, value: impl Fn(Row<'_>) -> Option<f64>) {
    page.family(family);
    for row in table.iter() {
        let text = |column| row.text(column).unwrap_or_default();
        if let Some(value) = value(row) {
            page.sample(&[("database", text("database")), ("user", text("user"))], value);
        }
    }
}

fn clients(page: &mut dyn Page, looked: &Looked) {
    let help = "Clients by what they call themselves and what they do.";
    page.family(&gauge("pgbouncer.client_connections", CONNECTIONS, help));
    for ([database, user, application, state], count) in &looked.clients {
        let labels =
            [("database", database), ("user", user), ("application_name", application), ("state", state)];
        page.sample(&labels.map(|(label, text)| (label, text.as_str())), number(*count));
    }
}

fn shards(page: &mut dyn Page, table: &Table) {
    for (column, kind, name, help) in SHARDS {
        page.family(&Family::new(&format!("weir.shard.{name}"), *kind, Unit::Number(""), help));
        for row in table.iter() {
            page.sample(&[("shard", &row.number("shard").to_string())], number(row.number(column)));
        }
    }
    let help = "Share of the last second that a thread had the processor.";
    page.family(&gauge("weir.shard.busy", Unit::Ratio, help));
    for row in table.iter() {
        let busy = number(row.number("busy_percent")) / 100.0;
        page.sample(&[("shard", &row.number("shard").to_string())], busy);
    }
}
