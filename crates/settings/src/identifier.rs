//! The length of names: PostgreSQL's, so that one user or database has one name here as there.

/// The longest name of a user or database, in bytes (NAMEDATALEN - 1).
pub(crate) const NAME_BYTES: usize = 63;

/// A name as PostgreSQL cuts it before it looks at it: to 63 bytes, and never in the middle of a character
/// (`pg_mbcliplen`). Whatever is decided by a name is decided by this.
#[must_use]
pub fn cut_name(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_between_characters() {
        assert_eq!(cut_name(&"u".repeat(63)), "u".repeat(63));
        assert_eq!(cut_name(&"u".repeat(64)), "u".repeat(63));
        assert_eq!(cut_name(&"ü".repeat(40)), "ü".repeat(31));
        assert_eq!(cut_name(""), "");
    }
}
