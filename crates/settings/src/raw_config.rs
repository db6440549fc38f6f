//! The unparsed configuration: every assignment with its location, includes resolved.
//! Owns which sections exist and the limits of `%include`. Knows the name of one setting, `pools_file`, and no value.

mod pools_file;

pub(crate) use pools_file::Pools;

use crate::files::{Files, reason};
use crate::finding::{Finding, Origin};
use crate::ini::{Statement, statements};
use std::sync::Arc;

/// How deep files may include files, as in PgBouncer.
const MAX_INCLUDE_DEPTH: usize = 10;
/// How many files may be included in all: a few that include each other twice would otherwise not end.
const MAX_INCLUDES: usize = 1000;

/// A section that files may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Pgbouncer,
    Databases,
    Users,
    Peers,
}

/// An unparsed assignment.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) section: Section,
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) at: Origin,
}

/// A file and its includes, unparsed, in file order.
#[derive(Clone)]
pub struct RawConfig {
    /// The main file.
    pub(crate) file: Arc<str>,
    pub(crate) assignments: Vec<Assignment>,
    /// Whether there was a section `[pgbouncer]`.
    pub(crate) has_main: bool,
    /// The content of `pools_file`, if one is set.
    pub(crate) pools: Option<Pools>,
    /// Syntax errors.
    pub(crate) findings: Vec<Finding>,
}

impl RawConfig {
    /// Reads a file with its includes. Syntax errors are reported by [`RawConfig::config`] with all others.
    pub fn read(files: &dyn Files, path: &str) -> Self {
        let file: Arc<str> = path.into();
        let assignments = Vec::new();
        let raw =
            Self { file: file.clone(), assignments, has_main: false, pools: None, findings: Vec::new() };
        let mut reader = Reader { files, raw, position: Position::Before, open: Vec::new(), included: 0 };
        if let Err(message) = reader.file(&file) {
            reader.raw.findings.push(Finding::error(&Origin { file, line: 0 }, message));
        }
        let mut raw = reader.raw;
        raw.pools = raw.pools_file().map(|path| Pools::read(files, path));
        raw
    }

    /// The path of `pools_file`; the last assignment wins.
    fn pools_file(&self) -> Option<&str> {
        let is_path = |assignment: &&Assignment| {
            assignment.section == Section::Pgbouncer && assignment.key == "pools_file"
        };
        self.assignments
            .iter()
            .rfind(is_path)
            .map(|assignment| assignment.value.as_str())
            .filter(|path| !path.is_empty())
    }
}

/// The current section.
#[derive(Clone, Copy)]
enum Position {
    /// Before the first section.
    Before,
    In(Section),
    /// In an unknown section; that was reported, so its lines are skipped.
    Unknown,
}

/// Builds a [`RawConfig`].
struct Reader<'a> {
    files: &'a dyn Files,
    raw: RawConfig,
    /// Carried over between files: an include may begin a section that its includer continues, as in PgBouncer.
    position: Position,
    /// The files being read, outermost first.
    open: Vec<Arc<str>>,
    included: usize,
}

impl Reader<'_> {
    /// Reads a file.
    fn file(&mut self, file: &Arc<str>) -> Result<(), String> {
        let bytes = self
            .files
            .read(file)
            .map_err(|error| format!("could not load file \"{file}\": {}", reason(&error)))?;
        self.open.push(file.clone());
        for (line, statement) in statements(&bytes) {
            let at = Origin { file: file.clone(), line };
            match statement {
                Ok(Statement::Section(name)) => self.section(name, &at),
                Ok(Statement::Include(path)) => self.include(path, &at),
                Ok(Statement::Assign { key, value }) => self.assign(&key, value, at),
                Err(syntax) => self.error(&at, syntax.to_string()),
            }
        }
        self.open.pop();
        Ok(())
    }

    fn section(&mut self, name: &str, at: &Origin) {
        self.position = match name {
            "pgbouncer" => Position::In(Section::Pgbouncer),
            "databases" => Position::In(Section::Databases),
            "users" => Position::In(Section::Users),
            "peers" => Position::In(Section::Peers),
            _ => Position::Unknown,
        };
        match self.position {
            Position::In(Section::Pgbouncer) => self.raw.has_main = true,
            Position::Unknown => self.error(at, format!("invalid section \"{name}\"")),
            _ => {}
        }
    }

    fn include(&mut self, path: &str, at: &Origin) {
        let file: Arc<str> = path.into();
        if self.open.contains(&file) {
            return self.error(at, format!("\"{path}\" includes itself"));
        }
        if self.open.len() > MAX_INCLUDE_DEPTH {
            return self.error(at, format!("include nesting level too deep (over {MAX_INCLUDE_DEPTH})"));
        }
        self.included += 1;
        if self.included > MAX_INCLUDES {
            // Reported once: the rest of such a tree would only repeat it.
            if self.included == MAX_INCLUDES + 1 {
                self.error(at, format!("too many includes (over {MAX_INCLUDES})"));
            }
            return;
        }
        if let Err(message) = self.file(&file) {
            self.error(at, message);
        }
    }

    fn assign(&mut self, key: &str, value: &str, at: Origin) {
        match self.position {
            Position::Before => self.error(&at, format!("\"{key}\" is before the first section")),
            Position::Unknown => {}
            Position::In(section) => {
                self.raw.assignments.push(Assignment {
                    section,
                    key: key.to_owned(),
                    value: value.to_owned(),
                    at,
                });
            }
        }
    }

    fn error(&mut self, at: &Origin, message: String) {
        self.raw.findings.push(Finding::error(at, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::memory::Memory;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        RawConfig::read(&Memory(files), "w.ini").findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_include_is_read_in_place() {
        let files = [("w.ini", "[pgbouncer]\na = 1\n%include d.ini\nc = 3"), ("d.ini", "b = 2\n[users]")];
        let raw = RawConfig::read(&Memory(&files), "w.ini");
        let assignments: Vec<_> = raw
            .assignments
            .iter()
            .map(|assignment| (assignment.section, assignment.key.as_str(), assignment.at.line))
            .collect();
        let expected = [(Section::Pgbouncer, "a", 2), (Section::Pgbouncer, "b", 1), (Section::Users, "c", 4)];
        assert_eq!(assignments, expected);
        assert_eq!(&*raw.assignments[1].at.file, "d.ini");
        assert!(raw.has_main && raw.findings.is_empty());
    }

    #[test]
    fn files_that_cannot_be_read_are_reported_where_they_are_named() {
        assert_eq!(findings(&[]), ["w.ini: could not load file \"w.ini\": No such file or directory"]);
        let named = findings(&[("w.ini", "\n%include gone.ini")]);
        assert_eq!(named, ["w.ini:2: could not load file \"gone.ini\": No such file or directory"]);
    }

    #[test]
    fn includes_have_an_end() {
        assert_eq!(findings(&[("w.ini", "%include w.ini")]), ["w.ini:1: \"w.ini\" includes itself"]);
        let deep: Vec<(String, String)> =
            (0..20).map(|level| (format!("{level}"), format!("%include {}", level + 1))).collect();
        let mut files: Vec<(&str, &str)> =
            deep.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        files.push(("w.ini", "%include 0"));
        assert_eq!(findings(&files), ["9:1: include nesting level too deep (over 10)"]);
        let wide = "%include 1\n".repeat(MAX_INCLUDES + 5);
        assert_eq!(findings(&[("w.ini", &wide), ("1", "")]), ["w.ini:1001: too many includes (over 1000)"]);
    }

    #[test]
    fn lines_outside_of_known_sections_are_reported() {
        let text = "a = 1\n[pgbounce]\nb = 2\n[users]\nc =\nd";
        let expected = [
            "w.ini:1: \"a\" is before the first section",
            "w.ini:2: invalid section \"pgbounce\"",
            "w.ini:6: syntax error: expected \"=\" after the name",
        ];
        assert_eq!(findings(&[("w.ini", text)]), expected);
    }
}
