//! The table of views: name, role, columns, source rows, row function, and how the view compares with PgBouncer's.
//!
//! Columns, their order and their types are PgBouncer 1.25.2's. To add a view: a row here, and its columns and function in
//! a file beside this one. The console's help, the manual and docs/pgbouncer.md follow the row. A new kind of source rows is a
//! [`Subject`] and what sums it up in [`Aggregate`].

mod caches;
mod clusters;
mod columns;
mod databases;
mod durations;
#[cfg(test)]
mod example;
mod fixed;
mod fleet;
mod internals;
mod peers;
mod pins;
mod pool_sizes;
mod pools;
mod queries;
mod queues;
mod quotas;
mod sockets;
mod spans;
mod stats;
mod users;
mod waits;

use messages::{Cell, Column, ColumnType, Role, Subject};
use settings::{Compat, Config};

use crate::aggregate::Aggregate;
use crate::interface::ProcessInfo;
use crate::pause_state::PauseState;
use crate::statistics::Statistics;
use crate::topology::Topologies;

pub use columns::{
    CACHE, CLIENT_WAITS, CLUSTERS, CONFIG, CacheColumn, ClientWaitColumn, ClusterColumn, ConfigColumn,
    DATABASES, DatabaseColumn, ERRORS, ErrorColumn, FLEET, FLEET_BUDGETS, FLEET_LIMITS, FleetBudgetColumn,
    FleetColumn, FleetLimitColumn, HISTOGRAMS, HOSTS, HistogramColumn, HostColumn, LISTS, ListColumn,
    PIN_TOTALS, PINS, POOL_SIZES, POOLS, PinColumn, PinTotalColumn, PoolColumn, PoolSizeColumn, QUERIES,
    QUERY_HISTOGRAMS, QUERY_TEXTS, QUEUES, QUOTAS, QueryColumn, QueryHistogramColumn, QueryTextColumn,
    QueueColumn, QuotaColumn, SERVER_ERRORS, SHARD_CLIENTS, SHARD_SERVERS, SHARDS, SPANS, STATS_TOTALS,
    ServerErrorColumn, ShardColumn, SocketColumn, SpanColumn, TotalsColumn, TypedView, ViewColumn, WAITS,
    WaitColumn,
};
pub use durations::Measure;
pub use fixed::ListItem;

/// A SHOW view.
#[derive(Debug)]
pub struct View {
    /// Its name after SHOW, case-insensitive.
    pub name: &'static str,
    /// The required role.
    pub role: Role,
    /// Its columns.
    pub columns: &'static [Column],
    /// Rows are streamed to the client; other views need all shards first.
    pub is_streamed: bool,
    /// Which rows of shards it is made from.
    pub from: &'static [Subject],
    /// Makes the rows.
    pub(crate) rows: fn(&ViewContext<'_>) -> Vec<Vec<Cell>>,
    /// HELP: the answer is a notice of what can be typed instead of rows.
    pub(crate) is_help: bool,
    /// How it compares with PgBouncer's.
    pub compat: Compat,
    /// What it shows, where PgBouncer does not have it; else empty.
    pub about: &'static str,
}

impl View {
    /// Marks a view that PgBouncer does not have.
    const fn own(self, about: &'static str) -> View {
        View { compat: Compat::Own, about, ..self }
    }

    /// Marks a view that shows something else than PgBouncer's.
    const fn different(self, why: &'static str) -> View {
        View { compat: Compat::Different(why), ..self }
    }
}

/// The data that views are made from.
pub(crate) struct ViewContext<'a> {
    pub(crate) config: &'a Config,
    pub(crate) facts: &'a ProcessInfo,
    pub(crate) pause_state: &'a PauseState,
    pub(crate) statistics: &'a Statistics,
    pub(crate) topologies: &'a Topologies,
    pub(crate) aggregate: &'a Aggregate,
    pub(crate) now_us: u64,
}

/// A view that needs all rows before it can be shown.
const fn whole(
    name: &'static str,
    columns: &'static [Column],
    from: &'static [Subject],
    rows: fn(&ViewContext<'_>) -> Vec<Vec<Cell>>,
) -> View {
    View {
        name,
        role: Role::Stats,
        columns,
        is_streamed: false,
        from,
        rows,
        is_help: false,
        compat: Compat::Same,
        about: "",
    }
}

/// A view whose rows are streamed.
const fn streamed(
    name: &'static str,
    columns: &'static [Column],
    from: &'static [Subject],
    rows: fn(&ViewContext<'_>) -> Vec<Vec<Cell>>,
) -> View {
    View { is_streamed: true, ..whole(name, columns, from, rows) }
}

/// A view whose columns are an enum.
const fn typed<C: ViewColumn>(
    view: TypedView<C>,
    from: &'static [Subject],
    rows: fn(&ViewContext<'_>) -> Vec<Vec<Cell>>,
) -> View {
    whole(view.name, C::COLUMNS, from, rows)
}

/// A view whose columns are an enum and whose rows are streamed.
const fn typed_stream<C: ViewColumn>(
    view: TypedView<C>,
    from: &'static [Subject],
    rows: fn(&ViewContext<'_>) -> Vec<Vec<Cell>>,
) -> View {
    streamed(view.name, C::COLUMNS, from, rows)
}

/// Every view.
pub static VIEWS: &[View] = &[
    streamed("ACTIVE_SOCKETS", &sockets::WITH_BUFFER, &[Subject::Clients, Subject::Servers], sockets::active),
    streamed("CLIENTS", &sockets::COLUMNS, &[Subject::Clients], sockets::plain),
    typed(CACHE, &[Subject::Caches], caches::rows)
        .own("entries with a query cache: whether its answers can be used, how fresh they are, and what became of requests"),
    typed(CLIENT_WAITS, &[Subject::Clients], waits::of_clients)
        .own("clients that have waited, the longest first: for how long and what for (track_queries)"),
    typed(CLUSTERS, &[Subject::Clusters, Subject::ProbedHosts], clusters::entries).own(
        "entries with a primary and standbys: which is the primary, usable standbys, and what to do if one is missing",
    ),
    typed(CONFIG, &[], fixed::config),
    typed(DATABASES, &[Subject::Databases], databases::rows),
    whole("DNS_HOSTS", internals::HOSTS, &[Subject::Hosts], internals::hosts),
    whole("DNS_ZONES", internals::ZONES, &[Subject::Zones], internals::zones),
    typed(ERRORS, &[Subject::Errors], durations::errors).own("errors sent to clients, by SQLSTATE"),
    View {
        role: Role::Admin,
        ..whole("FDS", internals::FDS, &[Subject::Listeners, Subject::Descriptors], internals::descriptors)
    }
    .different("shows no secret and sends no descriptor: Weir's takeover does not use it"),
    typed(FLEET, &[Subject::FleetNodes], fleet::nodes)
        .own("nodes of the fleet: state, load, and the slots that each has leased of shared limits"),
    typed(FLEET_BUDGETS, &[Subject::FleetBudgets], fleet::budgets)
        .own("limits of server connections that the nodes of the fleet share, and who has how much of them"),
    typed(FLEET_LIMITS, &[Subject::FleetLimits], fleet::limits)
        .own("limits of clients that hold for all nodes of the fleet (fleet_limits), and what is used of them"),
    View { is_help: true, ..whole("HELP", &[], &[], |_| Vec::new()) },
    typed(HISTOGRAMS, &[Subject::Pools, Subject::Histograms], durations::histograms)
        .own("how long clients waited, transactions and queries took"),
    typed(HOSTS, &[Subject::Clusters, Subject::ProbedHosts], clusters::hosts)
        .own("hosts of entries with a primary and standbys: what each is, how far behind, and its reads"),
    typed(LISTS, LISTED, fixed::lists),
    whole("MEM", internals::MEM, &[Subject::Memory], internals::memory)
        .different("counts Weir's own objects, which are fewer kinds than PgBouncer's"),
    whole("PEERS", peers::PEERS, &[], peers::peers),
    whole("PEER_POOLS", peers::POOLS, &[Subject::PeerPools], peers::pools),
    typed_stream(PINS, &[Subject::Clients], pins::clients).own(
        "clients that keep a server connection because of what their sessions hold: why, and since when",
    ),
    typed(PIN_TOTALS, &[Subject::Pools], pins::totals)
        .own("such clients of each pool, by reason, and its max_pinned"),
    typed(POOLS, &[Subject::Pools], pools::rows),
    typed(POOL_SIZES, &[Subject::PoolSizes], pool_sizes::rows)
        .own("the size of each pool; of those that size themselves the search, what holds it, and the last change with its reason"),
    typed(QUERIES, &[Subject::Queries], queries::rows)
        .own("time of each kind of query, while track_queries is on"),
    typed(QUEUES, &[Subject::Queues], queues::rows).own(
        "subjects of fair queues that have clients: how many wait, and what each has had of the servers' time",
    ),
    typed(QUERY_HISTOGRAMS, &[Subject::Queries], queries::histograms).own("the same durations in buckets"),
    typed(QUERY_TEXTS, &[Subject::Queries], queries::texts).own(
        "a statement of each kind with parameters instead of values, as EXPLAIN (GENERIC_PLAN) takes it",
    ),
    typed(QUOTAS, &[Subject::Quotas], quotas::rows).own(
        "quotas: what users, groups, databases and application_names have used, may use, and how they stand",
    ),
    streamed("SERVERS", &sockets::COLUMNS, &[Subject::Servers], sockets::plain),
    typed(SERVER_ERRORS, &[Subject::Pools], pools::server_errors)
        .own("pools whose server logins fail: since when, and why"),
    typed_stream(SHARD_CLIENTS, &[Subject::Clients], sockets::with_location).own(
        "SHOW CLIENTS with each client's thread and the reason why it keeps its server outside of a request",
    ),
    typed_stream(SHARD_SERVERS, &[Subject::Servers], sockets::with_location).own("SHOW SERVERS likewise"),
    typed(SHARDS, &[Subject::Shards], fixed::shards).own("activity of each thread"),
    streamed("SOCKETS", &sockets::WITH_BUFFER, &[Subject::Clients, Subject::Servers], sockets::all),
    typed(SPANS, &[Subject::Spans], spans::rows)
        .own("the last requests that belong to sampled traces of their callers (otlp_traces)"),
    whole("STATE", fixed::STATE, &[], fixed::state),
    whole("STATS", &stats::STATS, &[Subject::Pools], stats::both),
    whole("STATS_AVERAGES", &stats::AVERAGES, &[Subject::Pools], stats::averages),
    typed(STATS_TOTALS, &[Subject::Pools], stats::totals),
    whole("TOTALS", stats::SUMS, &[Subject::Pools], stats::sums),
    whole("USERS", users::COLUMNS, &[Subject::Users], users::rows),
    whole("VERSION", fixed::VERSION, &[], fixed::version)
        .different("begins with PgBouncer's version and names Weir after it"),
    typed(WAITS, &[Subject::Pools, Subject::Histograms], waits::of_pools)
        .own("what clients of each pool waited for, and how long transactions were in queries and between them"),
];

/// What LISTS counts.
const LISTED: &[Subject] = &[
    Subject::Databases,
    Subject::Users,
    Subject::Pools,
    Subject::Shards,
    Subject::PeerPools,
    Subject::Hosts,
    Subject::Zones,
];

/// A column of text.
const fn text(name: &'static str) -> Column {
    Column { name, kind: ColumnType::Text }
}

/// A column of whole numbers.
const fn int(name: &'static str) -> Column {
    Column { name, kind: ColumnType::Int8 }
}

/// A column of sums and averages; numeric, as in PgBouncer.
const fn numeric(name: &'static str) -> Column {
    Column { name, kind: ColumnType::Numeric }
}

/// Text, or NULL.
fn text_or_null(value: Option<impl Into<String>>) -> Cell {
    value.map_or(Cell::Null, |value| Cell::Text(value.into()))
}

/// Whole seconds and the microseconds beyond them.
fn seconds_and_rest(us: u64) -> [Cell; 2] {
    [Cell::from(us / 1_000_000), Cell::from(us % 1_000_000)]
}

/// How hosts are chosen is shown only where there is a choice.
fn load_balance_hosts(database: &settings::Database) -> Cell {
    text_or_null((database.host.len() > 1).then(|| database.load_balance_hosts.word()))
}

#[cfg(test)]
mod tests {
    use super::example::of_shards;
    use super::*;
    use crate::harness::{Harness, empty, shown};
    use messages::{Listing, SocketRow};

    #[test]
    fn each_row_is_as_wide_as_its_columns() {
        for view in VIEWS {
            let mut harness = Harness::new();
            let rows = harness.show(&format!("SHOW {}", view.name), &of_shards);
            assert!(rows.iter().all(|row| row.len() == view.columns.len()), "{}", view.name);
        }
    }

    #[test]
    fn a_view_of_weirs_own_says_what_it_shows() {
        for view in VIEWS {
            assert_eq!(view.compat == Compat::Own, !view.about.is_empty(), "{}", view.name);
        }
    }

    #[test]
    fn pools_have_their_cells_in_order() {
        let rows = Harness::new().show("SHOW POOLS", &of_shards);
        let expected = [
            "app|ann|4|2|0|0|1|0|0|0|0|0|0|2|3|transaction|round-robin",
            "pgbouncer|pgbouncer|0|0|0|0|0|0|0|0|0|0|0|0|0|statement|NULL",
        ];
        assert_eq!(shown(&rows), expected);
    }

    #[test]
    fn pools_whose_servers_let_nobody_in_say_why() {
        let rows = Harness::new().show("SHOW SERVER_ERRORS", &of_shards);
        let expected = "app|ann|1970-01-01 00:00:01 UTC|1970-01-01 00:01:01 UTC|connect failed: refused";
        assert_eq!(shown(&rows), [expected]);
    }

    #[test]
    fn databases_are_the_configured_ones_and_the_console() {
        let mut harness = Harness::new();
        harness.ask("PAUSE other");
        let rows = harness.show("SHOW DATABASES", &of_shards);
        let expected = [
            "app|h1,h2|5432|app|NULL|7|0|0|3600|NULL|round-robin|0|1|0|6|0|0",
            "other|NULL|5432|x|boss|20|0|0|3600|NULL|NULL|0|0|0|0|1|0",
            "pgbouncer|NULL|6432|pgbouncer|pgbouncer|2|0|0|3600|statement|NULL|0|0|0|0|0|0",
        ];
        assert_eq!(shown(&rows), expected);
    }

    #[test]
    fn databases_made_from_the_fallback_are_shown_once_used() {
        let mut harness = Harness::with(1, "[databases]\n* = host=h\n");
        assert_eq!(harness.show("SHOW DATABASES", &empty).len(), 1);
        let rows = harness.show("SHOW DATABASES", &of_shards);
        assert!(shown(&rows)[0].starts_with("app|h|5432|app|"));
        harness.ask("PAUSE held");
        harness.ask("DISABLE closed");
        let rows = shown(&harness.show("SHOW DATABASES", &empty));
        assert!(rows[0].starts_with("closed|h|") && rows[0].ends_with("|0|1"), "{rows:?}");
        assert!(rows[1].starts_with("held|h|") && rows[1].ends_with("|1|0"), "{rows:?}");
    }

    #[test]
    fn sockets_have_their_cells_in_order() {
        let rows = Harness::new().show("SHOW CLIENTS", &of_shards);
        let expected = "C|ann|app|none|active|127.0.0.1|5|127.0.0.1|6432|2000-02-29 00:00:00 UTC|2000-02-29 00:00:01 UTC|1|2|0|0x1f|0x10|0|||0|31";
        assert_eq!(shown(&rows), [expected]);
        let rows = Harness::new().show("SHOW SERVERS", &of_shards);
        assert!(shown(&rows)[0].starts_with("S|"));
    }

    #[test]
    fn sockets_say_where_they_live_and_what_pins_them() {
        for view in ["SHARD_CLIENTS", "SHARD_SERVERS"] {
            let rows = shown(&Harness::new().show(&format!("SHOW {view}"), &of_shards));
            assert!(rows[0].ends_with("|31|3|transaction|2000-02-29 00:00:02 UTC"), "{rows:?}");
        }
    }

    #[test]
    fn pinned_clients_are_shown_one_by_one_and_for_each_pool() {
        let rows = shown(&Harness::new().show("SHOW PINS", &of_shards));
        let expected = "app|ann|31|127.0.0.1|5||active|temporary,cursor|2000-02-29 00:00:02 UTC|7|4711|3";
        assert_eq!(rows, [expected]);
        let rows = shown(&Harness::new().show("SHOW PIN_TOTALS", &of_shards));
        assert_eq!(rows, ["app|ann|0|wait|2|1|cursor=1,temporary=2|5|9|3|4"]);
        let free = |subject: Subject| match of_shards(subject) {
            Listing::Sockets(rows) => Listing::Sockets(
                rows.into_iter().map(|row| SocketRow { pinned_since_us: 0, ..row }).collect(),
            ),
            Listing::Pools(_) => Listing::Pools(vec![]),
            other => other,
        };
        assert!(Harness::new().show("SHOW PINS", &free).is_empty());
        assert!(Harness::new().show("SHOW PIN_TOTALS", &free).is_empty());
    }

    #[test]
    fn every_socket_is_shown_with_its_buffer_and_active_ones_apart() {
        let rows = shown(&Harness::new().show("SHOW SOCKETS", &of_shards));
        assert!(rows[0].starts_with("C|") && rows[1].starts_with("S|"), "{rows:?}");
        assert!(rows[0].ends_with("|31|0|0|0|0|0|0|0"));
        assert_eq!(shown(&Harness::new().show("SHOW ACTIVE_SOCKETS", &of_shards)).len(), 2);
        let waiting = |subject: Subject| match of_shards(subject) {
            Listing::Sockets(rows) => {
                Listing::Sockets(rows.into_iter().map(|row| SocketRow { state: "waiting", ..row }).collect())
            }
            other => other,
        };
        assert!(Harness::new().show("SHOW ACTIVE_SOCKETS", &waiting).is_empty());
    }

    #[test]
    fn what_the_process_knows_is_asked_of_it_once() {
        let mut harness = Harness::with(1, "[peers]\n2 = host=/run/2 pool_size=3\n1 = host=h port=1\n");
        assert_eq!(shown(&harness.show("SHOW DNS_HOSTS", &of_shards)), ["db.test|7|10.0.0.1:0,[::1]:0"]);
        assert_eq!(shown(&harness.show("SHOW DNS_ZONES", &of_shards)), ["test|4000000000|1"]);
        assert_eq!(shown(&harness.show("SHOW PEERS", &of_shards)), ["1|h|1|20", "2|/run/2|6432|3"]);
        assert_eq!(shown(&harness.show("SHOW PEER_POOLS", &of_shards)), ["2|1|0|0|1"]);
        assert_eq!(shown(&harness.show("SHOW MEM", &of_shards)), ["client_cache|10|3|2|50"]);
        let fds = shown(&harness.show("SHOW FDS", &of_shards));
        assert_eq!(fds[0], "5|pooler|NULL|NULL|127.0.0.1|6432|0|0|NULL|NULL|NULL|NULL|NULL|NULL|NULL");
        assert_eq!(fds[1], "9|client|ann|app|unix|6432|7|10|UTF8|NULL|ISO|NULL|NULL|NULL|NULL");
        let lists = shown(&harness.show("SHOW LISTS", &of_shards));
        for row in ["peers|2", "peer_pools|1", "dns_names|1", "dns_zones|1", "dns_queries|2"] {
            assert!(lists.contains(&row.to_owned()), "{row} in {lists:?}");
        }
        assert!(harness.told.is_empty() || harness.lists.is_empty());
    }

    #[test]
    fn users_are_the_known_and_the_connected() {
        let rows = Harness::new().show("SHOW USERS", &of_shards);
        let expected =
            ["ann|1||NULL|0|0|0|0", "bob|||NULL|0|1|0|6", "boss|||NULL|0|0|0|0", "pgbouncer|||NULL|0|0|0|0"];
        assert_eq!(shown(&rows), expected, "boss is only the forced user of a database");
        assert_eq!(rows[0][1], Cell::Text("1".into()));
    }

    #[test]
    fn statistics_are_sums_and_averages_per_database() {
        let mut harness = Harness::new();
        harness.now_us = 59 * crate::harness::SECOND_US;
        let rows = harness.show("SHOW STATS", &of_shards);
        let expected = "app|0|60|120|0|0|0|600|0|0|0|0|0|0|1|2|0|0|0|5|0|0|0|0|0";
        assert_eq!(shown(&rows)[0], expected);
        let rows = harness.show("SHOW STATS_TOTALS", &of_shards);
        assert_eq!(shown(&rows)[0], "app|0|60|120|0|0|0|600|0|0|0|0|0");
        let rows = harness.show("SHOW STATS_AVERAGES", &of_shards);
        assert_eq!(shown(&rows)[0], "app|0|1|2|0|0|0|5|0|0|0|0|0");
        let rows = shown(&harness.show("SHOW TOTALS", &of_shards));
        assert!(rows.contains(&"total_query_count|120".into()) && rows.contains(&"avg_query_time|5".into()));
        assert_eq!(rows.len(), 24);
    }

    #[test]
    fn durations_stand_beside_their_sums() {
        let mut harness = Harness::new();
        let rows = shown(&harness.show("SHOW HISTOGRAMS", &of_shards));
        let expected = [
            "app|ann|wait|0|0|NULL|NULL|NULL|",
            "app|ann|transaction|0|0|NULL|NULL|NULL|",
            "app|ann|query|120|600|5|5|5|5:120",
        ];
        assert_eq!(rows, expected);
        let queries = shown(&harness.show("SHOW QUERIES", &of_shards));
        assert_eq!(
            queries,
            ["app|00000000000000ab|2|1|12|6|7|7|0|0|6|0|0|4|0|1970-01-01 00:00:01 UTC|select ?"]
        );
        let rows = shown(&harness.show("SHOW QUERY_HISTOGRAMS", &of_shards));
        assert_eq!(rows, ["app|00000000000000ab|1|12|7|5:1 7:1"]);
        let rows = shown(&harness.show("SHOW QUERY_TEXTS", &of_shards));
        assert_eq!(rows, ["app|00000000000000ab|select $1"]);
        assert_eq!(shown(&harness.show("SHOW ERRORS", &of_shards)), ["app|23505|1"]);
    }

    #[test]
    fn the_small_views_say_what_is() {
        let mut harness = Harness::new();
        assert_eq!(shown(&harness.show("SHOW VERSION", &empty)), [crate::VERSION]);
        assert!(crate::VERSION.starts_with("PgBouncer 1.25.2 (Weir "));
        assert_eq!(
            shown(&harness.show("SHOW STATE", &empty)),
            ["active|yes", "paused|no", "suspended|no", "draining|no"]
        );
        harness.signal(crate::Signal::Usr1);
        assert_eq!(
            shown(&harness.show("SHOW STATE", &empty)),
            ["active|no", "paused|yes", "suspended|no", "draining|no"]
        );
        assert_eq!(shown(&harness.show("SHOW SHARDS", &of_shards)), ["0|6|1|1|2|70|60|3"]);
        let lists = shown(&harness.show("SHOW LISTS", &of_shards));
        for row in
            ["databases|3", "users|4", "pools|2", "used_clients|7", "login_clients|1", "used_servers|1"]
        {
            assert!(lists.contains(&row.to_owned()), "{row} in {lists:?}");
        }
        let config = shown(&harness.show("SHOW CONFIG", &empty));
        assert!(config.contains(&"io_driver|epoll|auto|no".into()));
        assert!(config.contains(&"pool_mode|session|session|yes".into()));
    }

    #[test]
    fn help_is_a_notice_that_names_every_view() {
        let mut harness = Harness::new();
        harness.ask("show help");
        let [messages::ReplyPart::NoticeWithDetail(title, text), messages::ReplyPart::Complete("SHOW")] =
            harness.parts()
        else {
            panic!()
        };
        assert_eq!(title, "Console usage");
        assert!(VIEWS.iter().all(|view| text.contains(view.name)));
        assert!(text.contains("KILL_CLIENT <client_id>") && text.contains("DISABLE <db>"));
    }

    #[test]
    fn columns_are_pgbouncers() {
        let names = |name: &str| {
            let view = VIEWS.iter().find(|view| view.name == name).expect("a view");
            view.columns.iter().map(|column| column.name).collect::<Vec<_>>().join(",")
        };
        assert_eq!(
            names("STATS"),
            "database,total_server_assignment_count,total_xact_count,total_query_count,total_received,total_sent,total_xact_time,total_query_time,total_wait_time,total_client_parse_count,total_server_parse_count,total_bind_count,total_client_login_count,avg_server_assignment_count,avg_xact_count,avg_query_count,avg_recv,avg_sent,avg_xact_time,avg_query_time,avg_wait_time,avg_client_parse_count,avg_server_parse_count,avg_bind_count,avg_client_login_count"
        );
        assert_eq!(
            names("STATS_TOTALS"),
            "database,server_assignment_count,xact_count,query_count,bytes_received,bytes_sent,xact_time,query_time,wait_time,client_parse_count,server_parse_count,bind_count,client_login_count"
        );
        assert_eq!(
            names("STATS_AVERAGES"),
            "database,server_assignment_count,xact_count,query_count,bytes_received,bytes_sent,xact_time,query_time,wait_time,avg_client_parse_count,avg_server_parse_count,avg_bind_count,avg_client_login_count"
        );
        assert_eq!(
            names("CLIENTS"),
            "type,user,database,replication,state,addr,port,local_addr,local_port,connect_time,request_time,wait,wait_us,close_needed,ptr,link,remote_pid,tls,application_name,prepared_statements,id"
        );
        assert_eq!(
            names("DATABASES"),
            "name,host,port,database,force_user,pool_size,min_pool_size,reserve_pool_size,server_lifetime,pool_mode,load_balance_hosts,max_connections,current_connections,max_client_connections,current_client_connections,paused,disabled"
        );
        assert_eq!(
            names("POOLS"),
            "database,user,cl_active,cl_waiting,cl_active_cancel_req,cl_waiting_cancel_req,sv_active,sv_active_cancel,sv_being_canceled,sv_idle,sv_used,sv_tested,sv_login,maxwait,maxwait_us,pool_mode,load_balance_hosts"
        );
        assert_eq!(
            names("USERS"),
            "name,pool_size,reserve_pool_size,pool_mode,max_user_connections,current_connections,max_user_client_connections,current_client_connections"
        );
        let kind = |name: &str, column: &str| {
            let view = VIEWS.iter().find(|view| view.name == name).expect("a view");
            view.columns.iter().find(|other| other.name == column).expect("a column").kind
        };
        assert_eq!(kind("USERS", "pool_size"), ColumnType::Text);
        assert_eq!(kind("POOLS", "cl_active"), ColumnType::Int8);
        assert_eq!(kind("STATS", "total_xact_count"), ColumnType::Numeric);
    }
}
