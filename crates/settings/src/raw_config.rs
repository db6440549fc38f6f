//! What files say: every assignment with the place where it stands, includes followed, nothing understood yet.
//! Owns which sections exist and the bounds of `%include`. Never knows a setting's name or value.

use crate::finding::{Finding, Origin};
use crate::hba::Network;
use crate::ini::{Statement, statements};
use crate::pools::Pools;
use std::io;
use std::sync::Arc;

/// How deep files may include files, as in PgBouncer.
const INCLUDE_DEPTH: usize = 10;
/// How many files may be included in all: a few that include each other twice would else never end.
const INCLUDE_COUNT: usize = 1000;

/// Where files come from; the caller does the I/O, tests pass a map.
pub trait Files {
    /// The whole file at `path`, which is as written: relative to wherever the process runs.
    ///
    /// # Errors
    /// Whatever the system said.
    fn read(&self, path: &str) -> io::Result<Vec<u8>>;

    /// The networks that this machine has an address in, for `samehost` and `samenet` of HBA files: its own address
    /// and the mask of each. None where the caller has no machine.
    fn networks(&self) -> Vec<Network> {
        Vec::new()
    }
}

/// A section that files may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Pgbouncer,
    Databases,
    Users,
    Peers,
}

/// An assignment as it was written.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) section: Section,
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) at: Origin,
}

/// What a file and all that it includes say, in that order.
#[derive(Clone)]
pub struct Draft {
    /// The file that was asked for.
    pub(crate) file: Arc<str>,
    pub(crate) said: Vec<Said>,
    /// Whether there was a section `[pgbouncer]`.
    pub(crate) has_main: bool,
    /// What `pools_file` says, if one was named.
    pub(crate) pools: Option<Pools>,
    /// What is wrong with the writing itself.
    pub(crate) findings: Vec<Finding>,
}

impl Draft {
    /// Reads a file with its includes. What is wrong comes out of [`Draft::config`], with all else that is.
    pub fn read(files: &dyn Files, path: &str) -> Self {
        let file: Arc<str> = path.into();
        let said = Vec::new();
        let draft = Self { file: file.clone(), said, has_main: false, pools: None, findings: Vec::new() };
        let mut reading = Reading { files, draft, place: Place::Before, open: Vec::new(), included: 0 };
        if let Err(message) = reading.file(&file) {
            reading.draft.findings.push(Finding::error(&Origin { file, line: 0 }, message));
        }
        let mut draft = reading.draft;
        draft.pools = draft.pools_file().map(|path| Pools::read(files, path));
        draft
    }

    /// The file of pools, if one is named; the last that is said counts.
    fn pools_file(&self) -> Option<&str> {
        let is_path = |said: &&Said| said.section == Section::Pgbouncer && said.key == "pools_file";
        self.said.iter().rfind(is_path).map(|said| said.value.as_str()).filter(|path| !path.is_empty())
    }
}

/// Where in the sections a reader is.
#[derive(Clone, Copy)]
enum Place {
    /// Before the first section.
    Before,
    In(Section),
    /// In a section that does not exist; that was told, so its lines are not.
    Unknown,
}

/// A draft in the making.
struct Reading<'a> {
    files: &'a dyn Files,
    draft: Draft,
    /// Goes from file to file: an include may begin a section that its includer continues, as in PgBouncer.
    place: Place,
    /// The files being read, outermost first.
    open: Vec<Arc<str>>,
    included: usize,
}

impl Reading<'_> {
    /// Takes in a file, or says why it cannot be read.
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
        self.place = match name {
            "pgbouncer" => Place::In(Section::Pgbouncer),
            "databases" => Place::In(Section::Databases),
            "users" => Place::In(Section::Users),
            "peers" => Place::In(Section::Peers),
            _ => Place::Unknown,
        };
        match self.place {
            Place::In(Section::Pgbouncer) => self.draft.has_main = true,
            Place::Unknown => self.error(at, format!("invalid section \"{name}\"")),
            _ => {}
        }
    }

    fn include(&mut self, path: &str, at: &Origin) {
        let file: Arc<str> = path.into();
        if self.open.contains(&file) {
            return self.error(at, format!("\"{path}\" includes itself"));
        }
        if self.open.len() > INCLUDE_DEPTH {
            return self.error(at, format!("include nesting level too deep (over {INCLUDE_DEPTH})"));
        }
        self.included += 1;
        if self.included > INCLUDE_COUNT {
            // Told once: the rest of such a tree would only repeat it.
            if self.included == INCLUDE_COUNT + 1 {
                self.error(at, format!("too many includes (over {INCLUDE_COUNT})"));
            }
            return;
        }
        if let Err(message) = self.file(&file) {
            self.error(at, message);
        }
    }

    fn assign(&mut self, key: &str, value: &str, at: Origin) {
        match self.place {
            Place::Before => self.error(&at, format!("\"{key}\" stands before the first section")),
            Place::Unknown => {}
            Place::In(section) => {
                self.draft.said.push(Said { section, key: key.to_owned(), value: value.to_owned(), at });
            }
        }
    }

    fn error(&mut self, at: &Origin, message: String) {
        self.draft.findings.push(Finding::error(at, message));
    }
}

/// What the system said, without Rust's "(os error 2)".
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Files for tests: names and texts.
#[cfg(test)]
pub(crate) mod memory {
    use super::Files;
    use std::io;

    pub(crate) struct Memory<'a>(pub(crate) &'a [(&'a str, &'a str)]);

    impl Files for Memory<'_> {
        fn read(&self, path: &str) -> io::Result<Vec<u8>> {
            let found = self.0.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::Error::from_raw_os_error(2))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::memory::Memory;
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        Draft::read(&Memory(files), "w.ini").findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_include_stands_for_its_lines() {
        let files = [("w.ini", "[pgbouncer]\na = 1\n%include d.ini\nc = 3"), ("d.ini", "b = 2\n[users]")];
        let draft = Draft::read(&Memory(&files), "w.ini");
        let said: Vec<_> =
            draft.said.iter().map(|said| (said.section, said.key.as_str(), said.at.line)).collect();
        let expected = [(Section::Pgbouncer, "a", 2), (Section::Pgbouncer, "b", 1), (Section::Users, "c", 4)];
        assert_eq!(said, expected);
        assert_eq!(&*draft.said[1].at.file, "d.ini");
        assert!(draft.has_main && draft.findings.is_empty());
    }

    #[test]
    fn files_that_cannot_be_read_are_told_where_they_are_named() {
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
        let wide = "%include 1\n".repeat(INCLUDE_COUNT + 5);
        assert_eq!(findings(&[("w.ini", &wide), ("1", "")]), ["w.ini:1001: too many includes (over 1000)"]);
    }

    #[test]
    fn lines_outside_of_known_sections_are_told() {
        let text = "a = 1\n[pgbounce]\nb = 2\n[users]\nc =\nd";
        let expected = [
            "w.ini:1: \"a\" stands before the first section",
            "w.ini:2: invalid section \"pgbounce\"",
            "w.ini:6: syntax error: expected \"=\" after the name",
        ];
        assert_eq!(findings(&[("w.ini", text)]), expected);
    }
}
