//! SHOW POOL_SIZES: how large pools are, and why those that size themselves are so large.

use messages::Cell;

use super::{ViewContext, text_or_null};

pub(super) fn rows(context: &ViewContext<'_>) -> Vec<Vec<Cell>> {
    let rows = context.aggregate.pool_sizes.values();
    let shown = |text: &str| text_or_null(Some(text.to_owned()).filter(|text| !text.is_empty()));
    rows.map(|row| {
        vec![
            row.database.as_str().into(),
            row.user.as_str().into(),
            row.host.as_deref().map_or(Cell::Null, Into::into),
            row.mode.into(),
            row.min.into(),
            row.max.into(),
            row.size.into(),
            row.found.into(),
            row.open.into(),
            shown(row.state),
            shown(row.hold),
            row.changed_us.map_or(Cell::Null, |ago_us| (ago_us / 1_000_000).into()),
            shown(&row.change),
            Cell::Sum(row.changes),
        ]
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use messages::{Listing, PoolSizeRow, Subject};

    use crate::harness::{Harness, empty, shown};

    #[test]
    fn a_pool_has_one_row_and_says_why_it_is_so_large() {
        let row = PoolSizeRow {
            database: "app".into(),
            user: "web".into(),
            host: None,
            mode: "auto",
            min: 2,
            max: 50,
            size: 11,
            found: 8,
            open: 9,
            state: "holds",
            hold: "paused",
            changed_us: Some(7_900_000),
            change: "6 -> 8: more".into(),
            changes: 4,
        };
        let of_shard = |subject| match subject {
            Subject::PoolSizes => Listing::PoolSizes(vec![row.clone(), row.clone()]),
            other => empty(other),
        };
        let rows = shown(&Harness::with(1, "[databases]\napp =\n").show("SHOW POOL_SIZES", &of_shard));
        assert_eq!(rows, ["app|web|NULL|auto|2|50|11|8|9|holds|paused|7|6 -> 8: more|4"]);
    }
}
