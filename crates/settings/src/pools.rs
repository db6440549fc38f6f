//! A configuration with the pools of another pools file. `raw_config/pools_file.rs` reads the file, `resolver/pools.rs` puts
//! its entries in place, `pools_text.rs` edits its text.

use crate::Config;
use crate::files::Files;
use crate::finding::Finding;
use crate::raw_config::Pools;
use crate::resolver::{Resolver, leaving_out};

/// `config` with its pools replaced by those of `bytes`. Its warnings are those of the pools file.
///
/// # Errors
/// Every error, with file and line.
pub fn with_pools(config: &Config, file: &str, bytes: &[u8]) -> Result<Config, Vec<Finding>> {
    replace_pools(config, Pools::parse(file.into(), bytes))
}

fn replace_pools(config: &Config, pools: Pools) -> Result<Config, Vec<Finding>> {
    leaving_out(Some(pools), |pools| resolve(config, pools.unwrap_or_else(|| Pools::parse("".into(), b""))))
}

fn resolve(config: &Config, pools: Pools) -> Result<Config, Vec<Finding>> {
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
    use crate::files::memory::Memory;
    use crate::load;
    use std::io;

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
        assert_eq!((pool.dbname.as_str(), pool.pool_size), ("app", Some(crate::PoolSize::Fixed(5))));
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
        old.global.default_pool_size = crate::PoolSize::Fixed(3);
        let new = with_pools(&old, "p.ini", b"[databases]\nb = host=h\nc = host=h").unwrap();
        assert_eq!(new.databases.keys().collect::<Vec<_>>(), ["app", "b", "c"]);
        assert_eq!(new.global.default_pool_size, crate::PoolSize::Fixed(3));
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
