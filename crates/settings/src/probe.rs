//! Properties that hold for any input (I11 of ARCHITECTURE.md), for the fuzz targets and a mutation test. Panics where one does not hold.

use crate::files::Files;
use crate::finding::Severity;
use crate::hba::Hba;
use crate::ident::{self, IdentMaps};
use crate::ldap::{BindMethod, Options};
use crate::resolver::load;
use crate::userlist::Userlist;
use crate::{PoolsText, changes, show};
use std::io;
use std::sync::Arc;

/// Every file has these bytes, includes too.
struct SameBytes<'a>(&'a [u8]);

impl Files for SameBytes<'_> {
    fn read(&self, _path: &str) -> io::Result<Vec<u8>> {
        Ok(self.0.to_vec())
    }
}

/// Any bytes as a configuration: it loads without an error, or is refused with at least one that names a place
/// in it; what loads can be shown, and does not differ from itself.
pub fn ini(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    match load(&SameBytes(bytes), "any.ini", &[]) {
        Ok(config) => {
            assert!(config.warnings.iter().all(|finding| finding.severity == Severity::Warning));
            assert!(!config.databases.contains_key("*") && !config.databases.contains_key("pgbouncer"));
            assert!(config.databases.iter().all(|(name, database)| *name == database.name));
            assert_eq!(changes(&config, &config), []);
            assert_eq!(show(&config).len(), crate::GLOBAL.len());
        }
        Err(findings) => {
            assert!(findings.iter().any(|finding| finding.severity == Severity::Error));
            assert!(
                findings.iter().all(|finding| finding.line as usize <= lines && !finding.message.is_empty())
            );
        }
    }
}

/// Any bytes as a pools file: rejected with a location, or unchanged to the byte when an entry is added and removed.
pub fn pools(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let pools = match PoolsText::read("any.ini", bytes) {
        Ok(pools) => pools,
        Err(findings) => {
            assert!(findings.iter().all(|finding| (1..=lines).contains(&(finding.line as usize))));
            return;
        }
    };
    assert_eq!(pools.bytes(), bytes);
    let (own, revision, of_fleet) = pools.parts();
    let joined = PoolsText::of_parts(&own, revision, of_fleet.bytes());
    let (again, same_revision, same) = joined.parts();
    assert_eq!((same_revision, same.bytes()), (revision, of_fleet.bytes()));
    assert!(again.bytes().starts_with(own.bytes()));
    let mut held = of_fleet.clone();
    held.set_holds(&of_fleet.holds());
    assert_eq!(held.holds(), of_fleet.holds());
    let name = "a-new-name";
    let pairs = [("host", "it's"), ("dbname", "a b")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut changed = pools.clone();
    changed.put(name, &pairs);
    assert_eq!(changed.pairs(name), Some(pairs.to_vec()));
    assert!(!changed.changes_from(&pools).is_empty());
    if pools.pairs(name).is_none() {
        assert!(changed.remove(name));
        assert!(changed.bytes().starts_with(pools.bytes()), "other lines stay");
    }
}

/// Any bytes as a file of secrets: every line is a user, a warning, a comment or blank.
pub fn userlist(bytes: &[u8]) {
    let file: Arc<str> = "any.txt".into();
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let list = Userlist::parse(&file, bytes);
    assert!(list.secrets.len() + list.warnings.len() <= lines);
    assert!(list.secrets.iter().all(|(user, secret)| user.len() + secret.len() < bytes.len()));
    assert!(list.warnings.iter().all(|finding| (1..=lines).contains(&(finding.line as usize))));
}

/// Any bytes as an HBA file: every line is a rule, a warning, a comment or blank; one that could
/// not be read is none. Files of names have the same bytes.
pub fn hba(bytes: &[u8]) {
    let file: Arc<str> = "any/hba".into();
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let maps: IdentMaps = ident::parse(&file, bytes).0;
    let (hba, findings) = Hba::parse(&SameBytes(bytes), &file, bytes, &maps, true);
    assert!(hba.rules.windows(2).all(|pair| pair[0].line < pair[1].line));
    assert!(hba.rules.iter().all(|rule| (1..=lines).contains(&(rule.line as usize))));
    for finding in findings {
        assert!(finding.severity == Severity::Warning && (1..=lines).contains(&(finding.line as usize)));
        let is_rule = hba.rules.iter().any(|rule| rule.line == finding.line);
        assert!(!is_rule || !finding.message.contains("could not parse hba config line"), "{finding}");
    }
}

/// Any bytes as an ident file: every line is an entry of a map, a warning, a comment or blank.
pub fn ident(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let (maps, findings) = ident::parse(&"any".into(), bytes);
    let entries: usize = maps.values().map(|map| map.entries.len()).sum();
    assert!(maps.iter().all(|(name, map)| *name == map.name && !map.entries.is_empty()));
    assert!(entries + findings.len() <= lines);
}

/// Any bytes as LDAP options: valid with a server or domain, or rejected with an error.
pub fn ldap(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Options::parse(&text) {
        Ok(options) => {
            let search_base = match &options.way {
                BindMethod::Search(search) => &*search.base,
                BindMethod::Bind { .. } => "",
            };
            assert!(!options.servers.is_empty() || !search_base.is_empty());
            assert!(options.servers.iter().all(|server| !server.is_empty() && !server.contains(' ')));
            assert_ne!(options.port, 0);
        }
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INI: &str = "%include x\n[databases]\n'a b' = host=h,/run port=1 connect_query='x''y'\n* =\n[users]\nu = pool_size=-1\n\
        [pgbouncer]\nauth_file = f\nquery_timeout = 0.5\nunix_socket_mode = 0700\n; end\n[peers]\n";
    const POOLS: &str = "; c\n[databases] 'a' = host=h\na-new-name = host=h password='x y'\n\n\"b c\" =\n";
    const HBA: &str = "local all,\"a b\" @names peer map=m # c\nhost replication +g ::1/64 md5\nhostssl sameuser b samehost \
        cert\nhostnossl all all 10.0.0.0 255.0.0.0 ldap \"ldapport\"=1\n@x\n";
    const IDENT: &str = "m root alice\n# c\nm \"a b\" all\n\nn x \"all\"\n";
    const USERS: &str = "\"a\" \"b\"\n; c\n\"d\"\"e\" \"md5f\" g\n";

    const LDAP: &str = "ldapserver=\"a b:1\",\"ldapport\"=7 ldapbasedn=\"dc=a,\"\"b\" ldapsearchfilter=(uid=$username) ldaptls=1";
    const LDAP_URL: &str =
        "ldapurl=\"ldaps://[::1]:7/dc=a%2cb?uid,cn?sub?(a=b)\" ldapbinddn=x ldapbindpasswd=y";

    /// xorshift64*: the same mutations every time.
    struct Rng(u64);

    impl Rng {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            let drawn = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
            usize::try_from(drawn).unwrap_or(0) % bound.max(1)
        }

        /// A few bytes changed, inserted, removed, or a piece repeated elsewhere.
        fn mutate(&mut self, bytes: &mut Vec<u8>) {
            const INTERESTING: &[u8] = b"[]=';#\"%?/:\0\n\r \t,*-0x\xff\xc3";
            for _ in 0..=self.below(4) {
                let at = self.below(bytes.len() + 1);
                match self.below(4) {
                    0 => bytes.insert(at, INTERESTING[self.below(INTERESTING.len())]),
                    1 if at < bytes.len() => bytes[at] = INTERESTING[self.below(INTERESTING.len())],
                    2 => drop(bytes.drain(at..bytes.len().min(at + 5))),
                    _ => {
                        let from = self.below(bytes.len());
                        let piece = bytes[from..bytes.len().min(from + 12)].to_vec();
                        bytes.splice(at..at, piece);
                    }
                }
            }
        }
    }

    fn mutations(seed_text: &str, probe: fn(&[u8])) {
        for seed in 1..=3000 {
            let mut dice = Rng(seed);
            let mut bytes = seed_text.as_bytes().to_vec();
            dice.mutate(&mut bytes);
            probe(&bytes);
        }
    }

    #[test]
    fn mutated_configurations_hold() {
        mutations(INI, ini);
        mutations(&INI.replace("%include x\n", ""), ini);
        mutations(&crate::sample_ini().replace("\n;", "\n")[..2000], ini);
    }

    #[test]
    fn mutated_files_of_pools_hold() {
        mutations(POOLS, pools);
        mutations(POOLS.trim_end(), pools);
    }

    #[test]
    fn mutated_files_of_secrets_hold() {
        mutations(USERS, userlist);
    }

    #[test]
    fn mutated_rules_and_maps_hold() {
        mutations(HBA, hba);
        mutations(IDENT, ident);
    }

    #[test]
    fn mutated_options_of_a_directory_hold() {
        mutations(LDAP, ldap);
        mutations(LDAP_URL, ldap);
    }

    #[test]
    fn the_unmutated_ones_are_sound() {
        let without_include = INI.replace("%include x\n", "");
        let loaded = load(&SameBytes(without_include.as_bytes()), "any.ini", &[]);
        assert!(loaded.is_ok(), "{loaded:?}");
        assert!(
            Options::parse(LDAP).is_ok() && Options::parse(LDAP_URL).is_err(),
            "a URL's filter and attribute"
        );
        let list = Userlist::parse(&"any.txt".into(), USERS.as_bytes());
        assert_eq!((list.secrets.len(), list.warnings.len()), (2, 0));
    }
}
