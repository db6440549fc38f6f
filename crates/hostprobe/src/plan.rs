//! Which hosts are asked, as a configuration says it. Never connects.

use pgclient::{Account, Place, places};
use settings::{Config, Database};

/// What the server's log and pg_stat_activity show.
const APPLICATION_NAME: &str = "weir host probe";

/// Servers that are asked at most.
const MAX_SERVERS: usize = 256;

/// Users that are tried for one server at most.
const MAX_ACCOUNTS: usize = 8;

/// One server. What it answers holds for all entries that have it.
#[derive(Clone, PartialEq)]
pub(crate) struct ProbedServer {
    pub(crate) place: Place,
    /// Who may log in to it, in the order of the entries that have it.
    pub(crate) accounts: Vec<Account>,
}

/// An entry whose hosts are asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProbedEntry {
    pub(crate) name: String,
    /// The name and port of each, as SHOW HOSTS has it, and where it is.
    pub(crate) hosts: Vec<(String, Place)>,
}

/// Entries, their servers, and why some are not asked.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) entries: Vec<ProbedEntry>,
    pub(crate) servers: Vec<ProbedServer>,
    pub(crate) unasked: Vec<String>,
}

impl Plan {
    pub(crate) fn of(config: &Config) -> Plan {
        let mut plan = Plan::default();
        if config.global.host_probe_interval.is_zero() {
            return plan;
        }
        for (name, entry) in &config.databases {
            let account =
                Account::asking(config, entry, config.global.host_probe_user.as_ref(), APPLICATION_NAME);
            if let Some(account) = account.filter(|_| is_probed(entry)) {
                plan.add(config, name, entry, &account);
            }
        }
        plan
    }

    fn add(&mut self, config: &Config, name: &str, entry: &Database, account: &Account) {
        let mut in_order = entry.clone();
        in_order.leader = None;
        let mut hosts = Vec::new();
        for (at, place) in places(config, &in_order).into_iter().enumerate() {
            let host = entry.host.get(at).map_or("", String::as_str);
            hosts.push((format!("{host}:{}", entry.port.of(at)), place.clone()));
            let is_full = self.servers.len() == MAX_SERVERS;
            match self.servers.iter_mut().find(|server| server.place == place) {
                Some(server) => server.add(account),
                None if is_full => {
                    let label = place.label();
                    self.unasked.push(format!("{MAX_SERVERS} servers are asked at most: not {label}"));
                }
                None => self.servers.push(ProbedServer { place, accounts: vec![account.clone()] }),
            }
        }
        self.entries.push(ProbedEntry { name: name.to_owned(), hosts });
    }
}

impl ProbedServer {
    fn add(&mut self, account: &Account) {
        if self.accounts.len() < MAX_ACCOUNTS
            // Another database is another way in; one is enough for each user.
            && self.accounts.iter().all(|other| other.user != account.user)
        {
            self.accounts.push(account.clone());
        }
    }
}

/// What `topology` names is asked as soon as it is known.
fn is_probed(entry: &Database) -> bool {
    entry.has_roles() && !entry.awaits_members()
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

    fn plan(databases: &str, settings: &str) -> (Vec<String>, Vec<String>) {
        let text = format!("[databases]\n{databases}\n[pgbouncer]\n{settings}\n");
        let plan = Plan::of(&settings::load(&Ini(text), "w.ini", &[]).unwrap());
        let server = |server: &ProbedServer| {
            let users: Vec<_> = server.accounts.iter().map(|account| account.user.as_str()).collect();
            format!("{} by {}", server.place.label(), users.join(" "))
        };
        let entry = |entry: &ProbedEntry| {
            let labels: Vec<_> = entry.hosts.iter().map(|(label, _)| label.as_str()).collect();
            format!("{}: {}", entry.name, labels.join(" "))
        };
        (plan.entries.iter().map(entry).collect(), plan.servers.iter().map(server).collect())
    }

    #[test]
    fn hosts_of_entries_that_ask_for_a_role_are_asked_once_each() {
        let (entries, servers) = plan(
            "a = host=h,i target_session_attrs=primary user=ann\nb = host=i,j port=5432,7 read_write_split=1 user=bob\n\
             any = host=h,k user=ann\none = host=k target_session_attrs=primary user=ann\nsocket = host=/tmp,h target_session_attrs=standby user=ann",
            "",
        );
        assert_eq!(entries, ["a: h:5432 i:5432", "b: i:5432 j:7", "socket: /tmp:5432 h:5432"]);
        let expected = ["h:5432 by ann", "i:5432 by ann bob", "j:7 by bob", "/tmp/.s.PGSQL.5432 by ann"];
        assert_eq!(servers, expected);
    }

    #[test]
    fn without_a_user_or_an_interval_none_is_asked() {
        let entry = "a = host=h,i target_session_attrs=primary";
        assert!(plan(entry, "").1.is_empty());
        assert_eq!(plan(entry, "host_probe_user = watcher").1, ["h:5432 by watcher", "i:5432 by watcher"]);
        assert_eq!(plan(entry, "auth_user = asks").1, ["h:5432 by asks", "i:5432 by asks"]);
        assert!(plan(entry, "host_probe_user = watcher\nhost_probe_interval = 0").1.is_empty());
    }
}
