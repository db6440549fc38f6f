//! The model store: nodes with leases by its own clock, objects with revisions, watches.

use std::collections::BTreeMap;

use fleet::{CallId, Event, NodeId, NodeRecord, Object, ObjectName, Request, Revision};

/// A node's record, and when its lease ends, in true time.
#[derive(Clone, Debug)]
pub(crate) struct Leased {
    pub(crate) record: NodeRecord,
    pub(crate) until_us: u64,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) nodes: BTreeMap<NodeId, Leased>,
    pub(crate) objects: BTreeMap<ObjectName, (Revision, Vec<u8>)>,
    revision: u64,
    /// Changes of objects.
    pub(crate) writes: u64,
}

/// What those who watch see of a request.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Node(NodeId, Option<NodeRecord>),
    Object(Object),
}

impl Store {
    /// Carries a request out.
    pub(crate) fn carry_out(
        &mut self,
        id: &NodeId,
        request: Request,
        lease_us: u64,
        until_us: u64,
    ) -> (Option<Event>, Option<Change>) {
        match request {
            Request::Join { call, record } => match self.nodes.get(id) {
                Some(leased) => (Some(Event::IdTaken { call, by: leased.record.clone() }), None),
                None => {
                    self.nodes.insert(id.clone(), Leased { record: record.clone(), until_us });
                    (Some(Event::Renewed { call, lease_us }), Some(Change::Node(id.clone(), Some(record))))
                }
            },
            Request::Renew { call, record } => match self.nodes.get_mut(id) {
                Some(leased) if leased.record.session == record.session => {
                    leased.until_us = until_us;
                    let is_same = leased.record == record;
                    let change = (!is_same).then(|| Change::Node(id.clone(), Some(record.clone())));
                    leased.record = record;
                    (Some(Event::Renewed { call, lease_us }), change)
                }
                _ => (Some(Event::Expired { call }), None),
            },
            Request::Leave { call, session } => {
                let is_its = self.nodes.get(id).is_some_and(|leased| leased.record.session == session);
                let change = is_its.then(|| {
                    self.nodes.remove(id);
                    Change::Node(id.clone(), None)
                });
                (Some(Event::Left { call }), change)
            }
            Request::Swap { call, name, expected, contents } => self.swap(call, name, expected, contents),
            Request::Watch { .. } | Request::ListBackends { .. } => (None, None),
        }
    }

    fn swap(
        &mut self,
        call: CallId,
        name: ObjectName,
        expected: Revision,
        contents: Option<Vec<u8>>,
    ) -> (Option<Event>, Option<Change>) {
        let present = self.objects.get(&name).map_or(Revision::ABSENT, |(revision, _)| *revision);
        if present != expected {
            return (Some(Event::Conflict { call }), None);
        }
        self.revision += 1;
        self.writes += 1;
        let revision = Revision(self.revision);
        match &contents {
            Some(contents) => drop(self.objects.insert(name.clone(), (revision, contents.clone()))),
            None => drop(self.objects.remove(&name)),
        }
        (Some(Event::Swapped { call, revision }), Some(Change::Object(Object { name, revision, contents })))
    }

    pub(crate) fn snapshot(&self, call: CallId) -> Event {
        let nodes = self.nodes.iter().map(|(id, leased)| (id.clone(), leased.record.clone())).collect();
        let object = |(name, (revision, contents)): (&ObjectName, &(Revision, Vec<u8>))| Object {
            name: name.clone(),
            revision: *revision,
            contents: Some(contents.clone()),
        };
        Event::Snapshot {
            call,
            revision: Revision(self.revision),
            nodes,
            objects: self.objects.iter().map(object).collect(),
        }
    }

    /// Removes the node if its lease is over.
    pub(crate) fn expire(&mut self, id: &NodeId, now_us: u64) -> Option<Change> {
        let is_over = self.nodes.get(id).is_some_and(|leased| leased.until_us <= now_us);
        is_over.then(|| {
            self.nodes.remove(id);
            Change::Node(id.clone(), None)
        })
    }
}

/// A change as a watch shows it.
pub(crate) fn shown(change: &Change, watch: CallId) -> Event {
    match change {
        Change::Node(id, Some(record)) => Event::NodeSeen { watch, id: id.clone(), record: record.clone() },
        Change::Node(id, None) => Event::NodeGone { watch, id: id.clone() },
        Change::Object(object) => Event::Changed { watch, object: object.clone() },
    }
}
