//! SHOW QUERIES: statistics per query fingerprint (`track_queries`), the most expensive first. QUERY_HISTOGRAMS has their
//! durations in buckets, QUERY_TEXTS a statement of each fingerprint with parameters instead of values.
//!
//! Weir's own.

use messages::Cell;

use std::sync::Arc;

use telemetry::ServerWait;
use telemetry::queries::{QueryFingerprint, QueryStats};
use telemetry::record::date_time;

use super::waits::MEASURED;
use super::{ViewContext, text_or_null};

/// A row for each fingerprint, in the order of databases and fingerprints.
fn each(
    context: &ViewContext<'_>,
    rest: impl Fn(&QueryFingerprint, &QueryStats) -> Vec<Cell>,
) -> Vec<Vec<Cell>> {
    let row =
        |((database, number), (shape, figures)): (&(String, u64), &(Arc<QueryFingerprint>, QueryStats))| {
            let mut cells = vec![database.as_str().into(), format!("{number:016x}").into()];
            cells.extend(rest(shape, figures));
            cells
        };
    context.aggregate.queries.iter().map(row).collect()
}

pub(super) fn histograms(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    each(context, |_, figures| {
        vec![
            Cell::Sum(figures.errors),
            Cell::Sum(figures.total_us),
            figures.max_us.into(),
            figures.times.to_string().into(),
        ]
    })
}

pub(super) fn texts(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    each(context, |shape, _| vec![text_or_null(shape.parameterized.as_deref())])
}

pub(super) fn rows(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let mut queries: Vec<_> = context.aggregate.queries.iter().collect();
    queries.sort_by_key(|(_, (_, figures))| std::cmp::Reverse(figures.total_us));
    let row =
        |((database, number), (shape, figures)): (&(String, u64), &(Arc<QueryFingerprint>, QueryStats))| {
            let mut row = vec![
                database.as_str().into(),
                format!("{number:016x}").into(),
                Cell::Sum(figures.calls),
                Cell::Sum(figures.errors),
                Cell::Sum(figures.total_us),
                figures.total_us.checked_div(figures.calls).map_or(Cell::Null, Cell::from),
                figures.quantile_us(950).map_or(Cell::Null, Cell::from),
                figures.max_us.into(),
            ];
            row.extend(MEASURED.map(|wait| Cell::Sum(figures.waits.us(wait))));
            row.extend(ServerWait::ALL.map(|wait| Cell::Sum(figures.server_waits.us(wait))));
            row.extend([
                text_or_null(figures.since_us.map(|us| format!("{} UTC", date_time(us)))),
                shape.text.as_str().into(),
            ]);
            row
        };
    queries.into_iter().map(row).collect()
}
