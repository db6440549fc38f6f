//! As whom Weir logs in to a server for a query of its own.
//!
//! Owns which secret is used, and how long a step may take.

use std::time::Duration;

use auth::{Credentials, Secret};
use settings::{Config, Database};

/// The database that every server has unless it was dropped.
const MAINTENANCE_DATABASE: &str = "postgres";

/// Who logs in, and where to. Two that are equal need no other connection.
#[derive(Clone, PartialEq)]
pub struct Account {
    /// The database on the server.
    pub dbname: String,
    /// Who logs in.
    pub user: String,
    secret: Option<String>,
    /// What the server's log and pg_stat_activity show.
    pub application_name: &'static str,
    /// Longest wait for a server's answer.
    pub connect_timeout: Duration,
}

impl Account {
    /// A user's, for the database of an entry: with the entry's password where that is the user's, else with what auth_file has.
    #[must_use]
    pub fn of(config: &Config, entry: &Database, user: &str, application_name: &'static str) -> Account {
        let own = entry.password.as_ref().filter(|_| entry.user.as_deref() == Some(user));
        Account {
            dbname: entry.dbname.clone(),
            user: user.to_owned(),
            secret: own.or_else(|| config.secrets.get(user)).cloned(),
            application_name,
            connect_timeout: limit(config.global.server_connect_timeout),
        }
    }

    /// That of a question of Weir's own: of `own` where a setting names it, else of the entry's user, else of auth_user. None if there is no such user.
    #[must_use]
    pub fn asking(
        config: &Config,
        entry: &Database,
        own: Option<&String>,
        application_name: &'static str,
    ) -> Option<Account> {
        let own = own.filter(|user| !user.is_empty());
        let user =
            own.or(entry.user.as_ref()).or(entry.auth_user.as_ref()).or(config.global.auth_user.as_ref());
        user.map(|user| Account::of(config, entry, user, application_name))
    }

    /// The databases that are connected to, in turn: one that no limit is likely to count, so that the question adds nothing to what it asks about; else the entry's.
    pub fn in_turn(&self) -> impl Iterator<Item = Account> + use<> {
        let mut elsewhere = self.clone();
        MAINTENANCE_DATABASE.clone_into(&mut elsewhere.dbname);
        (elsewhere != *self).then_some(elsewhere).into_iter().chain([self.clone()])
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

    #[test]
    fn an_entrys_own_password_is_its_own_users() {
        let secret = |entry: &str, user| {
            let text = format!("[databases]\na = {entry}\n[pgbouncer]\nauth_file = users.txt\n");
            let config = settings::load(&Ini(text.leak()), "w.ini", &[]).unwrap();
            Account::of(&config, &config.databases["a"], user, "test").secret
        };
        assert_eq!(secret("user=app password=own", "app").as_deref(), Some("own"));
        assert_eq!(secret("user=app", "app").as_deref(), Some("stored"));
        assert_eq!(secret("user=app password=own", "other").as_deref(), Some("theirs"));
        assert_eq!(secret("user=app password=own", "none"), None);
    }
}
