//! Differences between two configurations, by what has to be done about them.
//! Does nothing itself: the shards close connections, the control thread logs.

use crate::table::TakesEffect;
use crate::{Config, Database, database, global, user};
use std::collections::BTreeSet;

/// One difference. The database name `*` stands for all that are made from the fallback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new database.
    Added(String),
    /// A removed database: its connections are closed.
    Removed(String),
    /// The connection parameters of this database changed: existing server connections are obsolete.
    Reconnect(String),
    /// Limits, timeouts or the mode of this database changed: its connections stay.
    Resized(String),
    /// The settings of this user changed, appeared or vanished.
    User(String),
    /// The secret of this user changed or vanished: it counts at the next login.
    Secret(String),
    /// A global setting changed and counts from now on.
    Global(&'static str),
    /// A global setting changed that counts only after a restart.
    Restart(&'static str),
}

/// Everything that differs, databases first. What [`crate::reload`] made has no [`Change::Restart`] any more.
pub fn changes(old: &Config, new: &Config) -> Vec<Change> {
    let mut found = Vec::new();
    databases(old, new, &mut found);
    let names: BTreeSet<&String> = old.users.keys().chain(new.users.keys()).collect();
    for name in names {
        let same = match (old.users.get(name), new.users.get(name)) {
            (Some(old), Some(new)) => user::USER.iter().all(|row| row.same(old, new)),
            _ => false,
        };
        if !same {
            found.push(Change::User(name.clone()));
        }
    }
    let altered = old.secrets.iter().filter(|(name, secret)| new.secrets.get(*name) != Some(secret));
    found.extend(altered.map(|(name, _)| Change::Secret(name.clone())));
    for row in global::GLOBAL.iter().filter(|row| !row.same(&old.global, &new.global)) {
        found.push(match row.info.when {
            TakesEffect::Reload | TakesEffect::Reconnect => Change::Global(row.info.name),
            TakesEffect::Restart => Change::Restart(row.info.name),
        });
    }
    found
}

/// Compares databases by what a name resolves to: removing an entry while `*` resolves to the same server changes
/// nothing.
fn databases(old: &Config, new: &Config, found: &mut Vec<Change>) {
    let names: BTreeSet<&str> =
        old.databases.keys().chain(new.databases.keys()).map(String::as_str).chain(["*"]).collect();
    for name in names {
        let change = match (entry(old, name), entry(new, name)) {
            (None, None) => None,
            (None, Some(_)) => Some(Change::Added(name.to_owned())),
            (Some(_), None) => Some(Change::Removed(name.to_owned())),
            (Some(old), Some(new)) => altered(&old, &new),
        };
        found.extend(change);
    }
}

/// What a name resolves to; `*` itself is the fallback.
fn entry(config: &Config, name: &str) -> Option<std::sync::Arc<Database>> {
    if name == "*" { config.fallback.clone() } else { config.database(name) }
}

/// How two entries of one name differ; where they stand in the file does not matter.
fn altered(old: &Database, new: &Database) -> Option<Change> {
    let differs = |when| database::DATABASE.iter().any(|row| row.info.when == when && !row.same(old, new));
    if differs(TakesEffect::Reconnect) {
        return Some(Change::Reconnect(new.name.clone()));
    }
    differs(TakesEffect::Reload).then(|| Change::Resized(new.name.clone()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::files::memory::Memory;
    use crate::load;

    fn config(databases: &str, rest: &str) -> Config {
        let text = format!("[pgbouncer]\nauth_file = u.txt\n{rest}\n[databases]\n{databases}");
        load(&Memory(&[("w.ini", &text), ("u.txt", "")]), "w.ini", &[]).unwrap()
    }

    fn between(old: &str, new: &str) -> Vec<Change> {
        changes(&config(old, ""), &config(new, ""))
    }

    #[test]
    fn a_database_may_come_go_move_or_change_its_size() {
        let name = || "a".to_owned();
        assert_eq!(between("", "a = host=h"), [Change::Added(name())]);
        assert_eq!(between("a = host=h", ""), [Change::Removed(name())]);
        assert_eq!(between("a = pool_size=1", "a = pool_size=2"), [Change::Resized(name())]);
        assert_eq!(between("a = pool_size=1", "a = pool_size=2 port=1"), [Change::Reconnect(name())]);
        assert_eq!(
            between("a = host=h port=5432", "b =\na = dbname=a host=h"),
            [Change::Added("b".to_owned())]
        );
    }

    #[test]
    fn whatever_a_server_connection_was_made_of_makes_it_obsolete() {
        let old = "a = host=h port=1 dbname=d user=u password=p connect_query=q client_encoding=e datestyle=s timezone=t application_name=n";
        for key in [
            "host",
            "port",
            "dbname",
            "user",
            "password",
            "connect_query",
            "client_encoding",
            "datestyle",
            "timezone",
            "application_name",
        ] {
            let (head, tail) = old.split_once(&format!("{key}=")).unwrap();
            let new = format!("{head}{key}=2{}", &tail[1..]);
            assert_eq!(between(old, &new), [Change::Reconnect("a".to_owned())], "{key}");
        }
    }

    #[test]
    fn a_name_counts_by_what_it_leads_to() {
        let star = "* = host=h\n";
        assert_eq!(between(&format!("{star}a = host=h"), star), []);
        assert_eq!(between(star, &format!("{star}a = host=other")), [Change::Reconnect("a".to_owned())]);
        assert_eq!(between(star, "* = host=h pool_size=1"), [Change::Resized("*".to_owned())]);
        assert_eq!(between(star, ""), [Change::Removed("*".to_owned())]);
    }

    #[test]
    fn globals_users_and_secrets() {
        let changed = changes(&config("", "listen_port = 1\nverbose = 1"), &config("", "listen_port = 2"));
        assert_eq!(changed, [Change::Restart("listen_port"), Change::Global("verbose")]);
        let users = changes(&config("", "[users]\na = pool_size=1\nb ="), &config("", "[users]\na =\nb ="));
        assert_eq!(users, [Change::User("a".to_owned())]);
        let with = |text: &str| {
            let files = [("w.ini", "[pgbouncer]\nauth_file = u.txt"), ("u.txt", text)];
            load(&Memory(&files), "w.ini", &[]).unwrap()
        };
        let secrets =
            changes(&with("\"a\" \"1\"\n\"b\" \"1\"\n\"c\" \"1\""), &with("\"a\" \"1\"\n\"b\" \"2\""));
        assert_eq!(secrets, [Change::Secret("b".to_owned()), Change::Secret("c".to_owned())]);
    }
}
