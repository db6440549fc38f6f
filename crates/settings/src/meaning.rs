//! From what was said to what it means: each text through its row, then what only the whole can show.
//! Owns loading and RELOAD. Reports every error of a file, not the first; never returns half a configuration.

use crate::codec::PEER_ID_MAX;
use crate::connstr;
use crate::draft::{Draft, Files, Said, Section};
use crate::finding::{Finding, Origin, Severity};
use crate::hba::Hba;
use crate::table::{Row, When};
use crate::userlist::{USER_BYTES, Userlist};
use crate::{AuthType, Config, Database, Peer, SslMode, TlsFiles, User, database, global, ident, peer, user};
use std::sync::Arc;

/// The longest name of a database, in bytes, as in PgBouncer and PostgreSQL.
const DATABASE_BYTES: usize = 63;

/// Reads a file with its includes and its `auth_file`. `flags` are settings that the command line gave; they win.
///
/// # Errors
/// Everything that is wrong, warnings included, in the order of the files.
pub fn load(files: &dyn Files, path: &str, flags: &[(&str, &str)]) -> Result<Config, Vec<Finding>> {
    Draft::read(files, path).config(files, flags, None)
}

/// [`load`] for a process that runs with `old`: what needs a restart keeps its value, with a warning, and an
/// `auth_file` that cannot be read keeps the secrets, as in PgBouncer.
///
/// # Errors
/// As [`load`]; `old` goes on being used then.
pub fn reload(
    files: &dyn Files,
    path: &str,
    flags: &[(&str, &str)],
    old: &Config,
) -> Result<Config, Vec<Finding>> {
    Draft::read(files, path).config(files, flags, Some(old))
}

impl Draft {
    /// What the draft means: [`load`], or [`reload`] where there is an `old`.
    ///
    /// # Errors
    /// Everything that is wrong, warnings included, in the order of the files.
    pub fn config(
        self,
        files: &dyn Files,
        flags: &[(&str, &str)],
        old: Option<&Config>,
    ) -> Result<Config, Vec<Finding>> {
        let mut meaning = Meaning { config: Config::default(), findings: self.findings };
        for said in &self.said {
            meaning.assignment(said);
        }
        meaning.flags(flags, &self.file);
        if !self.has_main {
            meaning.whole(&self.file, "main section [pgbouncer] missing from config file");
        }
        let global = &meaning.config.global;
        if global.listen_addr.is_empty() && global.unix_socket_dir.is_none() {
            meaning.whole(&self.file, "nowhere to listen on: listen_addr and unix_socket_dir are both empty");
        }
        if let Some(old) = old {
            meaning.keep_running(old, &self.file);
        }
        meaning.secrets(files);
        let findings = read_rules(files, &mut meaning.config);
        meaning.findings.extend(findings);
        meaning.directory(&self.said, &self.file);
        meaning.certificates(&self.file);
        meaning.config.tls_files = TlsFiles::read(files, &meaning.config.global);
        meaning.finish()
    }
}

/// Reads the HBA and ident files that a configuration names, if its `auth_type` wants them. What is wrong with them
/// never stops loading, as in PgBouncer: bad lines are left out.
pub fn read_rules(files: &dyn Files, config: &mut Config) -> Vec<Finding> {
    if config.global.auth_type != AuthType::Hba {
        config.hba = Arc::default();
        return Vec::new();
    }
    let (maps, mut findings) = match config.global.auth_ident_file.as_deref() {
        Some(path) if !path.is_empty() => ident::read(files, path),
        _ => Default::default(),
    };
    let path = config.global.auth_hba_file.as_deref().unwrap_or_default();
    let (hba, told) = Hba::read(files, path, &maps, config.asks_servers());
    config.hba = Arc::new(hba);
    findings.extend(told);
    findings
}

/// A configuration in the making.
struct Meaning {
    config: Config,
    findings: Vec<Finding>,
}

impl Meaning {
    fn assignment(&mut self, said: &Said) {
        let outcome = match said.section {
            Section::Pgbouncer => return self.global(said),
            Section::Databases => self.database(said),
            Section::Users => self.user(said),
            Section::Peers => self.peer(said),
        };
        self.findings.extend(outcome.err().unwrap_or_default());
    }

    fn global(&mut self, said: &Said) {
        let Some(row) = global::row(&said.key) else {
            let message = format!("unknown setting \"{}\" in section [pgbouncer]", said.key);
            return self.findings.push(Finding::error(&said.at, message));
        };
        if row.about.when == When::CommandLine {
            let message = format!("{}: is given on the command line only", row.about.name);
            return self.findings.push(Finding::error(&said.at, message));
        }
        if let Err(bad) = (row.assign)(&mut self.config.global, &said.value) {
            let message = format!("{}: \"{}\" {bad}", said.key, said.value);
            self.findings.push(Finding::error(&said.at, message));
        }
    }

    fn database(&mut self, said: &Said) -> Result<(), Vec<Finding>> {
        named(said, "database", DATABASE_BYTES)?;
        if said.key == "pgbouncer" {
            return Err(vec![Finding::error(&said.at, "database name \"pgbouncer\" is reserved")]);
        }
        let mut entry = Database::new(&said.key, said.at.clone());
        keys(said, "database", &mut entry, database::row)?;
        if said.key == "*" {
            self.config.fallback = Some(Arc::new(entry));
        } else {
            self.config.databases.insert(said.key.clone(), Arc::new(entry));
        }
        Ok(())
    }

    fn user(&mut self, said: &Said) -> Result<(), Vec<Finding>> {
        named(said, "user", USER_BYTES)?;
        let mut entry = User { name: said.key.clone(), ..User::default() };
        keys(said, "user", &mut entry, user::row)?;
        self.config.users.insert(said.key.clone(), Arc::new(entry));
        Ok(())
    }

    fn peer(&mut self, said: &Said) -> Result<(), Vec<Finding>> {
        let wrong = |message: &str| vec![Finding::error(&said.at, format!("peer {}: {message}", said.key))];
        let id = said.key.parse().ok().filter(|id| (1..=PEER_ID_MAX).contains(id));
        let id = id.ok_or_else(|| wrong(&format!("its name is not a number from 1 to {PEER_ID_MAX}")))?;
        let mut entry = Peer::default();
        keys(said, "peer", &mut entry, peer::row)?;
        if entry.host.is_none() {
            return Err(wrong("host is missing"));
        }
        self.config.peers.insert(id, entry);
        Ok(())
    }

    fn flags(&mut self, flags: &[(&str, &str)], file: &Arc<str>) {
        let at = Origin { file: "command line".into(), line: 0 };
        self.config.global.conffile = Some(file.to_string());
        for (name, value) in flags {
            let outcome = match global::row(name) {
                Some(row) => {
                    (row.assign)(&mut self.config.global, value).map_err(|bad| format!("\"{value}\" {bad}"))
                }
                None => Err("unknown setting".to_owned()),
            };
            if let Err(message) = outcome {
                self.findings.push(Finding::error(&at, format!("{name}: {message}")));
            }
        }
    }

    /// Keeps what only a restart changes; the secrets too, until their file is read.
    fn keep_running(&mut self, old: &Config, file: &Arc<str>) {
        let at = Origin { file: file.clone(), line: 0 };
        self.config.secrets = old.secrets.clone();
        for row in global::GLOBAL.iter().filter(|row| row.about.when == When::Restart) {
            if row.same(&self.config.global, &old.global) {
                continue;
            }
            let running = (row.show)(&old.global).unwrap_or_default();
            let message = match (row.assign)(&mut self.config.global, &running) {
                Ok(()) => format!("{}: a changed value takes effect at the next start", row.about.name),
                Err(bad) => format!("{}: \"{running}\" {bad}", row.about.name),
            };
            self.findings.push(Finding::warning(&at, message));
        }
    }

    /// PgBouncer starts without its `auth_file` too: it says so and nobody in it can log in.
    fn secrets(&mut self, files: &dyn Files) {
        let Some(path) = self.config.global.auth_file.as_deref() else {
            self.config.secrets = Arc::default();
            return;
        };
        match Userlist::read(files, path) {
            Ok(list) => {
                self.config.secrets = Arc::new(list.secrets);
                self.findings.extend(list.warnings);
            }
            Err(unread) => self.findings.push(unread),
        }
    }

    /// PgBouncer starts with options of no meaning too, and refuses whoever has to log in by them.
    fn directory(&mut self, said: &[Said], file: &Arc<str>) {
        let global = &self.config.global;
        let Err(fault) = global.auth_ldap_options.options() else { return };
        if global.auth_type == AuthType::Ldap {
            let written = said.iter().rfind(|said| said.key == "auth_ldap_options");
            let at = written.map_or(Origin { file: file.clone(), line: 0 }, |said| said.at.clone());
            self.findings.push(Finding::warning(&at, format!("auth_ldap_options: {fault}")));
        }
    }

    /// Nobody could prove anything by a certificate that nobody asks for.
    fn certificates(&mut self, file: &Arc<str>) {
        let global = &self.config.global;
        if global.auth_type != AuthType::Cert {
            return;
        }
        if global.client_tls_sslmode != SslMode::VerifyFull {
            self.whole(file, "auth_type=cert requires client_tls_sslmode=verify-full");
        } else if global.client_tls_ca_file.is_none() {
            self.whole(file, "auth_type=cert requires client_tls_ca_file");
        }
    }

    fn whole(&mut self, file: &Arc<str>, message: &str) {
        self.findings.push(Finding::error(&Origin { file: file.clone(), line: 0 }, message));
    }

    fn finish(mut self) -> Result<Config, Vec<Finding>> {
        if self.findings.iter().any(|finding| finding.severity == Severity::Error) {
            return Err(self.findings);
        }
        self.config.warnings = self.findings;
        Ok(self.config)
    }
}

/// Whether the name of an entry has a length that the protocol's users can have.
fn named(said: &Said, what: &str, most: usize) -> Result<(), Vec<Finding>> {
    if said.key.len() <= most {
        return Ok(());
    }
    Err(vec![Finding::error(&said.at, format!("{what} name \"{}\" is longer than {most} bytes", said.key))])
}

/// Assigns every `key=value` of an entry; all that are wrong are told.
fn keys<T>(
    said: &Said,
    what: &str,
    entry: &mut T,
    row: fn(&str) -> Option<&'static Row<T>>,
) -> Result<(), Vec<Finding>> {
    let name = &said.key;
    let pairs = connstr::pairs(&said.value)
        .map_err(|broken| vec![Finding::error(&said.at, format!("{what} {name}: {broken}"))])?;
    let mut wrong = Vec::new();
    for (key, value) in pairs {
        let outcome = match row(key) {
            Some(row) => (row.assign)(entry, &value).map_err(|bad| format!("{key}: \"{value}\" {bad}")),
            None => Err(format!("unknown key \"{key}\"")),
        };
        if let Err(message) = outcome {
            wrong.push(Finding::error(&said.at, format!("{what} {name}: {message}")));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::draft::memory::Memory;
    use crate::{IoDriver, LoadBalance, PoolMode, Threads};
    use std::time::Duration;

    fn config(text: &str) -> Config {
        load(&Memory(&[("w.ini", text)]), "w.ini", &[]).unwrap()
    }

    fn errors(text: &str) -> Vec<String> {
        let findings = load(&Memory(&[("w.ini", text)]), "w.ini", &[]).unwrap_err();
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_as_people_write_it() {
        let config = config(
            "[databases]
                app = host=10.0.0.1,/run/pg port=5433 dbname=prod user=u password='it''s' pool_size=5
                * = host=fallback reserve_pool=2
            [pgbouncer]
                listen_addr = 127.0.0.1, ::1
                auth_type = trust
                pool_mode = transaction
                query_wait_timeout = 0.5
                server_tls_sslmode = verify-ca
                pidfile =
                threads = 4
                io_driver = epoll
            [users]
                alice = pool_mode=session query_timeout=3
                test2 =
            [databases]
                app2= dbname=other load_balance_hosts=disable pool_mode=statement",
        );
        let app = &config.databases["app"];
        assert_eq!(app.host, ["10.0.0.1", "/run/pg"]);
        assert_eq!((app.port, app.dbname.as_str(), app.pool_size), (5433, "prod", Some(5)));
        assert_eq!((app.user.as_deref(), app.password.as_deref()), (Some("u"), Some("it's")));
        assert_eq!(app.at.line, 2);
        assert_eq!(config.fallback.as_ref().unwrap().reserve_pool_size, Some(2));
        assert_eq!(config.databases["app2"].load_balance_hosts, LoadBalance::Disable);
        assert_eq!(config.databases.len(), 2);
        let global = &config.global;
        assert_eq!(global.listen_addr, ["127.0.0.1", "::1"]);
        assert_eq!((global.auth_type, global.pool_mode), (AuthType::Trust, PoolMode::Transaction));
        assert_eq!(global.query_wait_timeout, Duration::from_millis(500));
        assert_eq!((global.threads, global.io_driver), (Threads::Count(4), IoDriver::Epoll));
        assert_eq!(global.conffile.as_deref(), Some("w.ini"));
        assert_eq!(config.user("alice").unwrap().query_timeout, Some(Duration::from_secs(3)));
        assert!(config.user("test2").is_some() && config.user("bob").is_none());
    }

    #[test]
    fn the_last_of_two_values_counts() {
        let text = "[pgbouncer]\nverbose = 1\nverbose = 2\n[databases]\na = port=1 pool_size=3\na = port=2";
        let config = config(text);
        assert_eq!(config.global.verbose, 2);
        assert_eq!((config.databases["a"].port, config.databases["a"].pool_size), (2, None));
    }

    #[test]
    fn a_section_that_comes_again_goes_on() {
        let config = config("[pgbouncer]\nverbose = 1\n[users]\n[pgbouncer]\nlisten_port = 7000");
        assert_eq!((config.global.verbose, config.global.listen_port), (1, 7000));
    }

    #[test]
    fn every_error_is_told_with_its_place() {
        let text = "[pgbouncer]
            listen_port = sixty
            auth_type = sometimes
            client_tls_sslmode = sometimes
            pool_mode = tx
            conffile = x
            colour = red
            [databases]
            pgbouncer = host=h
            a = host
            b = pool_size=x colour=red
            [users]
            c = pool_mode=never
            [peers]
            0 = host=/tmp
            2 = port=1
            3 = colour=red
            1 = host=/tmp
            [odd]";
        let expected = [
            "w.ini:19: unknown section [odd]",
            "w.ini:2: listen_port: \"sixty\" is not a whole number",
            "w.ini:3: auth_type: \"sometimes\" is not one of any, trust, plain, md5, scram-sha-256, cert, hba, peer, ldap, pam",
            "w.ini:4: client_tls_sslmode: \"sometimes\" is not one of disable, allow, prefer, require, verify-ca, verify-full",
            "w.ini:5: pool_mode: \"tx\" is not one of session, transaction, statement",
            "w.ini:6: conffile: is given on the command line only",
            "w.ini:7: unknown setting \"colour\" in section [pgbouncer]",
            "w.ini:9: database name \"pgbouncer\" is reserved",
            "w.ini:10: database a: syntax error: expected \"=\" after \"host\"",
            "w.ini:11: database b: pool_size: \"x\" is not a whole number",
            "w.ini:11: database b: unknown key \"colour\"",
            "w.ini:13: user c: pool_mode: \"never\" is not one of session, transaction, statement",
            "w.ini:15: peer 0: its name is not a number from 1 to 16383",
            "w.ini:16: peer 2: host is missing",
            "w.ini:17: peer 3: unknown key \"colour\"",
        ];
        assert_eq!(errors(text), expected);
    }

    #[test]
    fn certificates_prove_something_only_where_they_are_asked_for() {
        let told = |more: &str| errors(&format!("[pgbouncer]\nauth_type = cert\n{more}"));
        assert_eq!(told("")[0], "w.ini: auth_type=cert requires client_tls_sslmode=verify-full");
        assert_eq!(
            told("client_tls_sslmode = verify-full")[0],
            "w.ini: auth_type=cert requires client_tls_ca_file"
        );
        config("[pgbouncer]\nauth_type = cert\nclient_tls_sslmode = verify-full\nclient_tls_ca_file = ca");
    }

    #[test]
    fn names_have_the_lengths_of_pgbouncer() {
        let long = "n".repeat(64);
        assert_eq!(errors(&format!("[pgbouncer]\n[databases]\n{long} =")).len(), 1);
        config(&format!("[pgbouncer]\n[databases]\n{} =\n[users]\n{long} =", &long[1..]));
        assert_eq!(errors(&format!("[pgbouncer]\n[users]\n{} =", "n".repeat(128))).len(), 1);
    }

    #[test]
    fn the_whole_must_make_sense() {
        assert_eq!(errors("[databases]"), ["w.ini: main section [pgbouncer] missing from config file"]);
        let nowhere = errors("[pgbouncer]\nunix_socket_dir =");
        assert_eq!(nowhere, ["w.ini: nowhere to listen on: listen_addr and unix_socket_dir are both empty"]);
    }

    #[test]
    fn flags_win_over_the_file() {
        let files = [("w.ini", "[pgbouncer]\nuser = a\nverbose = 1")];
        let config = load(&Memory(&files), "w.ini", &[("user", "b"), ("verbose", "2")]).unwrap();
        assert_eq!((config.global.user.as_deref(), config.global.verbose), (Some("b"), 2));
        let findings = load(&Memory(&files), "w.ini", &[("verbose", "x"), ("odd", "")]).unwrap_err();
        let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            ["command line: verbose: \"x\" is not a whole number", "command line: odd: unknown setting"]
        );
    }

    #[test]
    fn the_file_of_secrets_is_read_and_may_be_missing() {
        let main = ("w.ini", "[pgbouncer]\nauth_file = u.txt");
        let config = load(&Memory(&[main, ("u.txt", "\"a\" \"b\"\nbroken")]), "w.ini", &[]).unwrap();
        assert_eq!(config.secrets["a"], "b");
        assert_eq!(config.warnings[0].to_string(), "u.txt:2: broken auth file: expected \"user\" \"secret\"");
        let without = load(&Memory(&[main]), "w.ini", &[]).unwrap();
        assert!(without.secrets.is_empty());
        let told = without.warnings[0].to_string();
        assert_eq!(told, "u.txt: could not open auth_file u.txt: No such file or directory");
        let kept = reload(&Memory(&[main]), "w.ini", &[], &config).unwrap();
        assert_eq!(kept.secrets, config.secrets);
        let none = reload(&Memory(&[("w.ini", "[pgbouncer]")]), "w.ini", &[], &config).unwrap();
        assert!(none.secrets.is_empty());
    }

    #[test]
    fn rules_are_read_only_where_they_count() {
        let text = |auth_type| {
            format!("[pgbouncer]\nauth_type = {auth_type}\nauth_hba_file = h\nauth_ident_file = i")
        };
        let of = |auth_type| {
            let hba = "local all all peer map=m\nhost all all all nonsense";
            load(
                &Memory(&[("w.ini", &text(auth_type)), ("h", hba), ("i", "m root alice\nbad")]),
                "w.ini",
                &[],
            )
            .unwrap()
        };
        assert!(of("trust").hba.rules.is_empty() && of("trust").warnings.is_empty());
        let config = of("hba");
        assert_eq!(config.hba.rules.len(), 1);
        let told: Vec<u32> = config.warnings.iter().map(|finding| finding.line).collect();
        assert_eq!(told, [2, 2]);
    }

    #[test]
    fn options_of_a_directory_are_told_where_they_count() {
        let told = |auth_type: &str, options: &str| {
            let text = format!("[pgbouncer]\nauth_type = {auth_type}\nauth_ldap_options = {options}");
            config(&text).warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let sound = r#"ldapurl="ldap://127.0.0.1:12345/dc=example,dc=net?uid?sub""#;
        assert_eq!(told("ldap", sound), Vec::<String>::new());
        assert_eq!(told("plain", "ldapport=x"), Vec::<String>::new());
        let bad = "w.ini:3: auth_ldap_options: invalid LDAP port number: \"x\"";
        assert_eq!(told("ldap", "ldapport=x"), [bad]);
        assert_eq!(config("[pgbouncer]\nauth_type = ldap").warnings.len(), 1);
        assert_eq!(config("[pgbouncer]\nauth_type = pam").warnings.len(), 0);
    }

    #[test]
    fn a_reload_keeps_what_only_a_restart_changes() {
        let old = config(
            "[pgbouncer]\nlisten_port = 7000\nlisten_addr = a,b\nuser = me\npkt_buf = 75\nverbose = 1",
        );
        let files = [("w.ini", "[pgbouncer]\nlisten_port = 7001\nverbose = 2\nunix_socket_mode = 0700")];
        let new = reload(&Memory(&files), "w.ini", &[], &old).unwrap();
        assert_eq!((new.global.listen_port, new.global.verbose), (7000, 2));
        assert_eq!((&new.global.listen_addr, &new.global.user), (&old.global.listen_addr, &old.global.user));
        assert_eq!(new.global.unix_socket_mode, 0o777);
        let told: Vec<String> = new.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 5);
        assert!(
            told.contains(&"w.ini: listen_port: a changed value takes effect at the next start".to_owned())
        );
    }
}
