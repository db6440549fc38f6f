//! Properties that hold for any input, for the fuzz target and a mutation test. Panics where one does not hold.

use std::io;

use settings::{Files, Severity};

use crate::{Conf, ImportError, Request, Users, convert, rules, userlist};

/// Every file has these bytes, includes too.
pub(crate) struct Same<'a>(pub(crate) &'a [u8]);

impl Files for Same<'_> {
    fn read(&self, _path: &str) -> io::Result<Vec<u8>> {
        Ok(self.0.to_vec())
    }
}

/// Any bytes as pgpool.conf: rejected with a place, or a weir.ini that Weir's own checking takes.
pub fn conf(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let conf = Conf::read(&Same(bytes), "etc/any.conf");
    assert!(conf.errors.iter().all(|finding| (1..=lines).contains(&(finding.line as usize))));
    let users = Some(Users { path: "/x/userlist.txt", has_md5: bytes.len().is_multiple_of(2) });
    let request =
        Request { path: "etc/any.conf", conf: &conf, directory: "/etc", rules: Some("/x/hba"), users };
    match convert(&request) {
        Ok(imported) => {
            let report = settings::check(&Same(imported.ini.as_bytes()), "weir.ini");
            let errors = report.findings.iter().filter(|finding| finding.severity == Severity::Error);
            assert_eq!(errors.count(), 0, "{:?}\n{}", report.findings, imported.ini);
            assert!(
                report.config.is_some_and(|config| config.databases.is_empty() && config.fallback.is_some())
            );
            assert!(
                conf.last().values().all(|one| imported.list.contains(&*one.name.escape_debug().to_string()))
            );
        }
        Err(ImportError::Refused(why)) => panic!("{why}"),
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
}

/// Any bytes as pool_passwd: every line is a user, a problem, a comment or blank, and Weir reads what was written without one.
pub fn passwd(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let secrets = userlist("any", bytes);
    assert!(secrets.users + secrets.problems.len() <= lines);
    let read = settings::Userlist::parse(&"any".into(), secrets.text.as_bytes());
    assert!(read.warnings.is_empty() && read.secrets.len() <= secrets.users);
}

/// Any bytes as pool_hba.conf: Weir reads what was written without a refused line, and no rule is added that lets anybody in.
pub fn hba(bytes: &[u8]) {
    use settings::hba::{Addresses, Hba, Rule, RuleMethod};
    let written = rules(&Same(b"alice"), "any/hba", "any/hba", bytes);
    let read = |bytes: &[u8]| {
        Hba::parse(&Same(b"alice"), &"any/hba".into(), bytes, &settings::ident::IdentMaps::default(), false)
    };
    let (before, (after, findings)) = (read(bytes).0, read(written.text.as_bytes()));
    assert!(findings.iter().all(|finding| !finding.message.contains("could not parse")), "{findings:?}");
    let admits =
        |rule: &&Rule| rule.method != RuleMethod::Reject && rule.addresses != Addresses::Networks(Vec::new());
    let admits = |hba: &Hba| hba.rules.iter().filter(admits).count();
    assert_eq!(admits(&before), admits(&after), "{}", written.text);
}

/// Files for tests: names and texts.
#[cfg(test)]
pub(crate) struct Memory<'a>(pub(crate) &'a [(&'a str, &'a str)]);

#[cfg(test)]
impl Files for Memory<'_> {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let found = self.0.iter().find(|(name, _)| *name == path);
        found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::Error::from_raw_os_error(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONF: &str = "port = 9999 # x\nlisten_addresses = '*'\nbackend_hostname0 = 'a'\nbackend_port0=5433\nbackend_hostname1 '/run/it''s'\n\
        backend_flag1 = 'ALWAYS_PRIMARY|ALLOW_TO_FAILOVER'\nbackend_hostname2 = ''\nnum_init_children = 10\nmax_pool = 2\nssl = on\nssl_key='k'\nssl_cert 'c'\n\
        reset_query_list = 'ABORT; RESET ALL'\nclient_idle_limit = 5min\nenable_pool_hba = on\npid_file_name = 'a/b'\nconnect_timeout = 10000\n\
        backend_clustering_mode = 'raw'\nlogging_collector = on\nunix_socket_permissions = 0770\nfrob = 1\nlog_destination = 'syslog'\n";
    const PASSWD: &str =
        "a:md5a231fcdb710d73268c4f44283487ba22\nb:TEXTx\"y\nc:AESabc==\nd:SCRAM-SHA-256$1:a$b:c\n# e\nf:g\n";
    const HBA: &str = "local all all trust # c\nhost all \"a b\" 10.0.0.0/8 md5\nhost all @x ::1/128 pam\nhost a,b c samehost reject\n\
        hostssl all all 10.0.0.0 255.0.0.0 cert\nhost all all x.example md5\n";

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
            const INTERESTING: &[u8] = b"='#\\\"%/:\0\n\r \t,*-0x9\xff\xc3;|[";
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
        probe(seed_text.as_bytes());
        for seed in 1..=2000 {
            let mut dice = Rng(seed);
            let mut bytes = seed_text.as_bytes().to_vec();
            dice.mutate(&mut bytes);
            probe(&bytes);
        }
    }

    #[test]
    fn mutated_configurations_hold() {
        mutations(CONF, conf);
    }

    #[test]
    fn mutated_secrets_hold() {
        mutations(PASSWD, passwd);
    }

    #[test]
    fn mutated_rules_hold() {
        mutations(HBA, hba);
    }
}
