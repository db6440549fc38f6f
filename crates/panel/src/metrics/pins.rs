//! Clients that keep a server connection because of what their sessions hold: how many, why, for how long, and `max_pinned`.
//! Owns the names; the columns are the console's.

use control::PinTotalColumn;

use super::family::{Family, MetricKind, MetricUnit, MetricWriter, number, seconds};
use crate::inventory::reasons;
use crate::table::{ViewRow, ViewTable};

/// Columns of SHOW PIN_TOTALS and what they are called.
const PINS: &[(PinTotalColumn, MetricKind, MetricUnit, &str, &str)] = &[
    (
        PinTotalColumn::MaxPinned,
        MetricKind::Gauge,
        CLIENTS,
        "max_pinned_clients",
        "Clients that may keep a server because of their sessions (max_pinned); 0 is no limit.",
    ),
    (
        PinTotalColumn::Waiting,
        MetricKind::Gauge,
        CLIENTS,
        "pin_waiting_clients",
        "Clients that wait because of max_pinned.",
    ),
    (
        PinTotalColumn::Pins,
        MetricKind::Counter,
        MetricUnit::Number("pin"),
        "pins",
        "Times a client began to keep its server because of its session.",
    ),
    (
        PinTotalColumn::PinnedUs,
        MetricKind::Counter,
        MetricUnit::Seconds,
        "pinned",
        "How long clients have kept servers because of their sessions.",
    ),
    (
        PinTotalColumn::Waits,
        MetricKind::Counter,
        MetricUnit::Number("wait"),
        "pin_waits",
        "Times a request waited because of max_pinned.",
    ),
    (
        PinTotalColumn::Refused,
        MetricKind::Counter,
        CLIENTS,
        "pins_refused",
        "Clients that were closed because of max_pinned.",
    ),
];

const CLIENTS: MetricUnit = MetricUnit::Number("client");

pub(super) fn write(page: &mut dyn MetricWriter, table: &ViewTable<PinTotalColumn>) {
    let help = "Clients that keep a server because of what their sessions hold; one that holds several kinds of state \
                counts for each.";
    page.family(&Family::new("weir.pool.pinned_clients", MetricKind::Gauge, CLIENTS, help));
    for row in table.iter() {
        for (reason, clients) in reasons(row) {
            let [database, user] = labels(row);
            page.sample(&[database, user, ("reason", reason)], number(clients));
        }
    }
    for (column, kind, unit, name, help) in PINS {
        page.family(&Family::new(&format!("weir.pool.{name}"), *kind, *unit, help));
        for row in table.iter() {
            let value = row.number(*column);
            let value = if *unit == MetricUnit::Seconds { seconds(value) } else { number(value) };
            page.sample(&labels(row), value);
        }
    }
}

fn labels(row: ViewRow<'_, PinTotalColumn>) -> [(&'static str, &str); 2] {
    let text = |column| row.text(column).unwrap_or_default();
    [("database", text(PinTotalColumn::Database)), ("user", text(PinTotalColumn::User))]
}
