//! The counters of SHOW STATS_TOTALS, made from the one table that has them.
//!
//! Each has pgbouncer_exporter's present name and the one that it had before, which its documentation and Grafana's
//! mixin still use.

use control::TotalsColumn;
use telemetry::COUNTERS;
use telemetry::counters::Unit as CounterUnit;

use super::family::{Family, MetricKind, MetricUnit, MetricWriter, number, seconds};
use crate::table::ViewTable;

/// What pgbouncer_exporter puts before the names: since 0.11, and before.
const FAMILIES: [(&str, bool); 2] = [("pgbouncer.stats.totals", false), ("pgbouncer.stats", true)];

pub(super) fn write(page: &mut dyn MetricWriter, totals: &ViewTable<TotalsColumn>) {
    for (prefix, is_alias) in FAMILIES {
        for (place, counter) in COUNTERS.iter().enumerate() {
            let unit = match counter.unit {
                CounterUnit::Count => MetricUnit::Number(""),
                CounterUnit::Bytes => MetricUnit::Bytes,
                CounterUnit::Microseconds => MetricUnit::Seconds,
            };
            let name = format!("{prefix}.{}", counter.metric);
            page.family(&Family { is_alias, ..Family::new(&name, MetricKind::Counter, unit, counter.help) });
            for row in totals.iter() {
                let amount = row.number(TotalsColumn::Counter(place));
                let value = if unit == MetricUnit::Seconds { seconds(amount) } else { number(amount) };
                page.sample(&[("database", row.text(TotalsColumn::Database).unwrap_or_default())], value);
            }
        }
    }
}
