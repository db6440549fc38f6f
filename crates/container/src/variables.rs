//! The variables that are given, and which of them were used. Owns `NAME_FILE`, a file whose text is the value of NAME (Docker's secrets).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;

use settings::Files;

/// What may come from a file that `NAME_FILE` names. Others end in `_FILE` themselves.
const SECRETS: [&str; 12] = [
    "DATABASE_URL",
    "DATABASE_URLS",
    "DB_HOST",
    "DB_NAME",
    "DB_USER",
    "DB_PASSWORD",
    "POSTGRESQL_HOST",
    "POSTGRESQL_USERNAME",
    "POSTGRESQL_PASSWORD",
    "POSTGRESQL_DATABASE",
    "PGBOUNCER_AUTH_USER",
    "PGBOUNCER_USERLIST",
];

/// The beginning of variables that hold whole entries, which may hold passwords.
const ENTRY: &str = "PGBOUNCER_DSN_";

/// Why a variable cannot be used. Values are not repeated: passwords are among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentError {
    /// The variable.
    pub variable: String,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for EnvironmentError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.variable, self.why)
    }
}

/// The environment. Empty variables count as not given, as in a compose file they are.
pub struct Variables<'a> {
    given: BTreeMap<String, OsString>,
    files: &'a dyn Files,
    asked: RefCell<BTreeSet<String>>,
}

impl<'a> Variables<'a> {
    /// Those that are given; `files` reads what `NAME_FILE` names.
    pub fn new<Value: Into<OsString>>(
        given: impl IntoIterator<Item = (String, Value)>,
        files: &'a dyn Files,
    ) -> Variables<'a> {
        let given = given.into_iter().map(|(name, value)| (name, value.into()));
        let given = given.filter(|(_, value)| !value.is_empty()).collect();
        Variables { given, files, asked: RefCell::default() }
    }

    /// The value of a variable, or of the file that it names.
    pub(crate) fn get(&self, name: &str) -> Result<Option<String>, EnvironmentError> {
        self.asked.borrow_mut().insert(name.to_owned());
        if let Some(value) = self.given_text(name)? {
            return Ok(Some(value.to_owned()));
        }
        if !SECRETS.contains(&name) && !name.starts_with(ENTRY) {
            return Ok(None);
        }
        let of_file = format!("{name}_FILE");
        let Some(path) = self.given_text(&of_file)? else { return Ok(None) };
        self.asked.borrow_mut().insert(of_file.clone());
        let text = self.text_of(&of_file, path)?;
        Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()).filter(|text| !text.is_empty()))
    }

    fn given_text(&self, name: &str) -> Result<Option<&str>, EnvironmentError> {
        let Some(value) = self.given.get(name) else { return Ok(None) };
        let no_text =
            || EnvironmentError { variable: name.to_owned(), why: "is no text in UTF-8".to_owned() };
        value.to_str().map(Some).ok_or_else(no_text)
    }

    /// The text of a file that a variable names.
    pub(crate) fn text_of(&self, variable: &str, path: &str) -> Result<String, EnvironmentError> {
        let failed = |why: String| EnvironmentError { variable: variable.to_owned(), why };
        let text = self.files.read(path).map_err(|why| failed(format!("{path} cannot be read: {why}")))?;
        String::from_utf8(text).map_err(|_| failed(format!("{path} is no text")))
    }

    /// The first of several variables that is given.
    pub(crate) fn first(&self, names: &[&str]) -> Result<Option<String>, EnvironmentError> {
        for name in names {
            if let Some(value) = self.get(name)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Variables that hold whole entries, or name a file that does, in the order of their numbers.
    pub(crate) fn entries(&self) -> Vec<String> {
        let number = |name: &String| {
            name.strip_prefix(ENTRY)
                .map(|rest| rest.strip_suffix("_FILE").unwrap_or(rest))?
                .parse::<u32>()
                .ok()
        };
        let numbers: BTreeSet<u32> = self.given.keys().filter_map(number).collect();
        numbers.into_iter().map(|number| format!("{ENTRY}{number}")).collect()
    }

    /// Variables of the two images and of Weir that nobody has asked for: misspelt, or not supported.
    pub(crate) fn unknown(&self) -> Vec<String> {
        let asked = self.asked.borrow();
        let ours = |name: &&String| name.starts_with("PGBOUNCER_") || name.starts_with("WEIR_");
        // Kubernetes' own, where a Service is called pgbouncer or weir.
        let of_service = |name: &str| name.contains("_SERVICE_") || name.contains("_PORT_");
        self.given
            .keys()
            .filter(ours)
            .filter(|name| !of_service(name))
            .filter(|name| !asked.contains(*name))
            .cloned()
            .collect()
    }
}
