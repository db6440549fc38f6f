//! What clients of each pool have waited for, by kind: the rows of SHOW WAITS.

use control::WaitColumn;

use super::family::{Family, MetricKind, MetricUnit, MetricWriter, number, seconds};
use crate::table::{ViewRow, ViewTable};

pub(super) fn write(page: &mut dyn MetricWriter, waits: &ViewTable<WaitColumn>) {
    let help = "How often clients waited, by what for; `server` are queries, `client` transactions that waited for their client, and `lock`, `io` and `other` how often a server was found waiting in a query (track_lock_waits).";
    page.family(&Family::new("weir.client.waits", MetricKind::Counter, MetricUnit::Number("wait"), help));
    for row in waits.iter() {
        page.sample(&labels(row), number(row.number(WaitColumn::Count)));
    }
    let help = "How long clients waited, by what for; `server` is the time in queries, `client` that in transactions between them, and `lock`, `io` and `other` what the server itself waited for, as part of `server` (track_lock_waits).";
    page.family(&Family::new("weir.client.wait_time", MetricKind::Counter, MetricUnit::Seconds, help));
    for row in waits.iter() {
        page.sample(&labels(row), seconds(row.number(WaitColumn::TimeUs)));
    }
}

fn labels<'a>(row: ViewRow<'a, WaitColumn>) -> [(&'static str, &'a str); 3] {
    let text = |column| row.text(column).unwrap_or_default();
    [
        ("database", text(WaitColumn::Database)),
        ("user", text(WaitColumn::User)),
        ("wait", text(WaitColumn::Wait)),
    ]
}
