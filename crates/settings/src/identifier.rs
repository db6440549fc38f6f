//! Truncation of identifiers as in PostgreSQL, so that a user or database has the same name in both.

/// The longest name of a user or database, in bytes (NAMEDATALEN - 1).
pub(crate) const MAX_NAME_BYTES: usize = 63;

/// Truncates a name as PostgreSQL does before any lookup: to 63 bytes, never inside a character (`pg_mbcliplen`).
#[must_use]
pub fn truncate_identifier(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_between_characters() {
        assert_eq!(truncate_identifier(&"u".repeat(63)), "u".repeat(63));
        assert_eq!(truncate_identifier(&"u".repeat(64)), "u".repeat(63));
        assert_eq!(truncate_identifier(&"ü".repeat(40)), "ü".repeat(31));
        assert_eq!(truncate_identifier(""), "");
    }
}
