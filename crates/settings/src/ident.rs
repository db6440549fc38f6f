//! The file `auth_ident_file`: named maps from system users (or certificate names) to database users.
//! Owns its lines, `map system-name user`. Regular expressions are plain names, as in PgBouncer.

use crate::files::{Files, reason};
use crate::finding::{Finding, Origin};
use crate::tokens::Tokens;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Every map of a file by its name.
pub type IdentMaps = BTreeMap<String, Arc<IdentMap>>;

/// One map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentMap {
    /// Its name.
    pub name: String,
    /// Its lines, in order.
    pub entries: Vec<IdentMapping>,
}

/// One line: a system name and the user it may log in as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentMapping {
    /// The system's name for the peer, or a name in its certificate.
    pub system_name: String,
    /// The user it may log in as; None is `all`.
    pub user: Option<String>,
}

impl IdentMap {
    /// Whether a peer may log in as this user; `is_name` tells whether a system name is the peer's.
    pub fn allows(&self, user: &str, mut is_name: impl FnMut(&str) -> bool) -> bool {
        let fits = |entry: &&IdentMapping| entry.user.as_deref().is_none_or(|allowed| allowed == user);
        self.entries.iter().filter(fits).any(|entry| is_name(&entry.system_name))
    }
}

/// Reads the file at `path`; one that cannot be read has no maps.
pub fn read(files: &dyn Files, path: &str) -> (IdentMaps, Vec<Finding>) {
    let file: Arc<str> = path.into();
    match files.read(path) {
        Ok(bytes) => parse(&file, &bytes),
        Err(error) => {
            let message = format!("could not open ident config file {path}: {}", reason(&error));
            (IdentMaps::new(), vec![Finding::warning(&Origin { file, line: 0 }, message)])
        }
    }
}

/// Parses a file; a bad line is reported and skipped.
pub fn parse(file: &Arc<str>, bytes: &[u8]) -> (IdentMaps, Vec<Finding>) {
    let mut maps: BTreeMap<String, IdentMap> = BTreeMap::new();
    let mut findings = Vec::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        match entry(line) {
            Ok(None) => {}
            Ok(Some((name, identity))) => {
                let map = maps.entry(name.clone()).or_insert_with(|| IdentMap { name, entries: Vec::new() });
                map.entries.push(identity);
            }
            Err(why) => {
                let message =
                    format!("ident line {number}: {why}; could not parse ident config line {number}");
                findings.push(Finding::warning(&Origin { file: file.clone(), line: number }, message));
            }
        }
    }
    (maps.into_iter().map(|(name, map)| (name, Arc::new(map))).collect(), findings)
}

/// The map's name and the entry of a line; None for a blank one.
fn entry(line: &[u8]) -> Result<Option<(String, IdentMapping)>, &'static str> {
    let text = std::str::from_utf8(line).ok().filter(|text| !text.contains('\0')).ok_or("not UTF-8 text")?;
    let mut tokens = Tokens::new(text);
    if tokens.current().is_none() {
        return Ok(None);
    }
    let name = tokens.take_name().ok_or("expected the name of a map")?;
    let system_name = tokens.take_name().ok_or("expected a system user name")?;
    let user = if tokens.take_keyword("all") {
        None
    } else {
        Some(tokens.take_name().ok_or("expected a database user name")?)
    };
    if tokens.current().is_some() {
        return Err("unsupported parameters");
    }
    Ok(Some((name, IdentMapping { system_name, user })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (IdentMaps, Vec<String>) {
        let (maps, findings) = parse(&"ident".into(), text.as_bytes());
        (maps, findings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn lines_of_one_map_go_together() {
        let (maps, reported) = of(
            "# comment\nm root alice\n\n  n \"CN with, comma\"\t\"b\"\"ob\"\r\nm root bob # more\nm x all",
        );
        assert!(reported.is_empty());
        let m = &maps["m"];
        assert!(m.allows("alice", |name| name == "root") && m.allows("bob", |name| name == "root"));
        assert!(!m.allows("carol", |name| name == "root") && m.allows("carol", |name| name == "x"));
        assert!(maps["n"].allows("b\"ob", |name| name == "CN with, comma"));
        assert!(!maps["n"].allows("b\"ob", |_| false));
    }

    #[test]
    fn all_in_quotes_is_a_name() {
        let (maps, _) = of("m root \"all\"");
        assert!(maps["m"].allows("all", |_| true) && !maps["m"].allows("alice", |_| true));
    }

    #[test]
    fn bad_lines_are_reported_and_skipped() {
        let (maps, reported) = of("m\nm root\nm root a b\n, a b\nm \"root a\nm root alice");
        assert_eq!(maps["m"].entries.len(), 1);
        assert_eq!(reported.len(), 5);
        let expected = "ident:3: ident line 3: unsupported parameters; could not parse ident config line 3";
        assert_eq!(reported[2], expected);
    }
}
