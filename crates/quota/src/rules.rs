//! What the file of quotas says, validated: limits by subject, and who is in which group.

use std::collections::BTreeMap;

use crate::limit::Limit;
use crate::line::{Line, read_line};
use crate::resource::Measure;
use crate::subject::{Subject, SubjectKind};

/// A line that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaError {
    /// Its number, from 1.
    pub line: u32,
    /// What is wrong with it.
    pub message: String,
}

/// The limits of all subjects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    limits: BTreeMap<Subject, BTreeMap<Measure, Limit>>,
    groups: BTreeMap<Box<str>, Vec<Box<str>>>,
    /// The groups of each user.
    groups_of: BTreeMap<Box<str>, Vec<Box<str>>>,
}

impl Rules {
    /// Reads a file.
    ///
    /// ```
    /// let why = weir_quota::Rules::read(b"user alice queries/day soft=5 hard=3").unwrap_err();
    /// assert_eq!((why[0].line, &*why[0].message), (1, "soft limit 5 is above the hard limit 3"));
    /// ```
    ///
    /// # Errors
    /// Everything that is wrong with it, by line.
    pub fn read(bytes: &[u8]) -> Result<Rules, Vec<QuotaError>> {
        let (mut rules, mut errors) = (Rules::default(), Vec::new());
        let mut first_at: BTreeMap<(Subject, Option<Measure>), u32> = BTreeMap::new();
        for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            let read = std::str::from_utf8(line).map_err(|_| "is not UTF-8".to_owned()).and_then(read_line);
            let outcome = read.and_then(|line| {
                let key = match &line {
                    Line::Empty => return Ok(()),
                    Line::Group(name, _) => (Subject::named(SubjectKind::Group, name), None),
                    Line::Limit(subject, measure, _) => (subject.clone(), Some(*measure)),
                };
                if let Some(first) = first_at.get(&key) {
                    return Err(match key.1 {
                        Some(measure) => format!("{} {measure} is in line {first} already", key.0),
                        None => format!("{} is in line {first} already", key.0),
                    });
                }
                first_at.insert(key, number);
                rules.put(line);
                Ok(())
            });
            errors.extend(outcome.err().map(|message| QuotaError { line: number, message }));
        }
        for ((subject, measure), line) in &first_at {
            let name =
                subject.name.as_ref().filter(|_| subject.kind == SubjectKind::Group && measure.is_some());
            if let Some(name) = name.filter(|name| !rules.groups.contains_key(*name)) {
                let message =
                    format!("{subject} has no list of members: a line \"group {name} = ...\" is expected");
                errors.push(QuotaError { line: *line, message });
            }
        }
        errors.sort_by_key(|error| error.line);
        if errors.is_empty() { Ok(rules) } else { Err(errors) }
    }

    fn put(&mut self, line: Line) {
        match line {
            Line::Empty => {}
            Line::Group(name, members) => {
                for member in &members {
                    self.groups_of.entry(member.clone()).or_default().push(name.clone());
                }
                self.groups.insert(name, members);
            }
            Line::Limit(subject, measure, limit) => {
                self.limits.entry(subject).or_default().insert(measure, limit);
            }
        }
    }

    /// Whether no subject has any limit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// What limits a subject: its own lines, and for resources that it has none for those of the default.
    pub(crate) fn limits_of(&self, subject: &Subject) -> BTreeMap<Measure, Limit> {
        let default = self.limits.get(&Subject::default_of(subject.kind)).into_iter().flatten();
        let own = self.limits.get(subject).into_iter().flatten();
        let mut limits: BTreeMap<_, _> =
            default.chain(own).map(|(measure, limit)| (*measure, *limit)).collect();
        limits.retain(|_, limit| !limit.is_none());
        limits
    }

    /// Every subject that is named: in lines of its own, or as a group.
    pub(crate) fn named(&self) -> impl Iterator<Item = Subject> {
        let groups = self.groups.keys().map(|name| Subject::named(SubjectKind::Group, name));
        self.limits.keys().filter(|subject| subject.name.is_some()).cloned().chain(groups)
    }

    /// Whether a subject is named.
    pub(crate) fn is_named(&self, subject: &Subject) -> bool {
        self.limits.contains_key(subject)
            || subject.kind == SubjectKind::Group
                && subject.name.as_ref().is_some_and(|name| self.groups.contains_key(name))
    }

    /// The subjects that a client belongs to.
    pub(crate) fn subjects(&self, user: &str, database: &str, application_name: &str) -> Vec<Subject> {
        let own = [
            (SubjectKind::User, user),
            (SubjectKind::Database, database),
            (SubjectKind::ApplicationName, application_name),
        ];
        let own = own.into_iter().map(|(kind, name)| Subject::of_client(kind, name));
        let groups = self.groups_of.get(user).into_iter().flatten();
        own.chain(groups.map(|name| Subject::named(SubjectKind::Group, name))).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::limit::DEFAULT_GRACE_S;

    #[test]
    fn each_wrong_line_is_told() {
        for (text, line, word) in [
            ("users alice connections hard=1", 1, "unknown subject \"users\""),
            ("\nuser", 2, "a name is expected"),
            ("user alice", 1, "a resource is expected"),
            ("user alice connections", 1, "a limit is expected"),
            ("user alice connections hard=-1", 1, "whole number"),
            ("user alice connections hard=1.5", 1, "whole number"),
            ("user alice connections hard=1K", 1, "whole number"),
            ("user alice connections hard=1000001", 1, "too high"),
            ("user alice bytes/day hard=99999999T", 1, "too high"),
            ("user alice bytes/day hard=1X", 1, "K, M, G or T"),
            ("user alice queries/day hard=99999999999999999999", 1, "too high"),
            ("user alice queries/day hard=1 hard=2", 1, "appears twice"),
            ("user alice queries/day most=1", 1, "unknown limit \"most\""),
            ("user alice queries/day hard=1 grace=4000d", 1, "too long"),
            ("user alice queries/day hard=1 grace=soon", 1, "invalid grace time"),
            ("user alice queries/day hard", 1, "= and a figure"),
            ("user alice queries/day hard=", 1, "a figure is expected"),
            ("user \"alice queries/day hard=1", 1, "not closed"),
            ("user \"\" queries/day hard=1", 1, "empty"),
            ("user a\nuser a queries/day hard=1\nuser \"a\" queries/day hard=1", 3, "in line 2 already"),
            ("group g = a, a", 1, "twice"),
            ("group g =", 1, "member"),
            ("group g = a b", 1, "unexpected \"b\""),
            ("group default = a", 1, "all groups"),
            ("group g = a\ngroup g = b", 2, "in line 1 already"),
            ("group g connections hard=1", 1, "has no list of members"),
        ] {
            let errors = Rules::read(text.as_bytes()).unwrap_err();
            let told = |error: &QuotaError| error.line == line && error.message.contains(word);
            assert!(errors.iter().any(told), "{text}: {errors:?}");
        }
        assert_eq!(Rules::read(b"user a\xff connections hard=1").unwrap_err()[0].message, "is not UTF-8");
    }

    #[test]
    fn own_lines_stand_before_the_default() {
        let text = "user default queries/day hard=5\nuser default connections hard=2\nuser alice queries/day hard=0\n\
                    user bob queries/day soft=1K grace=0\nuser bob bytes/day soft=1K grace=90\n";
        assert!(Rules::read(text.as_bytes()).is_err(), "queries are not counted in K");
        let rules =
            Rules::read(text.replace("queries/day soft=1K", "queries/day soft=1").as_bytes()).unwrap();
        let of = |name| rules.limits_of(&Subject::named(SubjectKind::User, name));
        let [connections, queries, bytes] =
            ["connections", "queries/day", "bytes/day"].map(|text| Measure::read(text).unwrap());
        assert_eq!(of("alice").into_keys().collect::<Vec<_>>(), [connections]);
        assert_eq!(of("carol")[&queries], Limit { soft: 0, hard: 5, grace_s: DEFAULT_GRACE_S });
        assert_eq!(of("bob")[&queries], Limit { soft: 1, hard: 0, grace_s: 0 });
        assert_eq!(of("bob")[&bytes], Limit { soft: 1_024, hard: 0, grace_s: 90 });
    }

    #[test]
    fn a_client_belongs_to_its_groups() {
        let rules =
            Rules::read(b"group b = alice\ngroup a = bob, alice\ngroup a connections hard=1").unwrap();
        let groups = |user| {
            let subjects = rules.subjects(user, "d", "");
            let groups = subjects.into_iter().filter(|subject| subject.kind == SubjectKind::Group);
            groups.filter_map(|subject| subject.name).map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(
            (groups("alice"), groups("bob")),
            (vec!["b".to_owned(), "a".to_owned()], vec!["a".to_owned()])
        );
        assert!(groups("carol").is_empty());
    }
}
