//! The entry of a pool: its keys, and what is kept of an entry edited by hand.

use settings::Config;

use super::{Cluster, PoolSpec};

/// Keys that a change sets; other keys of an existing entry are kept in place.
const MANAGED_KEYS: &[&str] = &["dbname", "user", "password", "pool_size", "pool_mode"];

/// The keys and values of a pool's entry.
pub(crate) fn pairs(
    config: &Config,
    cluster: &Cluster,
    spec: &PoolSpec,
    present: Option<Vec<(String, String)>>,
) -> Vec<(String, String)> {
    let password = password(config, cluster, spec, present.as_deref());
    let decided = |key: &str| match key {
        "dbname" => Some(spec.db.clone()),
        "user" => spec.user.clone(),
        "password" => password.clone(),
        "pool_size" => Some(spec.size.to_string()),
        "pool_mode" => Some(spec.mode.clone()),
        _ => None,
    };
    let mut pairs = Vec::new();
    let mut given: Vec<&str> = Vec::new();
    for (key, value) in present.unwrap_or_else(|| place(cluster)) {
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

/// Where a new pool leads to.
fn place(cluster: &Cluster) -> Vec<(String, String)> {
    let host = (!cluster.host.is_empty()).then(|| ("host".to_owned(), cluster.host.join(",")));
    host.into_iter().chain([("port".to_owned(), cluster.port.to_string())]).collect()
}

/// The password of the forced user: the entry's own while the user stays, else what another entry of the cluster logs in
/// with as the same user. Without either the user's secret in `auth_file` is used, as for any entry.
fn password(
    config: &Config,
    cluster: &Cluster,
    spec: &PoolSpec,
    present: Option<&[(String, String)]>,
) -> Option<String> {
    let user = spec.user.as_ref()?;
    let value = |name: &str| present?.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value);
    if value("user") == Some(user) {
        return value("password").cloned();
    }
    let others = config.databases.values().chain(&config.fallback);
    let mut others = others.filter(|other| other.host == cluster.host && other.port == cluster.port);
    others.find_map(|other| other.password.clone().filter(|_| other.user.as_ref() == Some(user)))
}
