//! The entry of a pool: its keys, and what is kept of an entry edited by hand.
//! Owns which settings of the table of `[databases]` a pool may be given here: all but those that have a field of their own, and those that say
//! who may log in or what is run as a user.

use settings::{Config, DATABASE, SettingInfo};

use super::{Cluster, PoolSpec, RequestedSize};

/// Keys that a change sets; other keys of an existing entry are kept in place.
const MANAGED_KEYS: &[&str] = &["dbname", "user", "password", "pool_size", "pool_mode"];

/// The settings that a pool may be given beside its fields, in the order of their table.
pub fn pool_settings() -> impl Iterator<Item = &'static SettingInfo> {
    DATABASE.iter().map(|row| &row.info).filter(|info| is_pool_setting(info.name))
}

/// Whether a pool may be given it.
#[must_use]
pub fn is_pool_setting(name: &str) -> bool {
    // These would let who may only make pools see or do what the passwords of users are for.
    let is_for_files = name.starts_with("auth_") || name == "connect_query";
    let is_known = DATABASE.iter().any(|row| row.info.name == name);
    is_known && !is_for_files && !MANAGED_KEYS.contains(&name)
}

/// The keys and values of a pool's entry. A new one of no cluster has its servers among its settings.
pub(crate) fn pairs(
    config: &Config,
    cluster: Option<&Cluster>,
    spec: &PoolSpec,
    present: Option<Vec<(String, String)>>,
) -> Vec<(String, String)> {
    let password = password(config, cluster, spec, present.as_deref());
    let size = size(config, spec, present.as_deref());
    let decided = |key: &str| match key {
        "dbname" => Some(spec.db.clone()),
        "user" => spec.user.clone(),
        "password" => password.clone(),
        "pool_size" => Some(size.clone()),
        "pool_mode" => Some(spec.mode.clone()),
        _ => None,
    };
    let mut pairs = Vec::new();
    let mut given: Vec<&str> = Vec::new();
    let base = present.unwrap_or_else(|| cluster.map(place).unwrap_or_default());
    for (key, value) in with_settings(base, spec) {
        let Some(known) = MANAGED_KEYS.iter().find(|known| **known == key) else {
            pairs.push((key, value));
            continue;
        };
        if !given.contains(known) {
            given.push(known);
            pairs.extend(decided(known).map(|value| (key, value)));
        }
    }
    let missing = MANAGED_KEYS.iter().filter(|known| !given.contains(known));
    pairs.extend(missing.filter_map(|known| decided(known).map(|value| ((*known).to_owned(), value))));
    pairs
}

/// The entry with its settings: those that it has in place, others behind them in the order of the table.
fn with_settings(mut pairs: Vec<(String, String)>, spec: &PoolSpec) -> Vec<(String, String)> {
    let named = pool_settings().filter_map(|info| Some((info.name, spec.settings.get(info.name)?)));
    for (name, value) in named {
        let value = value.as_ref().filter(|value| !value.is_empty());
        let is_it = |key: &str| key == name || key == "reserve_pool" && name == "reserve_pool_size";
        // The last one counts.
        let place = pairs.iter().rposition(|(key, _)| is_it(key));
        match (value, place) {
            (Some(value), Some(place)) => pairs[place].1.clone_from(value),
            (Some(value), None) => pairs.push((name.to_owned(), value.clone())),
            (None, _) => pairs.retain(|(key, _)| !is_it(key)),
        }
    }
    pairs
}

/// The size. One of which the entry says `auto` is shown as the largest that it may have: given back so, it stays `auto`.
fn size(config: &Config, spec: &PoolSpec, present: Option<&[(String, String)]>) -> String {
    let value = |name: &str| present?.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value);
    let RequestedSize::Shown(shown) = spec.size else { return spec.size.to_string() };
    let largest = value("auto_pool_size_max").and_then(|text| text.parse().ok());
    let is_auto = value("pool_size").is_some_and(|text| text.eq_ignore_ascii_case("auto"));
    match is_auto && shown == largest.unwrap_or(i64::from(config.global.auto_pool_size_max)) {
        true => RequestedSize::Auto.to_string(),
        false => spec.size.to_string(),
    }
}

/// Where a new pool leads to.
fn place(cluster: &Cluster) -> Vec<(String, String)> {
    let host = (!cluster.host.is_empty()).then(|| ("host".to_owned(), cluster.host.join(",")));
    host.into_iter().chain([("port".to_owned(), cluster.port.to_string())]).collect()
}

/// The password of the forced user: the entry's own while the user stays, else what another entry of the cluster logs in
/// with as the same user. Without either the user's secret in `auth_file` is used, as for any entry.
fn password(
    config: &Config,
    cluster: Option<&Cluster>,
    spec: &PoolSpec,
    present: Option<&[(String, String)]>,
) -> Option<String> {
    let user = spec.user.as_ref()?;
    let value = |name: &str| present?.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value);
    if value("user") == Some(user) {
        return value("password").cloned();
    }
    let cluster = cluster?;
    let others = config.databases.values().chain(&config.fallback);
    let mut others = others.filter(|other| other.host == cluster.host && other.port == cluster.port);
    others.find_map(|other| other.password.clone().filter(|_| other.user.as_ref() == Some(user)))
}
