//! `crates/instructions/instructions.toml`: the instructions of each scenario at the last accepted count, and how far a count may be from it.
//! Owns the file's form and the verdict; never counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How much more is let pass, in hundredths of what the table says.
const ALLOWED_PERCENT: u64 = 3;

/// The same under another compiler than the table's: it decides otherwise what to inline.
const ALLOWED_PERCENT_ELSEWHERE: u64 = 15;

const HEAD: &str = "\
# Instructions of each scenario of weir-instructions, counted by valgrind; `make test` fails on more than 3 % more.
# Made by `cargo run --release -p weir-instructions -- --accept`; the commit that changes it says why.
";

/// The file, read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// Compiler and processor that the counts are of.
    pub(crate) made_by: String,
    /// Counts by scenario.
    pub(crate) counts: BTreeMap<String, u64>,
}

/// How a count compares with the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Near enough.
    Same,
    /// So much less that the table should follow.
    Less,
    /// Too much.
    More,
    /// Not in the table.
    New,
}

impl Table {
    /// Reads the file: lines of `name = value`.
    pub(crate) fn parse(text: &str) -> Result<Table, String> {
        let mut table = Table::default();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || format!("line {}: `{line}` is not `name = number`", index + 1);
            let (name, value) = line.split_once('=').ok_or_else(wrong)?;
            let (name, value) = (name.trim(), value.trim());
            if name == "made_by" {
                value.trim_matches('"').clone_into(&mut table.made_by);
            } else {
                let count = value.replace('_', "").parse().map_err(|_| wrong())?;
                table.counts.insert(name.to_owned(), count);
            }
        }
        Ok(table)
    }

    /// The file's text.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{HEAD}made_by = \"{}\"\n\n", self.made_by);
        for (name, count) in &self.counts {
            let _ = writeln!(text, "{name} = {}", grouped(*count, '_'));
        }
        text
    }

    /// Judges a count that this compiler's program took.
    pub(crate) fn judge(&self, name: &str, count: u64, made_by: &str) -> Verdict {
        let Some(known) = self.counts.get(name) else { return Verdict::New };
        let percent = if made_by == self.made_by { ALLOWED_PERCENT } else { ALLOWED_PERCENT_ELSEWHERE };
        let slack = known * percent / 100;
        if count > known + slack {
            Verdict::More
        } else if count + slack < *known {
            Verdict::Less
        } else {
            Verdict::Same
        }
    }
}

/// A number with something between its thousands.
pub(crate) fn grouped(number: u64, between: char) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(between);
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let counts = [("rows".to_owned(), 1_234_567), ("simple".to_owned(), 1_000)].into();
        Table { made_by: "rustc 1.95.0, x86_64".to_owned(), counts }
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(Table::parse(&table().text()), Ok(table()));
        assert!(table().text().contains("rows = 1_234_567\n"));
        assert_eq!(Table::parse("a = b"), Err("line 1: `a = b` is not `name = number`".to_owned()));
        assert!(Table::parse("simple").is_err());
    }

    #[test]
    fn three_in_a_hundred_more_are_too_many() {
        let (table, here) = (table(), "rustc 1.95.0, x86_64");
        assert_eq!(table.judge("simple", 1_030, here), Verdict::Same);
        assert_eq!(table.judge("simple", 1_031, here), Verdict::More);
        assert_eq!(table.judge("simple", 970, here), Verdict::Same);
        assert_eq!(table.judge("simple", 969, here), Verdict::Less);
        assert_eq!(table.judge("other", 1, here), Verdict::New);
    }

    #[test]
    fn another_compiler_may_differ_more() {
        assert_eq!(table().judge("simple", 1_150, "rustc 1.99.0, x86_64"), Verdict::Same);
        assert_eq!(table().judge("simple", 1_151, "rustc 1.99.0, x86_64"), Verdict::More);
    }
}
