//! What has been counted and timed: the counters of SHOW STATS_TOTALS, made from the one table that has them, histograms in
//! seconds, and errors by code.
//!
//! Each counter has pgbouncer_exporter's present name and the one that it had before, which its documentation and Grafana's
//! mixin still use. Never decides where the bounds of a histogram are: that is what a [`Distribution`] has.

use control::{ErrorColumn, HistogramColumn, Measure, TotalsColumn};
use telemetry::counters::Unit as CounterUnit;
use telemetry::{COUNTERS, Histogram};

use super::family::{Distribution, Family, MetricKind, MetricUnit, MetricWriter, number, seconds};
use crate::table::{ViewRow, ViewTable};

/// What pgbouncer_exporter puts before the names: since 0.11, and before.
const FAMILIES: [(&str, bool); 2] = [("pgbouncer.stats.totals", false), ("pgbouncer.stats", true)];

/// A measure of SHOW HISTOGRAMS and what it is.
const MEASURES: [(Measure, &str); 3] = [
    (Measure::Wait, "How long clients waited for a server connection, including those that did not wait."),
    (Measure::Transaction, "How long transactions took."),
    (Measure::Query, "How long queries took; queries answered together share their time evenly."),
];

/// Writes all of it.
pub(super) fn write(
    page: &mut dyn MetricWriter,
    totals: &ViewTable<TotalsColumn>,
    histograms: &ViewTable<HistogramColumn>,
    errors: &ViewTable<ErrorColumn>,
) {
    write_totals(page, totals);
    write_durations(page, histograms);
    write_errors(page, errors);
}

fn write_totals(page: &mut dyn MetricWriter, totals: &ViewTable<TotalsColumn>) {
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

fn write_durations(page: &mut dyn MetricWriter, histograms: &ViewTable<HistogramColumn>) {
    for (measure, help) in MEASURES {
        let name = format!("weir.{}.duration", measure.word());
        page.family(&Family::new(&name, MetricKind::Histogram, MetricUnit::Seconds, help));
        histograms
            .iter()
            .filter(|row| row.text(HistogramColumn::Measure) == Some(measure.word()))
            .for_each(|row| pool(page, row));
    }
}

/// Errors by code.
fn write_errors(page: &mut dyn MetricWriter, errors: &ViewTable<ErrorColumn>) {
    let help = "Errors sent to clients, by SQLSTATE; at most 64 codes of a database.";
    page.family(&Family::new("weir.errors", MetricKind::Counter, MetricUnit::Number("error"), help));
    for row in errors.iter() {
        let text = |column| row.text(column).unwrap_or_default();
        let labels = [("database", text(ErrorColumn::Database)), ("sqlstate", text(ErrorColumn::Sqlstate))];
        page.sample(&labels, number(row.number(ErrorColumn::Count)));
    }
}

fn pool(page: &mut dyn MetricWriter, row: ViewRow<'_, HistogramColumn>) {
    let text = |column| row.text(column).unwrap_or_default();
    let labels = [("database", text(HistogramColumn::Database)), ("user", text(HistogramColumn::User))];
    if let Ok(histogram) = text(HistogramColumn::Buckets).parse::<Histogram>() {
        page.distribution(&labels, &Distribution::new(&histogram, row.number(HistogramColumn::SumUs)));
    }
}
