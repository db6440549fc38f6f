//! Unsafe code lives in `driver` only, and each block, impl or extern there says in a `SAFETY:` comment,
//! on its line or at most three lines above, why it holds.

use crate::finding::Finding;
use crate::source::{Line, Source, has_word};
use crate::tidy::headers::UNSAFE_HOME;

const LINES_ABOVE: usize = 3;

/// Findings for one source file, tests included.
pub(crate) fn check(file: &str, source: &Source) -> Vec<Finding> {
    let home = file.starts_with(UNSAFE_HOME);
    let mut findings = Vec::new();
    for (index, line) in source.lines.iter().enumerate().filter(|(_, line)| has_word(&line.code, "unsafe")) {
        if !home {
            findings.push(Finding::at(file, index + 1, "unsafe code outside crates/driver"));
        } else if needs_a_reason(&line.code) && !has_reason(&source.lines, index) {
            findings.push(Finding::at(file, index + 1, "unsafe without a `SAFETY:` comment just above"));
        }
    }
    findings
}

fn needs_a_reason(code: &str) -> bool {
    ["unsafe {", "unsafe impl", "unsafe extern"].iter().any(|form| code.contains(form))
}

fn has_reason(lines: &[Line], index: usize) -> bool {
    let first = index.saturating_sub(LINES_ABOVE);
    lines[first..=index].iter().any(|line| line.comment.contains("SAFETY:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(file: &str, text: &str) -> usize {
        check(file, &Source::scan(text)).len()
    }

    #[test]
    fn unsafe_stays_at_home() {
        assert_eq!(count("crates/wire/src/a.rs", "// SAFETY: x\nunsafe { a() }"), 1);
        assert_eq!(count("crates/wire/src/a.rs", "#![forbid(unsafe_code)] // unsafe"), 0);
    }

    #[test]
    fn a_block_has_a_reason_within_three_lines() {
        let home = "crates/driver/src/a.rs";
        assert_eq!(count(home, "// SAFETY: x\nlet a =\n  b(\n unsafe { c() });"), 0);
        assert_eq!(count(home, "// SAFETY: x\n\n\n\nunsafe { c() }"), 1);
        assert_eq!(count(home, "unsafe impl Send for A {}"), 1);
        assert_eq!(count(home, "pub unsafe fn a() {}"), 0);
    }
}
