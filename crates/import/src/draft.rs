//! The weir.ini being written: an entry `*`, then lines of `[pgbouncer]`, each with the settings of pgpool-II that it comes from.
//! Owns quoting, comments, and that Weir takes every line: each is checked by the settings' own rules before it is kept.

use std::fmt::Write as _;
use std::io;

use settings::{Files, Severity};

/// The name under which a text is checked; no other file is read.
const NAME: &str = "weir.ini";

/// One text as the only file.
struct Only<'a>(&'a str);

impl Files for Only<'_> {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        if path == NAME { Ok(self.0.as_bytes().to_vec()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

/// Why Weir would not start with a text; None if it would. What other files hold is not looked at.
pub(crate) fn refusal(text: &str) -> Option<String> {
    let report = settings::check(&Only(text), NAME);
    let errors = report.findings.into_iter().filter(|finding| finding.severity == Severity::Error);
    let messages: Vec<String> = errors.map(|finding| finding.message).collect();
    (!messages.is_empty()).then(|| messages.join("; "))
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// The pairs of the entry `*`.
    pairs: Vec<(&'static str, String)>,
    entry_comments: Vec<String>,
    lines: String,
}

impl Draft {
    /// Adds a pair to the entry `*`.
    ///
    /// # Errors
    /// Why Weir does not take it.
    pub(crate) fn pair(&mut self, key: &'static str, value: impl Into<String>) -> Result<(), String> {
        self.pairs.push((key, value.into()));
        match refusal(&format!("[databases]\n{}\n[pgbouncer]\n", self.entry())) {
            None => Ok(()),
            Some(why) => {
                self.pairs.pop();
                Err(why)
            }
        }
    }

    /// Adds a comment above the entry `*`.
    pub(crate) fn entry_comment(&mut self, text: &str) {
        self.entry_comments.push(text.to_owned());
    }

    /// Adds a setting of `[pgbouncer]` with comments above it.
    ///
    /// # Errors
    /// Why Weir does not take it.
    pub(crate) fn line(&mut self, key: &str, value: &str, comments: &[String]) -> Result<(), String> {
        if value.contains(|letter: char| letter.is_control()) {
            return Err("it has a line break or another control character".to_owned());
        }
        if let Some(why) = refusal(&format!("[pgbouncer]\n{key} = {value}\n")) {
            return Err(why);
        }
        self.comment(comments);
        // Writing to a String cannot fail.
        let _ = writeln!(self.lines, "{key} = {value}");
        Ok(())
    }

    /// Adds settings of `[pgbouncer]` that do not count until their `;` is removed, below a comment.
    pub(crate) fn examples(&mut self, text: &str, settings: &[&str]) {
        self.comment(&[text.to_owned()]);
        for setting in settings {
            // Writing to a String cannot fail.
            let _ = writeln!(self.lines, ";{setting}");
        }
    }

    /// Adds a paragraph of comments to `[pgbouncer]`.
    fn comment(&mut self, comments: &[String]) {
        self.lines.push('\n');
        comments.iter().for_each(|text| comment(&mut self.lines, text));
    }

    /// The file.
    pub(crate) fn text(&self, head: &str) -> String {
        let mut text = String::new();
        comment(&mut text, head);
        text.push_str("\n[databases]\n");
        self.entry_comments.iter().for_each(|line| comment(&mut text, line));
        let _ = write!(text, "{}\n\n[pgbouncer]", self.entry());
        text.push_str(&self.lines);
        text
    }

    fn entry(&self) -> String {
        let pairs: Vec<String> =
            self.pairs.iter().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
        format!("* = {}", pairs.join(" "))
    }
}

/// A comment, broken between words so that it can be read; nothing of it can be taken for a line of its own.
fn comment(text: &mut String, comment: &str) {
    const WIDTH: usize = 118;
    let mut width = 0;
    for word in comment.split_whitespace() {
        if width > 0 && width + 1 + word.len() > WIDTH {
            text.push('\n');
            width = 0;
        }
        if width == 0 {
            text.push_str(";;");
            width = 2;
        }
        text.push(' ');
        text.extend(word.chars().map(|letter| if letter.is_control() { '?' } else { letter }));
        width += word.len() + 1;
    }
    text.push('\n');
}

/// A value as an entry has it.
fn quoted(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.,:/@*".contains(&byte);
    if !value.is_empty() && value.bytes().all(is_plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_weir_refuses_is_not_kept() {
        let mut draft = Draft::default();
        draft.pair("host", "a,b").unwrap();
        assert!(draft.pair("port", "many").unwrap_err().contains("port"));
        assert!(draft.pair("no_such_key", "1").is_err());
        assert!(draft.line("listen_port", "0", &[]).unwrap_err().contains("listen_port"));
        assert!(draft.line("logfile", "a\n[users]", &[]).is_err());
        draft.line("listen_port", "9999", &["from port".to_owned()]).unwrap();
        let text = draft.text("Head.");
        assert_eq!(
            text,
            ";; Head.\n\n[databases]\n* = host=a,b\n\n[pgbouncer]\n;; from port\nlisten_port = 9999\n"
        );
        assert_eq!(refusal(&text), None);
    }

    #[test]
    fn values_are_quoted_and_comments_stay_comments() {
        assert_eq!(quoted("/run/a b"), "'/run/a b'");
        assert_eq!(quoted("it's"), "'it''s'");
        assert_eq!(quoted(""), "''");
        let mut text = String::new();
        comment(&mut text, &format!("a\nb\r\u{b} {}", "word ".repeat(60)));
        assert!(text.lines().all(|line| line.starts_with(";; ") && line.len() <= 118), "{text}");
        assert!(text.lines().all(|line| line.matches(";;").count() == 1), "{text}");
        assert!(text.starts_with(";; a b word"), "{text}");
    }
}
