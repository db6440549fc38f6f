//! Which servers are asked, as a configuration says it. Never connects.

use std::collections::BTreeSet;

use pgclient::{Account, Place, places};
use settings::{Config, Database};

/// What the server's log and pg_stat_activity show.
const APPLICATION_NAME: &str = "weir lock waits";

/// Servers that are asked at most.
const MAX_SERVERS: usize = 256;

/// Users that are tried for one server at most.
const MAX_ACCOUNTS: usize = 8;

/// The database for a server to which only `*` leads.
const ANY_DATABASE: &str = "postgres";

/// One server: a host of an entry. Its answer covers all its databases.
#[derive(Clone, PartialEq)]
pub(crate) struct AskedServer {
    pub(crate) place: Place,
    /// Who may log in to it, in the order of the entries that lead there.
    pub(crate) accounts: Vec<Account>,
    /// The databases whose sessions are Weir's, as far as entries name them.
    pub(crate) databases: BTreeSet<String>,
}

/// The servers of all entries, and why some are not asked.
pub(crate) fn asked_servers(config: &Config) -> (Vec<AskedServer>, Vec<String>) {
    let (mut servers, mut unasked) = (Vec::new(), Vec::new());
    if !config.global.track_lock_waits {
        return (servers, unasked);
    }
    for entry in config.databases.values() {
        add(&mut servers, &mut unasked, config, entry);
    }
    if let Some(fallback) = &config.fallback {
        let mut entry = Database::clone(fallback);
        if entry.dbname == entry.name {
            ANY_DATABASE.clone_into(&mut entry.dbname);
        }
        add(&mut servers, &mut unasked, config, &entry);
    }
    unasked.extend(servers.iter().filter(|server| server.accounts.is_empty()).map(|server| {
        let label = server.place.label();
        format!(
            "{label} is not asked: no user asks; set lock_wait_user (or auth_user, or user for the entry)"
        )
    }));
    servers.retain(|server| !server.accounts.is_empty());
    (servers, unasked)
}

fn add(servers: &mut Vec<AskedServer>, unasked: &mut Vec<String>, config: &Config, entry: &Database) {
    if entry.awaits_members() {
        return; // Its hosts are not known yet; another configuration has them.
    }
    let account = Account::asking(config, entry, config.global.lock_wait_user.as_ref(), APPLICATION_NAME);
    for place in places(config, entry) {
        let known = servers.iter().position(|server| server.place == place);
        if known.is_none() && servers.len() == MAX_SERVERS {
            unasked.push(format!("{MAX_SERVERS} servers are asked at most: not {}", place.label()));
            continue;
        }
        let at = known.unwrap_or_else(|| {
            servers.push(AskedServer { place, accounts: Vec::new(), databases: BTreeSet::new() });
            servers.len() - 1
        });
        let Some(server) = servers.get_mut(at) else { continue };
        server.databases.insert(entry.dbname.clone());
        if let Some(account) = &account
            && server.accounts.len() < MAX_ACCOUNTS
            // Another database is another way in; one is enough for each user.
            && server.accounts.iter().all(|other| other.user != account.user)
        {
            server.accounts.push(account.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct Ini(String);

    impl settings::Files for Ini {
        fn read(&self, _: &str) -> std::io::Result<Vec<u8>> {
            Ok(self.0.clone().into_bytes())
        }
    }

    fn asked(databases: &str, settings: &str) -> (Vec<String>, Vec<String>) {
        let text = format!("[databases]\n{databases}\n[pgbouncer]\n{settings}\n");
        let (servers, unasked) = asked_servers(&settings::load(&Ini(text), "w.ini", &[]).unwrap());
        let told = |server: &AskedServer| {
            let users: Vec<_> = server
                .accounts
                .iter()
                .map(|account| format!("{}@{}", account.user, account.dbname))
                .collect();
            let databases: Vec<_> = server.databases.iter().cloned().collect();
            format!("{} by {} for {}", server.place.label(), users.join(" "), databases.join(" "))
        };
        (servers.iter().map(told).collect(), unasked)
    }

    #[test]
    fn each_host_is_asked_once_for_all_entries_that_lead_there() {
        let databases = "a = host=h,i user=ann\nb = host=h dbname=other user=bob\nc = host=/tmp user=ann\n* = host=h port=7 user=eve";
        let (servers, unasked) = asked(databases, "track_lock_waits = 1");
        let expected = [
            "h:5432 by ann@a bob@other for a other",
            "i:5432 by ann@a for a",
            "/tmp/.s.PGSQL.5432 by ann@c for c",
            "h:7 by eve@postgres for postgres",
        ];
        assert_eq!((servers, unasked.len()), (expected.map(str::to_owned).to_vec(), 0));
        let one = asked("a = host=h user=ann", "track_lock_waits = 1\nlock_wait_user = watcher").0;
        assert_eq!(one, ["h:5432 by watcher@a for a"]);
    }

    #[test]
    fn off_asks_nothing_and_a_server_without_a_user_is_told() {
        assert_eq!(asked("a = host=h user=ann", ""), (Vec::new(), Vec::new()));
        let (servers, unasked) = asked("a = host=h", "track_lock_waits = 1");
        assert!(servers.is_empty() && unasked[0].contains("set lock_wait_user"), "{unasked:?}");
    }
}
