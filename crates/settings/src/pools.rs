//! The file of pools (`pools_file`): entries of `[databases]` that Weir writes itself, read as if included last.
//! Owns what may stand in it and that no name is in two files. Never writes it: `pools_text.rs` makes its text.

use crate::finding::{Finding, Origin};
use crate::ini::{Statement, statements};
use crate::raw_config::{Files, Said, Section, reason};
use crate::resolver::Meaning;
use crate::{Config, Database};
use std::io;
use std::sync::Arc;

/// What a file of pools says, and what is wrong with the writing.
#[derive(Clone)]
pub(crate) struct Pools {
    pub(crate) file: Arc<str>,
    pub(crate) said: Vec<Said>,
    pub(crate) findings: Vec<Finding>,
}

impl Pools {
    /// Reads the file; one that does not exist has no pools yet.
    pub(crate) fn read(files: &dyn Files, path: &str) -> Self {
        let file: Arc<str> = path.into();
        match files.read(path) {
            Ok(bytes) => Self::parse(file, &bytes),
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => Self::parse(file, b""),
            Err(fault) => {
                let message = format!("could not load file \"{path}\": {}", reason(&fault));
                let finding = Finding::error(&Origin { file: file.clone(), line: 0 }, message);
                Self { file, said: Vec::new(), findings: vec![finding] }
            }
        }
    }

    /// Takes bytes apart: a section `[databases]` with its entries, and nothing else.
    pub(crate) fn parse(file: Arc<str>, bytes: &[u8]) -> Self {
        let mut pools = Self { file: file.clone(), said: Vec::new(), findings: Vec::new() };
        let mut place = Place::Before;
        for (line, statement) in statements(bytes) {
            let at = Origin { file: file.clone(), line };
            let wrong = match statement {
                Ok(Statement::Section("databases")) => {
                    place = Place::In;
                    continue;
                }
                Ok(Statement::Section(name)) => {
                    place = Place::Elsewhere;
                    format!("section [{name}] in pools_file, where only [databases] may be")
                }
                Ok(Statement::Include(_)) => {
                    "%include in pools_file, where only [databases] may be".to_owned()
                }
                Ok(Statement::Assign { key, value }) => match place {
                    Place::Before => format!("\"{key}\" stands before the first section"),
                    // The section was told.
                    Place::Elsewhere => continue,
                    Place::In => {
                        let (key, value) = (key.into_owned(), value.to_owned());
                        pools.said.push(Said { section: Section::Databases, key, value, at });
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

/// Where in a file of pools a reader is.
#[derive(Clone, Copy)]
enum Place {
    Before,
    In,
    /// In a section that may not be there.
    Elsewhere,
}

impl Meaning {
    /// Adds the entries of a file of pools to those of the other files.
    pub(crate) fn pools(&mut self, pools: Pools) {
        self.findings.extend(pools.findings);
        for said in &pools.said {
            match entry(&self.config, &said.key) {
                Some(other) => {
                    let (name, place) = (&said.key, &other.at);
                    let message =
                        format!("database \"{name}\" is defined in {}:{} too", place.file, place.line);
                    self.findings.push(Finding::error(&said.at, message));
                }
                None => self.assignment(said),
            }
        }
        self.config.pools_from = Some(pools.file);
    }
}

fn entry<'a>(config: &'a Config, name: &str) -> Option<&'a Arc<Database>> {
    if name == "*" { config.fallback.as_ref() } else { config.databases.get(name) }
}

/// `config` with the pools of these bytes instead of those that it has; all else stays. Its warnings are those of the
/// file of pools.
///
/// # Errors
/// Everything that is wrong with them, with file and line.
pub fn with_pools(config: &Config, file: &str, bytes: &[u8]) -> Result<Config, Vec<Finding>> {
    exchanged(config, Pools::parse(file.into(), bytes))
}

fn exchanged(config: &Config, pools: Pools) -> Result<Config, Vec<Finding>> {
    let mut bare = config.clone();
    bare.databases.retain(|_, database| !config.is_in_pools_file(database));
    bare.fallback = bare.fallback.filter(|database| !config.is_in_pools_file(database));
    let mut meaning = Meaning { config: bare, findings: Vec::new() };
    meaning.pools(pools);
    meaning.finish()
}

/// `config` with the pools that the file which it names holds now.
///
/// # Errors
/// Everything that is wrong with them, with file and line.
pub fn read_pools(files: &dyn Files, config: &Config) -> Result<Config, Vec<Finding>> {
    match config.global.pools_file.as_deref() {
        Some(path) => exchanged(config, Pools::read(files, path)),
        None => {
            let without = exchanged(config, Pools::parse("".into(), b""))?;
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
    fn a_name_in_two_places_is_told_with_both() {
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
        let told =
            loaded("a = b\n[users]\nu =\n[databases]\n%include x\nc\n= d\np = pool_size=x\n").unwrap_err();
        let expected = [
            "p.ini:1: \"a\" stands before the first section",
            "p.ini:2: section [users] in pools_file, where only [databases] may be",
            "p.ini:5: %include in pools_file, where only [databases] may be",
            "p.ini:6: syntax error: expected \"=\" after the name",
            "p.ini:7: syntax error: expected a section, a name or a comment",
            "p.ini:8: database p: pool_size: \"x\" is not a whole number",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn an_unreadable_file_is_told() {
        struct Forbidden;
        impl Files for Forbidden {
            fn read(&self, path: &str) -> io::Result<Vec<u8>> {
                if path == "w.ini" { Ok(MAIN.into()) } else { Err(io::Error::from_raw_os_error(13)) }
            }
        }
        let told = load(&Forbidden, "w.ini", &[]).unwrap_err();
        assert_eq!(told[0].to_string(), "p.ini: could not load file \"p.ini\": Permission denied");
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
