//! Edits the text of a pools file one entry at a time and leaves every other line as written.
//! Owns how an entry is written. Does no I/O.

use crate::connstr::{self, PASSWORD};
use crate::finding::Finding;
use crate::ini::{Statement, statements};
use crate::raw_config::Pools;
use crate::topology::Topology;
use crate::value::Codec as _;
use std::borrow::Cow;
use std::sync::Arc;

/// The header of a new file.
const HEADER: &str =
    "; Pools made with Weir's panel or API. Comments and the order of lines are kept.\n[databases]\n";

/// The key whose URLs may have passwords.
const TOPOLOGY: &str = "topology";

/// Shown in place of a password.
const MASK: &str = "***";

/// A line that a change adds, modifies or removes. Passwords are masked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineChange {
    /// From 1: its number after the change, or before it if removed.
    pub line: u32,
    /// Its text before; none for a new line.
    pub before: Option<String>,
    /// Its text after; none for a removed line.
    pub after: Option<String>,
}

/// A pools file whose entries can be edited.
#[derive(Clone, Debug)]
pub struct PoolsText {
    file: Arc<str>,
    /// Comments may be in any encoding.
    bytes: Vec<u8>,
}

/// The position of an entry.
struct EntryLine {
    /// Its line, from 0 on.
    line: usize,
    /// The section begins on the same line.
    has_section: bool,
    value: String,
}

impl PoolsText {
    /// Parses a file.
    ///
    /// # Errors
    /// Every error in it, but for the part of all nodes of a fleet: a broken file is not edited.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, Vec<Finding>> {
        let file: Arc<str> = file.into();
        let mut pools = Pools::parse(file.clone(), bytes);
        if let Some((from, _)) = pools.of_fleet {
            pools.findings.retain(|finding| finding.line <= from);
        }
        if !pools.findings.is_empty() {
            return Err(pools.findings);
        }
        Ok(Self { file, bytes: bytes.to_vec() })
    }

    /// The file's name.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The whole text.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Another text of the same file, which is not read.
    #[must_use]
    pub fn sibling(&self, bytes: &[u8]) -> Self {
        Self { file: self.file.clone(), bytes: bytes.to_vec() }
    }

    /// The keys and values of an entry in order, if it can be parsed.
    #[must_use]
    pub fn pairs(&self, name: &str) -> Option<Vec<(String, String)>> {
        let found = self.find(name)?;
        let pairs = connstr::pairs(&found.value).unwrap_or_default();
        Some(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// The line of an entry, from 1 on.
    #[must_use]
    pub fn line_of(&self, name: &str) -> Option<u32> {
        self.find(name).and_then(|found| u32::try_from(found.line + 1).ok())
    }

    /// Writes an entry: in its place if there is one, else at the end.
    pub fn put(&mut self, name: &str, pairs: &[(String, String)]) {
        let entry = entry(name, pairs);
        match self.find(name) {
            Some(found) => self.replace(&found, Some(&entry)),
            None => {
                self.begin_section();
                self.bytes.extend_from_slice(entry.as_bytes());
                self.bytes.push(b'\n');
            }
        }
    }

    /// Takes an entry out; true if there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let found = self.find(name);
        if let Some(found) = &found {
            self.replace(found, None);
        }
        found.is_some()
    }

    /// The lines that differ from `before`.
    #[must_use]
    pub fn changes_from(&self, before: &PoolsText) -> Vec<LineChange> {
        let (old, new) = (before.lines(), self.lines());
        let head = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        let (old, new) = (&old[head..], &new[head..]);
        let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
        let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
        let change = |index: usize| LineChange {
            line: u32::try_from(head + index + 1).unwrap_or(u32::MAX),
            before: old.get(index).map(|line| masked(line)),
            after: new.get(index).map(|line| masked(line)),
        };
        (0..old.len().max(new.len())).map(change).collect()
    }

    fn lines(&self) -> Vec<Cow<'_, str>> {
        self.bytes
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| String::from_utf8_lossy(line.trim_ascii_end()))
            .collect()
    }

    fn find(&self, name: &str) -> Option<EntryLine> {
        let mut section_line = 0;
        for (line, statement) in statements(&self.bytes) {
            match statement {
                Ok(Statement::Section(_)) => section_line = line,
                Ok(Statement::Assign { key, value }) if key == name => {
                    let has_section = section_line == line;
                    return Some(EntryLine { line: line as usize - 1, has_section, value: value.to_owned() });
                }
                _ => {}
            }
        }
        None
    }

    fn replace(&mut self, found: &EntryLine, entry: Option<&str>) {
        let mut bytes = Vec::with_capacity(self.bytes.len() + entry.map_or(0, str::len));
        for (index, line) in self.bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            if index != found.line {
                bytes.extend_from_slice(line);
                continue;
            }
            for new in found.has_section.then_some("[databases]").into_iter().chain(entry) {
                bytes.extend_from_slice(new.as_bytes());
                bytes.push(b'\n');
            }
        }
        self.bytes = bytes;
    }

    /// Makes sure that an entry can be appended.
    fn begin_section(&mut self) {
        if !self.bytes.is_empty() && !self.bytes.ends_with(b"\n") {
            self.bytes.push(b'\n');
        }
        let parsed = statements(&self.bytes);
        if parsed.iter().any(|(_, statement)| matches!(statement, Ok(Statement::Section(_)))) {
            return;
        }
        let head = if self.bytes.is_empty() { HEADER } else { "[databases]\n" };
        self.bytes.extend_from_slice(head.as_bytes());
    }
}

/// A name as SQL quotes it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A line of `[databases]`.
fn entry(name: &str, pairs: &[(String, String)]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-*".contains(&byte);
    let mut line =
        if !name.is_empty() && name.bytes().all(is_plain) { name.to_owned() } else { quoted(name) };
    line.push_str(" =");
    for (key, value) in pairs {
        line.push(' ');
        line.push_str(key);
        line.push('=');
        if value.is_empty() || value.starts_with('\'') || value.contains(char::is_whitespace) {
            line.push_str(&format!("'{}'", value.replace('\'', "''")));
        } else {
            line.push_str(value);
        }
    }
    line
}

/// A line with its passwords masked; a section header may precede the entry.
fn masked(line: &str) -> String {
    let (mut shown, mut has_secret) = (Vec::new(), false);
    for (_, statement) in statements(line.as_bytes()) {
        let (text, is_secret) = match statement {
            Ok(Statement::Section(name)) => (format!("[{name}]"), false),
            Ok(Statement::Include(path)) => (format!("%include {path}"), false),
            Ok(Statement::Assign { key, value }) => masked_entry(&key, value),
            Err(_) => (MASK.to_owned(), true),
        };
        shown.push(text);
        has_secret |= is_secret;
    }
    if has_secret { shown.join(" ") } else { line.to_owned() }
}

/// An entry with its password masked, and whether it had one. Unparsable values are hidden as a whole.
fn masked_entry(name: &str, value: &str) -> (String, bool) {
    let Ok(pairs) = connstr::pairs(value) else { return (format!("{name} = {MASK}"), true) };
    let has_secret = pairs.iter().any(|(key, _)| *key == PASSWORD || *key == TOPOLOGY);
    let mask = |(key, value): (&str, String)| {
        let value = match key {
            PASSWORD => MASK.to_owned(),
            // Its URLs may have passwords.
            TOPOLOGY => Topology::read(&value).map_or_else(|_| MASK.to_owned(), |known| known.to_string()),
            _ => value,
        };
        (key.to_owned(), value)
    };
    (entry(name, &pairs.into_iter().map(mask).collect::<Vec<_>>()), has_secret)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn text(text: &str) -> PoolsText {
        PoolsText::read("p.ini", text.as_bytes()).unwrap()
    }

    fn shown(pools: &PoolsText) -> String {
        String::from_utf8_lossy(pools.bytes()).into_owned()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_first_pool_makes_the_file() {
        let (empty, mut made) = (text(""), text(""));
        made.put("a", &pairs(&[("host", "h"), ("pool_size", "3")]));
        assert_eq!(shown(&made), format!("{HEADER}a = host=h pool_size=3\n"));
        let changes = made.changes_from(&empty);
        assert_eq!(changes.len(), 3);
        let last = LineChange { line: 3, before: None, after: Some("a = host=h pool_size=3".to_owned()) };
        assert_eq!(changes[2], last);
    }

    #[test]
    fn other_lines_stay_as_they_were_written() {
        let by_hand = "# mine\r\n[databases]  ; c\n;; one\n  one=host = h\ntwo = dbname='a b'\n\n; end";
        let mut pools = text("# mine\r\n[databases]\n;; one\n  one=host = h\ntwo = dbname='a b'\n\n; end");
        assert!(PoolsText::read("p.ini", by_hand.as_bytes()).is_ok());
        pools.put("one", &pairs(&[("host", "it's"), ("dbname", "a b")]));
        pools.put("three", &pairs(&[("host", "'")]));
        assert!(pools.remove("two") && !pools.remove("two"));
        let expected =
            "# mine\r\n[databases]\n;; one\none = host=it's dbname='a b'\n\n; end\nthree = host=''''\n";
        assert_eq!(shown(&pools), expected);
        assert_eq!(pools.pairs("three").unwrap(), pairs(&[("host", "'")]));
    }

    #[test]
    fn an_entry_behind_its_section_gets_a_line_of_its_own() {
        let mut pools = text("[databases] a = host=h\n");
        pools.put("a", &pairs(&[("host", "x")]));
        assert_eq!(shown(&pools), "[databases]\na = host=x\n");
        let mut pools = text("[databases] a = host=h");
        pools.remove("a");
        assert_eq!(shown(&pools), "[databases]\n");
    }

    #[test]
    fn a_change_is_reported_by_its_lines_without_passwords() {
        let before = text("[databases]\na = host=h password=s3cret pool_size=2\nb = host=h\n");
        let mut after = before.clone();
        after.put("a", &pairs(&[("host", "h"), ("password", "s3cret"), ("pool_size", "3")]));
        let [change] = &after.changes_from(&before)[..] else { panic!() };
        assert_eq!(change.line, 2);
        assert_eq!(change.before.as_deref(), Some("a = host=h password=*** pool_size=2"));
        assert_eq!(change.after.as_deref(), Some("a = host=h password=*** pool_size=3"));
        let mut gone = before.clone();
        gone.remove("a");
        let [change] = &gone.changes_from(&before)[..] else { panic!() };
        assert_eq!((change.line, change.after.as_deref()), (2, None));
    }

    #[test]
    fn a_password_behind_the_section_of_its_line_is_masked_too() {
        let before = text("[databases] a = host=h password=s3cret\n[databases] b = password='s3 cret'\n");
        let mut after = before.clone();
        after.put("a", &pairs(&[("host", "h"), ("password", "s3cret"), ("pool_size", "3")]));
        assert!(after.remove("b"));
        let changes = after.changes_from(&before);
        assert!(!format!("{changes:?}").contains("s3"), "{changes:?}");
        assert_eq!(changes[0].before.as_deref(), Some("[databases] a = host=h password=***"));
        assert_eq!(masked("[databases] a = password=s3cret b"), "[databases] a = ***");
        let line = "a = topology='patroni http://u:s3cret@h:8008' weight=1";
        assert_eq!(masked(line), "a = topology='patroni http://h:8008' weight=1");
        assert_eq!(masked("  [databases]  a =  host=h"), "  [databases]  a =  host=h");
    }

    #[test]
    fn a_file_that_was_broken_by_hand_is_not_touched() {
        let findings = PoolsText::read("p.ini", b"[databases]\na = b\noops\n").unwrap_err();
        assert_eq!(findings[0].to_string(), "p.ini:3: syntax error: expected \"=\" after the name");
        assert!(PoolsText::read("p.ini", b"[databases]\na = \xff\n").is_err());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let all = pairs(&[("host", "h"), ("dbname", "ä b"), ("user", "o'x y"), ("password", "'\"=;#")]);
        let mut pools = text("");
        pools.put("odd \"name\"", &all);
        assert_eq!(pools.pairs("odd \"name\"").unwrap(), all);
    }
}
