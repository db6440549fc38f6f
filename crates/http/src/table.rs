//! Rows as the control thread gives them, read by the names of their columns.
//! Never knows what a view is about.

use messages::{Cell, Column};

/// An answer in rows; one without rows has no columns either.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// One row with the names of its columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) columns: &'a [Column],
    pub(crate) cells: &'a [Cell],
}

impl Table {
    /// Every row.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|cells| Row { columns: &self.columns, cells })
    }
}

impl<'a> Row<'a> {
    fn cell(&self, name: &str) -> Option<&'a Cell> {
        let place = self.columns.iter().position(|column| column.name == name)?;
        self.cells.get(place)
    }

    /// A column of text; NULL and a column that there is not are None.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        match self.cell(name)? {
            Cell::Text(text) => Some(text),
            Cell::Null | Cell::Number(_) | Cell::Sum(_) => None,
        }
    }

    /// A column of numbers that count something; what is not one is 0.
    pub(crate) fn number(&self, name: &str) -> u64 {
        match self.cell(name) {
            Some(Cell::Number(number)) => u64::try_from(*number).unwrap_or(0),
            Some(Cell::Sum(number)) => *number,
            Some(Cell::Text(_) | Cell::Null) | None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use messages::ColumnType;

    #[test]
    fn cells_are_found_by_the_name_of_their_column() {
        let column = |name| Column { name, kind: ColumnType::Text };
        let table = Table {
            columns: vec![column("name"), column("count"), column("sum")],
            rows: vec![vec![Cell::from("a"), Cell::Number(-1), Cell::Sum(7)]],
        };
        let row = table.iter().next().expect("a row");
        assert_eq!((row.text("name"), row.number("count"), row.number("sum")), (Some("a"), 0, 7));
        assert_eq!((row.text("count"), row.text("none"), row.number("none")), (None, None, 0));
    }
}
