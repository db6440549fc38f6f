//! The rows of a query of Weir's own, kept whole and within bounds.
//!
//! Owns the bounds and reading DataRow. Never knows what was asked and never passes a row on to a client.

use wire::backend;

/// The longest message of an answer, in bytes: room for a secret of 64 KiB and the name beside it.
pub(crate) const FRAME_BYTES: usize = 80 * 1024;

/// What all rows of an answer may have together, in bytes; more is a fault.
const ANSWER_BYTES: usize = 256 * 1024;

/// A row by column; NULL is None.
pub type Row = Vec<Option<Vec<u8>>>;

/// The rows that have come so far.
#[derive(Default)]
pub struct InternalResult {
    rows: Vec<Row>,
    bytes: usize,
}

/// Counts the rows instead of showing them: they may hold secrets.
impl std::fmt::Debug for InternalResult {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "InternalResult({} rows)", self.rows.len())
    }
}

impl InternalResult {
    /// Keeps the body of a DataRow; false if it is none, or more than an answer may have.
    pub(crate) fn keep(&mut self, body: &[u8]) -> bool {
        // A row of no columns takes room too.
        self.bytes += body.len() + size_of::<Row>();
        let Some(columns) = backend::data_row(body).filter(|_| self.bytes <= ANSWER_BYTES) else {
            return false;
        };
        self.rows.push(columns.map(|value| value.map(<[u8]>::to_vec)).collect());
        true
    }

    /// All rows, in the order received.
    #[must_use]
    pub fn into_rows(self) -> Vec<Row> {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(values: &[Option<&[u8]>]) -> Vec<u8> {
        let mut frame = Vec::new();
        wire::encode::data_row(&mut frame, values.iter().copied());
        frame.split_off(wire::frame::HEADER_BYTES)
    }

    #[test]
    fn rows_are_kept_in_order() {
        let mut answer = InternalResult::default();
        assert!(answer.keep(&body(&[Some(b"a"), None])));
        assert!(answer.keep(&body(&[])));
        assert!(!answer.keep(b"\0\x01"), "no row");
        assert_eq!(answer.into_rows(), [vec![Some(b"a".to_vec()), None], vec![]]);
    }

    #[test]
    fn an_answer_has_an_end() {
        let row = body(&[Some(&[b'x'; 1000])]);
        let mut answer = InternalResult::default();
        let kept = (0..10_000).take_while(|_| answer.keep(&row)).count();
        assert_eq!(kept, ANSWER_BYTES / (row.len() + size_of::<Row>()));
    }

    #[test]
    fn debug_shows_no_secret() {
        let mut answer = InternalResult::default();
        answer.keep(&body(&[Some(b"hidden")]));
        assert_eq!(format!("{answer:?}"), "InternalResult(1 rows)");
    }
}
