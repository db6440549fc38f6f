//! The query caches of entries (`query_cache`): whether they are of use, how fresh and how large, and what became of requests.
//! Owns the names; the columns are the console's.

use control::CacheColumn;

use super::family::{Family, MetricKind, MetricUnit, MetricWriter, number};
use crate::table::{ViewRow, ViewTable};

pub(super) fn write(page: &mut dyn MetricWriter, table: &ViewTable<CacheColumn>) {
    let gauge = |name, unit, help| Family::new(name, MetricKind::Gauge, unit, help);
    let help = "1 if answers of the cache can be used, 0 if not.";
    of_entries(page, table, &gauge("weir.cache.usable", MetricUnit::Number(""), help), |row| {
        Some(f64::from(u8::from(row.text(CacheColumn::State) == Some("ok"))))
    });
    let help = "How long ago it was that all changes of the primary were known.";
    of_entries(page, table, &gauge("weir.cache.staleness", MetricUnit::Seconds, help), |row| {
        (!row.is_null(CacheColumn::StalenessMs))
            .then(|| number(row.number(CacheColumn::StalenessMs)) / 1_000.0)
    });
    let help = "Answers that are stored.";
    of_entries(page, table, &gauge("weir.cache.answers", MetricUnit::Number("answer"), help), |row| {
        Some(number(row.number(CacheColumn::Answers)))
    });
    let help = "What the answers that are stored take.";
    of_entries(page, table, &gauge("weir.cache.size", MetricUnit::Bytes, help), |row| {
        Some(number(row.number(CacheColumn::Bytes)))
    });
    for (name, unit, column, help) in [
        ("weir.cache.hits", "request", CacheColumn::Hits, "Requests that were answered from the cache."),
        (
            "weir.cache.misses",
            "request",
            CacheColumn::Misses,
            "Requests that the cache might have answered, and had no answer to.",
        ),
        (
            "weir.cache.invalidations",
            "answer",
            CacheColumn::Invalidations,
            "Answers that were dropped because what they were made of has changed, or may have.",
        ),
        ("weir.cache.evictions", "answer", CacheColumn::Evictions, "Answers that were dropped to make room."),
    ] {
        let family = Family::new(name, MetricKind::Counter, MetricUnit::Number(unit), help);
        of_entries(page, table, &family, |row| Some(number(row.number(column))));
    }
}

fn of_entries(
    page: &mut dyn MetricWriter,
    table: &ViewTable<CacheColumn>,
    family: &Family<'_>,
    value: impl Fn(ViewRow<'_, CacheColumn>) -> Option<f64>,
) {
    page.family(family);
    for row in table.iter() {
        if let Some(value) = value(row) {
            page.sample(&[("database", row.text(CacheColumn::Database).unwrap_or_default())], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use messages::Cell;

    use super::*;
    use crate::metrics::exposition::Exposition;
    use crate::table::rows_of;

    #[test]
    fn each_entry_has_its_cache() {
        let used = [
            (CacheColumn::Database, Cell::from("app")),
            (CacheColumn::State, Cell::from("ok")),
            (CacheColumn::StalenessMs, Cell::Number(104)),
            (CacheColumn::Answers, Cell::Number(12)),
            (CacheColumn::Bytes, Cell::Number(4_096)),
            (CacheColumn::Hits, Cell::Sum(900)),
            (CacheColumn::Misses, Cell::Sum(100)),
            (CacheColumn::Invalidations, Cell::Sum(70)),
            (CacheColumn::Evictions, Cell::Sum(3)),
        ];
        let lost = [(CacheColumn::Database, Cell::from("b")), (CacheColumn::State, Cell::from("lost"))];
        let mut page = Exposition::default();
        write(&mut page, &rows_of(&[&used, &lost]));
        let page = page.finished();
        for line in [
            "weir_cache_usable{database=\"app\"} 1",
            "weir_cache_usable{database=\"b\"} 0",
            "weir_cache_staleness_seconds{database=\"app\"} 0.104",
            "weir_cache_answers{database=\"app\"} 12",
            "weir_cache_size_bytes{database=\"app\"} 4096",
            "weir_cache_hits_total{database=\"app\"} 900",
            "weir_cache_misses_total{database=\"app\"} 100",
            "weir_cache_invalidations_total{database=\"app\"} 70",
            "weir_cache_evictions_total{database=\"app\"} 3",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
        assert!(!page.contains("weir_cache_staleness_seconds{database=\"b\"}"));
    }
}
