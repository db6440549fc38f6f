//! Leases and ConfigMaps in JSON: what nodes and objects of a fleet are in them, and back.
//!
//! Owns labels, annotations and keys. What of a list or a watch is not as a fleet writes it is foreign, with a reason.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fleet::{NodeId, NodeRecord, Object, ObjectName, Revision, SessionId};
use serde_json::{Value, json};

use super::failure::Failure;
use super::names;
use crate::record;

/// Who keeps it, by a label that Kubernetes recommends.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "weir");

/// The label with the fleet's name.
const FLEET: &str = "weir/fleet";

/// The annotation with the full name: of a Lease the node's id, of a ConfigMap the parts of the object's name.
const NAME: &str = "weir/name";

/// The annotation of a Lease with the node's record.
const RECORD: &str = "weir/record";

/// The annotation of a ConfigMap with the session that wrote it.
const SESSION: &str = "weir/session";

/// The key of a ConfigMap's contents.
const CONTENTS: &str = "contents";

/// The names of a fleet's objects, and where they are.
pub(crate) struct Objects {
    namespace: String,
    fleet: String,
}

/// What identifies one state of a Lease or ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) revision: Revision,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundLease {
    pub(crate) identity: Identity,
    pub(crate) node: NodeId,
    pub(crate) record: NodeRecord,
    pub(crate) lasts: Duration,
}

/// An object, with who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundObject {
    pub(crate) object: Object,
    /// None if it does not say so.
    pub(crate) writer: Option<SessionId>,
}

/// What is not as a fleet writes it: what it is, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Foreign(pub(crate) String);

impl Objects {
    pub(crate) fn new(namespace: &str, fleet: &str) -> Objects {
        Objects { namespace: namespace.to_owned(), fleet: fleet.to_owned() }
    }

    /// The path of all Leases of the namespace.
    pub(crate) fn leases(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    /// The path of all ConfigMaps of the namespace.
    pub(crate) fn config_maps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.namespace)
    }

    /// The query that selects those of the fleet.
    pub(crate) fn selector(&self) -> String {
        let (label, value) = MANAGED_BY;
        format!(
            "labelSelector={}%3D{value}%2C{}%3D{}",
            label.replace('/', "%2F"),
            FLEET.replace('/', "%2F"),
            self.fleet
        )
    }

    pub(crate) fn lease_name(&self, node: &str) -> String {
        names::name(&self.fleet, &[node.to_owned()])
    }

    pub(crate) fn object_name(&self, name: &ObjectName) -> String {
        names::name(&self.fleet, &name.0)
    }

    /// A node's Lease; `replaces` is the state that it replaces.
    pub(crate) fn lease(
        &self,
        node: &str,
        record: &NodeRecord,
        lease_s: u32,
        replaces: Option<&Identity>,
    ) -> Value {
        let text = String::from_utf8_lossy(&record::write(record)).into_owned();
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": self.metadata(&self.lease_name(node), json!({ NAME: node, RECORD: text }), replaces),
            "spec": {
                "holderIdentity": session_text(record.session),
                "leaseDurationSeconds": lease_s,
                "renewTime": micro_time(SystemTime::now()),
            },
        })
    }

    /// The ConfigMap of an object; `replaces` is the revision that it replaces.
    pub(crate) fn config_map(
        &self,
        name: &ObjectName,
        contents: &[u8],
        writer: Option<SessionId>,
        replaces: Revision,
    ) -> Value {
        let mut annotations = json!({ NAME: names::annotation(&name.0) });
        if let (Some(writer), Some(annotations)) = (writer, annotations.as_object_mut()) {
            annotations.insert(SESSION.to_owned(), session_text(writer).into());
        }
        let mut metadata = self.metadata(&self.object_name(name), annotations, None);
        if let Some(metadata) = metadata.as_object_mut().filter(|_| replaces != Revision::ABSENT) {
            metadata.insert("resourceVersion".to_owned(), replaces.0.to_string().into());
        }
        let (field, text) = match std::str::from_utf8(contents) {
            Ok(text) => ("data", text.to_owned()),
            Err(_) => ("binaryData", STANDARD.encode(contents)),
        };
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, field: { CONTENTS: text } })
    }

    /// With the uid of what it replaces: a PUT of a Lease that is gone would create it anew otherwise.
    fn metadata(&self, name: &str, annotations: Value, replaces: Option<&Identity>) -> Value {
        let (label, value) = MANAGED_BY;
        let mut metadata = json!({
            "name": name,
            "namespace": self.namespace,
            "labels": { label: value, FLEET: self.fleet },
            "annotations": annotations,
        });
        if let (Some(replaces), Some(metadata)) = (replaces, metadata.as_object_mut()) {
            metadata.insert("uid".to_owned(), replaces.uid.clone().into());
            metadata.insert("resourceVersion".to_owned(), replaces.revision.0.to_string().into());
        }
        metadata
    }

    /// Reads a Lease.
    ///
    /// # Errors
    /// [`Failure`]: its revision cannot be read, so that nothing can be said of it.
    pub(crate) fn read_lease(&self, value: &Value) -> Result<Result<FoundLease, Foreign>, Failure> {
        let identity = identity(value)?;
        let foreign = |why: &str| Err(Foreign(format!("Lease \"{}\" {why}", identity.name.escape_debug())));
        let Some(node) = annotation(value, NAME).filter(|node| self.lease_name(node) == identity.name) else {
            return Ok(foreign("is no node's of a fleet"));
        };
        let spec = |field: &str| value.get("spec").and_then(|spec| spec.get(field));
        let holder = spec("holderIdentity").and_then(Value::as_str).unwrap_or_default();
        let record = annotation(value, RECORD).and_then(|text| record::read(text.as_bytes()));
        let Some(record) = record.filter(|record| session_text(record.session) == holder) else {
            return Ok(foreign("has no record of its holder that this version reads"));
        };
        let Some(lasts) = spec("leaseDurationSeconds").and_then(Value::as_u64).filter(|lasts| *lasts > 0)
        else {
            return Ok(foreign("is the record of a node, but has no end"));
        };
        Ok(Ok(FoundLease { node: node.into(), record, lasts: Duration::from_secs(lasts), identity }))
    }

    /// Reads a ConfigMap.
    ///
    /// # Errors
    /// [`Failure`]: its revision cannot be read, so that nothing can be said of it.
    pub(crate) fn read_config_map(&self, value: &Value) -> Result<Result<FoundObject, Foreign>, Failure> {
        let Identity { name: found, revision, .. } = identity(value)?;
        let foreign = |why: &str| Err(Foreign(format!("ConfigMap \"{}\" {why}", found.escape_debug())));
        let name = annotation(value, NAME).and_then(names::read_annotation);
        let Some(name) = name.filter(|name| self.object_name(name) == found) else {
            return Ok(foreign("is no object of a fleet"));
        };
        let field =
            |field: &str| value.get(field).and_then(|data| data.get(CONTENTS)).and_then(Value::as_str);
        let contents = match (field("data"), field("binaryData")) {
            (Some(text), _) => text.as_bytes().to_vec(),
            // What cannot be decoded is the fleet's to refuse, as any contents.
            (None, Some(text)) => STANDARD.decode(text).unwrap_or_default(),
            (None, None) => Vec::new(),
        };
        let writer = annotation(value, SESSION).and_then(read_session);
        Ok(Ok(FoundObject { object: Object { name, revision, contents: Some(contents) }, writer }))
    }

    /// Whether it has the labels of the fleet.
    pub(crate) fn is_labelled(&self, value: &Value) -> bool {
        let label =
            |name: &str| value.pointer("/metadata/labels").and_then(|labels| labels.get(name)?.as_str());
        label(MANAGED_BY.0) == Some(MANAGED_BY.1) && label(FLEET) == Some(&self.fleet)
    }
}

/// Its name, uid and revision.
///
/// # Errors
/// [`Failure`]: its revision is no number. Those of an API server with etcd behind it are.
pub(crate) fn identity(value: &Value) -> Result<Identity, Failure> {
    let text = |field: &str| metadata(value, field).unwrap_or_default().to_owned();
    let revision = read_revision(&text("resourceVersion"))?;
    Ok(Identity { name: text("name"), uid: text("uid"), revision })
}

/// # Errors
/// [`Failure`], as [`identity`].
pub(crate) fn read_revision(text: &str) -> Result<Revision, Failure> {
    match text.parse() {
        Ok(revision) if revision > 0 => Ok(Revision(revision)),
        _ => Err(Failure::Answer(format!(
            "its resourceVersion \"{}\" is no number: a fleet needs an API server that numbers all writes, as those with etcd do",
            text.escape_debug()
        ))),
    }
}

pub(crate) fn metadata<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get("metadata")?.get(field)?.as_str()
}

fn annotation<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

fn session_text(session: SessionId) -> String {
    format!("{:016x}", session.0)
}

fn read_session(text: &str) -> Option<SessionId> {
    let is_one = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one.then(|| u64::from_str_radix(text, 16).ok().map(SessionId)).flatten()
}

/// Kubernetes' `MicroTime`, for people and for `kubectl`: no node reads it.
fn micro_time(now: SystemTime) -> String {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let us = u64::try_from(since.as_micros()).unwrap_or_default();
    format!("{}.{:06}Z", telemetry::date_time(us).replace(' ', "T"), us % 1_000_000)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn record() -> NodeRecord {
        NodeRecord {
            session: SessionId(0xab),
            address: "h:1".to_owned(),
            version: "1".to_owned(),
            started_s: 5,
            clients: 1,
            servers: 2,
            is_draining: false,
            pools: fleet::PoolsInUse::default(),
        }
    }

    fn stored(mut value: Value, revision: &str) -> Value {
        value["metadata"]["resourceVersion"] = revision.into();
        value["metadata"]["uid"] = "u-1".into();
        value
    }

    #[test]
    fn a_lease_is_read_as_it_was_written() {
        let objects = Objects::new("ns", "main");
        let identity = Identity { name: "main.x41".to_owned(), uid: "u-1".to_owned(), revision: Revision(7) };
        let written = objects.lease("A", &record(), 3, Some(&identity));
        assert_eq!(
            (&written["metadata"]["uid"], &written["metadata"]["resourceVersion"]),
            (&json!("u-1"), &json!("7"))
        );
        assert!(objects.is_labelled(&written));
        let lasts = Duration::from_secs(3);
        let lease = FoundLease { identity, node: "A".into(), record: record(), lasts };
        assert_eq!(objects.read_lease(&stored(written, "7")), Ok(Ok(lease)));
        let created = objects.lease("A", &record(), 3, None);
        assert!(
            created["metadata"].get("uid").is_none() && created["metadata"].get("resourceVersion").is_none()
        );
    }

    #[test]
    fn an_object_is_read_as_it_was_written() {
        let objects = Objects::new("ns", "main");
        let name = ObjectName(vec!["slots".to_owned(), "ü/".to_owned()]);
        for contents in [&b"text\n\x01\0"[..], b"\xff\0", b""] {
            let written = objects.config_map(&name, contents, Some(SessionId(0xab)), Revision::ABSENT);
            assert!(written["metadata"].get("resourceVersion").is_none() && objects.is_labelled(&written));
            let object =
                Object { name: name.clone(), revision: Revision(9), contents: Some(contents.to_vec()) };
            let found = objects.read_config_map(&stored(written, "9"));
            assert_eq!(found, Ok(Ok(FoundObject { object, writer: Some(SessionId(0xab)) })));
        }
        assert_eq!(
            objects.config_map(&name, b"", None, Revision(4))["metadata"]["resourceVersion"],
            json!("4")
        );
        assert!(!objects.is_labelled(&Objects::new("ns", "other").config_map(&name, b"", None, Revision(4))));
    }

    #[test]
    fn what_is_not_as_a_fleet_writes_it_is_foreign() {
        let objects = Objects::new("ns", "main");
        let lease = stored(objects.lease("a", &record(), 3, None), "1");
        let changed = |pointer: &str, value: Value| {
            let mut changed = lease.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            objects.read_lease(&changed).unwrap().unwrap_err().0
        };
        for (text, why) in [
            (changed("/metadata/name", "main.b".into()), "Lease \"main.b\" is no node's"),
            (changed("/metadata/annotations", json!({})), "is no node's"),
            (changed("/spec/holderIdentity", "00000000000000ac".into()), "no record of its holder"),
            (changed("/metadata/annotations/weir~1record", "{}".into()), "no record of its holder"),
            (changed("/spec/leaseDurationSeconds", 0.into()), "has no end"),
        ] {
            assert!(text.contains(why), "{text}");
        }
        let name = ObjectName(vec!["audit".to_owned()]);
        let mut map = stored(objects.config_map(&name, b"", None, Revision::ABSENT), "1");
        map["metadata"]["annotations"] = json!({ NAME: "[\"other\"]" });
        assert!(objects.read_config_map(&map).unwrap().unwrap_err().0.contains("is no object"));
    }

    #[test]
    fn a_revision_that_is_no_number_is_an_answer_without_meaning() {
        let objects = Objects::new("ns", "main");
        for text in ["", "x1", "0", "-1", "18446744073709551616"] {
            let lease = stored(objects.lease("a", &record(), 3, None), text);
            let failure = objects.read_lease(&lease).unwrap_err();
            assert!(failure.to_string().contains("is no number"), "{failure}");
        }
        assert_eq!(read_revision("18446744073709551615"), Ok(Revision(u64::MAX)));
    }

    #[test]
    fn a_renewal_has_kubernetes_time() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_000_000_123_456);
        assert_eq!(micro_time(at), "2026-11-18T11:06:40.123456Z");
    }
}
