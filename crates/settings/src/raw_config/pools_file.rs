//! The pools file (`pools_file`), unparsed: entries of `[databases]` that Weir writes itself.
//! Owns what may be in it. `pools.rs` puts its entries into a configuration, `pools_text.rs` edits its text.

use super::{Assignment, Section};
use crate::files::{Files, reason};
use crate::finding::{Finding, Origin, Severity};
use crate::fleet_part::{FleetHolds, FleetPart, Mark, digest, mark};
use crate::ini::{Statement, statements};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// A pools file, unparsed, with its syntax errors.
#[derive(Clone)]
pub(crate) struct Pools {
    pub(crate) file: Arc<str>,
    pub(crate) assignments: Vec<Assignment>,
    pub(crate) findings: Vec<Finding>,
    /// The line of the mark behind which the part of all nodes stands, and what that is.
    pub(crate) of_fleet: Option<(u32, FleetPart)>,
}

impl Pools {
    /// Reads the file; a missing one has no pools.
    pub(crate) fn read(files: &dyn Files, path: &str) -> Self {
        let file: Arc<str> = path.into();
        match files.read(path) {
            Ok(bytes) => Self::parse(file, &bytes),
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => Self::parse(file, b""),
            Err(fault) => {
                let message = format!("could not load file \"{path}\": {}", reason(&fault));
                let finding = Finding::error(&Origin { file: file.clone(), line: 0 }, message);
                Self { file, assignments: Vec::new(), findings: vec![finding], of_fleet: None }
            }
        }
    }

    /// Parses a section `[databases]` with its entries; anything else is an error.
    pub(crate) fn parse(file: Arc<str>, bytes: &[u8]) -> Self {
        let mut pools = Self {
            file: file.clone(),
            assignments: Vec::new(),
            findings: Vec::new(),
            of_fleet: mark(bytes).map(|mark| (mark.line, part(&mark, &bytes[mark.ends..]))),
        };
        let mut position = Position::Before;
        for (line, statement) in statements(bytes) {
            let at = Origin { file: file.clone(), line };
            let wrong = match statement {
                Ok(Statement::Section("databases")) => {
                    position = Position::In;
                    continue;
                }
                Ok(Statement::Section(name)) => {
                    position = Position::Elsewhere;
                    format!("section [{name}] in pools_file, where only [databases] may be")
                }
                Ok(Statement::Include(_)) => {
                    "%include in pools_file, where only [databases] may be".to_owned()
                }
                Ok(Statement::Assign { key, value }) => match position {
                    Position::Before => format!("\"{key}\" is before the first section"),
                    // The section was reported.
                    Position::Elsewhere => continue,
                    Position::In => {
                        let (key, value) = (key.into_owned(), value.to_owned());
                        pools.assignments.push(Assignment { section: Section::Databases, key, value, at });
                        continue;
                    }
                },
                Err(syntax) => syntax.to_string(),
            };
            pools.findings.push(Finding::error(&at, wrong));
        }
        pools
    }

    /// Leaves out what the errors are about, if that is in the part of all nodes; where they are about something else, all of that part. False if there is nothing to leave out.
    pub(crate) fn leave_out(&mut self, errors: &[Finding], refused: &mut Vec<Finding>) -> bool {
        let Some((from, _)) = &self.of_fleet else { return false };
        let from = *from;
        let is_theirs = |file: &str, line: u32| file == &*self.file && line > from;
        let count = |pools: &Pools| pools.assignments.len() + pools.findings.len();
        let before = count(self);
        let mut errors = errors.iter().filter(|finding| finding.severity == Severity::Error);
        if errors.clone().all(|error| is_theirs(&error.file, error.line)) {
            let lines: BTreeSet<u32> = errors.clone().map(|error| error.line).collect();
            refused.extend(errors.cloned());
            self.assignments.retain(|assignment| !lines.contains(&assignment.at.line));
            self.findings.retain(|finding| !lines.contains(&finding.line));
        } else if let Some(other) = errors.find(|error| !is_theirs(&error.file, error.line)) {
            let other = other.clone();
            self.assignments.retain(|assignment| assignment.at.line <= from);
            self.findings.retain(|finding| finding.line <= from);
            if count(self) < before {
                refused.push(other);
            }
        }
        count(self) < before
    }
}

fn part(mark: &Mark, text: &[u8]) -> FleetPart {
    let (digest, holds) = (digest(text), FleetHolds::read(text));
    FleetPart { revision: mark.revision, digest, holds, refused: Vec::new() }
}

/// The current section of a pools file.
#[derive(Clone, Copy)]
enum Position {
    Before,
    In,
    /// In a section that is not allowed.
    Elsewhere,
}
