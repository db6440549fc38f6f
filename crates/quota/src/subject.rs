//! Whom a quota is for: a user, a group, a database or an application_name.

use std::fmt;

/// The longest name, in bytes.
pub(crate) const LONGEST_NAME: usize = 256;

/// The word for all of a kind that have no line of their own.
pub(crate) const DEFAULT: &str = "default";

/// What kind of subject it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubjectKind {
    /// The user that a client has logged in as.
    User,
    /// A list of users, in the file of quotas.
    Group,
    /// The database, as clients name it.
    Database,
    /// The application_name that a client has given at login.
    ApplicationName,
}

impl SubjectKind {
    /// All kinds.
    pub const ALL: [SubjectKind; 4] =
        [SubjectKind::User, SubjectKind::Group, SubjectKind::Database, SubjectKind::ApplicationName];

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            SubjectKind::User => "user",
            SubjectKind::Group => "group",
            SubjectKind::Database => "database",
            SubjectKind::ApplicationName => "application_name",
        }
    }

    /// The kind of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<SubjectKind> {
        SubjectKind::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// A subject; without a name it stands for all of its kind that have no line of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// Its kind.
    pub kind: SubjectKind,
    /// Its name; `None` is `default`.
    pub name: Option<Box<str>>,
}

impl Subject {
    /// A subject of this name.
    #[must_use]
    pub fn named(kind: SubjectKind, name: &str) -> Subject {
        Subject { kind, name: Some(name.into()) }
    }

    /// The subject of a name that a client has chosen. Names of files have no control characters and end somewhere; so that each subject can be stored, and shown in a
    /// line, a client's name is made such a one, as PostgreSQL does with application_name.
    pub(crate) fn of_client(kind: SubjectKind, name: &str) -> Subject {
        let name = &name[..name.floor_char_boundary(LONGEST_NAME)];
        match name.contains(char::is_control) {
            false => Subject::named(kind, name),
            true => Subject::named(kind, &name.replace(char::is_control, "?")),
        }
    }

    /// All of a kind that have no line of their own.
    #[must_use]
    pub fn default_of(kind: SubjectKind) -> Subject {
        Subject { kind, name: None }
    }
}

/// As the file of quotas has it.
impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            None => write!(out, "{} {DEFAULT}", self.kind.word()),
            Some(name) => write!(out, "{} {}", self.kind.word(), quoted(name)),
        }
    }
}

/// A name as the file has it: in quotes where it would be read as something else without them.
pub(crate) fn quoted(name: &str) -> String {
    let is_plain = |sign: char| sign.is_alphanumeric() || "_-.@$:+".contains(sign);
    if !name.is_empty() && name != DEFAULT && name.chars().all(is_plain) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}
