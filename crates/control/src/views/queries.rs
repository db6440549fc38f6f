//! SHOW QUERIES: statistics per query fingerprint (`track_queries`), the most expensive first.
//!
//! Weir's own.

use messages::{Cell, Column};

use super::{ViewContext, int, numeric, text};

pub(super) const COLUMNS: &[Column] = &[
    text("database"),
    text("fingerprint"),
    numeric("calls"),
    numeric("errors"),
    numeric("total_us"),
    int("mean_us"),
    int("p95_us"),
    text("query"),
];

pub(super) fn rows(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let mut queries: Vec<_> = context.aggregate.queries.iter().collect();
    queries.sort_by_key(|(_, (_, figures))| std::cmp::Reverse(figures.total_us));
    let row =
        |((database, number), (shape, figures)): (&(String, u64), &(_, telemetry::queries::QueryStats))| {
            let shape: &std::sync::Arc<telemetry::queries::QueryFingerprint> = shape;
            vec![
                database.as_str().into(),
                format!("{number:016x}").into(),
                Cell::Sum(figures.calls),
                Cell::Sum(figures.errors),
                Cell::Sum(figures.total_us),
                figures.total_us.checked_div(figures.calls).map_or(Cell::Null, Cell::from),
                figures.times.quantile_us(950).map_or(Cell::Null, Cell::from),
                shape.text.as_str().into(),
            ]
        };
    queries.into_iter().map(row).collect()
}
