//! Clusters: the servers that entries of `[databases]` connect to. One host list and port is one cluster.
//! Owns their ids, which depend on hosts and port only.

use std::collections::{BTreeMap, BTreeSet};

use settings::{Config, Database, Ports};
use sha2::{Digest, Sha256};

/// A server, or several that stand for each other, that pools lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// A UUID made from hosts and port.
    pub id: String,
    /// Its hosts as configured; none is the unix socket in the default directory.
    pub host: Vec<String>,
    /// Its port, or one for each host.
    pub port: Ports,
    /// The databases that entries lead to, by their names on the server.
    pub databases: BTreeSet<String>,
    /// The entries that lead here, by the names that clients ask for.
    pub entries: Vec<String>,
    /// `*` leads here: any other name may be a database of it.
    pub has_fallback: bool,
}

/// Properties of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// `max_connections`.
    pub max_connections: u32,
    /// `superuser_reserved_connections` and `reserved_connections`.
    pub reserved: u32,
    /// `server_version`.
    pub version: String,
    /// The databases that allow connections.
    pub databases: BTreeSet<String>,
    /// The roles that may log in; empty where they are too many to list.
    pub users: BTreeSet<String>,
}

/// Every cluster of a configuration, in the order of hosts and ports.
#[must_use]
pub fn clusters(config: &Config) -> Vec<Cluster> {
    let mut found: BTreeMap<(&[String], &Ports), Cluster> = BTreeMap::new();
    for database in config.databases.values().chain(&config.fallback) {
        let cluster = found.entry((&database.host, &database.port)).or_insert_with(|| Cluster {
            id: cluster_id(database),
            host: database.host.clone(),
            port: database.port.clone(),
            databases: BTreeSet::new(),
            entries: Vec::new(),
            has_fallback: false,
        });
        if database.name == "*" {
            cluster.has_fallback = true;
        } else {
            cluster.entries.push(database.name.clone());
        }
        // `*` that names no database leads to whatever is asked for.
        if database.dbname != "*" {
            cluster.databases.insert(database.dbname.clone());
        }
    }
    found.into_values().collect()
}

/// The id of the cluster that an entry leads to: a UUID of version 8 (RFC 9562, 5.8) from SHA-256 over hosts and port.
#[must_use]
pub fn cluster_id(database: &Database) -> String {
    let name = format!("weir cluster {}:{}", database.host.join(","), database.port);
    let digest = Sha256::digest(name.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from: usize, to: usize| hex[from..to].concat();
    [part(0, 4), part(4, 6), part(6, 8), part(8, 10), part(10, 16)].join("-")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::harness::config;

    #[test]
    fn hosts_and_port_make_a_cluster() {
        let config = config(
            "[databases]\na = host=h dbname=one\nb = host=h dbname=two\nc = host=h port=5433\nd = host=h,i\n* = host=h\n",
        )
        .unwrap();
        let all = clusters(&config);
        assert_eq!(all.len(), 3);
        let first = all.iter().find(|cluster| cluster.has_fallback).unwrap();
        assert_eq!(first.entries, ["a", "b"]);
        assert_eq!(first.databases.iter().collect::<Vec<_>>(), ["one", "two"]);
        let ids: BTreeSet<&String> = all.iter().map(|cluster| &cluster.id).collect();
        assert_eq!(ids.len(), 3);
    }

    #[test]
    fn an_id_is_a_uuid_and_never_another_one() {
        let config = config("[databases]\na = host=10.0.0.1 port=5432\n").unwrap();
        let id = cluster_id(&config.databases["a"]);
        assert_eq!(id.len(), 36);
        assert_eq!((id.as_bytes()[14], id.matches('-').count()), (b'8', 4));
        // Ids are stored in users' Terraform states.
        assert_eq!(id, "14661c1b-5ea6-8d37-b51f-638de1245bed");
    }
}
