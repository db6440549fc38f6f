//! `weir check FILE`: says what is wrong with a file and what means something else than in PgBouncer, for people and
//! for CI. Never starts anything; the judging is `settings`' own.

use std::fmt::Write as _;
use std::process::ExitCode;

use driver::process;
use settings::{CheckReport, Finding, Severity};

use crate::files::Disk;

/// Checks a file and prints what was found. Fails if the process would not start with it.
pub(crate) fn run(file: &str) -> ExitCode {
    let checked = settings::check(&Disk, file);
    crate::print(&report(file, &checked));
    if checked.errors() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn report(file: &str, checked: &CheckReport) -> String {
    let mut text = String::new();
    for finding in &checked.findings {
        say(&mut text, finding, if finding.severity == Severity::Error { "error" } else { "warning" });
    }
    let limit = checked
        .config
        .as_ref()
        .and_then(|config| crate::boot::file_limit_warning(config, process::raise_file_limit()));
    if let Some(warning) = &limit {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{file}: warning: {warning}");
    }
    for finding in &checked.differences {
        say(&mut text, finding, "differs from PgBouncer");
    }
    let warnings = checked.findings.len() - checked.errors() + usize::from(limit.is_some());
    let (errors, differences) = (checked.errors(), checked.differences.len());
    let _ = writeln!(
        text,
        "{file}: {}, {}, {} from PgBouncer",
        count(errors, "error"),
        count(warnings, "warning"),
        count(differences, "difference")
    );
    text
}

fn say(text: &mut String, finding: &Finding, word: &str) {
    let line = if finding.line == 0 { String::new() } else { format!("{}:", finding.line) };
    let _ = writeln!(text, "{}:{line} {word}: {}", finding.file, finding.message);
}

fn count(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_report_has_a_line_a_finding_and_a_sum() {
        let path = std::env::temp_dir().join(format!("weir-check-{}.ini", std::process::id()));
        std::fs::write(&path, "[pgbouncer]\nfrob = 1\npkt_buf = 4096\n").unwrap();
        let name = path.to_str().unwrap();
        let text = report(name, &settings::check(&Disk, name));
        std::fs::remove_file(&path).unwrap();
        assert!(text.contains(":2: error: unknown parameter: pgbouncer/frob"), "{text}");
        assert!(text.contains(":3: differs from PgBouncer: pkt_buf: "), "{text}");
        assert!(text.ends_with("1 error, 0 warnings, 1 difference from PgBouncer\n"), "{text}");
    }
}
