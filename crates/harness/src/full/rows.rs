//! THE table of scenarios: what is run, on which configuration, and the bars that Weir has to reach, as ratios to
//! PgBouncer in the same round or as absolute figures. A further scenario is a further row.

use crate::full::sample::{Figure, Unit};
use crate::template::Variant;
use lab::interval::Limit::{self, AtLeast, AtMost, Below};
use lab::pgbench::Workload::{self, SelectOnly, TpcB};

/// What a run of a row does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Work {
    /// pgbench, each client as fast as it can.
    Pgbench(Closed),
    /// pgbench's select-only at a fixed rate: this part of what PgBouncer can at most.
    Rate { clients: u32, part_of_peak: f64 },
    /// One large result.
    Select,
    /// One COPY FROM STDIN.
    CopyIn,
    /// Two clients for each of many pools of one server.
    Pools,
    /// Memory of idle clients that each logged in and ran one transaction.
    Idle,
    /// Active clients, alone and among many idle ones.
    Crowd,
}

/// A closed loop: a client begins when its last transaction is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Closed {
    pub(super) workload: Workload,
    pub(super) clients: u32,
    pub(super) query_mode: &'static str,
    /// PgBouncer's query mode in this row, where its version lacks the other.
    pub(super) base_query_mode: &'static str,
    /// A new connection for each transaction.
    pub(super) reconnect: bool,
}

/// What Weir has to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bar {
    pub(super) figure: Figure,
    /// The figure itself is judged, not its ratio to PgBouncer's.
    pub(super) is_absolute: bool,
    pub(super) io_uring: Limit,
    pub(super) epoll: Limit,
}

/// One scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    /// For `--rows` and file names.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) variant: Variant,
    pub(super) work: Work,
    pub(super) unit: Unit,
    pub(super) bars: &'static [Bar],
}

impl Work {
    /// Whether each run has a fresh pooler.
    pub(super) fn is_fresh(self) -> bool {
        self == Self::Idle
    }

    /// Whether the row is judged by fewer rounds: what it measures hardly scatters.
    pub(super) fn is_steady(self) -> bool {
        self == Self::Idle
    }

    /// The figures of the row's table.
    pub(super) fn columns(self) -> &'static [Figure] {
        use Figure as F;
        match self {
            Self::Select | Self::CopyIn => {
                &[F::Rate, F::Cpu, F::CpuUser, F::CpuSystem, F::Machine, F::Resident, F::Proportional]
            }
            Self::Idle => &[F::FewKib, F::ManyKib, F::ClientKib],
            Self::Crowd => &[F::AloneP99, F::P99, F::Crowding, F::Rate, F::Cpu, F::Resident],
            _ => &[
                F::Rate,
                F::Cpu,
                F::CpuUser,
                F::CpuSystem,
                F::Machine,
                F::Mean,
                F::P50,
                F::P99,
                F::Voluntary,
                F::Involuntary,
                F::Resident,
                F::Proportional,
            ],
        }
    }
}

const fn ratio(figure: Figure, io_uring: Limit, epoll: Limit) -> Bar {
    Bar { figure, is_absolute: false, io_uring, epoll }
}

const fn absolute(figure: Figure, both: Limit) -> Bar {
    Bar { figure, is_absolute: true, io_uring: both, epoll: both }
}

const fn closed(
    name: &'static str,
    title: &'static str,
    (workload, clients): (Workload, u32),
    query_mode: &'static str,
    bars: &'static [Bar],
) -> Row {
    let base_query_mode = query_mode;
    let work = Work::Pgbench(Closed { workload, clients, query_mode, base_query_mode, reconnect: false });
    Row { name, title, variant: Variant::Plain, work, unit: Unit::Transaction, bars }
}

const fn on(variant: Variant, row: Row) -> Row {
    Row { variant, ..row }
}

const fn base_in(base_query_mode: &'static str, row: Row) -> Row {
    match row.work {
        Work::Pgbench(closed) => Row { work: Work::Pgbench(Closed { base_query_mode, ..closed }), ..row },
        _ => row,
    }
}

const fn reconnecting(row: Row) -> Row {
    match row.work {
        Work::Pgbench(closed) => {
            Row { work: Work::Pgbench(Closed { reconnect: true, ..closed }), unit: Unit::Connection, ..row }
        }
        _ => row,
    }
}

const fn other(
    name: &'static str,
    title: &'static str,
    (variant, work, unit): (Variant, Work, Unit),
    bars: &'static [Bar],
) -> Row {
    Row { name, title, variant, work, unit, bars }
}

const fn rate(name: &'static str, title: &'static str, part_of_peak: f64) -> Row {
    let work = Work::Rate { clients: 50, part_of_peak };
    other(name, title, (Variant::Plain, work, Unit::Transaction), &[])
}

/// The table.
pub(super) const ROWS: &[Row] = &[
    closed(
        "simple-50",
        "select-only, simple, 50 clients",
        (SelectOnly, 50),
        "simple",
        &[
            ratio(Figure::Cpu, AtMost(0.57), AtMost(0.9)),
            ratio(Figure::Rate, AtLeast(1.18), AtLeast(1.0)),
            ratio(Figure::Machine, Below(1.0), AtMost(1.0)),
        ],
    ),
    closed(
        "extended-50",
        "select-only, extended, 50 clients",
        (SelectOnly, 50),
        "extended",
        &[ratio(Figure::Cpu, AtMost(0.56), AtMost(0.85))],
    ),
    base_in(
        "extended",
        closed(
            "prepared-50",
            "select-only, prepared, 50 clients (PgBouncer: extended)",
            (SelectOnly, 50),
            "prepared",
            &[ratio(Figure::Cpu, AtMost(0.62), AtMost(0.9))],
        ),
    ),
    closed(
        "simple-500",
        "select-only, simple, 500 clients",
        (SelectOnly, 500),
        "simple",
        &[
            ratio(Figure::Cpu, AtMost(0.57), AtMost(0.8)),
            ratio(Figure::Rate, AtLeast(1.36), AtLeast(1.1)),
            ratio(Figure::P99, AtMost(0.78), AtMost(0.92)),
        ],
    ),
    closed(
        "simple-2000",
        "select-only, simple, 2,000 clients",
        (SelectOnly, 2000),
        "simple",
        &[
            ratio(Figure::Cpu, AtMost(0.55), AtMost(0.75)),
            ratio(Figure::Rate, AtLeast(1.38), AtLeast(1.17)),
            ratio(Figure::P99, AtMost(0.78), AtMost(0.88)),
        ],
    ),
    closed(
        "simple-1",
        "select-only, simple, 1 client",
        (SelectOnly, 1),
        "simple",
        &[ratio(Figure::Mean, AtMost(1.0), AtMost(1.0))],
    ),
    closed(
        "tpcb-50",
        "TPC-B, 50 clients",
        (TpcB, 50),
        "simple",
        &[ratio(Figure::Cpu, AtMost(0.68), AtMost(0.9)), ratio(Figure::Rate, AtLeast(1.12), AtLeast(1.05))],
    ),
    closed("tpcb-1", "TPC-B, 1 client", (TpcB, 1), "simple", &[]),
    on(
        Variant::Unix,
        closed(
            "unix-50",
            "unix socket to the server, select-only, 50 clients",
            (SelectOnly, 50),
            "simple",
            &[ratio(Figure::Cpu, AtMost(0.5), AtMost(0.9))],
        ),
    ),
    reconnecting(closed(
        "connect-trust",
        "connect, query, close: trust, 20 clients",
        (SelectOnly, 20),
        "simple",
        &[ratio(Figure::Cpu, AtMost(0.8), AtMost(0.88))],
    )),
    on(
        Variant::Scram,
        reconnecting(closed(
            "connect-scram",
            "connect, query, close: SCRAM, 20 clients",
            (SelectOnly, 20),
            "simple",
            &[ratio(Figure::Cpu, AtMost(0.9), AtMost(0.95))],
        )),
    ),
    other(
        "select-large",
        "large SELECT, rows of 1 kB",
        (Variant::Plain, Work::Select, Unit::Gigabyte),
        &[ratio(Figure::Cpu, AtMost(0.3), AtMost(0.45))],
    ),
    other(
        "copy-in",
        "COPY in, rows of 1 kB",
        (Variant::Plain, Work::CopyIn, Unit::Gigabyte),
        &[ratio(Figure::Cpu, AtMost(0.55), AtMost(0.7))],
    ),
    on(
        Variant::Tls,
        closed(
            "tls-50",
            "TLS from the client, select-only, 50 clients",
            (SelectOnly, 50),
            "simple",
            &[ratio(Figure::Cpu, AtMost(0.75), AtMost(0.95))],
        ),
    ),
    other(
        "idle-plain",
        "idle clients, each with SCRAM, an application_name and one transaction",
        (Variant::Scram, Work::Idle, Unit::Client),
        &[absolute(Figure::ClientKib, AtMost(0.7))],
    ),
    other(
        "idle-tls",
        "idle clients with TLS, likewise",
        (Variant::ScramTls, Work::Idle, Unit::Client),
        &[absolute(Figure::ClientKib, AtMost(14.0))],
    ),
    other(
        "crowd",
        "100 active clients among 15,000 idle ones",
        (Variant::Plain, Work::Crowd, Unit::Transaction),
        &[absolute(Figure::Crowding, AtMost(1.2))],
    ),
    other(
        "pools-200",
        "200 pools of one server each, two clients a pool",
        (Variant::Pools, Work::Pools, Unit::Transaction),
        &[ratio(Figure::Rate, AtLeast(1.15), AtLeast(1.0))],
    ),
    rate("rate-25", "open loop, 50 clients, 25 % of PgBouncer's peak", 0.25),
    rate("rate-50", "open loop, 50 clients, 50 % of PgBouncer's peak", 0.5),
    rate("rate-75", "open loop, 50 clients, 75 % of PgBouncer's peak", 0.75),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_names_of_files_and_each_is_there_once() {
        let mut names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        let is_plain =
            |name: &str| name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
        assert!(names.iter().all(|name| is_plain(name)), "{names:?}");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }

    #[test]
    fn what_is_judged_is_shown() {
        for row in ROWS {
            let columns = row.work.columns();
            assert!(row.bars.iter().all(|bar| columns.contains(&bar.figure)), "{}", row.name);
        }
    }

    #[test]
    fn only_the_prepared_row_has_another_mode_for_the_base() {
        let differ = |row: &&Row| matches!(row.work, Work::Pgbench(closed) if closed.query_mode != closed.base_query_mode);
        let names: Vec<&str> = ROWS.iter().filter(differ).map(|row| row.name).collect();
        assert_eq!(names, ["prepared-50"]);
    }
}
