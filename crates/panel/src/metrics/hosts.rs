//! The hosts of entries whose reads go to standbys (`read_write_split`): what each is, how far behind, and its reads.
//! Owns the names; the columns are the console's.

use control::HostColumn;

use super::family::{Family, MetricKind, MetricUnit, MetricWriter, number};
use crate::table::{ViewRow, ViewTable};

const NONE: MetricUnit = MetricUnit::Number("");

pub(super) fn write(page: &mut dyn MetricWriter, table: &ViewTable<HostColumn>) {
    let gauge = |name, unit, help| Family::new(name, MetricKind::Gauge, unit, help);
    let help =
        "1 if the host can be logged in to, 0 if not; none if it is detached, or was not connected to.";
    of_hosts(page, table, &gauge("weir.host.up", NONE, help), |row| match state(row) {
        "primary" | "standby" => Some(1.0),
        "down" => Some(0.0),
        _ => None,
    });
    let help = "1 if the host is a standby, 0 if it is a primary.";
    of_hosts(page, table, &gauge("weir.host.is_standby", NONE, help), |row| match state(row) {
        "standby" => Some(1.0),
        "primary" => Some(0.0),
        _ => None,
    });
    let help = "1 if no reads go to the host because of DETACH.";
    of_hosts(page, table, &gauge("weir.host.detached", NONE, help), |row| {
        Some(number(row.number(HostColumn::Detached)))
    });
    let help =
        "For how long the oldest WAL that a standby has not replayed has been written, as far as Weir knows.";
    of_hosts(page, table, &gauge("weir.host.replication_lag", MetricUnit::Seconds, help), |row| {
        lag(row, HostColumn::LagMs).map(|ms| ms / 1_000.0)
    });
    // A name of its own: OTLP's have no unit.
    let help = "WAL that a standby has not replayed, as far as Weir knows.";
    of_hosts(page, table, &gauge("weir.host.replication_lag_wal", MetricUnit::Bytes, help), |row| {
        lag(row, HostColumn::LagBytes)
    });
    let help = "Requests that were sent to the host because they read.";
    let reads = Family::new("weir.host.reads", MetricKind::Counter, MetricUnit::Number("request"), help);
    of_hosts(page, table, &reads, |row| Some(number(row.number(HostColumn::Reads))));
}

fn state<'a>(row: ViewRow<'a, HostColumn>) -> &'a str {
    row.text(HostColumn::State).unwrap_or_default()
}

/// None where it is not known, which is NULL.
fn lag(row: ViewRow<'_, HostColumn>, column: HostColumn) -> Option<f64> {
    (!row.is_null(column)).then(|| number(row.number(column)))
}

fn of_hosts(
    page: &mut dyn MetricWriter,
    table: &ViewTable<HostColumn>,
    family: &Family<'_>,
    value: impl Fn(ViewRow<'_, HostColumn>) -> Option<f64>,
) {
    page.family(family);
    for row in table.iter() {
        let host =
            format!("{}:{}", row.text(HostColumn::Host).unwrap_or_default(), row.number(HostColumn::Port));
        let database = row.text(HostColumn::Database).unwrap_or_default();
        if let Some(value) = value(row) {
            page.sample(&[("database", database), ("host", &host)], value);
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
    fn each_host_has_what_is_known_of_it() {
        let row = |host: &str, state: &str, more: &[(HostColumn, Cell)]| {
            let mut row = vec![
                (HostColumn::Database, Cell::from("app")),
                (HostColumn::Host, Cell::from(host)),
                (HostColumn::Port, Cell::Number(5432)),
                (HostColumn::State, Cell::from(state)),
            ];
            row.extend_from_slice(more);
            row
        };
        let lag = [
            (HostColumn::LagMs, Cell::Number(1_500)),
            (HostColumn::LagBytes, Cell::Number(0)),
            (HostColumn::Reads, Cell::Sum(7)),
        ];
        let detached = [(HostColumn::Detached, Cell::Number(1))];
        let rows = [
            row("a", "primary", &[]),
            row("b", "standby", &lag),
            row("c", "down", &[]),
            row("d", "detached", &detached),
        ];
        let rows: Vec<&[(HostColumn, Cell)]> = rows.iter().map(Vec::as_slice).collect();
        let mut page = Exposition::default();
        write(&mut page, &rows_of(&rows));
        let page = page.finished();
        let of = |name: &str| -> Vec<(&str, &str)> {
            let prefix = format!("{name}{{database=\"app\",host=\"");
            let found = page.lines().filter_map(|line| line.strip_prefix(prefix.as_str()));
            found.filter_map(|line| line.split_once(":5432\"} ")).collect()
        };
        assert_eq!(of("weir_host_up"), [("a", "1"), ("b", "1"), ("c", "0")]);
        assert_eq!(of("weir_host_is_standby"), [("a", "0"), ("b", "1")]);
        assert_eq!(of("weir_host_detached"), [("a", "0"), ("b", "0"), ("c", "0"), ("d", "1")]);
        assert_eq!(of("weir_host_replication_lag_seconds"), [("b", "1.5")]);
        assert_eq!(of("weir_host_replication_lag_wal_bytes"), [("b", "0")]);
        assert_eq!(of("weir_host_reads_total"), [("a", "0"), ("b", "7"), ("c", "0"), ("d", "0")]);
    }
}
