//! The sizes of pools (`pool_size = auto`): what is in force, what was found, and within which bounds.
//! Owns the names; the columns are the console's.

use control::PoolSizeColumn;

use super::family::{Family, MetricKind, MetricUnit, MetricWriter, number};
use crate::table::ViewTable;

pub(super) fn write(page: &mut dyn MetricWriter, table: &ViewTable<PoolSizeColumn>) {
    use MetricKind::{Counter, Gauge};
    use PoolSizeColumn::{Changes, Found, Max, Min, Size};
    const CONNECTIONS: MetricUnit = MetricUnit::Number("connection");
    for (name, kind, unit, column, help) in [
        (
            "weir.pool_size.target",
            Gauge,
            CONNECTIONS,
            Size,
            "Size of a pool that sizes itself: the one in force, which may be one that is tried.",
        ),
        ("weir.pool_size.found", Gauge, CONNECTIONS, Found, "Size that a pool that sizes itself has found."),
        ("weir.pool_size.min", Gauge, CONNECTIONS, Min, "Least size that such a pool may have."),
        ("weir.pool_size.max", Gauge, CONNECTIONS, Max, "Largest size that such a pool may have."),
        (
            "weir.pool_size.changes",
            Counter,
            MetricUnit::Number("change"),
            Changes,
            "Changes of the size that such a pool has found.",
        ),
    ] {
        page.family(&Family::new(name, kind, unit, help));
        for row in table.iter() {
            let label = |column| row.text(column).unwrap_or_default();
            if label(PoolSizeColumn::Mode) != "auto" {
                continue;
            }
            let labels = [
                ("database", label(PoolSizeColumn::Database)),
                ("user", label(PoolSizeColumn::User)),
                ("host", label(PoolSizeColumn::Host)),
            ];
            page.sample(&labels, number(row.number(column)));
        }
    }
}
