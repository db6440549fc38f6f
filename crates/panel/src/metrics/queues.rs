//! The subjects of fair queues (`queue = fair`): how many wait, and what each has had of the servers' time.
//! Owns the names; the columns are the console's.

use control::QueueColumn;

use super::family::{Family, MetricKind, MetricUnit, MetricWriter, number};
use crate::table::ViewTable;

pub(super) fn write(page: &mut dyn MetricWriter, table: &ViewTable<QueueColumn>) {
    use MetricKind::{Counter, Gauge};
    const CLIENTS: MetricUnit = MetricUnit::Number("client");
    for (name, kind, unit, column, help) in [
        (
            "weir.queue.waiting",
            Gauge,
            CLIENTS,
            QueueColumn::Waiting,
            "Clients of a subject of a fair queue that wait for a server.",
        ),
        (
            "weir.queue.active",
            Gauge,
            CLIENTS,
            QueueColumn::Active,
            "Clients of a subject of a fair queue that have a server.",
        ),
        (
            "weir.queue.turns",
            Counter,
            MetricUnit::Number("turn"),
            QueueColumn::Turns,
            "Times that a client of a subject of a fair queue has had a server.",
        ),
        (
            "weir.queue.server_time",
            Counter,
            MetricUnit::Seconds,
            QueueColumn::ServerTimeUs,
            "How long clients of a subject of a fair queue have had servers, in all.",
        ),
        (
            "weir.queue.max_wait",
            Gauge,
            MetricUnit::Seconds,
            QueueColumn::MaxWaitUs,
            "The longest wait so far of a client of a subject of a fair queue that waits.",
        ),
    ] {
        let scale = if matches!(unit, MetricUnit::Seconds) { 1_000_000.0 } else { 1.0 };
        page.family(&Family::new(name, kind, unit, help));
        for row in table.iter() {
            let label = |column| row.text(column).unwrap_or_default();
            let labels = [
                ("database", label(QueueColumn::Database)),
                ("user", label(QueueColumn::User)),
                ("host", label(QueueColumn::Host)),
                ("queue_by", label(QueueColumn::QueueBy)),
                ("subject", label(QueueColumn::Subject)),
            ];
            page.sample(&labels, number(row.number(column)) / scale);
        }
    }
}
