//! The habits that no lint knows, one file per group of rules. Each rule takes one file's text and gives
//! findings; this file only says which rule sees which file.

mod bans;
mod circles;
mod generated;
mod headers;
mod lengths;
mod unsafe_code;
mod words;

use crate::finding::Finding;
use crate::layers;
use crate::source::Source;
use crate::tree::Tree;

/// Runs every rule over the tree, and the generators.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = texts(tree);
    findings.extend(generated::check(tree));
    findings
}

/// Runs the rules that read text and build nothing: quick enough for a unit test.
pub(crate) fn texts(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen = Vec::new();
    let pure = layers::pure_crates(tree);
    for file in tree.files() {
        let Some(text) = tree.text(file) else { continue };
        findings.extend(words::check(file, &text));
        if file.ends_with(".rs") {
            let source = Source::scan(&text);
            findings.extend(headers::check(file, &text));
            if !is_test_file(file) {
                findings.extend(bans::check(file, &source, &pure));
                findings.extend(lengths::check(file, &source, &mut seen));
            }
            findings.extend(unsafe_code::check(file, &source));
        }
    }
    findings.extend(lengths::stale(&seen));
    findings.extend(circles::check(tree));
    findings
}

/// Files that hold nothing but tests: integration tests, and `mod tests;` in a file of its own.
fn is_test_file(file: &str) -> bool {
    file.starts_with("tests/")
        || file.contains("/tests/")
        || file.ends_with("/tests.rs")
        || file.contains("/benches/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_files_are_known_by_name() {
        assert!(is_test_file("crates/wire/tests/frames.rs"));
        assert!(is_test_file("crates/wire/src/frame/tests.rs"));
        assert!(!is_test_file("crates/wire/src/contests.rs"));
    }
}
