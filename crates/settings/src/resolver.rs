//! Resolves a [`RawConfig`] into a [`Config`]: each assignment through its row, then checks across settings.
//! Owns loading and RELOAD. Reports every error of a file, not just the first.

mod assignment;
mod pools;

pub(crate) use pools::leaving_out;

use crate::files::Files;
use crate::finding::{Finding, Origin, Severity};
use crate::hba::Hba;
use crate::quotas_file::read_quotas;
use crate::raw_config::{Assignment, RawConfig};
use crate::table::TakesEffect;
use crate::userlist::Userlist;
use crate::{AuthType, Config, Database, Global, SslMode, TlsFiles, global, guarantees, ident};
use std::sync::Arc;

/// Reads a file with its includes and its `auth_file`. `flags` are settings from the command line and take precedence.
///
/// # Errors
/// Every error and warning, in file order.
pub fn load(files: &dyn Files, path: &str, flags: &[(&str, &str)]) -> Result<Config, Vec<Finding>> {
    RawConfig::read(files, path).config(files, flags, None)
}

/// [`load`] for a process running with `old`: settings that need a restart keep their value, with a warning, and an
/// unreadable `auth_file` keeps the secrets, as in PgBouncer.
///
/// # Errors
/// As [`load`]; `old` stays in force.
pub fn reload(
    files: &dyn Files,
    path: &str,
    flags: &[(&str, &str)],
    old: &Config,
) -> Result<Config, Vec<Finding>> {
    RawConfig::read(files, path).config(files, flags, Some(old))
}

/// The settings of a process that was started with this file before it was edited, as far as they are still there: what is wrong in it by now is left out.
#[must_use]
pub fn left_settings(files: &dyn Files, path: &str) -> Global {
    let raw = RawConfig::read(files, path);
    let mut resolver = Resolver { config: Config::default(), findings: Vec::new() };
    raw.assignments.iter().for_each(|assignment| resolver.apply(assignment));
    resolver.config.global
}

impl RawConfig {
    /// Resolves the settings: [`load`], or [`reload`] if there is an `old`.
    ///
    /// # Errors
    /// Every error and warning, in file order.
    pub fn config(
        mut self,
        files: &dyn Files,
        flags: &[(&str, &str)],
        old: Option<&Config>,
    ) -> Result<Config, Vec<Finding>> {
        leaving_out(self.pools.take(), |pools| RawConfig { pools, ..self.clone() }.resolve(files, flags, old))
    }

    fn resolve(
        self,
        files: &dyn Files,
        flags: &[(&str, &str)],
        old: Option<&Config>,
    ) -> Result<Config, Vec<Finding>> {
        let mut resolver = Resolver { config: Config::default(), findings: self.findings };
        resolver.config.global.conffile = Some(self.file.to_string());
        for assignment in &self.assignments {
            resolver.apply(assignment);
        }
        resolver.flags(flags);
        if let Some(pools) = self.pools {
            resolver.add_pools(pools);
        }
        if !self.has_main && resolver.findings.is_empty() {
            resolver.file_error(&self.file, "main section [pgbouncer] missing from config file");
        }
        match old {
            // A file that is rejected changes nothing, so there is nothing to warn of.
            Some(_) if resolver.has_errors() => {}
            Some(old) => resolver.keep_running(old, &self.file),
            None => resolver.check_listeners(&self.file),
        }
        resolver.read_secrets(files);
        let findings = read_rules(files, &mut resolver.config);
        resolver.findings.extend(findings);
        match read_quotas(files, &resolver.config.global) {
            Ok(quotas) => resolver.config.quotas = quotas,
            Err(findings) => resolver.findings.extend(findings),
        }
        resolver.check_ldap_options(&self.assignments, &self.file);
        resolver.check_certificate_auth(&self.file);
        resolver.check_auto_pool_size(&self.file);
        let patronis = resolver.config.patronis();
        resolver.config.tls_files = TlsFiles::read(files, &resolver.config.global, &patronis);
        resolver.check_collector(&self.assignments, &self.file);
        resolver.findings.extend(guarantees::findings(&resolver.config));
        resolver.finish()
    }
}

/// Reads the HBA and ident files if `auth_type` needs them. Errors in them do not stop loading, as in PgBouncer: bad lines
/// are skipped.
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
    let (hba, reported) = Hba::read(files, path, &maps, config.has_auth_user());
    config.hba = Arc::new(hba);
    findings.extend(reported);
    findings
}

/// Builds a [`Config`].
pub(crate) struct Resolver {
    pub(crate) config: Config,
    pub(crate) findings: Vec<Finding>,
}

impl Resolver {
    /// Keeps the values that only a restart changes, and the secrets until their file is read.
    fn keep_running(&mut self, old: &Config, file: &Arc<str>) {
        let at = Origin { file: file.clone(), line: 0 };
        self.config.secrets = old.secrets.clone();
        for row in global::GLOBAL.iter().filter(|row| row.info.when == TakesEffect::Restart) {
            if row.same(&self.config.global, &old.global) {
                continue;
            }
            let running = (row.show)(&old.global).unwrap_or_default();
            let message = match (row.assign)(&mut self.config.global, &running) {
                Ok(()) => format!("{}: a changed value takes effect at the next start", row.info.name),
                Err(bad) => format!("{}: \"{running}\" {bad}", row.info.name),
            };
            self.findings.push(Finding::warning(&at, message));
        }
    }

    /// A missing `auth_file` is a warning, as in PgBouncer: its users cannot log in.
    fn read_secrets(&mut self, files: &dyn Files) {
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

    /// Invalid LDAP options are a warning, as in PgBouncer: LDAP logins are refused.
    fn check_ldap_options(&mut self, assignments: &[Assignment], file: &Arc<str>) {
        let global = &self.config.global;
        let Err(fault) = global.auth_ldap_options.options() else { return };
        if global.auth_type == AuthType::Ldap {
            let at = origin_of(assignments, "auth_ldap_options", file);
            self.findings.push(Finding::warning(&at, format!("auth_ldap_options: {fault}")));
        }
    }

    /// auth_type=cert needs client certificates to be requested and verified.
    fn check_certificate_auth(&mut self, file: &Arc<str>) {
        if let Some(missing) = missing_for_cert_auth(&self.config.global) {
            self.file_error(file, missing);
        }
    }

    /// Bounds of `pool_size = auto` that exclude every size.
    fn check_auto_pool_size(&mut self, file: &Arc<str>) {
        let global = &self.config.global;
        if let Some(why) = no_auto_pool_size((global.auto_pool_size_min, global.auto_pool_size_max)) {
            self.file_error(file, &why);
        }
    }

    /// The same of entries that have one of their own.
    fn check_auto_pool_size_of_entries(&mut self) {
        let entries = self.config.databases.values().chain(&self.config.fallback);
        let has_own = |database: &&Arc<Database>| {
            database.auto_pool_size_min.is_some() || database.auto_pool_size_max.is_some()
        };
        let wrong = entries.filter(has_own).filter_map(|database| {
            let why = no_auto_pool_size(self.config.auto_pool_size(database))?;
            let own = if database.auto_pool_size_min.is_some() {
                "auto_pool_size_min"
            } else {
                "auto_pool_size_max"
            };
            Some(Finding::error(&database.at, format!("database {}: {why}", database.name)).of_key(Some(own)))
        });
        let wrong: Vec<Finding> = wrong.collect();
        self.findings.extend(wrong);
    }

    /// A collector whose certificate cannot be verified is a warning: no metrics are sent, clients are not affected.
    fn check_collector(&mut self, assignments: &[Assignment], file: &Arc<str>) {
        let (name, why) = match (&self.config.global.otlp_endpoint, &self.config.tls_files.collector.ca) {
            (Some(endpoint), None) if endpoint.is_https => (
                "otlp_endpoint",
                "its certificate cannot be verified: no system CA bundle was found, and otlp_ca_file is not set",
            ),
            (_, Some(Err(reason))) => ("otlp_ca_file", reason.as_str()),
            _ => return,
        };
        self.findings.push(Finding::warning(&origin_of(assignments, name, file), format!("{name}: {why}")));
    }

    /// Only a warning: the service manager may have passed sockets.
    fn check_listeners(&mut self, file: &Arc<str>) {
        let global = &self.config.global;
        if global.listen_addr.is_empty() && global.unix_socket_dir.is_none() {
            let at = Origin { file: file.clone(), line: 0 };
            let message = "nowhere to listen on: listen_addr and unix_socket_dir are both empty";
            self.findings.push(Finding::warning(&at, message));
        }
    }

    fn file_error(&mut self, file: &Arc<str>, message: &str) {
        self.findings.push(Finding::error(&Origin { file: file.clone(), line: 0 }, message));
    }

    fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    pub(crate) fn finish(mut self) -> Result<Config, Vec<Finding>> {
        self.check_auto_pool_size_of_entries();
        if self.has_errors() {
            return Err(self.findings);
        }
        self.config.warnings = self.findings;
        Ok(self.config)
    }
}

/// What `auth_type=cert` lacks.
pub(crate) fn missing_for_cert_auth(global: &Global) -> Option<&'static str> {
    if global.auth_type != AuthType::Cert {
        None
    } else if global.client_tls_sslmode != SslMode::VerifyFull {
        Some("auth_type=cert requires client_tls_sslmode=verify-full")
    } else if global.client_tls_ca_file.is_none() {
        Some("auth_type=cert requires client_tls_ca_file")
    } else {
        None
    }
}

/// Why no size is allowed from the first to the second, if none is.
pub(crate) fn no_auto_pool_size((min, max): (u32, u32)) -> Option<String> {
    let text = || format!("auto_pool_size_min is {min} and auto_pool_size_max is {max}: no size is allowed");
    (min > max).then(text)
}

/// The location of the last assignment of a setting, else the whole file.
fn origin_of(assignments: &[Assignment], key: &str, file: &Arc<str>) -> Origin {
    let written = assignments.iter().rfind(|assignment| assignment.key == key);
    written.map_or(Origin { file: file.clone(), line: 0 }, |assignment| assignment.at.clone())
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::files::memory::Memory;

    /// What a file of this text means.
    pub(crate) fn config(text: &str) -> Config {
        load(&Memory(&[("w.ini", text)]), "w.ini", &[]).unwrap()
    }

    /// What is wrong with it.
    pub(crate) fn errors(text: &str) -> Vec<String> {
        let findings = load(&Memory(&[("w.ini", text)]), "w.ini", &[]).unwrap_err();
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn certificates_prove_something_only_where_they_are_asked_for() {
        let reported = |more: &str| errors(&format!("[pgbouncer]\nauth_type = cert\n{more}"));
        assert_eq!(reported("")[0], "w.ini: auth_type=cert requires client_tls_sslmode=verify-full");
        assert_eq!(
            reported("client_tls_sslmode = verify-full")[0],
            "w.ini: auth_type=cert requires client_tls_ca_file"
        );
        config("[pgbouncer]\nauth_type = cert\nclient_tls_sslmode = verify-full\nclient_tls_ca_file = ca");
    }

    #[test]
    fn the_whole_must_make_sense() {
        assert_eq!(errors("[databases]"), ["w.ini: main section [pgbouncer] missing from config file"]);
        let nowhere = config("[pgbouncer]\nunix_socket_dir =").warnings;
        assert_eq!(nowhere.len(), 1);
        let reported = "w.ini: nowhere to listen on: listen_addr and unix_socket_dir are both empty";
        assert_eq!(nowhere[0].to_string(), reported);
    }

    #[test]
    fn the_file_of_secrets_is_read_and_may_be_missing() {
        let main = ("w.ini", "[pgbouncer]\nauth_file = u.txt");
        let config = load(&Memory(&[main, ("u.txt", "\"a\" \"b\"\nbroken")]), "w.ini", &[]).unwrap();
        assert_eq!(config.secrets["a"], "b");
        assert_eq!(config.warnings[0].to_string(), "u.txt:2: broken auth file: expected \"user\" \"secret\"");
        let without = load(&Memory(&[main]), "w.ini", &[]).unwrap();
        assert!(without.secrets.is_empty());
        let reported = without.warnings[0].to_string();
        assert_eq!(reported, "u.txt: could not open auth_file u.txt: No such file or directory");
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
        let reported: Vec<u32> = config.warnings.iter().map(|finding| finding.line).collect();
        assert_eq!(reported, [2, 2]);
    }

    #[test]
    fn options_of_a_directory_are_reported_where_they_count() {
        let reported = |auth_type: &str, options: &str| {
            let text = format!("[pgbouncer]\nauth_type = {auth_type}\nauth_ldap_options = {options}");
            config(&text).warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let sound = r#"ldapurl="ldap://127.0.0.1:12345/dc=example,dc=net?uid?sub""#;
        assert_eq!(reported("ldap", sound), Vec::<String>::new());
        assert_eq!(reported("plain", "ldapport=x"), Vec::<String>::new());
        let bad = "w.ini:3: auth_ldap_options: invalid LDAP port number: \"x\"";
        assert_eq!(reported("ldap", "ldapport=x"), [bad]);
        assert_eq!(config("[pgbouncer]\nauth_type = ldap").warnings.len(), 1);
        assert_eq!(config("[pgbouncer]\nauth_type = pam").warnings.len(), 0);
    }

    #[test]
    fn a_collector_is_checked_by_roots() {
        let reported = |text: &str, files: &[(&str, &str)]| {
            let text = format!("[pgbouncer]\n{text}");
            let files: Vec<_> = files.iter().copied().chain([("w.ini", &*text)]).collect();
            let config = load(&Memory(&files), "w.ini", &[]).unwrap();
            let warnings = config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>();
            (warnings, config.tls_files.collector.ca.is_some())
        };
        let system = [("/etc/ssl/cert.pem", "roots")];
        assert_eq!(reported("otlp_endpoint = https://h", &system), (vec![], true));
        assert_eq!(reported("otlp_endpoint = http://h\notlp_ca_file = gone", &[]), (vec![], false));
        let none = "w.ini:2: otlp_endpoint: its certificate cannot be verified: no system CA bundle was found, and otlp_ca_file is not set";
        assert_eq!(reported("otlp_endpoint = https://h", &[]), (vec![none.to_owned()], false));
        let gone = "w.ini:3: otlp_ca_file: failed to open gone: No such file or directory";
        assert_eq!(
            reported("otlp_endpoint = https://h\notlp_ca_file = gone", &system),
            (vec![gone.to_owned()], true)
        );
        let bad = errors("[pgbouncer]\notlp_headers = secret\notlp_endpoint = h:4318");
        assert_eq!(
            bad,
            [
                "w.ini:2: invalid value \"...\" for parameter otlp_headers: is not a list of headers: expected NAME=VALUE, with commas between them",
                "w.ini:3: invalid value \"h:4318\" for parameter otlp_endpoint: is not a URL like http://127.0.0.1:4318: it does not begin with http:// or https://",
            ]
        );
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
        let reported: Vec<String> = new.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(reported.len(), 5);
        assert!(
            reported
                .contains(&"w.ini: listen_port: a changed value takes effect at the next start".to_owned())
        );
    }
}
