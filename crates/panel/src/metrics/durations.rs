//! Histograms in seconds, and errors by code: Weir's own metrics.
//! Never decides where the bounds are: that is what a [`Distribution`] has.

use control::{ErrorColumn, HistogramColumn, Measure};
use telemetry::Histogram;

use super::family::{Distribution, Family, MetricKind, MetricUnit, MetricWriter, number};
use crate::table::{ViewRow, ViewTable};

/// A measure of SHOW HISTOGRAMS and what it is.
const MEASURES: [(Measure, &str); 3] = [
    (Measure::Wait, "How long clients waited for a server connection, including those that did not wait."),
    (Measure::Transaction, "How long transactions took."),
    (Measure::Query, "How long queries took; queries answered together share their time evenly."),
];

pub(super) fn write(
    page: &mut dyn MetricWriter,
    histograms: &ViewTable<HistogramColumn>,
    errors: &ViewTable<ErrorColumn>,
) {
    for (measure, help) in MEASURES {
        let name = format!("weir.{}.duration", measure.word());
        page.family(&Family::new(&name, MetricKind::Histogram, MetricUnit::Seconds, help));
        histograms
            .iter()
            .filter(|row| row.text(HistogramColumn::Measure) == Some(measure.word()))
            .for_each(|row| pool(page, row));
    }
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
