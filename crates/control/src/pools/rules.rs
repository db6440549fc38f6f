//! Validation of a pool's name, database, user, mode, size and servers, and which settings it may have. What a setting may be is said by the
//! parser of the file, which reads the entry.

use std::collections::BTreeSet;

use settings::{Config, DATABASE, Database, PoolMode, idle_settings};

use super::budget::taken_by;
use super::clusters::{Cluster, cluster_id, clusters};
use super::entry::is_pool_setting;
use super::{Budget, PoolChange, PoolError, PoolRequest, PoolSpec, RequestedSize, ServerInfo};
use crate::CONSOLE;

/// As DigitalOcean's provider for Terraform counts; the most is PostgreSQL's for the name of a database.
const NAME_CHARS: std::ops::RangeInclusive<usize> = 3..=63;
/// PostgreSQL's longest name of a database or role, in bytes.
const IDENTIFIER_BYTES: usize = 63;
/// PostgreSQL's largest `max_connections`.
const MAX_CONNECTIONS: i64 = 262_143;
/// Warns above this share of the budget, in percent.
const WARN_PERCENT: u64 = 80;

/// Validates a change, except for its settings' values, its servers and the budget; returns the cluster that it has or asks for, and the
/// connections that the pool uses now.
pub(crate) fn validate(config: &Config, request: &PoolRequest) -> Result<(Option<Cluster>, u32), PoolError> {
    let all = clusters(config);
    match &request.change {
        PoolChange::Create(spec) => {
            name(&spec.name)?;
            if let Some(taken) = config.databases.get(&spec.name) {
                let (file, line) = (taken.at.file.to_string(), taken.at.line);
                return Err(PoolError::Exists { name: spec.name.clone(), file, line });
            }
            settings(spec)?;
            let cluster = match (names_servers(spec), &spec.cluster) {
                (true, Some(_)) => {
                    let message = "a pool has a cluster, or servers of its own";
                    return Err(PoolError::field("cluster_id", message));
                }
                (true, None) => None,
                (false, id) => Some(chosen(all, id.as_deref())?),
            };
            fields(spec, cluster.as_ref(), request.server.as_ref())?;
            Ok((cluster, 0))
        }
        PoolChange::Update(spec) => {
            let present = editable_entry(config, &spec.name)?;
            let cluster = of(all, present)?;
            if spec.cluster.as_ref().is_some_and(|id| *id != cluster.id) {
                return Err(PoolError::field("cluster_id", "a pool stays in its cluster"));
            }
            settings(spec)?;
            let stays = Some(&cluster).filter(|_| !names_servers(spec));
            fields(spec, stays, request.server.as_ref())?;
            Ok((Some(cluster), taken_by(config, present)))
        }
        PoolChange::Delete(name) => {
            let present = editable_entry(config, name)?;
            Ok((Some(of(all, present)?), 0))
        }
    }
}

/// An entry that Weir may change.
fn editable_entry<'a>(config: &'a Config, name: &str) -> Result<&'a Database, PoolError> {
    let missing = || PoolError::NotFound(name.to_owned());
    let present = config.databases.get(name).ok_or_else(missing)?;
    if config.is_in_pools_file(present) {
        return Ok(present);
    }
    let (file, line) = (present.at.file.to_string(), present.at.line);
    Err(PoolError::NotOurs { name: name.to_owned(), file, line })
}

pub(crate) fn of(all: Vec<Cluster>, database: &Database) -> Result<Cluster, PoolError> {
    let id = cluster_id(database);
    let found = all.into_iter().find(|cluster| cluster.id == id);
    found.ok_or_else(|| PoolError::NotFound(database.name.clone()))
}

fn chosen(mut all: Vec<Cluster>, id: Option<&str>) -> Result<Cluster, PoolError> {
    let refuse = |message: &str| Err(PoolError::field("cluster_id", message));
    match id {
        Some(id) => match all.into_iter().find(|cluster| cluster.id == id) {
            Some(cluster) => Ok(cluster),
            None => refuse("there is no such cluster"),
        },
        None if all.len() == 1 => Ok(all.remove(0)),
        None if all.is_empty() => {
            refuse("there is no cluster: a database in [databases] has to lead to one first")
        }
        None => refuse("there are several clusters: name one"),
    }
}

fn name(name: &str) -> Result<(), PoolError> {
    let refuse = |message: &str| Err(PoolError::field("name", message));
    if !NAME_CHARS.contains(&name.chars().count()) {
        return refuse("a pool's name has 3 to 63 characters");
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)) {
        return refuse("a pool's name consists of letters (a-z, A-Z), digits, _ and -");
    }
    if name.starts_with('-') {
        return refuse("a pool's name does not begin with -");
    }
    if name == CONSOLE {
        return refuse("\"pgbouncer\" is the name of the console");
    }
    Ok(())
}

/// Its settings say which servers it leads to.
pub(crate) fn names_servers(spec: &PoolSpec) -> bool {
    const SERVERS: [&str; 3] = ["host", "port", "topology"];
    let given = |name| {
        spec.settings.get(name).is_some_and(|value| value.as_ref().is_some_and(|value| !value.is_empty()))
    };
    SERVERS.into_iter().any(given)
}

fn settings(spec: &PoolSpec) -> Result<(), PoolError> {
    for (name, value) in &spec.settings {
        let refuse = |message: &str| Err(PoolError::setting(name, message));
        if !is_pool_setting(name) {
            return refuse(match DATABASE.iter().any(|row| row.info.name == name) {
                true => "this is not set here: it has a field of its own, or is set in files only",
                false => "an entry of [databases] has no such key",
            });
        }
        if value.iter().any(|value| value.chars().any(char::is_control)) {
            return refuse("a setting has no control characters");
        }
    }
    Ok(())
}

/// Servers that no entry leads to get the passwords of the pool's users: not everybody who may make a pool may name them.
pub(crate) fn check_servers(
    before: &Config,
    entry: &Database,
    request: &PoolRequest,
) -> Result<(), PoolError> {
    if request.may_name_servers {
        return Ok(());
    }
    let others = || before.databases.values().chain(&before.fallback);
    let known: BTreeSet<(&str, u16)> = others().flat_map(|other| servers(other)).collect();
    let is_known = match entry.patroni() {
        // Its servers are those that Patroni says.
        Some(urls) if entry.follows_members => others().any(|other| other.patroni() == Some(urls)),
        _ => servers(entry).all(|server| known.contains(&server)),
    };
    if is_known { Ok(()) } else { Err(PoolError::NewServers) }
}

/// Hosts with their ports; the unix socket in the default directory has no name.
fn servers(entry: &Database) -> impl Iterator<Item = (&str, u16)> {
    let socket = entry.host.is_empty() && !entry.follows_members;
    let socket = socket.then(|| ("", entry.port.first()));
    let hosts = entry.host.iter().enumerate();
    hosts.map(|(place, host)| (host.as_str(), entry.port.of(place))).chain(socket)
}

fn fields(spec: &PoolSpec, cluster: Option<&Cluster>, server: Option<&ServerInfo>) -> Result<(), PoolError> {
    identifier("db", "a database", &spec.db)?;
    // The databases of other servers are not known.
    let server = server.filter(|_| cluster.is_some());
    cluster.map_or(Ok(()), |cluster| known(&spec.db, cluster, server))?;
    if let Some(user) = &spec.user {
        identifier("user", "a user", user)?;
        let users = server.map(|server| &server.users).filter(|users| !users.is_empty());
        if users.is_some_and(|users| !users.contains(user)) {
            let message = format!("there is no user \"{user}\" on this cluster that may log in");
            return Err(PoolError::field("user", message));
        }
    }
    if !PoolMode::WORDS.contains(&spec.mode.as_str()) {
        return Err(PoolError::field("mode", format!("mode is one of {}", PoolMode::WORDS.join(", "))));
    }
    if spec.size.number().is_some_and(|size| size < 1) {
        return Err(PoolError::field("size", "a pool has at least 1 server connection"));
    }
    if spec.size.number().is_some_and(|size| size > MAX_CONNECTIONS) {
        let message = format!("PostgreSQL has no more than {MAX_CONNECTIONS} connections");
        return Err(PoolError::field("size", message));
    }
    Ok(())
}

fn identifier(field: &'static str, what: &str, text: &str) -> Result<(), PoolError> {
    if text.is_empty() {
        return Err(PoolError::field(field, format!("{what} has to be named")));
    }
    if text.len() > IDENTIFIER_BYTES {
        return Err(PoolError::field(
            field,
            format!("the name of {what} has at most {IDENTIFIER_BYTES} bytes"),
        ));
    }
    if text.chars().any(char::is_control) {
        return Err(PoolError::field(field, format!("the name of {what} has no control characters")));
    }
    Ok(())
}

/// Whether the cluster has this database, if known.
fn known(db: &str, cluster: &Cluster, server: Option<&ServerInfo>) -> Result<(), PoolError> {
    let there = server.is_some_and(|server| server.databases.contains(db));
    // The list is incomplete where `*` exists and the server does not answer.
    let unasked = server.is_none() && cluster.has_fallback;
    if there || unasked || cluster.databases.contains(db) {
        return Ok(());
    }
    let of_server = server.iter().flat_map(|server| &server.databases);
    let mut names: Vec<&str> = cluster.databases.iter().chain(of_server).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let more = if names.len() > 20 { ", …" } else { "" };
    names.truncate(20);
    let message = format!("there is no database \"{db}\" on this cluster: it has {}{more}", names.join(", "));
    Err(PoolError::field("db", message))
}

/// Whether the server has the connections. `budget` counts the pool already, with its `largest` size; one that does not grow is never refused.
pub(crate) fn check_budget(
    budget: &Budget,
    request: &PoolRequest,
    size_before: u32,
    largest: u32,
) -> Result<(), PoolError> {
    let (PoolChange::Create(spec) | PoolChange::Update(spec)) = &request.change else { return Ok(()) };
    let (Some(max), Some(reserved), Some(usable)) =
        (budget.max_connections, budget.reserved, budget.usable())
    else {
        return Ok(());
    };
    let size = spec.size.number().unwrap_or(i64::from(largest));
    if budget.used_by_pools <= usable || size <= i64::from(size_before) {
        return Ok(());
    }
    let others = i64::from(budget.used_by_pools) - size;
    let free = (i64::from(usable) - others).max(0);
    let message = format!(
        "{size} connections are more than the {free} that are free: the server has {max}, keeps {reserved} for itself, and other pools may take {}",
        others.max(0)
    );
    Err(PoolError::field("size", message))
}

/// The largest size that a pool of an entry may have.
pub(crate) fn largest(config: &Config, entry: &Database) -> u32 {
    let user = entry.user.as_deref().and_then(|user| config.user(user)).map(|user| &**user);
    config.pool_size(entry, user).largest()
}

/// Warnings.
pub(crate) fn warnings(config: &Config, budget: &Budget, request: &PoolRequest) -> Vec<String> {
    let (PoolChange::Create(spec) | PoolChange::Update(spec)) = &request.change else { return Vec::new() };
    let mut told = Vec::new();
    let entry = config.databases.get(&spec.name);
    told.extend(entry.iter().flat_map(|entry| idle_settings(config, entry)).map(str::to_owned));
    match budget.usable() {
        None => told.push("the server could not be queried for its max_connections".to_owned()),
        Some(usable) if u64::from(budget.used_by_pools) * 100 > u64::from(usable) * WARN_PERCENT => {
            let used = budget.used_by_pools;
            told.push(format!(
                "pools may take {used} of the {usable} connections of the server, more than {WARN_PERCENT} %"
            ));
        }
        Some(_) => {}
    }
    if spec.size == RequestedSize::Auto && spec.mode == PoolMode::Session.word() {
        told.push("in session pooling no size is found: auto is the largest, auto_pool_size_max".to_owned());
    }
    match &spec.user {
        None => told.push("each user who connects has a pool of this size".to_owned()),
        Some(user) => {
            let editable_entry = config.databases.get(&spec.name).is_some_and(|pool| pool.password.is_some());
            if !editable_entry && !config.secrets.contains_key(user) {
                told.push(format!(
                    "user \"{user}\" has no password in auth_file: the server has to let Weir in without one"
                ));
            }
        }
    }
    told
}
