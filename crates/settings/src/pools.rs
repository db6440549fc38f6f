//! The pools file (`pools_file`): entries of `[databases]` that Weir writes itself, read as if included last.
//! Owns what may be in it and that no name is in two files. `pools_text.rs` edits its text.

use crate::finding::{Finding, Origin};
use crate::ini::{Statement, statements};
use crate::raw_config::{Assignment, Files, Section, reason};
use crate::resolver::Resolver;
use crate::{Config, Database};
use std::io;
use std::sync::Arc;

/// A pools file, unparsed, with its syntax errors.
#[derive(Clone)]
pub(crate) struct Pools {
    pub(crate) file: Arc<str>,
    pub(crate) assignments: Vec<Assignment>,
    pub(crate) findings: Vec<Finding>,
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
                Self { file, assignments: Vec::new(), findings: vec![finding] }
            }
        }
    }

    /// Parses a section `[databases]` with its entries; anything else is an error.
    pub(crate) fn parse(file: Arc<str>, bytes: &[u8]) -> Self {
        let mut pools = Self { file: file.clone(), assignments: Vec::new(), findings: Vec::new() };
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
}

/// The current section of a pools file.
#[derive(Clone, Copy)]
enum Position {
    Before,
    In,
    /// In a section that is not allowed.
    Elsewhere,
}

impl Resolver {
    /// Adds the entries of the pools file.
    pub(crate) fn add_pools(&mut self, pools: Pools) {
        self.findings.extend(pools.findings);
        for assignment in &pools.assignments {
            match entry(&self.config, &assignment.key) {
                Some(other) => {
                    let (name, origin) = (&assignment.key, &other.at);
                    let message =
                        format!("database \"{name}\" is defined in {}:{} too", origin.file, origin.line);
                    self.findings.push(Finding::error(&assignment.at, message));
                }
                None => self.apply(assignment),
            }
        }
        self.config.pools_from = Some(pools.file);
    }
}

fn entry<'a>(config: &'a Config, name: &str) -> Option<&'a Arc<Database>> {
    if name == "*" { config.fallback.as_ref() } else { config.databases.get(name) }
}

/// `config` with its pools replaced by those of `bytes`. Its warnings are those of the pools file.
///
/// # Errors
/// Every error, with file and line.
pub fn with_pools(config: &Config, file: &str, bytes: &[u8]) -> Result<Config, Vec<Finding>> {
    replace_pools(config, Pools::parse(file.into(), bytes))
}

fn replace_pools(config: &Config, pools: Pools) -> Result<Config, Vec<Finding>> {
    let mut bare = config.clone();
    bare.databases.retain(|_, database| !config.is_in_pools_file(database));
    bare.fallback = bare.fallback.filter(|database| !config.is_in_pools_file(database));
    let mut resolver = Resolver { config: bare, findings: Vec::new() };
    resolver.add_pools(pools);
    resolver.finish()
}

/// `config` with its pools read again from its `pools_file`.
///
/// # Errors
/// Every error, with file and line.
pub fn read_pools(files: &dyn Files, config: &Config) -> Result<Config, Vec<Finding>> {
    match config.global.pools_file.as_deref() {
        Some(path) => replace_pools(config, Pools::read(files, path)),
        None => {
            let without = replace_pools(config, Pools::parse("".into(), b""))?;
            Ok(Config { pools_from: None, ..without })
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::load;
    use crate::raw_config::memory::Memory;

    const MAIN: &str = "[databases]\napp = host=h\n[pgbouncer]\npools_file = p.ini";

    fn loaded(pools: &str) -> Result<Config, Vec<String>> {
        let files = [("w.ini", MAIN), ("p.ini", pools)];
        let texts = |findings: Vec<Finding>| findings.iter().map(ToString::to_string).collect();
        load(&Memory(&files), "w.ini", &[]).map_err(texts)
    }

    #[test]
    fn its_entries_are_databases_that_know_where_they_stand() {
        let config = loaded("; made here\n[databases]\ntest-pool = host=h dbname=app pool_size=5\n").unwrap();
        let pool = &config.databases["test-pool"];
        assert_eq!((pool.dbname.as_str(), pool.pool_size), ("app", Some(5)));
        assert_eq!((&*pool.at.file, pool.at.line), ("p.ini", 3));
        assert!(config.is_in_pools_file(pool) && !config.is_in_pools_file(&config.databases["app"]));
    }

    #[test]
    fn a_file_that_is_missing_or_empty_has_no_pools() {
        let without = load(&Memory(&[("w.ini", MAIN)]), "w.ini", &[]).unwrap();
        assert_eq!((without.databases.len(), without.pools_from.as_deref()), (1, Some("p.ini")));
        assert_eq!(loaded("").unwrap().databases.len(), 1);
        let none = load(&Memory(&[("w.ini", "[pgbouncer]\npools_file =")]), "w.ini", &[]).unwrap();
        assert_eq!(none.pools_from, None);
    }

    #[test]
    fn a_name_in_two_places_is_reported_with_both() {
        let expected = [
            "p.ini:2: database \"app\" is defined in w.ini:2 too",
            "p.ini:4: database \"b\" is defined in p.ini:3 too",
        ];
        assert_eq!(loaded("[databases]\napp = host=h\nb = host=h\nb = host=x").unwrap_err(), expected);
        let star =
            [("w.ini", "[databases]\n* = host=h\n[pgbouncer]\npools_file = p"), ("p", "[databases]\n* =")];
        assert_eq!(load(&Memory(&star), "w.ini", &[]).unwrap_err().len(), 1);
    }

    #[test]
    fn nothing_but_databases_may_stand_in_it() {
        let reported =
            loaded("a = b\n[users]\nu =\n[databases]\n%include x\nc\n= d\np = pool_size=x\n").unwrap_err();
        let expected = [
            "p.ini:1: \"a\" is before the first section",
            "p.ini:2: section [users] in pools_file, where only [databases] may be",
            "p.ini:5: %include in pools_file, where only [databases] may be",
            "p.ini:6: syntax error: expected \"=\" after the name",
            "p.ini:7: syntax error: expected a section, a name or a comment",
            "p.ini:8: database p: pool_size: \"x\" is not a whole number",
        ];
        assert_eq!(reported, expected);
    }

    #[test]
    fn an_unreadable_file_is_reported() {
        struct Forbidden;
        impl Files for Forbidden {
            fn read(&self, path: &str) -> io::Result<Vec<u8>> {
                if path == "w.ini" { Ok(MAIN.into()) } else { Err(io::Error::from_raw_os_error(13)) }
            }
        }
        let reported = load(&Forbidden, "w.ini", &[]).unwrap_err();
        assert_eq!(reported[0].to_string(), "p.ini: could not load file \"p.ini\": Permission denied");
    }

    #[test]
    fn pools_are_exchanged_and_nothing_else() {
        let mut old = loaded("[databases]\na = host=h\nb = host=h").unwrap();
        old.global.default_pool_size = 3;
        let new = with_pools(&old, "p.ini", b"[databases]\nb = host=h\nc = host=h").unwrap();
        assert_eq!(new.databases.keys().collect::<Vec<_>>(), ["app", "b", "c"]);
        assert_eq!(new.global.default_pool_size, 3);
        let wrong = with_pools(&old, "p.ini", b"[databases]\napp = host=h").unwrap_err();
        assert_eq!(wrong[0].to_string(), "p.ini:2: database \"app\" is defined in w.ini:2 too");
    }

    #[test]
    fn another_file_may_be_named_or_none() {
        let mut config = loaded("[databases]\na = host=h").unwrap();
        let other = Memory(&[("q.ini", "[databases]\nq = host=h")]);
        config.global.pools_file = Some("q.ini".to_owned());
        let config = read_pools(&other, &config).unwrap();
        assert_eq!(config.databases.keys().collect::<Vec<_>>(), ["app", "q"]);
        let mut none = config.clone();
        none.global.pools_file = None;
        let none = read_pools(&other, &none).unwrap();
        assert_eq!((none.databases.len(), none.pools_from), (1, None));
    }
}
