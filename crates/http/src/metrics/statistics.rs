//! The counters of SHOW STATS_TOTALS, made from the one table that has them.
//!
//! Each goes out by pgbouncer_exporter's present name and by the one that it had before, which its documentation and Grafana's
//! mixin still use.

use telemetry::COUNTERS;
use telemetry::counters::Unit as Counted;

use super::family::{Family, Kind, Page, Unit, number, seconds};
use crate::table::Table;

/// What pgbouncer_exporter puts before the names: since 0.11, and before.
const FAMILIES: [(&str, bool); 2] = [("pgbouncer.stats.totals", false), ("pgbouncer.stats", true)];

pub(super) fn write(page: &mut dyn Page, totals: &Table) {
    for (prefix, is_alias) in FAMILIES {
        for counter in COUNTERS {
            let unit = match counter.unit {
                Counted::Count => Unit::Number(""),
                Counted::Bytes => Unit::Bytes,
                Counted::Microseconds => Unit::Seconds,
            };
            let name = format!("{prefix}.{}", counter.metric);
            page.family(&Family { is_alias, ..Family::new(&name, Kind::Counter, unit, counter.help) });
            for row in totals.iter() {
                let amount = row.number(counter.name);
                let value = if unit == Unit::Seconds { seconds(amount) } else { number(amount) };
                page.sample(&[("database", row.text("database").unwrap_or_default())], value);
            }
        }
    }
}
