//! How long a file and a function may be. Both limits are ratchets: an exception is listed here with its
//! present length as ceiling and a reason, may not grow, and goes when it is no longer needed.

use crate::finding::Finding;
use crate::source::Source;

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;

/// A file or function that may be longer than the rule.
#[derive(Debug)]
pub(crate) struct Exception {
    /// `path` of a file, or `path#name` of a function.
    what: &'static str,
    ceiling: usize,
    /// Why it is one piece: shown when the ceiling is passed.
    reason: &'static str,
}

const EXCEPTIONS: &[Exception] = &[];

/// Findings for one source file; `used` collects the exceptions that were needed.
pub(crate) fn check(file: &str, source: &Source, used: &mut Vec<&'static str>) -> Vec<Finding> {
    let mut rule = Rule { exceptions: EXCEPTIONS, used };
    rule.file(file, source)
}

/// Exceptions that nothing needs any more.
pub(crate) fn stale(used: &[&'static str]) -> Vec<Finding> {
    let unused = EXCEPTIONS.iter().filter(|exception| !used.contains(&exception.what));
    unused
        .map(|exception| {
            let file = exception.what.split('#').next().unwrap_or(exception.what);
            Finding::at(
                file,
                1,
                format!("`{}` is short enough now: take it off the list of exceptions", exception.what),
            )
        })
        .collect()
}

struct Rule<'a> {
    exceptions: &'static [Exception],
    used: &'a mut Vec<&'static str>,
}

impl Rule<'_> {
    fn file(&mut self, file: &str, source: &Source) -> Vec<Finding> {
        let mut findings = Vec::new();
        let lines = source.production().count();
        findings.extend(self.length(file, file, 1, lines, FILE_LINES));
        for function in source.functions() {
            let what = format!("{file}#{}", function.name);
            findings.extend(self.length(file, &what, function.line, function.lines, FUNCTION_LINES));
        }
        findings
    }

    fn length(&mut self, file: &str, what: &str, line: usize, lines: usize, limit: usize) -> Option<Finding> {
        if lines <= limit {
            return None;
        }
        let Some(exception) = self.exceptions.iter().find(|exception| exception.what == what) else {
            return Some(Finding::at(
                file,
                line,
                format!("`{what}` has {lines} lines without tests, at most {limit}"),
            ));
        };
        self.used.push(exception.what);
        (lines > exception.ceiling).then(|| {
            let Exception { ceiling, reason, .. } = exception;
            Finding::at(
                file,
                line,
                format!("`{what}` grew to {lines} lines over its ceiling of {ceiling} ({reason})"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &[Exception] = &[Exception { what: "a.rs#long", ceiling: 90, reason: "one table" }];

    fn found(text: &str) -> (Vec<String>, Vec<&'static str>) {
        let mut used = Vec::new();
        let mut rule = Rule { exceptions: LISTED, used: &mut used };
        let findings =
            rule.file("a.rs", &Source::scan(text)).into_iter().map(|finding| finding.what).collect();
        (findings, used)
    }

    fn function(name: &str, lines: usize) -> String {
        format!("fn {name}() {{\n{}}}\n", "x();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_at_the_limit_passes_and_one_over_does_not() {
        assert!(found(&function("a", 70)).0.is_empty());
        assert_eq!(found(&function("a", 71)).0, ["`a.rs#a` has 71 lines without tests, at most 70"]);
    }

    #[test]
    fn a_listed_function_may_not_grow() {
        assert_eq!(found(&function("long", 90)), (Vec::new(), vec!["a.rs#long"]));
        assert_eq!(
            found(&function("long", 91)).0,
            ["`a.rs#long` grew to 91 lines over its ceiling of 90 (one table)"]
        );
    }

    #[test]
    fn tests_do_not_count_towards_a_file() {
        let code = "x();\n".repeat(600);
        assert!(found(&format!("{code}#[cfg(test)]\nmod tests {{\n{code}}}\n")).0.is_empty());
        assert_eq!(found(&format!("{code}y();\n")).0.len(), 1);
    }
}
