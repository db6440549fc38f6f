//! What the file of quotas says, validated: limits by subject, and who is in which group.

use std::collections::{BTreeMap, BTreeSet};

use crate::limit::Limit;
use crate::line::{Line, Members, RoleQuestion, read_line};
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

/// The members of roles, as far as PostgreSQL has said who they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleMembers(pub BTreeMap<RoleQuestion, BTreeSet<Box<str>>>);

/// The limits of all subjects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    limits: BTreeMap<Subject, BTreeMap<Measure, Limit>>,
    groups: BTreeMap<Box<str>, Members>,
    /// The lines of groups whose members are those of a role.
    role_lines: BTreeMap<Box<str>, u32>,
    /// What is known of their members.
    role_members: RoleMembers,
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
                rules.put(line, number);
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

    fn put(&mut self, line: Line, number: u32) {
        match line {
            Line::Empty => {}
            Line::Group(name, members) => {
                match &members {
                    Members::List(members) => {
                        for member in members {
                            self.groups_of.entry(member.clone()).or_default().push(name.clone());
                        }
                    }
                    Members::Role(_) => _ = self.role_lines.insert(name.clone(), number),
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

    /// The groups whose members are those of a role: name, what is asked, and the line.
    pub fn role_groups(&self) -> impl Iterator<Item = (&str, &RoleQuestion, u32)> {
        self.groups.iter().filter_map(|(name, members)| match members {
            Members::Role(question) => {
                Some((&**name, question, self.role_lines.get(name).copied().unwrap_or(0)))
            }
            Members::List(_) => None,
        })
    }

    /// The same rules with these members of roles.
    #[must_use]
    pub fn with_role_members(&self, members: &RoleMembers) -> Rules {
        let wanted: BTreeSet<_> = self.role_groups().map(|(_, question, _)| question).collect();
        let known = members.0.iter().filter(|(question, _)| wanted.contains(question));
        let known = known.map(|(question, members)| (question.clone(), members.clone())).collect();
        Rules { role_members: RoleMembers(known), ..self.clone() }.regrouped()
    }

    /// The groups of each user, made anew.
    fn regrouped(mut self) -> Rules {
        let mut groups_of: BTreeMap<Box<str>, Vec<Box<str>>> = BTreeMap::new();
        for (name, members) in &self.groups {
            let mut put = |user: &str| groups_of.entry(user.into()).or_default().push(name.clone());
            match members {
                Members::List(list) => list.iter().for_each(|user| put(user)),
                Members::Role(question) => {
                    self.role_members.0.get(question).into_iter().flatten().for_each(|user| put(user));
                }
            }
        }
        self.groups_of = groups_of;
        self
    }

    /// What is known of the members of roles.
    #[must_use]
    pub fn role_members(&self) -> &RoleMembers {
        &self.role_members
    }

    /// How many members a group has; none where that is not known.
    pub(crate) fn members_of(&self, group: &str) -> Option<u64> {
        let count = match self.groups.get(group)? {
            Members::List(list) => list.len(),
            Members::Role(question) => self.role_members.0.get(question)?.len(),
        };
        u64::try_from(count).ok()
    }

    /// Whether storage is limited: of subjects of this kind, or of any.
    #[must_use]
    pub fn limits_storage(&self, kind: Option<SubjectKind>) -> bool {
        self.limits_measure(Measure::STORAGE, kind)
    }

    /// Whether this is limited: of subjects of this kind, or of any.
    #[must_use]
    pub fn limits_measure(&self, measure: Measure, kind: Option<SubjectKind>) -> bool {
        self.limited_subjects(measure).any(|subject| kind.is_none_or(|kind| subject.kind == kind))
    }

    /// The subjects of which lines limit this.
    pub fn limited_subjects(&self, measure: Measure) -> impl Iterator<Item = &Subject> {
        let limits =
            move |of: &BTreeMap<Measure, Limit>| of.get(&measure).is_some_and(|limit| !limit.is_none());
        self.limits.iter().filter(move |(_, of)| limits(of)).map(|(subject, _)| subject)
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

    /// The limit in a subject's own line for a resource; a subject without a name has the lines of `default`.
    #[must_use]
    pub fn own_limit(&self, subject: &Subject, measure: Measure) -> Option<Limit> {
        self.limits.get(subject)?.get(&measure).copied()
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
            ("group g = role a b", 1, "unexpected \"b\""),
            ("group g = role a in", 1, "a database is expected"),
            ("group g = role a in d e", 1, "unexpected \"e\""),
            ("group g = role \"\"", 1, "empty"),
            ("group default = role", 1, "all groups"),
            ("group g = role\ngroup g storage hard=1G", 2, "user or a database only"),
            ("application_name a storage hard=1", 1, "user or a database only"),
            (
                "group g = role\ngroup g temp_files hard=1G",
                2,
                "temp_files are limited for a user or a database only",
            ),
            ("user u temp_files/hour hard=1G", 1, "no period"),
            ("user u temp_files hard=1G allow=delete", 1, "storage only"),
            ("database d storage hard=-1", 1, "K, M, G or T"),
            ("database d storage hard=1P", 1, "K, M, G or T"),
            ("database d storage soft=2G hard=1G", 1, "above the hard limit"),
            ("database d storage/day hard=1G", 1, "no period"),
            ("database d storage hard=1G allow=all", 1, "none, delete"),
            ("database d storage hard=1G allow=delete allow=none", 1, "twice"),
            ("user a bytes/day hard=1G allow=delete", 1, "storage only"),
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
        assert_eq!(
            of("carol")[&queries],
            Limit { soft: 0, hard: 5, grace_s: DEFAULT_GRACE_S, allows_delete: false }
        );
        assert_eq!(of("bob")[&queries], Limit { soft: 1, hard: 0, grace_s: 0, allows_delete: false });
        assert_eq!(of("bob")[&bytes], Limit { soft: 1_024, hard: 0, grace_s: 90, allows_delete: false });
    }

    #[test]
    fn members_of_roles_are_those_that_are_known() {
        let text = b"group a = role\ngroup b = role \"in\" in shop\ngroup c = role, alice\ngroup d = \"role\"\ngroup e = role in shop\n";
        let rules = Rules::read(text).unwrap();
        let question = |role: &str, entry: Option<&str>| RoleQuestion {
            role: role.into(),
            entry: entry.map(Into::into),
        };
        let asked: Vec<_> =
            rules.role_groups().map(|(name, asked, line)| (name, asked.clone(), line)).collect();
        let expected = [
            ("a", question("a", None), 1),
            ("b", question("in", Some("shop")), 2),
            ("e", question("e", Some("shop")), 5),
        ];
        assert_eq!(asked, expected);
        let groups = |rules: &Rules, user| {
            let subjects = rules.subjects(user, "d", "");
            let groups = subjects.into_iter().filter(|subject| subject.kind == SubjectKind::Group);
            groups.filter_map(|subject| subject.name).map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(
            (groups(&rules, "alice"), groups(&rules, "role")),
            (vec!["c".to_owned()], vec!["c".to_owned(), "d".to_owned()])
        );
        let known = RoleMembers(BTreeMap::from([
            (question("a", None), BTreeSet::from(["alice".into(), "bob".into()])),
            (question("a", Some("shop")), BTreeSet::from(["eve".into()])),
        ]));
        let known = rules.with_role_members(&known);
        assert_eq!(
            (groups(&known, "alice"), groups(&known, "bob")),
            (vec!["a".to_owned(), "c".to_owned()], vec!["a".to_owned()])
        );
        assert!(groups(&known, "eve").is_empty(), "another server's role is another one");
        assert_eq!(
            (known.members_of("a"), known.members_of("b"), known.members_of("c")),
            (Some(2), None, Some(2))
        );
        assert_eq!(known.role_members().0.len(), 1, "what no line asks is not kept");
        assert!(groups(&known.with_role_members(&RoleMembers::default()), "bob").is_empty());
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
