//! Whose changes are followed, and as whom: what of a configuration one entry's follower depends on.
//!
//! Owns who follows; where servers are and which secret is used is `pgclient`'s to say. Never connects.

use std::time::Duration;

use pgclient::{Account, Place, places};
use settings::{Config, Database};

/// What the server's log and pg_stat_activity show.
const APPLICATION_NAME: &str = "weir query cache";

/// What a follower depends on. Two that are equal need no restart.
#[derive(Clone, PartialEq)]
pub(crate) struct Target {
    /// The entry's name.
    pub(crate) name: String,
    /// In the order in which they are tried.
    pub(crate) places: Vec<Place>,
    /// Who logs in, and where to.
    pub(crate) account: Account,
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
        Some(Ok(Target {
            name: entry.name.clone(),
            places: places(config, entry),
            account: Account::of(config, entry, user, APPLICATION_NAME),
            retry: config.global.server_login_retry,
        }))
    }
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
    fn the_user_that_follows_is_the_entrys() {
        let user = |entry| target(entry).unwrap().unwrap().account.user;
        assert_eq!(user("query_cache=1MB user=app password=own"), "app");
        assert_eq!(user("query_cache=1MB user=app password=own query_cache_user=other"), "other");
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
