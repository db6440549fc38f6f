//! How a source file begins: with `//!`, saying what it owns and what it never does; and a crate's root
//! forbids unsafe code, unless it is `driver`'s.

use crate::finding::Finding;

/// The one crate that may hold unsafe code.
pub(crate) const UNSAFE_HOME: &str = "crates/driver/";

const FORBID: &str = "#![forbid(unsafe_code)]";

/// Findings for one source file.
pub(crate) fn check(file: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !text.starts_with("//!") {
        findings.push(Finding::at(file, 1, "opens without `//!`: say what it owns and what it never does"));
    }
    if text.lines().next().is_some_and(|line| line.contains("(to be written)")) {
        findings.push(Finding::at(file, 1, "its first line is still the placeholder"));
    }
    if is_root(file) && !file.starts_with(UNSAFE_HOME) && !text.lines().any(|line| line == FORBID) {
        findings.push(Finding::at(file, 1, format!("a crate's root says `{FORBID}`")));
    }
    findings
}

/// Programs that only tests run are no part of the product.
fn is_root(file: &str) -> bool {
    !file.starts_with("tests/") && (file.ends_with("src/lib.rs") || file.ends_with("src/main.rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_opens_with_its_purpose() {
        assert!(check("crates/wire/src/a.rs", "//! Owns a.\n").is_empty());
        assert_eq!(check("crates/wire/src/a.rs", "use b;\n").len(), 1);
        assert_eq!(check("crates/wire/src/a.rs", "//! (to be written)\n").len(), 1);
    }

    #[test]
    fn a_root_forbids_unsafe_code_except_in_driver() {
        assert_eq!(check("src/main.rs", "//! x\n").len(), 1);
        assert_eq!(check("crates/wire/src/lib.rs", "//! x\n#![forbid(unsafe_code)]\n").len(), 0);
        assert_eq!(check("crates/driver/src/lib.rs", "//! x\n").len(), 0);
        assert_eq!(check("tests/peer/src/main.rs", "//! x\n").len(), 0);
    }
}
