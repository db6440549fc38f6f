//! SHOW HISTOGRAMS and ERRORS: durations in each pool, and errors sent to clients.
//!
//! Weir's own; the panel and the metrics read the same rows.

use messages::{Cell, Column};
use telemetry::{Counters, Histogram, Histograms, Percentiles};

use super::{ViewContext, int, numeric, text};

pub(super) const HISTOGRAMS: &[Column] = &[
    text("database"),
    text("user"),
    text("measure"),
    numeric("count"),
    numeric("sum_us"),
    int("p50_us"),
    int("p95_us"),
    int("p99_us"),
    text("buckets"),
];

pub(super) const ERRORS: &[Column] = &[text("database"), text("sqlstate"), numeric("count")];

/// A duration that pools measure, and where its sum is counted.
struct Measure {
    name: &'static str,
    histogram: fn(&Histograms) -> &Histogram,
    sum_us: fn(&Counters) -> u64,
}

const MEASURES: [Measure; 3] = [
    Measure { name: "wait", histogram: |all| &all.wait, sum_us: |counters| counters.wait_time },
    Measure { name: "transaction", histogram: |all| &all.transaction, sum_us: |counters| counters.xact_time },
    Measure { name: "query", histogram: |all| &all.query, sum_us: |counters| counters.query_time },
];

/// Three rows for each pool that has been used.
pub(super) fn histograms(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for (pool, histograms) in &context.aggregate.histograms {
        let counters = context.aggregate.pools.get(pool).map(|row| row.counters).unwrap_or_default();
        rows.extend(MEASURES.iter().map(|measure| {
            let histogram = (measure.histogram)(histograms);
            let percentiles = Percentiles::between(None, histogram);
            let us = |us: Option<u64>| us.map_or(Cell::Null, Cell::from);
            vec![
                pool.0.as_str().into(),
                pool.1.as_str().into(),
                measure.name.into(),
                Cell::Sum(histogram.count()),
                Cell::Sum((measure.sum_us)(&counters)),
                us(percentiles.p50_us),
                us(percentiles.p95_us),
                us(percentiles.p99_us),
                histogram.to_string().into(),
            ]
        }));
    }
    rows
}

pub(super) fn errors(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let of_one = |(database, errors): (&String, &telemetry::SqlstateCounts)| -> Vec<Vec<Cell>> {
        errors
            .iter()
            .map(|(code, count)| vec![database.as_str().into(), code.into(), Cell::Sum(count)])
            .collect()
    };
    context.aggregate.errors.iter().flat_map(of_one).collect()
}
