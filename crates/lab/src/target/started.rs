//! The file of a pooler that is started before a user's server, in PgBouncer's language: all settings at their
//! defaults but the ones that a measurement is about. Text only; starting it is `pooler`'s affair.
//!
//! Never opens a way into the server for others of this machine: where the server asks for no password (a socket, a
//! certificate, trust), clients of the pooler need one that lives as long as the pooler does.

use std::fmt::Write as _;
use std::path::Path;

use super::{Address, Secret};

/// How large the one pool of a started pooler is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolSizing {
    /// This many server connections.
    Fixed(u32),
    /// What it finds itself (`pool_size = auto`), between the two.
    Auto {
        /// `auto_pool_size_min`.
        least: u32,
        /// `auto_pool_size_max`.
        most: u32,
    },
}

/// What a started pooler is to be.
#[derive(Clone, Copy, Debug)]
pub struct Started<'a> {
    /// Names its files.
    pub name: &'a str,
    /// The server behind it.
    pub server: &'a Address,
    /// Its standbys, to which reads go; none where all goes to the server.
    pub standbys: &'a [Address],
    /// Its port on the loopback.
    pub port: u16,
    /// Server connections of its one pool.
    pub sizing: PoolSizing,
    /// Whether all of them are opened at once, as far as the pooler does that and their number is fixed.
    pub fills_pool: bool,
    /// `session`, `transaction` or `statement`.
    pub mode: &'a str,
    /// Clients that it must have room for.
    pub clients: u32,
    /// Weir's I/O driver, where it is the question.
    pub io_driver: Option<&'a str>,
    /// The directory of its files, which only its user can enter.
    pub directory: &'a Path,
    /// Whether the server is the lab's own: no user's data is at risk, and no password is needed.
    pub embedded: bool,
    /// A new password.
    pub passing: &'a Secret,
}

/// What it is started from, and where clients find it.
#[derive(Clone, Debug)]
pub struct Papers {
    /// The ini file.
    pub ini: String,
    /// The file that the ini file names as `auth_file`, by its name in the directory; it holds passwords.
    pub users_name: String,
    /// Its text.
    pub users: Secret,
    /// Where clients go.
    pub clients: Address,
}

/// Clients beyond those asked for: console connections, and clients that connect before others have disconnected.
const SPARE_CLIENTS: u32 = 20;

impl Started<'_> {
    /// Writes the papers.
    #[must_use]
    pub fn papers(&self) -> Papers {
        let user = &self.server.user;
        // A strange name of a database need not be a name of a pool.
        let pool = if is_plain(&self.server.database) { &self.server.database } else { "bench" };
        let (auth_type, password) = match &self.server.password {
            Some(password) => ("scram-sha-256", Some(password)),
            None if self.embedded => ("trust", None),
            None => ("plain", Some(self.passing)),
        };
        let users_name = format!("{}.users", self.name);
        let said = password.map_or("", Secret::reveal);
        let users = Secret::new(format!("{} {}\n", doubled(user, '"'), doubled(said, '"')));
        let mut clients = Address::local(self.port, user, pool);
        clients.password = password.cloned();
        for name in ["application_name", "client_encoding", "options"] {
            let parameter = self.server.parameters.get_key_value(name);
            clients.parameters.extend(parameter.map(|(name, value)| (name.clone(), value.clone())));
        }
        Papers { ini: self.ini(pool, auth_type, &users_name), users_name, users, clients }
    }

    fn ini(&self, pool: &str, auth_type: &str, users_name: &str) -> String {
        let Self { name, server, directory, .. } = self;
        let directory = directory.display();
        let servers = || std::iter::once(*server).chain(self.standbys);
        let hosts: Vec<&str> = servers().map(|one| one.host.as_str()).collect();
        let ports: Vec<String> = servers().map(|one| one.port.to_string()).collect();
        let split = if self.standbys.is_empty() { "" } else { " read_write_split=1" };
        let (host, database) = (doubled(&hosts.join(","), '\''), doubled(&server.database, '\''));
        let mut ini = format!(
            "[databases]\n{pool} = host={host} port={} dbname={database}{split}\n\n[pgbouncer]\n\
             logfile = {directory}/{name}.log\npidfile = {directory}/{name}.pid\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir = {directory}\nauth_type = {auth_type}\n\
             auth_file = {directory}/{users_name}\npool_mode = {}\nmax_client_conn = {}\n\
             ignore_startup_parameters = extra_float_digits\n",
            ports.join(","),
            self.port,
            self.mode,
            self.clients + SPARE_CLIENTS,
        );
        let mut say = |name: &str, value: Option<&str>| {
            if let Some(value) = value {
                let _ = writeln!(ini, "{name} = {value}");
            }
        };
        match self.sizing {
            PoolSizing::Fixed(size) => {
                let size = size.to_string();
                say("default_pool_size", Some(&size));
                say("min_pool_size", self.fills_pool.then_some(&*size));
            }
            PoolSizing::Auto { least, most } => {
                say("default_pool_size", Some("auto"));
                say("auto_pool_size_min", Some(&least.to_string()));
                say("auto_pool_size_max", Some(&most.to_string()));
            }
        }
        say("admin_users", is_plain(&server.user).then_some(&server.user));
        if !server.is_socket() {
            say("server_tls_sslmode", server.parameter("sslmode"));
            // `system` is libpq's word for the roots of the system.
            say("server_tls_ca_file", server.parameter("sslrootcert").filter(|file| *file != "system"));
            say("server_tls_cert_file", server.parameter("sslcert"));
            say("server_tls_key_file", server.parameter("sslkey"));
        }
        say("io_driver", self.io_driver);
        ini
    }
}

/// Whether a name can stand in an ini file as it is.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name != "pgbouncer"
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-')
}

/// In quotes, with the quotes inside doubled.
fn doubled(text: &str, quote: char) -> String {
    let twice = format!("{quote}{quote}");
    format!("{quote}{}{quote}", text.replace(quote, &twice))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn papers(server: &Address, embedded: bool) -> Papers {
        let directory = Path::new("/d");
        let passing = &Secret::new("once");
        let started = Started {
            name: "weir",
            server,
            standbys: &[],
            port: 7000,
            fills_pool: true,
            sizing: PoolSizing::Fixed(8),
            mode: "transaction",
            clients: 50,
            io_driver: None,
            directory,
            embedded,
            passing,
        };
        started.papers()
    }

    #[test]
    fn the_embedded_server_is_open_and_everything_else_is_not() {
        let server = Address::local(5000, "bench", "bench");
        let open = papers(&server, true);
        assert!(open.ini.contains("\nauth_type = trust\n"), "{}", open.ini);
        assert!(
            open.ini.starts_with("[databases]\nbench = host='127.0.0.1' port=5000 dbname='bench'\n"),
            "{}",
            open.ini
        );
        assert!(open.ini.contains("\ndefault_pool_size = 8\nmin_pool_size = 8\n"), "{}", open.ini);
        assert!(open.ini.contains("\nmax_client_conn = 70\n"), "{}", open.ini);
        assert_eq!(
            (open.clients.to_string().as_str(), open.clients.password),
            ("bench@127.0.0.1:7000/bench", None)
        );
        let shut = papers(&server, false);
        assert!(shut.ini.contains("\nauth_type = plain\n"), "{}", shut.ini);
        assert_eq!(shut.users.reveal(), "\"bench\" \"once\"\n");
        assert_eq!(shut.clients.password.unwrap().reveal(), "once");
    }

    #[test]
    fn standbys_are_hosts_of_the_same_entry() {
        let (server, passing) = (Address::local(5000, "bench", "bench"), Secret::new("once"));
        let standbys = [Address::local(5001, "bench", "bench"), Address::local(5002, "bench", "bench")];
        let started = Started {
            name: "weir",
            server: &server,
            standbys: &standbys,
            port: 7000,
            fills_pool: false,
            sizing: PoolSizing::Fixed(8),
            mode: "transaction",
            clients: 50,
            io_driver: None,
            directory: Path::new("/d"),
            embedded: true,
            passing: &passing,
        };
        let auto = Started { sizing: PoolSizing::Auto { least: 1, most: 64 }, fills_pool: true, ..started };
        let ini = auto.papers().ini;
        let lines = "\ndefault_pool_size = auto\nauto_pool_size_min = 1\nauto_pool_size_max = 64\n";
        assert!(ini.contains(lines) && !ini.contains("min_pool_size = 8"), "{ini}");
        let line = "bench = host='127.0.0.1,127.0.0.1,127.0.0.1' port=5000,5001,5002 dbname='bench' read_write_split=1\n";
        assert!(started.papers().ini.contains(line), "{}", started.papers().ini);
    }

    #[test]
    fn a_password_is_in_the_closed_file_alone() {
        let uri = "postgres://al%20ice:pa%22ss@db:5433/o'dd%20base?sslmode=verify-full&sslrootcert=/ca&options=-ca%3Db";
        let found = papers(&Address::parse(uri).unwrap(), false);
        assert!(!found.ini.contains("pa\"ss") && !format!("{found:?}").contains("pa\"ss"), "{}", found.ini);
        assert_eq!(found.users.reveal(), "\"al ice\" \"pa\"\"ss\"\n");
        assert!(found.ini.contains("bench = host='db' port=5433 dbname='o''dd base'\n"), "{}", found.ini);
        assert!(
            found.ini.contains("auth_type = scram-sha-256\n") && !found.ini.contains("admin_users"),
            "{}",
            found.ini
        );
        assert!(
            found.ini.contains("server_tls_sslmode = verify-full\nserver_tls_ca_file = /ca\n"),
            "{}",
            found.ini
        );
        assert_eq!(found.clients.to_string(), "al ice@127.0.0.1:7000/bench");
        assert_eq!(found.clients.parameter("sslmode"), Some("disable"));
        assert_eq!(found.clients.parameter("options"), Some("-ca=b"));
    }
}
