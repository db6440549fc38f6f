//! SHOW QUOTAS: what each subject has used of what it may use.

use messages::Cell;

use super::ViewContext;

pub(super) fn rows(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let time = |at_s: Option<u64>| at_s.map_or(Cell::Null, |at_s| quota::utc(at_s).into());
    let rows = context.aggregate.quotas.iter();
    rows.map(|row| {
        vec![
            row.subject.kind.word().into(),
            row.subject.name.as_deref().map_or(Cell::Null, Into::into),
            row.measure.resource().word().into(),
            row.measure.period().map_or(Cell::Null, |period| period.word().into()),
            Cell::Sum(row.used),
            Cell::Sum(row.soft),
            Cell::Sum(row.hard),
            time(row.grace_ends_s),
            time(row.period_ends_s),
            row.state.word().into(),
            row.members.map_or(Cell::Null, Cell::Sum),
            Cell::Sum(row.external),
        ]
    })
    .collect()
}
