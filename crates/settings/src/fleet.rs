//! The settings of a fleet: which store its nodes share, what a node may be called, how long its lease lasts, which limits hold for all nodes.
//!
//! Owns their spelling.

use std::time::Duration;

use crate::codec::Number;
use crate::etcd_url::EtcdUrl;
use crate::fleet_store_error::FleetStoreError;
use crate::kubernetes_url::KubernetesUrl;
use crate::value::{BadValue, Codec, ValueKind};

/// The longest id of a node.
const MAX_NODE_BYTES: usize = 63;

/// Which store the nodes share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FleetStore {
    /// The process is no node of a fleet.
    #[default]
    None,
    /// etcd.
    Etcd(EtcdUrl),
    /// The API server of Kubernetes.
    Kubernetes(KubernetesUrl),
}

impl FleetStore {
    /// The process is a node of a fleet.
    #[must_use]
    pub fn is_some(&self) -> bool {
        *self != FleetStore::None
    }
}

impl Codec for FleetStore {
    type Value = FleetStore;
    const KIND: ValueKind = ValueKind::FleetStore;

    fn read(text: &str) -> Result<FleetStore, BadValue> {
        match text.trim() {
            "" => Ok(FleetStore::None),
            word if word.eq_ignore_ascii_case("none") => Ok(FleetStore::None),
            url => store(url).map_err(BadValue::NotAFleetStore),
        }
    }

    /// Without the password.
    fn show(value: &FleetStore) -> Option<String> {
        Some(match value {
            FleetStore::None => "none".to_owned(),
            FleetStore::Etcd(url) => url.to_string(),
            FleetStore::Kubernetes(url) => url.to_string(),
        })
    }
}

/// Which limits besides those of server connections hold for all nodes together (`fleet_limits`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetLimits {
    /// `max_client_conn`, `max_db_client_connections` and `max_user_client_connections`.
    pub clients: bool,
    /// Quotas of connections, and of what is used in a period.
    pub quotas: bool,
}

const LIMITS: &[&str] = &["none", "clients", "quotas"];

impl Codec for FleetLimits {
    type Value = FleetLimits;
    const KIND: ValueKind = ValueKind::List;

    fn read(text: &str) -> Result<FleetLimits, BadValue> {
        let mut limits = FleetLimits::default();
        let words: Vec<String> = text
            .split(',')
            .map(|word| word.trim().to_ascii_lowercase())
            .filter(|word| !word.is_empty())
            .collect();
        for word in &words {
            match word.as_str() {
                "clients" => limits.clients = true,
                "quotas" => limits.quotas = true,
                "none" if words.len() == 1 => {}
                _ => return Err(BadValue::NotAChoice(LIMITS)),
            }
        }
        Ok(limits)
    }

    fn show(value: &FleetLimits) -> Option<String> {
        let words = match (value.clients, value.quotas) {
            (false, false) => "none",
            (true, false) => "clients",
            (false, true) => "quotas",
            (true, true) => "clients,quotas",
        };
        Some(words.to_owned())
    }
}

fn store(text: &str) -> Result<FleetStore, FleetStoreError> {
    match KubernetesUrl::parse(text) {
        Some(url) => url.map(FleetStore::Kubernetes).map_err(FleetStoreError::Kubernetes),
        None => EtcdUrl::parse(text).map(FleetStore::Etcd).map_err(FleetStoreError::Etcd),
    }
}

/// The id of a node (`fleet_node`): letters, digits, `.`, `_` and `-`, 63 at most; empty where the host's name is it.
pub(crate) struct FleetNode;

impl Codec for FleetNode {
    type Value = Option<String>;
    const KIND: ValueKind = ValueKind::Text;

    fn read(text: &str) -> Result<Option<String>, BadValue> {
        match text.trim() {
            "" => Ok(None),
            id if is_node_id(id) => Ok(Some(id.to_owned())),
            _ => Err(BadValue::NotANode),
        }
    }

    fn show(value: &Option<String>) -> Option<String> {
        value.clone()
    }
}

/// How long a lease lasts: whole seconds, so that a node can renew it several times before its end.
pub(crate) struct LeaseTime;

const LEAST_LEASE_S: i64 = 3;
const MOST_LEASE_S: i64 = 3_600;

impl Codec for LeaseTime {
    type Value = Duration;
    const KIND: ValueKind = ValueKind::WholeSeconds;

    fn read(text: &str) -> Result<Duration, BadValue> {
        let seconds = i64::from(Number::read(text)?);
        match u64::try_from(seconds) {
            Ok(lease_s) if (LEAST_LEASE_S..=MOST_LEASE_S).contains(&seconds) => {
                Ok(Duration::from_secs(lease_s))
            }
            _ => Err(BadValue::OutOfRange { least: LEAST_LEASE_S, most: MOST_LEASE_S }),
        }
    }

    fn show(value: &Duration) -> Option<String> {
        Some(value.as_secs().to_string())
    }
}

/// No node's id: DRAIN on the console has it behind a node, or instead of one.
pub const END_CLIENTS: &str = "END_CLIENTS";

/// Whether it can be the id of a node of a fleet.
#[must_use]
pub fn is_node_id(text: &str) -> bool {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    let is_word = text.eq_ignore_ascii_case(END_CLIENTS);
    (1..=MAX_NODE_BYTES).contains(&text.len()) && text.chars().all(is_allowed) && !is_word
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn limits_are_a_set_of_words() {
        let (none, all) = (FleetLimits::default(), FleetLimits { clients: true, quotas: true });
        for (text, expected, shown) in [
            ("", none, "none"),
            ("None", none, "none"),
            (" quotas,Clients ", all, "clients,quotas"),
            ("clients", FleetLimits { clients: true, quotas: false }, "clients"),
            ("quotas,,quotas", FleetLimits { clients: false, quotas: true }, "quotas"),
        ] {
            assert_eq!(FleetLimits::read(text), Ok(expected), "{text}");
            assert_eq!(FleetLimits::show(&expected).as_deref(), Some(shown));
        }
        for text in ["none,clients", "client", "clients quotas"] {
            assert!(FleetLimits::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn none_is_no_fleet_and_a_store_is_shown_without_its_password() {
        assert_eq!(
            (FleetStore::read(""), FleetStore::read("None")),
            (Ok(FleetStore::None), Ok(FleetStore::None))
        );
        let store = FleetStore::read("etcd://u:secret@a,[::1]:7/p/q").unwrap();
        assert!(store.is_some());
        assert_eq!(FleetStore::show(&store).unwrap(), "etcd://u@a:2379,[::1]:7/p/q");
        assert_eq!(FleetStore::show(&FleetStore::read(" kubernetes ").unwrap()).unwrap(), "kubernetes");
        for (text, why) in [
            ("consul://h/p", "begin with etcd:// or kubernetes"),
            ("kubernetes://a/b/c/d", "behind the name"),
        ] {
            let refused = FleetStore::read(text).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn a_node_has_a_short_plain_id() {
        assert_eq!(FleetNode::read(" weir-0.a_b "), Ok(Some("weir-0.a_b".to_owned())));
        assert_eq!(FleetNode::read(""), Ok(None));
        for text in ["a b", "a/b", "ü", &"x".repeat(64)] {
            assert_eq!(FleetNode::read(text), Err(BadValue::NotANode), "{text}");
        }
    }
}
