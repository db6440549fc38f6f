//! What requests are in etcd: leases and transactions.
//!
//! The lease of a session has an id made of the session's, so that a request needs no answer of an earlier one: a Join that was not answered can be made again, and a
//! process that takes a session over renews it. A node's record is attached to the lease of its session, and only ever written where it is attached to that lease.

use std::sync::Arc;
use std::sync::{Mutex, PoisonError};

use fleet::{CallId, Event, NodeId, NodeRecord, ObjectName, Revision, SessionId};
use tokio::time::Instant;

use super::api::{
    Compare, CompareTarget, DeleteRangeRequest, KeyValue, Operation, PutRequest, RangeRequest, RequestOp,
    TargetUnion, TxnRequest, TxnResponse,
};
use super::client::Client;
use super::failure::{Failure, is_lease_there};
use super::keys::Keys;
use super::members::Members;
use crate::record;

/// The node's own requests and swaps.
pub(crate) struct Requests {
    pub(crate) members: Arc<Members>,
    pub(crate) keys: Keys,
    pub(crate) node: NodeId,
    pub(crate) lease_s: u32,
    /// The record that etcd has for certain.
    written: Mutex<Option<NodeRecord>>,
}

/// What etcd says to a Join.
enum Joined {
    Yes { ttl: i64 },
    Taken(KeyValue),
}

impl Requests {
    pub(crate) fn new(members: Arc<Members>, keys: Keys, node: NodeId, lease_s: u32) -> Requests {
        Requests { members, keys, node, lease_s, written: Mutex::new(None) }
    }

    /// Creates the lease and the record, unless the id is taken.
    pub(crate) async fn join(&self, call: CallId, record: &NodeRecord, by: Instant) -> Result<Event, String> {
        self.set_written(None);
        let joined =
            self.members.call(by, |member| async move { self.create(&member.client, record).await }).await?;
        match joined {
            Joined::Yes { ttl } => Ok(Event::Renewed { call, lease_us: microseconds(ttl) }),
            Joined::Taken(found) => match record::read(&found.value) {
                Some(by) => Ok(Event::IdTaken { call, by }),
                None => {
                    let key = String::from_utf8_lossy(&found.key).into_owned();
                    Err(format!("{key} is there, but is no record of a node; remove it"))
                }
            },
        }
    }

    async fn create(&self, client: &Client, record: &NodeRecord) -> Result<Joined, Failure> {
        let lease = lease_id(record.session);
        let ttl = match client.grant(lease, i64::from(self.lease_s)).await {
            Ok(ttl) => ttl,
            // By a Join of this session that was not answered.
            Err(failure) if is_lease_there(&failure) => {
                client.keep_alive(lease).await?.ok_or_else(|| Failure::answer("the lease ended at once"))?
            }
            Err(failure) => return Err(failure),
        };
        let key = self.keys.node(&self.node);
        let put = PutRequest { key: key.clone(), value: record::write(record), lease };
        let response = client
            .txn(TxnRequest {
                compare: vec![compare(key.clone(), CompareTarget::Version, TargetUnion::Version(0))],
                success: vec![operation(Operation::Put(put))],
                failure: vec![operation(Operation::Range(RangeRequest { key, ..RangeRequest::default() }))],
            })
            .await?;
        if response.succeeded {
            return Ok(Joined::Yes { ttl });
        }
        let found = first_found(response).ok_or_else(|| Failure::answer("it has not said who has the id"))?;
        if found.lease == lease {
            return Ok(Joined::Yes { ttl });
        }
        client.revoke(lease).await?;
        Ok(Joined::Taken(found))
    }

    /// Renews the lease, and sees that the record is still there.
    pub(crate) async fn renew(
        &self,
        call: CallId,
        record: &NodeRecord,
        by: Instant,
    ) -> Result<Event, String> {
        let is_written = self.lock_written().as_ref() == Some(record);
        let ttl = self
            .members
            .call(by, |member| async move { self.keep(&member.client, record, is_written).await })
            .await;
        // Without an answer it is not known which record there is.
        self.set_written(ttl.as_ref().ok().and_then(|ttl| ttl.map(|_| record.clone())));
        let ttl = ttl?;
        Ok(match ttl {
            Some(ttl) => Event::Renewed { call, lease_us: microseconds(ttl) },
            None => Event::Expired { call },
        })
    }

    async fn keep(
        &self,
        client: &Client,
        record: &NodeRecord,
        is_written: bool,
    ) -> Result<Option<i64>, Failure> {
        let lease = lease_id(record.session);
        let Some(ttl) = client.keep_alive(lease).await? else { return Ok(None) };
        let key = self.keys.node(&self.node);
        let put = PutRequest { key: key.clone(), value: record::write(record), lease };
        let put = (!is_written).then(|| operation(Operation::Put(put)));
        let response = client
            .txn(TxnRequest {
                compare: vec![compare(key, CompareTarget::Lease, TargetUnion::Lease(lease))],
                success: put.into_iter().collect(),
                failure: Vec::new(),
            })
            .await?;
        Ok(response.succeeded.then_some(ttl))
    }

    /// Ends the lease of a session, which removes its record.
    pub(crate) async fn leave(&self, call: CallId, session: SessionId, by: Instant) -> Result<Event, String> {
        self.set_written(None);
        let lease = lease_id(session);
        self.members.call(by, |member| async move { member.client.revoke(lease).await }).await?;
        Ok(Event::Left { call })
    }

    pub(crate) async fn swap(
        &self,
        call: CallId,
        name: &ObjectName,
        (expected, contents): (Revision, Option<Vec<u8>>),
        by: Instant,
    ) -> Result<Event, String> {
        // One that is no revision of etcd's is no object's.
        let Ok(expected) = i64::try_from(expected.0) else { return Ok(Event::Conflict { call }) };
        let key = self.keys.object(name);
        let change = match contents {
            Some(value) => Operation::Put(PutRequest { key: key.clone(), value, lease: 0 }),
            None => Operation::Delete(DeleteRangeRequest { key: key.clone() }),
        };
        let request = TxnRequest {
            compare: vec![compare(key, CompareTarget::Mod, TargetUnion::ModRevision(expected))],
            success: vec![operation(change)],
            failure: Vec::new(),
        };
        let response = self
            .members
            .call(by, |member| {
                let request = request.clone();
                async move { member.client.txn(request).await }
            })
            .await?;
        let revision = response.header.map_or(0, |header| header.revision);
        Ok(match response.succeeded {
            true => Event::Swapped { call, revision: revision_of(revision) },
            false => Event::Conflict { call },
        })
    }

    fn set_written(&self, record: Option<NodeRecord>) {
        *self.lock_written() = record;
    }

    fn lock_written(&self) -> std::sync::MutexGuard<'_, Option<NodeRecord>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of a session's lease: positive, as etcd's own are.
fn lease_id(session: SessionId) -> i64 {
    i64::try_from(session.0 & (u64::MAX >> 1)).unwrap_or_default().max(1)
}

pub(crate) fn revision_of(revision: i64) -> Revision {
    Revision(u64::try_from(revision).unwrap_or_default())
}

fn microseconds(ttl: i64) -> u64 {
    u64::try_from(ttl).unwrap_or_default().saturating_mul(1_000_000)
}

fn compare(key: Vec<u8>, target: CompareTarget, value: TargetUnion) -> Compare {
    Compare { target: target.into(), key, target_union: Some(value) }
}

fn operation(operation: Operation) -> RequestOp {
    RequestOp { request: Some(operation) }
}

fn first_found(response: TxnResponse) -> Option<KeyValue> {
    response.responses.into_iter().next()?.response_range?.kvs.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_a_lease_of_its_own() {
        assert_eq!(lease_id(SessionId(7)), 7);
        assert_eq!(lease_id(SessionId(u64::MAX)), i64::MAX);
        // 0 would let etcd choose.
        assert_eq!((lease_id(SessionId(0)), lease_id(SessionId(1 << 63))), (1, 1));
    }
}
