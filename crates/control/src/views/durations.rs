//! SHOW HISTOGRAMS and ERRORS: durations in each pool, and errors sent to clients.
//!
//! Weir's own; the panel and the metrics read the same rows.

use messages::Cell;
use telemetry::{Counters, Histogram, Histograms, Percentiles};

use super::ViewContext;

/// A duration that pools measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The time that clients waited for a server connection.
    Wait,
    /// Transactions.
    Transaction,
    /// Queries.
    Query,
}

impl Measure {
    /// Each of them, in the order of the rows.
    pub const ALL: [Measure; 3] = [Measure::Wait, Measure::Transaction, Measure::Query];

    /// As SHOW HISTOGRAMS names it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Measure::Wait => "wait",
            Measure::Transaction => "transaction",
            Measure::Query => "query",
        }
    }

    fn histogram(self, all: &Histograms) -> &Histogram {
        match self {
            Measure::Wait => &all.wait,
            Measure::Transaction => &all.transaction,
            Measure::Query => &all.query,
        }
    }

    fn sum_us(self, counters: &Counters) -> u64 {
        match self {
            Measure::Wait => counters.wait_time,
            Measure::Transaction => counters.xact_time,
            Measure::Query => counters.query_time,
        }
    }
}

/// Three rows for each pool that has been used.
pub(super) fn histograms(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for (pool, histograms) in &context.aggregate.histograms {
        let counters = context.aggregate.pools.get(pool).map(|row| row.counters).unwrap_or_default();
        rows.extend(Measure::ALL.iter().map(|measure| {
            let histogram = measure.histogram(histograms);
            let percentiles = Percentiles::between(None, histogram);
            let us = |us: Option<u64>| us.map_or(Cell::Null, Cell::from);
            vec![
                pool.0.as_str().into(),
                pool.1.as_str().into(),
                measure.word().into(),
                Cell::Sum(histogram.count()),
                Cell::Sum(measure.sum_us(&counters)),
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
