//! Guarantees of server connections (`guaranteed_connections`) that cannot all be met, or have no effect.
//!
//! Owns the warnings. Nothing is refused for them: what does not fit is cut alike for all pools while they ask for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::{Config, ConnectionSharing, Database, Finding, User};

/// What is wrong with the guarantees of a configuration.
pub(crate) fn findings(config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    for database in entries(config) {
        found.extend(of_database(config, database).map(|why| Finding::warning(&database.at, why)));
        found.extend(idle(config, database).map(|why| Finding::warning(&database.at, why.to_owned())));
    }
    for user in config.users.values() {
        let Some(first) = entries(config).find(|database| shares(config, database)) else { break };
        found.extend(of_user(config, user).map(|why| Finding::warning(&first.at, why)));
    }
    found
}

fn entries(config: &Config) -> impl Iterator<Item = &Arc<Database>> {
    config.databases.values().chain(&config.fallback)
}

fn shares(config: &Config, database: &Database) -> bool {
    config.connection_sharing(database) != ConnectionSharing::None
}

/// The users of an entry of whom is known that they have a guarantee: those with their own, or all that have secrets where everyone has one.
fn guaranteed_users<'a>(config: &'a Config, database: &'a Database) -> BTreeSet<&'a str> {
    if let Some(user) = &database.user {
        return BTreeSet::from([user.as_str()]);
    }
    let own = config.users.values().filter(|user| user.guaranteed_connections.is_some());
    let own = own.map(|user| user.name.as_str());
    match config.guaranteed_connections(database, None) {
        0 => own.collect(),
        _ => own.chain(config.secrets.keys().map(String::as_str)).collect(),
    }
}

fn of_database(config: &Config, database: &Database) -> Option<String> {
    let limit = config.max_db_connections(database);
    if limit == 0 || !shares(config, database) {
        return None;
    }
    let users = guaranteed_users(config, database);
    let guarantee = |name: &&str| {
        u64::from(config.guaranteed_connections(database, config.user(name).map(|user| &**user)))
    };
    let sum: u64 = users.iter().map(guarantee).sum();
    let name = &database.name;
    (sum > u64::from(limit)).then(|| {
        format!("{name}: guaranteed_connections of {} users add up to {sum}, more than max_db_connections ({limit}): they are cut alike when all are asked for", users.len())
    })
}

fn of_user(config: &Config, user: &User) -> Option<String> {
    let limit = config.max_user_connections(Some(user));
    if limit == 0 {
        return None;
    }
    let is_of_user =
        |database: &&Arc<Database>| database.user.as_ref().is_none_or(|forced| *forced == user.name);
    let sharing = entries(config).filter(|database| shares(config, database)).filter(is_of_user);
    let sum: u64 =
        sharing.map(|database| u64::from(config.guaranteed_connections(database, Some(user)))).sum();
    let name = &user.name;
    (sum > u64::from(limit)).then(|| {
        format!("user {name}: guaranteed_connections in all databases add up to {sum}, more than max_user_connections ({limit}): they are cut alike when all are asked for")
    })
}

/// Why an entry's own settings have no effect.
fn idle(config: &Config, database: &Database) -> Option<&'static str> {
    let guarantees = database.guaranteed_connections.is_some_and(|count| count > 0);
    let is_shared = database.connection_sharing.is_some_and(|sharing| sharing != ConnectionSharing::None);
    let is_limited = config.max_db_connections(database) > 0
        || config.global.max_user_connections > 0
        || config.users.values().any(|user| user.max_user_connections.is_some_and(|limit| limit > 0));
    if guarantees && !shares(config, database) {
        Some("guaranteed_connections has no effect without connection_sharing")
    } else if (guarantees || is_shared) && !is_limited {
        Some("connection_sharing has no effect without max_db_connections or max_user_connections")
    } else if guarantees
        && config.pool_size(database, None).largest() > 0
        && database.guaranteed_connections > Some(config.pool_size(database, None).largest())
    {
        Some("guaranteed_connections is more than pool_size, which a pool never passes")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::resolver::tests::config;

    fn warnings(text: &str) -> Vec<String> {
        let about = |text: &String| text.contains("guaranteed") || text.contains("sharing");
        config(&format!("{text}\n[pgbouncer]\n"))
            .warnings
            .iter()
            .map(ToString::to_string)
            .filter(about)
            .collect()
    }

    #[test]
    fn guarantees_that_do_not_fit_are_found() {
        let entry = |more: &str, rest: &str| {
            warnings(&format!(
                "[databases]\napp = host=h max_db_connections=10 connection_sharing=demand {more}\n{rest}"
            ))
        };
        assert!(entry("user=u guaranteed_connections=10", "").is_empty());
        assert_eq!(
            entry("user=u guaranteed_connections=11", ""),
            [
                "w.ini:2: app: guaranteed_connections of 1 users add up to 11, more than max_db_connections (10): they are cut alike when all are asked for"
            ]
        );
        let users = "[users]\na = guaranteed_connections=6\nb = guaranteed_connections=";
        assert!(entry("", &format!("{users}4")).is_empty());
        assert!(entry("", &format!("{users}5"))[0].contains("of 2 users add up to 11"));
        let of_user = entry("guaranteed_connections=2", "[users]\na = max_user_connections=1");
        assert_eq!(of_user.len(), 1, "{of_user:?}");
        assert!(of_user[0].contains("user a: guaranteed_connections in all databases add up to 2"));
    }

    #[test]
    fn guarantees_without_effect_are_found() {
        for (entry, why) in [
            ("guaranteed_connections=2 max_db_connections=5", "without connection_sharing"),
            ("connection_sharing=demand", "without max_db_connections"),
            (
                "connection_sharing=demand max_db_connections=50 pool_size=3 guaranteed_connections=4",
                "more than pool_size",
            ),
        ] {
            let found = warnings(&format!("[databases]\napp = host=h {entry}\n"));
            assert!(found.len() == 1 && found[0].contains(why), "{entry}: {found:?}");
        }
    }
}
