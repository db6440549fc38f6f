//! `weir check FILE`: says what is wrong with a file and what means something else than in PgBouncer, for people, for
//! programs and for CI. Never starts anything; the judging is `settings`' own.

use std::fmt::Write as _;

use commandline::Paint;
use driver::process;
use programs::Status;
use serde_json::{Value, json};
use settings::{CheckReport, Finding, Severity};

use crate::files::Disk;

/// Checks a file and prints what was found. Fails if the process would not start with it.
pub(crate) fn run(file: &str, is_json: bool, paint: Paint) -> Status {
    let checked = Checked::new(file, &settings::check(&Disk, file));
    crate::print(&if is_json { format!("{:#}\n", checked.json()) } else { checked.text(paint) });
    if checked.count(Kind::Error) > 0 { Status::Failed } else { Status::Done }
}

/// What kind of finding it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Error,
    Warning,
    Difference,
}

impl Kind {
    /// For programs.
    fn severity(self) -> &'static str {
        match self {
            Kind::Error => "error",
            Kind::Warning => "warning",
            Kind::Difference => "difference",
        }
    }

    /// For people.
    fn words(self, paint: Paint) -> String {
        match self {
            Kind::Error => paint.bad("error"),
            Kind::Warning => paint.doubtful("warning"),
            Kind::Difference => paint.noted("differs from PgBouncer"),
        }
    }
}

/// What was found in a file, in the order in which it is told.
struct Checked<'a> {
    file: &'a str,
    findings: Vec<(Kind, Finding)>,
}

impl<'a> Checked<'a> {
    fn new(file: &'a str, report: &CheckReport) -> Checked<'a> {
        let kind = |finding: &Finding| match finding.severity {
            Severity::Error => Kind::Error,
            Severity::Warning => Kind::Warning,
        };
        let limit = report
            .config
            .as_ref()
            .and_then(|config| crate::boot::file_limit_warning(config, process::raise_file_limit()));
        let limit = limit.map(|message| Finding {
            severity: Severity::Warning,
            file: file.into(),
            line: 0,
            message,
            key: None,
        });
        let found = report.findings.iter().map(|finding| (kind(finding), finding.clone()));
        let differences = report.differences.iter().map(|finding| (Kind::Difference, finding.clone()));
        let findings = found.chain(limit.map(|limit| (Kind::Warning, limit))).chain(differences).collect();
        Checked { file, findings }
    }

    fn count(&self, kind: Kind) -> usize {
        self.findings.iter().filter(|(found, _)| *found == kind).count()
    }

    fn text(&self, paint: Paint) -> String {
        let mut text = String::new();
        for (kind, finding) in &self.findings {
            let line = if finding.line == 0 { String::new() } else { format!("{}:", finding.line) };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}:{line} {}: {}", finding.file, kind.words(paint), finding.message);
        }
        let counts = [(Kind::Error, "error"), (Kind::Warning, "warning"), (Kind::Difference, "difference")];
        let [errors, warnings, differences] = counts.map(|(kind, word)| count(self.count(kind), word));
        let errors = if self.count(Kind::Error) > 0 { paint.bad(&errors) } else { paint.good(&errors) };
        let _ = writeln!(text, "{}: {errors}, {warnings}, {differences} from PgBouncer", self.file);
        text
    }

    fn json(&self) -> Value {
        let finding = |(kind, finding): &(Kind, Finding)| {
            let line = Some(finding.line).filter(|line| *line > 0);
            json!({ "file": &*finding.file, "line": line, "severity": kind.severity(), "text": finding.message })
        };
        json!({
            "file": self.file,
            "errors": self.count(Kind::Error),
            "warnings": self.count(Kind::Warning),
            "differences": self.count(Kind::Difference),
            "findings": self.findings.iter().map(finding).collect::<Vec<_>>(),
        })
    }
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
        let report = settings::check(&Disk, name);
        std::fs::remove_file(&path).unwrap();
        let checked = Checked::new(name, &report);
        let text = checked.text(Paint::PLAIN);
        assert!(text.contains(":2: error: unknown parameter: pgbouncer/frob"), "{text}");
        assert!(text.contains(":3: differs from PgBouncer: pkt_buf: "), "{text}");
        assert!(text.ends_with("1 error, 0 warnings, 1 difference from PgBouncer\n"), "{text}");
        let painted = checked.text(commandline::ColorWhen::Always.paint(false));
        assert!(painted.contains("\u{1b}[1m\u{1b}[31merror\u{1b}[0m: unknown parameter"), "{painted}");
        let told = checked.json();
        assert_eq!(
            (&told["errors"], &told["warnings"], &told["differences"]),
            (&json!(1), &json!(0), &json!(1))
        );
        let first =
            json!({ "file": name, "line": 2, "severity": "error", "text": report.findings[0].message });
        assert_eq!(told["findings"][0], first);
        assert_eq!(told["findings"][1]["severity"], "difference");
    }
}
