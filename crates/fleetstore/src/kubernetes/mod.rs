//! The store in the API server of Kubernetes: a Lease for each node, a ConfigMap for each object.
//!
//! # What a lease is here
//! The API server ends no Lease. Nodes do: each watches all Leases and counts, on its own monotonic clock, since when it has known a Lease in its present state
//! (`resourceVersion`), as client-go's leader election does; `renewTime` is for people. When that has been for as long as the Lease lasts, it deletes the Lease *on condition*
//! that it still is in that state (`preconditions`: uid and resourceVersion). A node counts as gone when the watch shows that its Lease is deleted, never before. So
//!
//! - an owner that has renewed is never ended, however late watches are and whatever process was stopped: its renewal has changed the state, and the deletion is refused.
//!   One deletion succeeds, all nodes hear of that one, and no election decides who does it;
//! - an owner whose Lease is deleted has not renewed since the state that the deleting node knew. That node heard of the state after it was written, so after `sent`, when the
//!   owner asked for it, and has counted `leaseDurationSeconds` from there. The owner is sure until `sent + lease - margin` (`fleet::membership`), so it has not been sure for
//!   at least the margin, a fifth of the lease, as long as clocks do not differ in speed by more than a tenth;
//! - a renewal that arrives behind the deletion is refused: a PUT names uid and resourceVersion. With the resourceVersion alone it would create the Lease again, since
//!   the API server creates Leases by PUT.
//!
//! It is weaker than etcd's lease in this: a Lease of a node that is gone stays while no other node runs (the next one that joins ends it, a lease time after it has seen it), and
//! whoever may delete Leases in the namespace can end one that is being renewed. The invariant of the fleet, that connections in sum are never more than a limit, does not rest on
//! Leases: slots of a node that is gone are only lowered by swaps that expect the revision from before PostgreSQL was asked for its backends, to what PostgreSQL lists and no
//! living node reports (`fleet::reclaim`). Leases say *who reclaims when*, and until when a node may use its slots. A Lease that is deleted by hand, while its owner is sure,
//! is as bad here as a revoked one is in etcd: the owner uses its slots until its next renewal is refused, a third of the lease later at most.
//!
//! # Order
//! Leases and ConfigMaps have watches of their own, of which either may be late. ConfigMaps name the session that wrote them. One of a session that this watch has not heard of waits
//! until all Leases have been listed again, which is a consistent read: the session's Lease was created before. A snapshot reads ConfigMaps first and Leases after them.
//!
//! # Revisions
//! `resourceVersion` as a number, which it is where etcd is behind the API server (and by Kubernetes' own definition since 1.35); where it is none, requests fail with that reason.

mod failure;
mod http;
mod leases;
mod names;
mod objects;
mod options;
mod requests;
mod stream;
mod token;
mod watching;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::http::StatusCode;
use fleet::{CallId, Event, Request};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};

use crate::etcd::OptionsError;
use failure::Failure;
use http::Http;
use objects::Objects;
pub use options::{KubernetesFiles, KubernetesOptions, pod_address};
use requests::Requests;
use token::Token;
use watching::Watching;

/// Swaps that are under way at once; others wait, within their timeout. The node's own requests do not wait for swaps.
const MAX_SWAPS: usize = 8;

pub(crate) struct Kubernetes {
    requests: Arc<Requests>,
    request_timeout: Duration,
    swaps: Semaphore,
    foreign: Mutex<HashSet<String>>,
}

impl Kubernetes {
    pub(crate) fn new(options: &KubernetesOptions) -> Result<Arc<Kubernetes>, OptionsError> {
        let token = options.token.clone().map(Token::new);
        let http = Http::new(options.endpoint.clone(), options.tls()?, token);
        let objects = Objects::new(&options.namespace, &options.name);
        let requests = Requests::new(http, objects, Arc::clone(&options.node), options.lease_s.max(1));
        Ok(Arc::new(Kubernetes {
            requests: Arc::new(requests),
            request_timeout: options.request_timeout,
            swaps: Semaphore::new(MAX_SWAPS),
            foreign: Mutex::default(),
        }))
    }

    /// The answer to a request other than a watch, within the request timeout.
    pub(crate) async fn answer(&self, request: Request) -> Event {
        let by = Instant::now() + self.request_timeout;
        let requests = &self.requests;
        match request {
            Request::Join { call, record } => self.within(by, call, requests.join(call, &record)).await,
            Request::Renew { call, record } => self.within(by, call, requests.renew(call, &record)).await,
            Request::Leave { call, session } => self.within(by, call, requests.leave(call, session)).await,
            Request::Swap { call, name, expected, contents } => {
                match timeout_at(by, self.swaps.acquire()).await {
                    Ok(_permit) => {
                        self.within(by, call, requests.swap(call, &name, expected, contents)).await
                    }
                    Err(_) => {
                        Event::Unanswered { call, why: "too many requests wait for Kubernetes".to_owned() }
                    }
                }
            }
            Request::Watch { call } | Request::ListBackends { call, .. } => {
                Event::Unanswered { call, why: "it is no request for an answer of Kubernetes".to_owned() }
            }
        }
    }

    async fn within(
        &self,
        by: Instant,
        call: CallId,
        request: impl Future<Output = Result<Event, Failure>>,
    ) -> Event {
        let http = &self.requests.http;
        let answers_before = http.answers();
        let why = match timeout_at(by, request).await {
            Ok(Ok(event)) => return event,
            Ok(Err(failure)) => {
                if failure.is_of_transport() {
                    http.unanswered(answers_before);
                }
                http.words(&failure)
            }
            Err(_) => {
                http.unanswered(answers_before);
                format!("{}: no answer within {} ms", http.label(), self.request_timeout.as_millis())
            }
        };
        Event::Unanswered { call, why }
    }

    /// Watches until the watch is lost.
    pub(crate) async fn watch(&self, call: CallId, events: &mpsc::Sender<Event>) -> Event {
        let http = &self.requests.http;
        let watching = Watching { requests: &self.requests, foreign: &self.foreign, events, call };
        let why = tokio::select! {
            failure = watching.run() => match failure {
                failure if failure.has_status(StatusCode::GONE) => {
                    format!("{}: the watch is too old, all is read again", http.label())
                }
                failure => http.words(&failure),
            },
            () = http.silence() => format!("{}: requests are not answered", http.label()),
        };
        Event::WatchLost { watch: call, why }
    }
}
