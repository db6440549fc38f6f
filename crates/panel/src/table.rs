//! Rows of the control thread's views, indexed by the enum of their view's columns.
//! Never knows what a view is about.

use std::marker::PhantomData;

use control::ViewColumn;
use messages::Cell;

/// The rows of a view.
#[derive(Debug)]
pub(crate) struct ViewTable<C> {
    rows: Vec<Vec<Cell>>,
    columns: PhantomData<C>,
}

/// One row of a view.
#[derive(Debug)]
pub(crate) struct ViewRow<'a, C> {
    cells: &'a [Cell],
    columns: PhantomData<C>,
}

impl<C> Clone for ViewRow<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for ViewRow<'_, C> {}

impl<C> Default for ViewTable<C> {
    fn default() -> ViewTable<C> {
        ViewTable::new(Vec::new())
    }
}

impl<C> ViewTable<C> {
    pub(crate) fn new(rows: Vec<Vec<Cell>>) -> ViewTable<C> {
        ViewTable { rows, columns: PhantomData }
    }

    /// Every row.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ViewRow<'_, C>> {
        self.rows.iter().map(|cells| ViewRow::new(cells))
    }

    /// The row at this place.
    pub(crate) fn row(&self, place: usize) -> Option<ViewRow<'_, C>> {
        self.rows.get(place).map(|cells| ViewRow::new(cells))
    }
}

impl<'a, C> ViewRow<'a, C> {
    pub(crate) fn new(cells: &'a [Cell]) -> ViewRow<'a, C> {
        ViewRow { cells, columns: PhantomData }
    }
}

impl<'a, C: ViewColumn> ViewRow<'a, C> {
    /// A column of text; NULL is None.
    pub(crate) fn text(&self, column: C) -> Option<&'a str> {
        match self.cells.get(column.index())? {
            Cell::Text(text) => Some(text),
            Cell::Null | Cell::Number(_) | Cell::Sum(_) => None,
        }
    }

    /// A column of text; NULL is empty.
    pub(crate) fn owned(&self, column: C) -> String {
        self.text(column).unwrap_or_default().to_owned()
    }

    /// The text; None if it is empty.
    pub(crate) fn non_empty(&self, column: C) -> Option<String> {
        self.text(column).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// It is NULL.
    pub(crate) fn is_null(&self, column: C) -> bool {
        matches!(self.cells.get(column.index()), Some(Cell::Null) | None)
    }

    /// A column of numbers; NULL, and what is negative, is 0.
    pub(crate) fn number(&self, column: C) -> u64 {
        match self.cells.get(column.index()) {
            Some(Cell::Number(number)) => u64::try_from(*number).unwrap_or(0),
            Some(Cell::Sum(number)) => *number,
            Some(Cell::Text(_) | Cell::Null) | None => 0,
        }
    }
}

/// The rows of a view as tests write them: some columns of each, the others NULL.
#[cfg(test)]
pub(crate) fn rows_of<C: ViewColumn>(rows: &[&[(C, Cell)]]) -> ViewTable<C> {
    let row = |given: &&[(C, Cell)]| {
        let mut cells = vec![Cell::Null; C::COLUMNS.len()];
        given.iter().for_each(|(column, cell)| cells[column.index()] = cell.clone());
        cells
    };
    ViewTable::new(rows.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::PoolColumn;

    #[test]
    fn cells_are_found_by_their_column() {
        let cells: &[_] = &[
            (PoolColumn::User, Cell::from("ann")),
            (PoolColumn::ClActive, Cell::Number(-1)),
            (PoolColumn::MaxwaitUs, Cell::Sum(7)),
        ];
        let table = rows_of(&[cells]);
        let row = table.iter().next().expect("a row");
        assert_eq!((row.text(PoolColumn::User), row.text(PoolColumn::ClActive)), (Some("ann"), None));
        assert_eq!((row.number(PoolColumn::ClActive), row.number(PoolColumn::MaxwaitUs)), (0, 7));
        assert_eq!((row.owned(PoolColumn::Database), row.number(PoolColumn::User)), (String::new(), 0));
    }
}
