//! What the questions of Weir's threads have in common: the session in which they are asked, and reading their answers.

/// Names are those of pg_catalog, nothing is written, and nothing waits for long: neither for a lock nor for a large catalog.
pub const SESSION: &str = "SET search_path = pg_catalog, pg_temp; SET default_transaction_read_only = on; \
    SET standard_conforming_strings = on; SET statement_timeout = '10s'; SET lock_timeout = '2s'; SET jit = off";

/// A column's text.
#[must_use]
pub fn text(row: &[Option<Vec<u8>>], column: usize) -> Option<String> {
    String::from_utf8(row.get(column)?.clone()?).ok()
}

/// A column's number.
#[must_use]
pub fn number(row: &[Option<Vec<u8>>], column: usize) -> Option<u64> {
    text(row, column)?.parse().ok()
}

/// A string literal. The session has `standard_conforming_strings`.
#[must_use]
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_is_one_string() {
        assert_eq!(literal("a' OR true --\\"), "'a'' OR true --\\'");
    }
}
