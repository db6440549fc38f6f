//! Whose changes are followed, and as whom: what of a configuration one entry's follower depends on.
//!
//! Owns the order of the hosts, the paths of unix sockets and which secret is used. Never connects.

use std::net::IpAddr;
use std::time::Duration;

use auth::{Credentials, Secret};
use settings::{Config, Database, SslMode};

/// Where PostgreSQL's sockets are unless an entry says otherwise.
const DEFAULT_SOCKET_DIRECTORY: &str = "/tmp";

/// A server's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The path of a unix socket; `@` begins one of the abstract name space.
    Unix(String),
    /// A host and a port; first the unix socket of this machine, where there is one.
    Inet {
        /// Name or address.
        host: String,
        /// TCP port.
        port: u16,
        /// The path of that socket.
        near: Option<String>,
    },
}

impl Place {
    /// Its name in the log.
    pub(crate) fn label(&self) -> String {
        match self {
            Place::Unix(path) => path.clone(),
            Place::Inet { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            Place::Inet { host, port, .. } => format!("{host}:{port}"),
        }
    }
}

/// What a follower depends on. Two that are equal need no restart.
#[derive(Clone, PartialEq)]
pub(crate) struct Target {
    /// The entry's name.
    pub(crate) name: String,
    /// In the order in which they are tried.
    pub(crate) places: Vec<Place>,
    /// The database on the server.
    pub(crate) dbname: String,
    /// Who logs in.
    pub(crate) user: String,
    secret: Option<String>,
    /// Longest wait for a server's answer.
    pub(crate) connect_timeout: Duration,
    /// Longest wait between two tries.
    pub(crate) retry: Duration,
}

impl Target {
    /// What an entry's follower needs; None of one that keeps no answers, or whose hosts are not known yet.
    ///
    /// # Errors
    /// There is no user to log in as.
    pub(crate) fn of(config: &Config, entry: &Database) -> Option<Result<Target, &'static str>> {
        if entry.query_cache == 0 || entry.auto || entry.awaits_members() {
            return None;
        }
        let Some(user) = entry.query_cache_user.as_ref().or(entry.user.as_ref()) else {
            return Some(Err(
                "no user follows the primary's changes; set query_cache_user (or user) for the entry",
            ));
        };
        let own = entry.password.as_ref().filter(|_| entry.user.as_ref() == Some(user));
        Some(Ok(Target {
            name: entry.name.clone(),
            places: places(config, entry),
            dbname: entry.dbname.clone(),
            user: user.clone(),
            secret: own.or_else(|| config.secrets.get(user)).cloned(),
            connect_timeout: limit(config.global.server_connect_timeout),
            retry: config.global.server_login_retry,
        }))
    }

    /// For the login.
    pub(crate) fn credentials(&self) -> Credentials {
        Credentials::from_secret(self.secret.as_deref().map(Secret::parse).as_ref(), None)
    }
}

/// A setting of 0 is no limit.
fn limit(setting: Duration) -> Duration {
    if setting.is_zero() { Duration::from_secs(3600) } else { setting }
}

/// The hosts, the one that leads first.
fn places(config: &Config, entry: &Database) -> Vec<Place> {
    let near = config.global.server_socket_dir.as_deref();
    let near = near.filter(|_| config.global.server_tls_sslmode < SslMode::Require);
    let place = |at: usize, host: &str| {
        let port = entry.port.of(at);
        let socket = |directory: &str| format!("{directory}/.s.PGSQL.{port}");
        if host.starts_with(['/', '@']) {
            return Place::Unix(socket(host));
        }
        let near = near.filter(|_| is_this_machine(host)).map(socket);
        Place::Inet { host: host.to_owned(), port, near }
    };
    let mut places: Vec<Place> = entry.host.iter().enumerate().map(|(at, host)| place(at, host)).collect();
    if places.is_empty() {
        places.push(place(0, DEFAULT_SOCKET_DIRECTORY));
    }
    if let Some(leader) = entry.leader.filter(|leader| *leader < places.len()) {
        places.swap(0, leader);
    }
    places
}

fn is_this_machine(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct Ini(&'static str);

    impl settings::Files for Ini {
        fn read(&self, path: &str) -> std::io::Result<Vec<u8>> {
            let text =
                if path == "users.txt" { "\"app\" \"stored\"\n\"other\" \"theirs\"\n" } else { self.0 };
            Ok(text.as_bytes().to_vec())
        }
    }

    fn target(entry: &'static str) -> Option<Result<Target, &'static str>> {
        let text = format!(
            "[databases]\na = {entry}\n[pgbouncer]\nauth_file = users.txt\nserver_socket_dir = /run\n"
        );
        let config = settings::load(&Ini(text.leak()), "w.ini", &[]).unwrap();
        Target::of(&config, &config.databases["a"])
    }

    #[test]
    fn an_entrys_own_password_is_its_own_users() {
        let secret = |entry| target(entry).unwrap().unwrap().secret;
        assert_eq!(secret("query_cache=1MB user=app password=own").as_deref(), Some("own"));
        assert_eq!(secret("query_cache=1MB user=app").as_deref(), Some("stored"));
        assert_eq!(
            secret("query_cache=1MB user=app password=own query_cache_user=other").as_deref(),
            Some("theirs")
        );
        assert_eq!(secret("query_cache=1MB user=app password=own query_cache_user=none"), None);
        assert!(target("query_cache=1MB").unwrap().is_err_and(|why| why.contains("query_cache_user")));
        assert!(target("user=app").is_none());
    }

    #[test]
    fn places_have_their_ports_and_sockets() {
        let places = |entry| target(entry).unwrap().unwrap().places;
        let found = places("query_cache=1MB user=app host=/srv,localhost,db port=1,2,3");
        let expected = [
            Place::Unix("/srv/.s.PGSQL.1".to_owned()),
            Place::Inet { host: "localhost".to_owned(), port: 2, near: Some("/run/.s.PGSQL.2".to_owned()) },
            Place::Inet { host: "db".to_owned(), port: 3, near: None },
        ];
        assert_eq!(found, expected);
        assert_eq!(places("query_cache=1MB user=app"), [Place::Unix("/tmp/.s.PGSQL.5432".to_owned())]);
    }
}
