//! What a file says of a setting, for the conversion: the assignment that counts, its value in its type. Owns what is noted where a value
//! makes no sense: it is reported with its line.

use std::collections::BTreeMap;

use settings::{Finding, Origin};

use crate::conf::{Assignment, Conf};
use crate::value;

/// The largest number that Weir's counts hold.
pub(crate) const COUNT_MAX: u64 = 2_147_483_647;

const DEFAULT: &str = "pgpool-II's default is assumed";
const LEFT_OUT: &str = "it is left out";

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    last: BTreeMap<&'a str, &'a Assignment>,
    /// Values that make no sense, and what could not be converted.
    pub(crate) problems: Vec<Finding>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(conf: &'a Conf) -> Self {
        let last = conf.last();
        let is_overridden =
            |one: &&Assignment| last.get(one.name.as_str()).is_some_and(|last| last.at != one.at);
        let problems = conf.assignments.iter().filter(is_overridden).map(|one| {
            let by = &last[one.name.as_str()].at;
            Finding::warning(&one.at, format!("{}: overridden in {}:{}", one.name, by.file, by.line))
        });
        let problems = problems.collect();
        Self { last, problems }
    }

    /// The assignments that count, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'a Assignment> + use<'a, '_> {
        self.last.values().copied()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a Assignment> {
        self.last.get(name).copied()
    }

    /// A text that is not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&'a Assignment> {
        self.get(name).filter(|one| !one.value.trim_ascii().is_empty())
    }

    pub(crate) fn problem(&mut self, one: &Assignment, message: &str) {
        self.problems.push(Finding::warning(&one.at, format!("{}: {message}", one.name)));
    }

    /// The value of a setting in its type; None where it is not set, or makes no sense, and what is done `instead` then.
    fn read<T>(
        &mut self,
        name: &str,
        read: impl Fn(&str) -> Option<T>,
        kind: &str,
        instead: &str,
    ) -> Option<T> {
        let one = self.get(name)?;
        let value = read(&one.value);
        if value.is_none() {
            self.problem(one, &format!("\"{}\" is not {kind}; {instead}", one.value.escape_debug()));
        }
        value
    }

    pub(crate) fn boolean(&mut self, name: &str, default: bool) -> bool {
        self.read(name, value::boolean, "a boolean", DEFAULT).unwrap_or(default)
    }

    /// A number between two others.
    pub(crate) fn number(&mut self, name: &str, least: u64, most: u64, default: u64) -> u64 {
        let range = format!("a whole number between {least} and {most}");
        let read = |text: &str| value::whole(text).filter(|number| (least..=most).contains(number));
        self.read(name, read, &range, DEFAULT).unwrap_or(default)
    }

    /// A count between `least` and the largest that Weir has.
    pub(crate) fn count(&mut self, name: &str, least: u64, default: u64) -> u64 {
        self.number(name, least, COUNT_MAX, default)
    }

    /// A time in seconds, if it is set; a number without a unit is `unit` seconds.
    pub(crate) fn seconds(&mut self, name: &str, unit: f64) -> Option<f64> {
        self.read(name, |text| value::seconds(text, unit), "a time", LEFT_OUT)
    }

    /// A size in bytes, if it is set.
    pub(crate) fn bytes(&mut self, name: &str) -> Option<f64> {
        self.read(name, value::bytes, "a size", LEFT_OUT)
    }

    /// One of some words, without case; `None` where it is not set or another one.
    pub(crate) fn word(&mut self, name: &str, words: &[&'static str]) -> Option<&'static str> {
        let find =
            |text: &str| words.iter().find(|word| word.eq_ignore_ascii_case(text.trim_ascii())).copied();
        self.read(name, find, &format!("one of {}", words.join(", ")), DEFAULT)
    }

    /// The names with the places that they are set at, as a comment has them.
    pub(crate) fn named(&self, names: &[&str]) -> String {
        let place = |name: &&str| match self.get(name) {
            Some(Assignment { at: Origin { file, line }, .. }) => format!("{name} ({file}:{line})"),
            None => format!("{name} (pgpool-II's default)"),
        };
        names.iter().map(place).collect::<Vec<_>>().join(", ")
    }
}
