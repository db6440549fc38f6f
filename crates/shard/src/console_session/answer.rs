//! Typed answers of the control thread as messages of the wire protocol, in text or binary format.
//!
//! Owns the types' numbers and forms (PostgreSQL: pg_type, and the receive functions of the types). Never knows a view.

use messages::{Cell, Column, ColumnType, ReplyPart};
use wire::encode;

/// The formats that were asked for: none is text, one is for all columns, else one for each; 1 is binary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Formats(pub(crate) Vec<u16>);

impl Formats {
    fn of(&self, column: usize) -> u16 {
        match self.0[..] {
            [] => 0,
            [all] => all,
            _ => self.0.get(column).copied().unwrap_or(0),
        }
    }
}

/// One piece of an answer.
pub(crate) fn part(out: &mut Vec<u8>, part: &ReplyPart, formats: &Formats) {
    match part {
        // Which types they have, the client may have said: [`parameters`].
        ReplyPart::Parameters(_) => {}
        ReplyPart::NoColumns => encode::no_data(out),
        ReplyPart::Columns(columns) => {
            let columns: Vec<encode::Column<'_>> = columns.iter().map(column).collect();
            encode::row_description_in(out, &columns, &|index| formats.of(index));
        }
        ReplyPart::Rows(rows) => rows.iter().for_each(|cells| row(out, cells, formats)),
        ReplyPart::Complete(text) => encode::command_complete(out, text),
        ReplyPart::CompleteAs(text) => encode::command_complete(out, text),
        ReplyPart::Notice(text) => encode::notice(out, "NOTICE", "00000", text),
        ReplyPart::NoticeWithDetail(text, detail) => encode::notice_with_detail(out, text, detail),
        ReplyPart::Error { sqlstate, message, .. } => encode::error(out, "ERROR", sqlstate, message),
        ReplyPart::Empty => encode::empty_query(out),
    }
}

/// ParameterDescription: this many, of the types that the client gave them, else text.
pub(crate) fn parameters(out: &mut Vec<u8>, count: usize, given: &[u32]) {
    let type_of = |index: usize| given.get(index).copied().filter(|oid| *oid != 0).unwrap_or(TEXT);
    let types: Vec<u32> = (0..count.max(given.len())).map(type_of).collect();
    encode::parameter_description(out, &types);
}

/// pg_type's number of `text`: what a parameter is unless the client says otherwise.
pub(crate) const TEXT: u32 = 25;

fn column(column: &Column) -> encode::Column<'_> {
    let (type_oid, type_bytes) = match column.kind {
        ColumnType::Text => (TEXT, -1),
        ColumnType::Int4 => (23, 4),
        ColumnType::Int8 => (20, 8),
        ColumnType::Numeric => (1700, -1),
    };
    encode::Column { name: column.name, type_oid, type_bytes }
}

/// One row. A cell's type follows its column's; numbers come as numbers.
pub(crate) fn row(out: &mut Vec<u8>, cells: &[Cell], formats: &Formats) {
    let values: Vec<Option<Vec<u8>>> =
        cells.iter().enumerate().map(|(index, cell)| value(cell, formats.of(index) == 1)).collect();
    encode::data_row(out, values.iter().map(Option::as_deref));
}

fn value(cell: &Cell, binary: bool) -> Option<Vec<u8>> {
    match cell {
        Cell::Null => None,
        Cell::Text(text) => Some(text.clone().into_bytes()),
        Cell::Number(number) if binary => Some(number.to_be_bytes().to_vec()),
        Cell::Sum(number) if binary => Some(numeric(*number)),
        Cell::Number(number) => Some(number.to_string().into_bytes()),
        Cell::Sum(number) => Some(number.to_string().into_bytes()),
    }
}

/// A whole number that is not negative in the binary form of `numeric`: digits to base 10,000, the first one's weight.
fn numeric(number: u64) -> Vec<u8> {
    const BASE: u64 = 10_000;
    let mut digits: Vec<u16> = Vec::new();
    let mut rest = number;
    while rest > 0 {
        digits.push(u16::try_from(rest % BASE).unwrap_or(0));
        rest /= BASE;
    }
    let weight = digits.len().saturating_sub(1);
    let header = [digits.len(), weight, 0, 0].map(|field| u16::try_from(field).unwrap_or(0));
    header.into_iter().chain(digits.into_iter().rev()).flat_map(u16::to_be_bytes).collect()
}

/// A bound value as text; None for a binary one of a type that has no use here.
pub(crate) fn parameter(value: &[u8], binary: bool, type_oid: u32) -> Option<String> {
    let whole_number = matches!(type_oid, 20 | 21 | 23);
    if !binary || !whole_number {
        let is_text = !binary || matches!(type_oid, 0 | 18 | 19 | TEXT | 705 | 1043);
        return is_text.then(|| String::from_utf8_lossy(value).into_owned());
    }
    match *value {
        [a, b] => Some(i16::from_be_bytes([a, b]).to_string()),
        [a, b, c, d] => Some(i32::from_be_bytes([a, b, c, d]).to_string()),
        _ => Some(i64::from_be_bytes(value.try_into().ok()?).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numerics_are_digits_to_a_base() {
        assert_eq!(numeric(0), [0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(numeric(7), [0, 1, 0, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(numeric(1_000_020_003), [0, 3, 0, 2, 0, 0, 0, 0, 0, 10, 0, 2, 0, 3]);
        assert_eq!(numeric(u64::MAX)[..4], [0, 5, 0, 4]);
    }

    #[test]
    fn formats_are_none_one_or_one_for_each() {
        assert_eq!(Formats(vec![]).of(3), 0);
        assert_eq!(Formats(vec![1]).of(3), 1);
        assert_eq!((Formats(vec![0, 1]).of(0), Formats(vec![0, 1]).of(1)), (0, 1));
        assert_eq!(value(&Cell::Number(-2), true), Some(vec![255, 255, 255, 255, 255, 255, 255, 254]));
        assert_eq!(value(&Cell::Number(-2), false), Some(b"-2".to_vec()));
        assert_eq!(value(&Cell::Null, true), None);
    }

    #[test]
    fn parameters_are_text_or_whole_numbers() {
        assert_eq!(parameter(b"app", false, 0).as_deref(), Some("app"));
        assert_eq!(parameter(b"app", true, 1043).as_deref(), Some("app"));
        assert_eq!(parameter(&7_i32.to_be_bytes(), true, 23).as_deref(), Some("7"));
        assert_eq!(parameter(&(-7_i64).to_be_bytes(), true, 20).as_deref(), Some("-7"));
        assert_eq!(parameter(&[1, 2, 3], true, 20), None);
        assert_eq!(parameter(&[0; 8], true, 701), None);
    }
}
