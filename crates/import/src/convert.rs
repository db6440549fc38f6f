//! From pgpool.conf to weir.ini: what each setting that has an equivalent becomes. Owns the figures of pools and limits and their
//! explanation. Which settings have an equivalent is the table's.

use std::sync::Arc;

use settings::Finding;

use crate::conf::{Conf, beside};
use crate::draft::{Draft, refusal};
use crate::source::{COUNT_MAX, Source};
use crate::{cluster, report, value};

/// What is converted.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The file as it was named.
    pub path: &'a str,
    /// What it says.
    pub conf: &'a Conf,
    /// Its directory, from the root on: paths in the file are relative to it.
    pub directory: &'a str,
    /// The path of the rules that were converted from pool_hba.conf.
    pub rules: Option<&'a str>,
    /// The user list that was converted from pool_passwd.
    pub users: Option<Users<'a>>,
}

/// A user list.
#[derive(Clone, Copy, Debug)]
pub struct Users<'a> {
    /// Its path.
    pub path: &'a str,
    /// Some secret is an md5 one, which clients cannot prove by SCRAM.
    pub has_md5: bool,
}

/// A weir.ini.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The text.
    pub ini: String,
    /// What became of each setting, and what is wrong with some: for people.
    pub list: String,
}

/// Why there is no weir.ini. Displays as lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportError {
    /// Lines of the file cannot be read.
    Syntax(Vec<Finding>),
    /// No backend that can be used, and what is wrong with those that there are.
    NoBackend(Arc<str>, Vec<Finding>),
    /// Weir would not start with what was written: a mistake of the conversion.
    Refused(String),
}

impl std::fmt::Display for ImportError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines = |out: &mut std::fmt::Formatter<'_>, findings: &[Finding]| {
            findings.iter().try_for_each(|finding| writeln!(out, "{finding}"))
        };
        match self {
            ImportError::Syntax(findings) => lines(out, findings),
            ImportError::NoBackend(file, findings) => {
                lines(out, findings)?;
                writeln!(out, "{file}: no backend that can be used (backend_hostname0, backend_hostname1, …)")
            }
            ImportError::Refused(why) => {
                writeln!(out, "internal error: Weir refuses what was written: {why}")
            }
        }
    }
}

impl std::error::Error for ImportError {}

/// Converts a file.
///
/// # Errors
/// What keeps it from being converted; a value that makes no sense does not, and neither does an unknown setting.
pub fn convert(request: &Request<'_>) -> Result<Imported, ImportError> {
    if !request.conf.errors.is_empty() {
        return Err(ImportError::Syntax(request.conf.errors.clone()));
    }
    let mut converter = Converter { request, source: Source::new(request.conf), draft: Draft::default() };
    if !cluster::convert(&mut converter.source, &mut converter.draft) {
        return Err(ImportError::NoBackend(request.path.into(), converter.source.problems));
    }
    converter.mode();
    converter.pools();
    converter.listen();
    converter.authentication();
    converter.tls();
    converter.times();
    converter.host_probe();
    converter.sessions();
    converter.log();
    converter.console();
    let name = request.path.rsplit('/').next().unwrap_or_default();
    let head = format!(
        "Written by `weir import` from {name}, of which each line names its settings. What became of the others is in the list that the \
         command prints, and in docs/pgpool.md."
    );
    let ini = converter.draft.text(&head);
    match refusal(&ini) {
        Some(why) => Err(ImportError::Refused(why)),
        None => {
            let list = report::list(request.path, request.conf, &converter.source.problems);
            Ok(Imported { ini, list })
        }
    }
}

struct Converter<'a> {
    request: &'a Request<'a>,
    source: Source<'a>,
    draft: Draft,
}

impl Converter<'_> {
    /// Writes a setting that comes from these, with a comment; where Weir refuses the value, that is a problem of the first one.
    fn put(&mut self, key: &str, value: &str, from: &[&str], why: &str) {
        let origin =
            if from.is_empty() { String::new() } else { format!("From {}. ", self.source.named(from)) };
        let comment = format!("{origin}{why}");
        let Err(refused) = self.draft.line(key, value, &[comment]) else { return };
        if let Some(one) = from.iter().find_map(|name| self.source.get(name)) {
            self.source.problem(one, &format!("not converted: {refused}"));
        }
    }

    /// The same value under Weir's name, if there is one.
    fn same(&mut self, key: &str, from: &str) {
        if let Some(one) = self.source.text(from) {
            self.put(key, one.value.trim_ascii(), &[from], "");
        }
    }

    fn boolean(&mut self, key: &str, from: &str) {
        if self.source.get(from).is_some() {
            let value = self.source.boolean(from, false);
            self.put(key, if value { "1" } else { "0" }, &[from], "");
        }
    }

    /// A time in Weir's seconds, if it is set.
    fn time(&mut self, key: &str, from: &str, unit: f64) {
        if let Some(seconds) = self.source.seconds(from, unit) {
            self.put(key, &seconds.to_string(), &[from], "");
        }
    }

    /// A path of the file, from the root on.
    fn path(&self, name: &str) -> Option<String> {
        let value = self.source.text(name)?.value.trim_ascii();
        Some(beside(&format!("{}/", self.request.directory.trim_end_matches('/')), value))
    }

    fn file(&mut self, key: &str, from: &str) {
        if let Some(path) = self.path(from) {
            self.put(key, &path, &[from], "");
        }
    }

    fn mode(&mut self) {
        self.put(
            "pool_mode",
            "session",
            &[],
            "pgpool-II keeps a server connection for a client until the client disconnects: that is `session`. With `transaction` it serves \
             another client after each transaction, so that a few server connections serve many clients; what clients keep in their \
             sessions follows them (session_state, docs/session-state.md). Worth a try: set pool_mode = transaction here and \
             default_pool_size to what `weir-bench sweep` finds, and leave max_client_conn.",
        );
    }

    fn pools(&mut self) {
        let children = self.source.count("num_init_children", 1, 32);
        let cached = self.source.count("max_pool", 1, 4);
        let waiting =
            children.saturating_mul(self.source.count("listen_backlog_multiplier", 0, 2)).min(COUNT_MAX);
        let reserved = self.source.count("reserved_connections", 0, 0);
        let text = format!(
            "A child serves one client at a time: {children} server connections for each database and user."
        );
        self.put("default_pool_size", &children.to_string(), &["num_init_children"], &text);
        let most = children.saturating_mul(cached).min(COUNT_MAX);
        let text = format!(
            "The children keep {children} * {cached} server connections at most; here a database has no more. max_connections of PostgreSQL \
             has to allow it, as before."
        );
        self.put("max_db_connections", &most.to_string(), &["num_init_children", "max_pool"], &text);
        if reserved > 0 {
            let text = "Clients beyond num_init_children - reserved_connections are refused.";
            let clients = children.saturating_sub(reserved).max(1);
            self.put(
                "max_client_conn",
                &clients.to_string(),
                &["num_init_children", "reserved_connections"],
                text,
            );
        } else {
            let from = ["num_init_children", "listen_backlog_multiplier"];
            let text = format!(
                "{children} clients are served at a time, and {waiting} more may wait, in Weir for a server connection and not in the \
                 kernel's queue; then clients are refused."
            );
            let clients = children.saturating_add(waiting).min(COUNT_MAX);
            self.put("max_client_conn", &clients.to_string(), &from, &text);
        }
        let from = ["num_init_children", "listen_backlog_multiplier"];
        self.put("listen_backlog", &waiting.to_string(), &from, "");
    }

    fn listen(&mut self) {
        let addresses = self.source.get("listen_addresses").map_or("localhost", |one| one.value.trim_ascii());
        self.put("listen_addr", addresses, &["listen_addresses"], "");
        let port = self.source.number("port", 1, 65_535, 9999);
        self.put("listen_port", &port.to_string(), &["port"], "");
        for name in ["unix_socket_directories", "socket_dir"] {
            let Some(one) = self.source.text(name) else { continue };
            let mut directories = one.value.split(',').map(str::trim_ascii).filter(|path| !path.is_empty());
            let first = directories.next().unwrap_or_default();
            self.put("unix_socket_dir", first, &[name], "");
            if directories.next().is_some() {
                self.source.problem(one, "Weir listens in one directory: the first");
            }
            break;
        }
        self.same("unix_socket_group", "unix_socket_group");
        self.same("unix_socket_mode", "unix_socket_permissions");
    }

    fn authentication(&mut self) {
        let has_rules = self.source.boolean("enable_pool_hba", false);
        match (has_rules, self.request.rules) {
            (true, Some(path)) => {
                self.put("auth_type", "hba", &["enable_pool_hba"], "");
                self.put(
                    "auth_hba_file",
                    path,
                    &["enable_pool_hba"],
                    "Converted from pool_hba.conf. `trust` lets in users whom auth_file or auth_query knows.",
                );
            }
            (true, None) => {
                self.put("auth_type", "hba", &["enable_pool_hba"], "");
                let path = format!("{}/pool_hba.conf", self.request.directory.trim_end_matches('/'));
                let text = "Not converted: Weir skips lines that it does not take (pam), and a later line may then match. \
                            `weir import --pool-hba` closes that gap.";
                self.put("auth_hba_file", &path, &["enable_pool_hba"], text);
            }
            (false, _) => {
                let is_scram = self.request.users.is_some_and(|users| !users.has_md5);
                let (kind, text) = if is_scram {
                    (
                        "scram-sha-256",
                        "pgpool-II asks as PostgreSQL does; no secret of the user list is an md5 one.",
                    )
                } else {
                    (
                        "md5",
                        "pgpool-II asks as PostgreSQL does. Users with a SCRAM secret log in by SCRAM here, others by md5.",
                    )
                };
                self.put("auth_type", kind, &["enable_pool_hba"], text);
            }
        }
        if let Some(users) = self.request.users {
            self.put("auth_file", users.path, &["pool_passwd"], "Its secrets are also those for PostgreSQL.");
        } else {
            let text = "No users are known yet: name a file of `\"user\" \"secret\"` lines (`weir import --pool-passwd`), or a user who may ask \
                        PostgreSQL for the secrets of the others.";
            self.draft.examples(text, &["auth_file = userlist.txt", "auth_user = NAME"]);
        }
        self.time("client_login_timeout", "authentication_timeout", 1.0);
    }

    fn tls(&mut self) {
        if self.source.get("ssl").is_none() {
            return;
        }
        if !self.source.boolean("ssl", false) {
            self.put("client_tls_sslmode", "disable", &["ssl"], "");
            self.put("server_tls_sslmode", "disable", &["ssl"], "");
            return;
        }
        let missing = ["ssl_key", "ssl_cert"].into_iter().find(|name| self.source.text(name).is_none());
        if let (Some(missing), Some(one)) = (missing, self.source.get("ssl")) {
            self.source.problem(one, &format!("not converted: there is no {missing}"));
            return;
        }
        self.put("client_tls_sslmode", "allow", &["ssl"], "Clients may use TLS; `require` has them use it.");
        self.put("server_tls_sslmode", "prefer", &["ssl"], "TLS where the server offers it.");
        self.file("client_tls_key_file", "ssl_key");
        self.file("client_tls_cert_file", "ssl_cert");
        self.file("client_tls_ca_file", "ssl_ca_cert");
        self.same("client_tls_ciphers", "ssl_ciphers");
        self.same("client_tls_ecdhcurve", "ssl_ecdh_curve");
    }

    fn times(&mut self) {
        self.time("server_connect_timeout", "connect_timeout", 0.001);
        self.time("server_idle_timeout", "connection_life_time", 1.0);
        self.time("client_idle_timeout", "client_idle_limit", 1.0);
        self.time("idle_transaction_timeout", "client_idle_limit", 1.0);
    }

    fn host_probe(&mut self) {
        self.time("host_probe_interval", "sr_check_period", 1.0);
        self.same("host_probe_user", "sr_check_user");
    }

    fn sessions(&mut self) {
        if !self.source.boolean("connection_cache", true) {
            self.put(
                "server_lifetime",
                "0",
                &["connection_cache"],
                "Each server connection is closed after its session.",
            );
        }
        let Some(one) = self.source.get("reset_query_list") else { return };
        let queries = one.value.split(';').map(str::trim_ascii);
        let kept = |query: &&str| {
            !query.is_empty() && !["abort", "rollback"].contains(&query.to_ascii_lowercase().as_str())
        };
        let queries: Vec<&str> = queries.filter(kept).collect();
        let discards = queries
            .iter()
            .any(|query| query.to_ascii_uppercase().split_ascii_whitespace().eq(["DISCARD", "ALL"]));
        let query = if discards { "DISCARD ALL".to_owned() } else { queries.join("; ") };
        self.put("server_reset_query", &query, &["reset_query_list"], "");
    }

    fn log(&mut self) {
        self.boolean("log_connections", "log_connections");
        self.boolean("log_disconnections", "log_disconnections");
        if self
            .source
            .text("log_destination")
            .is_some_and(|one| one.value.to_ascii_lowercase().contains("syslog"))
        {
            self.put("syslog", "1", &["log_destination"], "");
        }
        if let Some(one) = self.source.text("syslog_facility") {
            self.put(
                "syslog_facility",
                &one.value.trim_ascii().to_ascii_lowercase(),
                &["syslog_facility"],
                "",
            );
        }
        self.same("syslog_ident", "syslog_ident");
        if self.source.boolean("logging_collector", false) {
            let directory = self.path("log_directory").unwrap_or_else(|| "/tmp/pgpool_logs".to_owned());
            let path = format!("{}/weir.log", directory.trim_end_matches('/'));
            self.put("logfile", &path, &["logging_collector", "log_directory"], "");
        }
        if let Some(path) = self.path("pid_file_name") {
            let path = beside(&path, "weir.pid");
            self.put("pidfile", &path, &["pid_file_name"], "A file of its own in the same directory.");
        }
    }

    fn console(&mut self) {
        let text = "In place of PCP: users of the console, `psql -p PORT pgbouncer -c 'SHOW POOLS'`.";
        self.draft.examples(text, &["admin_users = postgres"]);
    }
}

/// Whether a pgpool.conf has clients authenticated by pool_hba.conf.
#[must_use]
pub fn uses_rules(conf: &Conf) -> bool {
    conf.last().get("enable_pool_hba").is_some_and(|one| value::boolean(&one.value) == Some(true))
}
