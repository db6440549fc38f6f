//! Where clients connect: one server or pooler, as libpq would find it from a URI, the environment and the password
//! file. It goes to children by their environment, so that a password stands in no list of processes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use super::{Secret, passfile, uri};
use crate::error::{LabError, Result};

/// libpq's parameters that have a variable of the environment: PostgreSQL's manual, 34.15.
const VARIABLES: &[(&str, &str)] = &[
    ("host", "PGHOST"),
    ("hostaddr", "PGHOSTADDR"),
    ("port", "PGPORT"),
    ("user", "PGUSER"),
    ("dbname", "PGDATABASE"),
    ("application_name", "PGAPPNAME"),
    ("channel_binding", "PGCHANNELBINDING"),
    ("client_encoding", "PGCLIENTENCODING"),
    ("connect_timeout", "PGCONNECT_TIMEOUT"),
    ("gssencmode", "PGGSSENCMODE"),
    ("options", "PGOPTIONS"),
    ("require_auth", "PGREQUIREAUTH"),
    ("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION"),
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    ("sslcert", "PGSSLCERT"),
    ("sslcrl", "PGSSLCRL"),
    ("sslkey", "PGSSLKEY"),
    ("sslmode", "PGSSLMODE"),
    ("sslnegotiation", "PGSSLNEGOTIATION"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslsni", "PGSSLSNI"),
    ("target_session_attrs", "PGTARGETSESSIONATTRS"),
];

const DEFAULT_PORT: u16 = 5432;

/// One server or pooler, one role, one database.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// A name, an IP address, or the directory of a unix socket.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Further hosts with their ports: servers of one cluster.
    pub others: Vec<(String, u16)>,
    /// The role.
    pub user: String,
    /// The database, or the pool.
    pub database: String,
    /// The role's password, where one was said.
    pub password: Option<Secret>,
    /// Everything else, by libpq's names (`sslmode`, `options`, …).
    pub parameters: BTreeMap<String, String>,
}

impl Address {
    /// A port of this machine, where no password is asked for and no TLS spoken.
    #[must_use]
    pub fn local(port: u16, user: &str, database: &str) -> Self {
        let plain = [("sslmode", "disable"), ("gssencmode", "disable")];
        let parameters = plain.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let (host, user, database) = ("127.0.0.1".to_owned(), user.to_owned(), database.to_owned());
        Self { host, port, others: Vec::new(), user, database, password: None, parameters }
    }

    /// A URI; what it leaves out comes from the environment and the password file, as libpq has it. The host is
    /// `localhost` unless given.
    ///
    /// # Errors
    /// [`LabError::Missing`] with what is wrong; a password is never repeated.
    pub fn parse(uri: &str) -> Result<Self> {
        Self::complete(uri, &|name| std::env::var_os(name))
    }

    fn complete(uri: &str, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self> {
        let wrong = |what: &str| LabError::Missing {
            what: format!("this is no address of a server: {what}"),
            remedy: "postgresql://USER@HOST:PORT/DATABASE, with the password in PGPASSWORD or ~/.pgpass"
                .to_owned(),
        };
        let mut said = uri::parse(uri).map_err(|what| wrong(&what))?.parameters;
        let known = |name: &str| {
            VARIABLES.iter().any(|(known, _)| *known == name) || name == "password" || name == "passfile"
        };
        if let Some(unknown) = said.keys().find(|name| !known(name)) {
            return Err(wrong(&format!("the parameter {unknown:?} cannot be handed to pgbench")));
        }
        let variable = |name: &str| {
            variable(name).and_then(|value| value.into_string().ok()).filter(|value| !value.is_empty())
        };
        for (name, from) in VARIABLES {
            if let (false, Some(value)) = (said.contains_key(*name), variable(from)) {
                said.insert((*name).to_owned(), value);
            }
        }
        let host = said.remove("host").unwrap_or_else(|| "localhost".to_owned());
        let mut places =
            places(&host, said.remove("port").as_deref()).map_err(|what| wrong(&what))?.into_iter();
        let (host, port) = places.next().unwrap_or((host, DEFAULT_PORT));
        let others: Vec<(String, u16)> = places.collect();
        if !others.is_empty() && said.contains_key("hostaddr") {
            return Err(wrong("hostaddr names one address, and there are several hosts"));
        }
        let user =
            said.remove("user").or_else(|| variable("USER")).ok_or_else(|| wrong("it names no user"))?;
        let database = said.remove("dbname").unwrap_or_else(|| user.clone());
        let file = said.remove("passfile").or_else(|| variable("PGPASSFILE")).map(PathBuf::from);
        let file = file.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".pgpass")));
        let password = said.remove("password").or_else(|| variable("PGPASSWORD")).map(Secret::new);
        let password = password.or_else(|| passfile::find(&file?, &host, port, &database, &user));
        Ok(Self { host, port, others, user, database, password, parameters: said })
    }

    /// The same login to each of its hosts.
    #[must_use]
    pub fn each(&self) -> Vec<Self> {
        let own = Self { others: Vec::new(), ..self.clone() };
        let other = |(host, port): &(String, u16)| Self { host: host.clone(), port: *port, ..own.clone() };
        let others: Vec<Self> = self.others.iter().map(other).collect();
        [vec![own.clone()], others].concat()
    }

    /// Host and port.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// What a child that uses libpq needs in its environment to connect here, the password among it.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let own = |name: &str| match name {
            "host" => Some(self.host.clone()),
            "port" => Some(self.port.to_string()),
            "user" => Some(self.user.clone()),
            "dbname" => Some(self.database.clone()),
            name => self.parameters.get(name).cloned(),
        };
        let mut variables: Vec<_> =
            VARIABLES.iter().filter_map(|(name, variable)| Some((*variable, own(name)?))).collect();
        variables.extend(self.password.as_ref().map(|secret| ("PGPASSWORD", secret.reveal().to_owned())));
        variables
    }

    /// Gives a child that environment and nothing else of libpq's: what is around may be about another server.
    pub fn equip(&self, command: &mut Command) {
        let own = command.get_envs().filter_map(|(name, _)| name.to_str()).map(str::to_owned);
        let around = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for name in own.chain(around).filter(|name| name.starts_with("PG")).collect::<Vec<_>>() {
            command.env_remove(name);
        }
        command.envs(self.environment());
    }

    /// A parameter by libpq's name.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// Whether it is reached by a unix socket.
    #[must_use]
    pub fn is_socket(&self) -> bool {
        self.host.starts_with('/')
    }

    /// Whether it is on this machine, as far as its host says.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.is_socket() || self.host == "localhost" || self.host == "::1" || self.host.starts_with("127.")
    }
}

/// Hosts with their ports: one for all, or one for each.
fn places(hosts: &str, ports: Option<&str>) -> std::result::Result<Vec<(String, u16)>, String> {
    let port = |text: &str| {
        let number = text.trim().parse::<u16>().ok().filter(|port| *port != 0);
        number.ok_or_else(|| format!("{text:?} is no port"))
    };
    let hosts: Vec<&str> = hosts.split(',').map(str::trim).collect();
    let ports: Vec<u16> = match ports {
        None => vec![DEFAULT_PORT],
        Some(ports) => ports.split(',').map(port).collect::<std::result::Result<_, _>>()?,
    };
    if ports.len() != 1 && ports.len() != hosts.len() {
        return Err(format!(
            "{} ports are not one for all, or one for each of {} hosts",
            ports.len(),
            hosts.len()
        ));
    }
    let of = |place: usize| ports.get(place).or(ports.first()).copied().unwrap_or(DEFAULT_PORT);
    Ok(hosts.into_iter().enumerate().map(|(place, host)| (host.to_owned(), of(place))).collect())
}

/// As reports and messages show it: everything but the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, others, user, database, .. } = self;
        write!(f, "{user}@{host}:{port}")?;
        others.iter().try_for_each(|(host, port)| write!(f, ",{host}:{port}"))?;
        write!(f, "/{database}")
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(uri: &str, variables: &[(&str, &str)]) -> Result<Address> {
        Address::complete(uri, &|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn what_a_uri_leaves_out_comes_from_the_environment() {
        let around =
            [("PGUSER", "ann"), ("PGPORT", "6000"), ("PGSSLMODE", "require"), ("PGPASSWORD", "hush")];
        let address = parse("postgres://h/d", &around).unwrap();
        assert_eq!(address.to_string(), "ann@h:6000/d");
        assert_eq!(address.parameter("sslmode"), Some("require"));
        assert_eq!(address.password.as_ref().map(Secret::reveal), Some("hush"));
        let address = parse("postgres://bob:own@h:1?sslmode=disable", &around).unwrap();
        assert_eq!(address.to_string(), "bob@h:1/bob");
        assert_eq!(address.parameter("sslmode"), Some("disable"));
        assert_eq!(address.password.as_ref().map(Secret::reveal), Some("own"));
        assert_eq!(parse("postgres://", &[("USER", "u")]).unwrap().to_string(), "u@localhost:5432/u");
    }

    #[test]
    fn hosts_of_a_cluster_have_one_login() {
        let address = parse("postgres://u:p@a:1,b:2/d", &[]).unwrap();
        assert_eq!(address.to_string(), "u@a:1,b:2/d");
        let each: Vec<String> = address.each().iter().map(Address::to_string).collect();
        assert_eq!(each, ["u@a:1/d", "u@b:2/d"]);
        assert!(address.each().iter().all(|one| one.password == address.password));
        let labels = |uri: &str, variables| -> Vec<String> {
            parse(uri, variables).unwrap().each().iter().map(Address::label).collect()
        };
        assert_eq!(labels("postgres://u@a,b/d", &[("PGPORT", "7")]), ["a:7", "b:7"]);
        let said = parse("postgres:///d?host=a,b,c&port=1,2&user=u", &[]).unwrap_err().to_string();
        assert!(said.contains("2 ports are not one for all"), "{said}");
    }

    #[test]
    fn a_child_gets_everything_by_its_environment() {
        let address = parse("postgres://u:p@h:1/d?sslmode=require&options=-c%20a%3Db", &[]).unwrap();
        let mut environment = address.environment();
        environment.sort();
        let expected = [
            ("PGDATABASE", "d"),
            ("PGHOST", "h"),
            ("PGOPTIONS", "-c a=b"),
            ("PGPASSWORD", "p"),
            ("PGPORT", "1"),
            ("PGSSLMODE", "require"),
            ("PGUSER", "u"),
        ];
        assert_eq!(environment, expected.map(|(name, value)| (name, value.to_owned())));
    }

    #[test]
    fn a_child_gets_nothing_of_another_server() {
        let mut command = Command::new("true");
        command.env("PGSERVICE", "elsewhere").env("PGHOSTADDR", "10.0.0.1");
        Address::local(5, "u", "d").equip(&mut command);
        let set: Vec<_> =
            command.get_envs().filter(|(_, value)| value.is_some()).map(|(name, _)| name).collect();
        assert_eq!(set, ["PGDATABASE", "PGGSSENCMODE", "PGHOST", "PGPORT", "PGSSLMODE", "PGUSER"]);
    }

    #[test]
    fn a_password_is_never_shown() {
        let address = parse("postgres://u:secret@h/d", &[]).unwrap();
        assert!(!format!("{address} {address:?} {:?}", address.password).contains("secret"));
        for wrong in
            ["postgres://u:secret@h:0/d", "postgres://u:secret@h/d?shell=x", "postgres://:secret@h/d"]
        {
            let error = parse(wrong, &[]).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains("no address of a server"), "{error}");
        }
    }

    #[test]
    fn sockets_and_this_machine_are_known() {
        let local =
            |uri: &str| parse(uri, &[("USER", "u")]).map(|address| (address.is_socket(), address.is_local()));
        assert_eq!(local("postgres://%2Frun%2Fpg/d").unwrap(), (true, true));
        assert_eq!(local("postgres://127.0.0.1/d").unwrap(), (false, true));
        assert_eq!(local("postgres://db.example/d").unwrap(), (false, false));
    }
}
