//! What is asked of which server, as a configuration says it. Never connects.

use std::collections::BTreeSet;

use pgclient::{Account, Place, places};
use quota::{Measure, RoleQuestion, Rules, Subject, SubjectKind};
use settings::{Config, Database, quotas_path};

/// What the server's log and pg_stat_activity show.
const APPLICATION_NAME: &str = "weir quotas";

/// Databases that are asked at most.
const MAX_ASKS: usize = 256;

/// Why an entry's server is not asked.
pub(crate) const NO_USER: &str =
    "no user asks for quotas; set quota_user (or auth_user, or user for the entry)";

/// A role whose members are asked, and the line that says so.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RoleAsk {
    pub(crate) question: RoleQuestion,
    /// The file and its line.
    pub(crate) line: String,
    pub(crate) group: String,
}

/// The questions for one database on one server.
#[derive(Clone, PartialEq)]
pub(crate) struct Ask {
    pub(crate) places: Vec<Place>,
    pub(crate) account: Option<Account>,
    /// The entries that lead there.
    pub(crate) entries: Vec<String>,
    /// Its size is asked.
    pub(crate) size: bool,
    /// What each role owns in it is asked.
    pub(crate) owners: bool,
    /// The temporary files of its sessions are asked.
    pub(crate) temp_files: bool,
    pub(crate) roles: Vec<RoleAsk>,
}

impl Ask {
    /// Its name in the log.
    pub(crate) fn label(&self) -> String {
        format!("database {}", self.entries.first().map_or("", String::as_str))
    }

    /// It is of the same database, whatever is asked of it.
    pub(crate) fn is_of(&self, other: &Ask) -> bool {
        self.places == other.places && self.dbname() == other.dbname()
    }

    fn dbname(&self) -> Option<&str> {
        self.account.as_ref().map(|account| &*account.dbname)
    }
}

/// All questions.
#[derive(Clone, Default)]
pub(crate) struct Plan {
    pub(crate) asks: Vec<Ask>,
    /// What is limited of all that servers are asked for.
    pub(crate) measured: Vec<Measure>,
    /// What cannot be asked, and why.
    pub(crate) unasked: Vec<String>,
}

impl Plan {
    /// What the quotas of a configuration need to know.
    pub(crate) fn of(config: &Config) -> Plan {
        let rules = &config.quotas;
        let limited = |measure: &Measure| rules.limits_measure(*measure, None);
        let measured = Measure::MEASURED.into_iter().filter(limited).collect();
        let mut plan = Plan { measured, ..Plan::default() };
        let (sized, temp) = (Limited::of(rules, Measure::STORAGE), Limited::of(rules, Measure::TEMP_FILES));
        for entry in config.databases.values().filter(|entry| !entry.auto) {
            let (size, temp_files) = (sized.has(&entry.name), temp.has(&entry.name) || temp.users);
            if size || sized.users || temp_files {
                plan.add(config, entry, |ask| {
                    ask.size |= size;
                    ask.owners |= sized.users;
                    ask.temp_files |= temp_files;
                });
            }
        }
        let names: BTreeSet<_> = sized.databases.iter().chain(&temp.databases).copied().collect();
        for name in names.into_iter().filter(|name| !config.databases.contains_key(*name)) {
            match config.database(name) {
                Some(entry) => plan.add(config, &entry, |ask| {
                    ask.size |= sized.databases.contains(name);
                    ask.temp_files |= temp.databases.contains(name);
                }),
                None => plan
                    .unasked
                    .push(format!("database {name} is not in [databases]: what it has is not limited")),
            }
        }
        let path = quotas_path(&config.global).unwrap_or_default();
        for (group, question, line) in rules.role_groups() {
            let line = format!("{path}:{line}");
            let Some(entry) = entry_of(config, question) else {
                let name = question.entry.as_deref().unwrap_or_default();
                let why = match name {
                    "" => "there is no entry in [databases] whose server can be asked".to_owned(),
                    name => format!("database \"{name}\" is not in [databases]"),
                };
                plan.unasked.push(format!("{line}: {why}; group {group} has no members"));
                continue;
            };
            let role = RoleAsk { question: question.clone(), line, group: group.to_owned() };
            plan.add(config, &entry, |ask| ask.roles.push(role));
        }
        plan
    }

    /// There is nothing to be asked, and nothing to be said.
    pub(crate) fn is_empty(&self) -> bool {
        self.asks.is_empty() && self.unasked.is_empty()
    }

    fn add(&mut self, config: &Config, entry: &Database, note: impl FnOnce(&mut Ask)) {
        if entry.awaits_members() {
            return; // Its hosts are not known yet; another configuration has them.
        }
        let account = Account::asking(config, entry, config.global.quota_user.as_ref(), APPLICATION_NAME);
        let new = Ask {
            places: places(config, entry),
            account,
            entries: vec![entry.name.clone()],
            size: false,
            owners: false,
            temp_files: false,
            roles: Vec::new(),
        };
        let found = self.asks.iter().position(|ask| ask.places == new.places && ask.account == new.account);
        let at = match found {
            Some(at) => at,
            None if self.asks.len() == MAX_ASKS => {
                let text = format!("{MAX_ASKS} databases are asked at most: not {}", entry.name);
                return self.unasked.push(text);
            }
            None => {
                self.asks.push(new);
                self.asks.len() - 1
            }
        };
        let Some(ask) = self.asks.get_mut(at) else { return };
        if !ask.entries.contains(&entry.name) {
            ask.entries.push(entry.name.clone());
        }
        note(ask);
    }
}

/// Of whom lines limit one of the measures.
struct Limited<'a> {
    databases: BTreeSet<&'a str>,
    /// Those without a line of their own, too.
    every_database: bool,
    users: bool,
}

impl Limited<'_> {
    fn of(rules: &Rules, measure: Measure) -> Limited<'_> {
        let is_database = |of: &&Subject| of.kind == SubjectKind::Database;
        let databases = || rules.limited_subjects(measure).filter(is_database);
        Limited {
            databases: databases().filter_map(|of| of.name.as_deref()).collect(),
            every_database: databases().any(|of| of.name.is_none()),
            users: rules.limits_measure(measure, Some(SubjectKind::User)),
        }
    }

    fn has(&self, database: &str) -> bool {
        self.every_database || self.databases.contains(database)
    }
}

/// The entry whose server is asked: the one that is named, else that of auth_dbname, else the first by name.
fn entry_of(config: &Config, question: &RoleQuestion) -> Option<Database> {
    if let Some(name) = &question.entry {
        return config.database(name).map(|entry| Database::clone(&entry));
    }
    if let Some(entry) = config.global.auth_dbname.as_ref().and_then(|name| config.database(name)) {
        return Some(Database::clone(&entry));
    }
    config.databases.values().find(|entry| !entry.auto).map(|entry| Database::clone(entry))
}
