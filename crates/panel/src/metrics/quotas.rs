//! Quotas: what each subject has used of what it may use.
//! Owns the names; the columns are the console's.

use control::QuotaColumn;

use super::family::{Family, MetricKind, MetricUnit, MetricWriter, number};
use crate::table::{ViewRow, ViewTable};

/// Units are those of the resources: connections, seconds, requests, bytes.
const UNIT: MetricUnit = MetricUnit::Number("1");

pub(super) fn write(page: &mut dyn MetricWriter, table: &ViewTable<QuotaColumn>) {
    for (name, column, help) in [
        (
            "weir.quota.used",
            QuotaColumn::Used,
            "What a subject has used of a resource in the period that runs, at all nodes of a fleet that share quotas.",
        ),
        (
            "weir.quota.external",
            QuotaColumn::External,
            "How much of that was used at other nodes of the fleet.",
        ),
        ("weir.quota.soft", QuotaColumn::Soft, "Its soft limit; 0 is none."),
        ("weir.quota.hard", QuotaColumn::Hard, "Its hard limit; 0 is none."),
    ] {
        page.family(&Family::new(name, MetricKind::Gauge, UNIT, help));
        for row in table.iter() {
            page.sample(&labels(row), number(row.number(column)));
        }
    }
    let help = "How a subject stands with a resource: 0 within its limits, 1 above the soft limit, 2 its grace time is over, 3 its hard limit is reached.";
    page.family(&Family::new("weir.quota.state", MetricKind::Gauge, UNIT, help));
    for row in table.iter() {
        let state = match row.text(QuotaColumn::State) {
            Some("soft") => 1,
            Some("grace") => 2,
            Some("hard") => 3,
            _ => 0,
        };
        page.sample(&labels(row), number(state));
    }
}

fn labels(row: ViewRow<'_, QuotaColumn>) -> [(&'static str, &str); 4] {
    let label = |column| row.text(column).unwrap_or_default();
    [
        ("subject", label(QuotaColumn::Subject)),
        ("name", label(QuotaColumn::Name)),
        ("resource", label(QuotaColumn::Resource)),
        ("period", label(QuotaColumn::Period)),
    ]
}
