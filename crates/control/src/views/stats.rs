//! SHOW STATS, STATS_TOTALS, STATS_AVERAGES and TOTALS, from the table of counters.

use messages::{Cell, Column};
use telemetry::{COUNTERS, Counter, Counters};

use super::{ViewContext, numeric, text};
use crate::CONSOLE;
use crate::statistics::Delta;

pub(super) const STATS: [Column; 1 + 2 * COUNTERS.len()] = {
    let mut columns = [text("database"); 1 + 2 * COUNTERS.len()];
    let mut at = 0;
    while at < COUNTERS.len() {
        columns[1 + at] = numeric(COUNTERS[at].total);
        columns[1 + COUNTERS.len() + at] = numeric(COUNTERS[at].average);
        at += 1;
    }
    columns
};

pub(super) const TOTALS: [Column; 1 + COUNTERS.len()] = {
    let mut columns = [text("database"); 1 + COUNTERS.len()];
    let mut at = 0;
    while at < COUNTERS.len() {
        columns[1 + at] = numeric(COUNTERS[at].name);
        at += 1;
    }
    columns
};

pub(super) const AVERAGES: [Column; 1 + COUNTERS.len()] = {
    let mut columns = [text("database"); 1 + COUNTERS.len()];
    let mut at = 0;
    while at < COUNTERS.len() {
        columns[1 + at] = numeric(COUNTERS[at].average_view);
        at += 1;
    }
    columns
};

pub(super) const SUMS: &[Column] = &[text("name"), numeric("value")];

pub(super) fn both(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    by_database(context, |counters, delta| {
        let totals = COUNTERS.iter().map(|counter| (counter.read)(counters));
        totals.chain(COUNTERS.iter().map(|counter| delta.average(counter))).collect()
    })
}

pub(super) fn totals(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    by_database(context, |counters, _| COUNTERS.iter().map(|counter| (counter.read)(counters)).collect())
}

pub(super) fn averages(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    by_database(context, |_, delta| COUNTERS.iter().map(|counter| delta.average(counter)).collect())
}

pub(super) fn sums(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let databases = context.aggregate.counters();
    let delta = context.statistics.delta(&databases, context.now_us);
    let mut sum = Counters::default();
    databases.values().for_each(|counters| sum.add(counters));
    let row = |word: &str, counter: &Counter, value: u64| {
        vec![Cell::from(format!("{word}_{}", name_in_totals(counter.name))), Cell::Sum(value)]
    };
    let totals = COUNTERS.iter().map(|counter| row("total", counter, (counter.read)(&sum)));
    totals.chain(COUNTERS.iter().map(|counter| row("avg", counter, delta.average(counter)))).collect()
}

/// One row per database, the console included.
fn by_database(context: &ViewContext<'_>, values: fn(&Counters, &Delta) -> Vec<u64>) -> Vec<Vec<Cell>> {
    let mut databases = context.aggregate.counters();
    databases.entry(CONSOLE.to_owned()).or_default();
    let row = |(name, counters): (&String, &Counters)| {
        let delta = context.statistics.delta_of(name, counters, context.now_us);
        let values = values(counters, &delta);
        std::iter::once(Cell::from(name.as_str())).chain(values.into_iter().map(Cell::Sum)).collect()
    };
    databases.iter().map(row).collect()
}

/// SHOW TOTALS has names of its own for some counters.
fn name_in_totals(name: &'static str) -> &'static str {
    match name {
        "bytes_received" => "client_bytes",
        "bytes_sent" => "server_bytes",
        "client_parse_count" => "ps_client_parse_count",
        "server_parse_count" => "ps_server_parse_count",
        "bind_count" => "ps_bind_count",
        same => same,
    }
}
