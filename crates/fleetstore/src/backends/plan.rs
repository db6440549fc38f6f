//! Which servers are asked for budgets, and which of their backends count, as a configuration says it. Never connects.

use fleet::{BudgetKind, BudgetName};
use pgclient::{Account, Place, places};
use settings::{Config, Database};

/// What the server's log and pg_stat_activity show.
const APPLICATION_NAME: &str = "weir fleet";

/// Users that are tried for one server at most.
const MAX_ACCOUNTS: usize = 4;

/// The database for a server to which only `*` leads.
const ANY_DATABASE: &str = "postgres";

/// One server: its answer covers all its databases.
#[derive(Clone)]
pub(crate) struct AskedServer {
    pub(crate) place: Place,
    /// Who may log in to it, in the order of the entries that lead there.
    pub(crate) accounts: Vec<Account>,
}

/// Which backends of a server count in a budget; None: any. One that PostgreSQL shows without a name counts under every name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) datname: Option<String>,
    pub(crate) usename: Option<String>,
}

/// Where a budget's connections are: places in [`Plan::servers`].
pub(crate) struct BudgetServers {
    pub(crate) name: BudgetName,
    pub(crate) servers: Vec<(usize, Filter)>,
}

/// All servers of some budgets.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) servers: Vec<AskedServer>,
    pub(crate) budgets: Vec<BudgetServers>,
    /// Budgets that cannot be asked for, and why.
    pub(crate) unasked: Vec<String>,
}

impl Plan {
    pub(crate) fn of(config: &Config, user: Option<&String>, budgets: Vec<BudgetName>) -> Plan {
        let mut plan = Plan::default();
        for name in budgets {
            let entries = match name.kind {
                BudgetKind::Pool | BudgetKind::Database => {
                    config.database(&name.database).map(|entry| Database::clone(&entry)).into_iter().collect()
                }
                BudgetKind::User => entries_of_user(config, &name.user),
            };
            if entries.is_empty() {
                plan.unasked.push(format!("{} is in no entry of [databases]", shown(&name)));
                continue;
            }
            if let Some(entry) = entries.iter().find(|entry| entry.awaits_members()) {
                plan.unasked.push(format!("the servers of database {} are not known yet", entry.name));
                continue;
            }
            let mut servers = Vec::new();
            for entry in &entries {
                let filter = Filter::of(&name, entry);
                for place in places(config, entry) {
                    let part = (plan.server(config, user, entry, place), filter.clone());
                    if !servers.contains(&part) {
                        servers.push(part);
                    }
                }
            }
            plan.budgets.push(BudgetServers { name, servers });
        }
        plan
    }

    /// The place of a server in the list.
    fn server(&mut self, config: &Config, user: Option<&String>, entry: &Database, place: Place) -> usize {
        let known = self.servers.iter().position(|server| server.place == place);
        let at = known.unwrap_or_else(|| {
            self.servers.push(AskedServer { place, accounts: Vec::new() });
            self.servers.len() - 1
        });
        if let Some(server) = self.servers.get_mut(at)
            && let Some(account) = Account::asking(config, entry, user, APPLICATION_NAME)
            && server.accounts.len() < MAX_ACCOUNTS
            && !server.accounts.contains(&account)
        {
            server.accounts.push(account);
        }
        at
    }
}

impl Filter {
    fn of(name: &BudgetName, entry: &Database) -> Filter {
        let user = || Some(entry.user.clone().unwrap_or_else(|| name.user.to_string()));
        match name.kind {
            BudgetKind::Pool => Filter { datname: Some(entry.dbname.clone()), usename: user() },
            BudgetKind::Database => Filter { datname: Some(entry.dbname.clone()), usename: None },
            // In any database: another node's configuration may have more entries.
            BudgetKind::User => Filter { datname: None, usename: Some(name.user.to_string()) },
        }
    }

    /// Whether a backend counts.
    pub(crate) fn has(&self, datname: Option<&str>, usename: Option<&str>) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| match (wanted, found) {
            (Some(wanted), Some(found)) => wanted == found,
            _ => true,
        };
        is(&self.datname, datname) && is(&self.usename, usename)
    }
}

/// The entries whose connections may be this user's.
fn entries_of_user(config: &Config, user: &str) -> Vec<Database> {
    let fallback = config.fallback.as_ref().map(|fallback| {
        let mut entry = Database::clone(fallback);
        if entry.dbname == entry.name {
            ANY_DATABASE.clone_into(&mut entry.dbname);
        }
        entry
    });
    let entries = config.databases.values().filter(|entry| !entry.auto).map(|entry| Database::clone(entry));
    entries
        .chain(fallback)
        .filter(|entry| entry.user.as_deref().is_none_or(|forced| forced == user))
        .collect()
}

fn shown(name: &BudgetName) -> String {
    match name.kind {
        BudgetKind::Pool => format!("pool {}/{}", name.database, name.user),
        BudgetKind::Database => format!("database {}", name.database),
        BudgetKind::User => format!("user {}", name.user),
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

    fn budget(kind: BudgetKind, database: &str, user: &str) -> BudgetName {
        BudgetName { kind, database: database.into(), user: user.into(), host: "".into() }
    }

    fn plan(databases: &str, user: Option<&str>, budget: BudgetName) -> Plan {
        let text = format!("[databases]\n{databases}\n[pgbouncer]\nauth_user = auth\n");
        let config = settings::load(&Ini(text), "w.ini", &[]).unwrap();
        Plan::of(&config, user.map(str::to_owned).as_ref(), vec![budget])
    }

    /// The servers, as whom they are asked, and what counts there.
    fn asked(databases: &str, user: Option<&str>, budget: BudgetName) -> Vec<String> {
        let plan = plan(databases, user, budget);
        let shown = |(at, filter): &(usize, Filter)| {
            let server = &plan.servers[*at];
            let accounts: Vec<_> =
                server.accounts.iter().map(|one| format!("{}@{}", one.user, one.dbname)).collect();
            let any = |name: &Option<String>| name.clone().unwrap_or_else(|| "any".to_owned());
            let (datname, usename) = (any(&filter.datname), any(&filter.usename));
            format!("{} by {}: {datname} {usename}", server.place.label(), accounts.join(" "))
        };
        plan.budgets.iter().flat_map(|budget| budget.servers.iter().map(shown)).collect()
    }

    #[test]
    fn a_pool_counts_on_all_hosts_of_its_entry_under_its_servers_names() {
        let pool = |database| budget(BudgetKind::Pool, database, "ann");
        assert_eq!(
            asked("a = host=h,i port=1,2 dbname=x", None, pool("a")),
            ["h:1 by auth@x: x ann", "i:2 by auth@x: x ann"]
        );
        assert_eq!(asked("a = host=h user=bob", None, pool("a")), ["h:5432 by bob@a: a bob"]);
        assert_eq!(asked("a = host=h", Some("watcher"), pool("a")), ["h:5432 by watcher@a: a ann"]);
        assert_eq!(asked("* = host=h", None, pool("b")), ["h:5432 by auth@b: b ann"]);
        assert_eq!(asked("* = host=h dbname=x", None, pool("b")), ["h:5432 by auth@x: x ann"]);
    }

    #[test]
    fn a_database_counts_under_all_users() {
        let database = budget(BudgetKind::Database, "a", "");
        assert_eq!(asked("a = host=h user=bob", None, database), ["h:5432 by bob@a: a any"]);
    }

    #[test]
    fn a_user_counts_on_all_servers_where_connections_may_be_theirs() {
        let databases = "a = host=h\nb = host=h user=ann\nc = host=i user=bob\nd = host=j\n* = host=k";
        assert_eq!(
            asked(databases, None, budget(BudgetKind::User, "", "ann")),
            [
                "h:5432 by auth@a ann@b: any ann",
                "j:5432 by auth@d: any ann",
                "k:5432 by auth@postgres: any ann"
            ]
        );
    }

    #[test]
    fn what_is_in_no_entry_is_not_asked_for() {
        let plan = plan("a = host=h", None, budget(BudgetKind::Pool, "b", "ann"));
        assert!(plan.budgets.is_empty());
        assert_eq!(plan.unasked, ["pool b/ann is in no entry of [databases]"]);
    }

    #[test]
    fn a_backend_whose_name_is_hidden_counts() {
        let filter = Filter { datname: Some("a".to_owned()), usename: Some("ann".to_owned()) };
        assert!(filter.has(Some("a"), Some("ann")));
        assert!(filter.has(None, Some("ann")) && filter.has(Some("a"), None));
        assert!(!filter.has(Some("b"), Some("ann")) && !filter.has(None, Some("bob")));
    }
}
