//! What requests are in the API of Kubernetes: the node's own Lease, and compare-and-swap of ConfigMaps.
//!
//! Owns that a Lease is only ever replaced, or removed, in the state that was known of it: by its uid and revision.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fleet::{CallId, Event, NodeId, NodeRecord, ObjectName, Revision, SessionId};
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::failure::Failure;
use super::http::Http;
use super::objects::{Foreign, FoundLease, Identity, Objects, identity};

/// Attempts of a request that others' writes come between.
const ATTEMPTS: usize = 3;

/// The node's own requests and swaps.
pub(crate) struct Requests {
    pub(crate) http: Http,
    pub(crate) objects: Objects,
    pub(crate) node: NodeId,
    pub(crate) lease_s: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The session that writes objects. Its Lease was created before: those who read an object look for it.
    session: Option<SessionId>,
    /// The own Lease as it was written last.
    held: Option<(SessionId, Identity)>,
    /// Another session's Lease of the node's id, and since when it has been as it is.
    taken: Option<(Identity, Instant)>,
}

impl Requests {
    pub(crate) fn new(http: Http, objects: Objects, node: NodeId, lease_s: u32) -> Requests {
        Requests { http, objects, node, lease_s, state: Mutex::default() }
    }

    /// Creates the Lease, unless another session has it.
    pub(crate) async fn join(&self, call: CallId, record: &NodeRecord) -> Result<Event, Failure> {
        for _ in 0..ATTEMPTS {
            let lease = self.objects.lease(&self.node, record, self.lease_s, None);
            match self.http.json(Method::POST, &self.objects.leases(), Some(&lease)).await {
                Ok(created) => {
                    self.hold(record.session, identity(&created)?);
                    return Ok(self.renewed(call));
                }
                Err(failure) if failure.is_conflict() => {}
                Err(failure) => return Err(failure),
            }
            match self.own_lease().await? {
                None => {}
                // By a Join of this session that was not answered.
                Some(found) if found.record.session == record.session => {
                    self.hold(record.session, found.identity);
                    if let Event::Renewed { .. } = self.renew(call, record).await? {
                        return Ok(self.renewed(call));
                    }
                }
                Some(found) if self.is_over(&found) => self.remove(&found.identity).await?,
                Some(found) => return Ok(Event::IdTaken { call, by: found.record }),
            }
        }
        Err(contended())
    }

    /// Whether a Lease of the node's id has not been renewed for as long as it lasts, by this node's own clock.
    fn is_over(&self, found: &FoundLease) -> bool {
        let mut state = self.lock();
        match &state.taken {
            Some((known, since)) if *known == found.identity => since.elapsed() >= found.lasts,
            _ => {
                state.taken = Some((found.identity.clone(), Instant::now()));
                false
            }
        }
    }

    /// Replaces the Lease, which is what renews it.
    pub(crate) async fn renew(&self, call: CallId, record: &NodeRecord) -> Result<Event, Failure> {
        let mut held = self.held(record.session);
        for _ in 0..ATTEMPTS {
            let known = match held.take() {
                Some(known) => known,
                // A process that takes a session over, or a write that was not answered.
                None => match self.own_lease().await? {
                    Some(found) if found.record.session == record.session => found.identity,
                    _ => return Ok(Event::Expired { call }),
                },
            };
            let lease = self.objects.lease(&self.node, record, self.lease_s, Some(&known));
            match self.http.json(Method::PUT, &self.lease_path(&known.name), Some(&lease)).await {
                Ok(written) => {
                    let written = identity(&written)?;
                    // The API server writes nothing where nothing differs, and others would see no renewal.
                    if written.revision == known.revision {
                        return Err(Failure::answer("the renewal of the Lease was not written"));
                    }
                    self.hold(record.session, written);
                    return Ok(self.renewed(call));
                }
                Err(failure) if failure.is_conflict() || failure.is_not_found() => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(contended())
    }

    /// Removes the Lease if it is this session's.
    pub(crate) async fn leave(&self, call: CallId, session: SessionId) -> Result<Event, Failure> {
        self.lock().held = None;
        for _ in 0..ATTEMPTS {
            match self.own_lease().await? {
                Some(found) if found.record.session == session => {
                    match self.delete_lease(&found.identity).await {
                        Ok(()) => return Ok(Event::Left { call }),
                        // A renewal came between.
                        Err(failure) if failure.is_conflict() => {}
                        Err(failure) => return Err(failure),
                    }
                }
                _ => return Ok(Event::Left { call }),
            }
        }
        Err(contended())
    }

    pub(crate) async fn swap(
        &self,
        call: CallId,
        name: &ObjectName,
        expected: Revision,
        contents: Option<Vec<u8>>,
    ) -> Result<Event, Failure> {
        let (all, map_name) = (self.objects.config_maps(), self.objects.object_name(name));
        let one = format!("{all}/{map_name}");
        let written = match &contents {
            Some(contents) => {
                let writer = self.lock().session;
                let map = self.objects.config_map(name, contents, writer, expected);
                match expected {
                    Revision::ABSENT => self.http.json(Method::POST, &all, Some(&map)).await,
                    _ => self.http.json(Method::PUT, &one, Some(&map)).await,
                }
            }
            // There is no state of it that could be removed.
            None if expected == Revision::ABSENT => return Ok(Event::Conflict { call }),
            None => {
                let options = delete_options(None, expected);
                self.http.json(Method::DELETE, &one, Some(&options)).await
            }
        };
        match written {
            // The answer to a removal has no revision. Its own is at least this, and the next write's is greater.
            Ok(_) if contents.is_none() => {
                Ok(Event::Swapped { call, revision: Revision(expected.0.saturating_add(1)) })
            }
            Ok(written) => Ok(Event::Swapped { call, revision: identity(&written)?.revision }),
            Err(failure) if failure.is_conflict() && expected == Revision::ABSENT => {
                self.conflict_of_creation(call, &one).await
            }
            Err(failure)
                if failure.is_conflict() || failure.is_not_found() && expected != Revision::ABSENT =>
            {
                Ok(Event::Conflict { call })
            }
            Err(failure) => Err(failure),
        }
    }

    /// One that has the name, but not the labels, would be seen by no watch.
    async fn conflict_of_creation(&self, call: CallId, path: &str) -> Result<Event, Failure> {
        match self.http.json(Method::GET, path, None).await {
            Ok(found) if !self.objects.is_labelled(&found) => {
                let name = identity(&found)?.name;
                Err(Failure::Answer(format!("ConfigMap {name} is there, but is not this fleet's; remove it")))
            }
            Ok(_) => Ok(Event::Conflict { call }),
            Err(failure) if failure.is_not_found() => Ok(Event::Conflict { call }),
            Err(failure) => Err(failure),
        }
    }

    /// Removes a Lease that is over, if it is still as it was. True: it is gone, by whomever.
    pub(crate) async fn end(&self, known: &Identity) -> Result<bool, Failure> {
        match self.delete_lease(known).await {
            Ok(()) => Ok(true),
            Err(failure) if failure.is_not_found() => Ok(true),
            Err(failure) if failure.is_conflict() => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    async fn remove(&self, known: &Identity) -> Result<(), Failure> {
        self.end(known).await.map(drop)
    }

    async fn delete_lease(&self, known: &Identity) -> Result<(), Failure> {
        let options = delete_options(Some(&known.uid), known.revision);
        self.http.json(Method::DELETE, &self.lease_path(&known.name), Some(&options)).await.map(drop)
    }

    /// The Lease of the node's id.
    async fn own_lease(&self) -> Result<Option<FoundLease>, Failure> {
        let name = self.objects.lease_name(&self.node);
        let found = match self.http.json(Method::GET, &self.lease_path(&name), None).await {
            Ok(found) => found,
            Err(failure) if failure.is_not_found() => return Ok(None),
            Err(failure) => return Err(failure),
        };
        match self.objects.read_lease(&found)? {
            Ok(lease) if self.objects.is_labelled(&found) => Ok(Some(lease)),
            Ok(_) => {
                Err(Failure::Answer(format!("Lease {name} is there, but is not this fleet's; remove it")))
            }
            Err(Foreign(what)) => Err(Failure::Answer(format!("{what}; remove it"))),
        }
    }

    fn lease_path(&self, name: &str) -> String {
        format!("{}/{name}", self.objects.leases())
    }

    fn renewed(&self, call: CallId) -> Event {
        let lasts = Duration::from_secs(u64::from(self.lease_s));
        Event::Renewed { call, lease_us: u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX) }
    }

    fn hold(&self, session: SessionId, identity: Identity) {
        let mut state = self.lock();
        (state.session, state.held, state.taken) = (Some(session), Some((session, identity)), None);
    }

    fn held(&self, session: SessionId) -> Option<Identity> {
        self.lock().held.clone().filter(|(of, _)| *of == session).map(|(_, identity)| identity)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a removal expects.
fn delete_options(uid: Option<&str>, revision: Revision) -> Value {
    let mut preconditions = json!({ "resourceVersion": revision.0.to_string() });
    if let (Some(uid), Some(preconditions)) = (uid, preconditions.as_object_mut()) {
        preconditions.insert("uid".to_owned(), uid.into());
    }
    json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions })
}

fn contended() -> Failure {
    Failure::answer("others have changed the Lease at the same time, again and again")
}
