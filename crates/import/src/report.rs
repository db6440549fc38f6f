//! The list that `weir import` prints: what became of each setting of the file, by kind, each with its line. Never shows a value:
//! some are passwords.

use std::fmt::Write as _;

use settings::Finding;

use crate::conf::{Assignment, Conf};
use crate::fate::Verdict;
use crate::table;

/// What is said of a setting.
struct Row<'a> {
    one: &'a Assignment,
    /// None for a name that pgpool-II does not have.
    verdict: Option<Verdict>,
}

impl Row<'_> {
    fn line(&self) -> String {
        let Assignment { name, at, .. } = self.one;
        let place = format!("{}:{}: {}", at.file, at.line, name.escape_debug());
        match &self.verdict {
            None => format!("{place}: not known"),
            Some(Verdict::Equivalent { settings, how }) => format!("{place}: {}. {how}", settings.join(", ")),
            Some(Verdict::Elsewhere(party, sentence)) => format!("{place}: {}. {sentence}", party.name()),
            Some(Verdict::NotSupported(sentence) | Verdict::NotNeeded(sentence)) => {
                format!("{place}: {sentence}")
            }
        }
    }
}

/// A kind of rows: its heading, its word in the sum, and which it has.
type Kind = (&'static str, &'static str, fn(Option<&Verdict>) -> bool);

const KINDS: [Kind; 5] = [
    ("Unknown settings", "unknown", |verdict| verdict.is_none()),
    ("Not supported", "not supported", |verdict| matches!(verdict, Some(Verdict::NotSupported(_)))),
    ("The business of other programs", "of other programs", |verdict| {
        matches!(verdict, Some(Verdict::Elsewhere(..)))
    }),
    ("Not needed", "not needed", |verdict| matches!(verdict, Some(Verdict::NotNeeded(_)))),
    ("With an equivalent", "with an equivalent", |verdict| {
        matches!(verdict, Some(Verdict::Equivalent { .. }))
    }),
];

/// The list; `problems` come first.
pub(crate) fn list(path: &str, conf: &Conf, problems: &[Finding]) -> String {
    let last = conf.last();
    let counts = |one: &&Assignment| last.get(one.name.as_str()).is_some_and(|last| last.at == one.at);
    let rows = conf.assignments.iter().filter(counts);
    let rows: Vec<Row<'_>> =
        rows.map(|one| Row { one, verdict: table::find(&one.name).map(|(row, _)| row.verdict()) }).collect();
    let mut text = String::new();
    // Writing to a String cannot fail.
    if !problems.is_empty() {
        let _ = writeln!(text, "Look at these first:");
        let mut problems: Vec<&Finding> = problems.iter().collect();
        problems.sort_by_key(|finding| (&finding.file, finding.line));
        for finding in problems {
            let _ = writeln!(text, "  {finding}");
        }
        text.push('\n');
    }
    let mut sums = Vec::new();
    for (heading, word, has) in KINDS {
        let mut of_kind = rows.iter().filter(|row| has(row.verdict.as_ref())).peekable();
        if of_kind.peek().is_none() {
            continue;
        }
        let _ = writeln!(text, "{heading}:");
        let mut count = 0;
        for row in of_kind {
            let _ = writeln!(text, "  {}", row.line());
            count += 1;
        }
        text.push('\n');
        sums.push(format!("{count} {word}"));
    }
    let _ = writeln!(text, "{path}: {} settings: {}", rows.len(), sums.join(", "));
    text
}
