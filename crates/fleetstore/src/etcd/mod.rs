//! The store in etcd: carries requests out.

mod api;
mod client;
mod failure;
mod keys;
mod members;
mod options;
mod requests;
mod watching;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fleet::{CallId, Event, Request, SessionId};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};

use keys::Keys;
use members::Members;
pub use options::{EtcdOptions, EtcdTls, OptionsError};
use requests::Requests;
use watching::{ForeignKeys, Watching};

/// Swaps that are under way at once; others wait, within their timeout. The node's own requests do not wait for swaps.
const MAX_SWAPS: usize = 64;

pub(crate) struct Etcd {
    requests: Requests,
    request_timeout: Duration,
    swaps: Semaphore,
    foreign: ForeignKeys,
    /// That of the last Join or Renew.
    session: Mutex<Option<SessionId>>,
}

impl Etcd {
    pub(crate) fn new(options: &EtcdOptions) -> Result<Arc<Etcd>, OptionsError> {
        let members = Members::new(options, options.endpoints()?);
        let requests = Requests::new(
            members,
            Keys::new(&options.url.prefix),
            options.node.clone(),
            options.lease_s.max(1),
        );
        Ok(Arc::new(Etcd {
            requests,
            request_timeout: options.request_timeout,
            swaps: Semaphore::new(MAX_SWAPS),
            foreign: ForeignKeys::default(),
            session: Mutex::new(None),
        }))
    }

    /// Notes whose requests these are; called in the order of requests.
    pub(crate) fn note(&self, request: &Request) {
        if let Request::Join { record, .. } | Request::Renew { record, .. } = request {
            *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(record.session);
        }
    }

    /// The session that a Leave ends.
    pub(crate) fn session(&self) -> Option<SessionId> {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins with this deadline and so on: the answer.
    pub(crate) async fn answer(&self, request: Request, session: Option<SessionId>) -> Event {
        let by = Instant::now() + self.request_timeout;
        let requests = &self.requests;
        let (call, answer) = match request {
            Request::Join { call, record } => (call, requests.join(call, &record, by).await),
            Request::Renew { call, record } => (call, requests.renew(call, &record, by).await),
            Request::Leave { call } => match session {
                Some(session) => (call, requests.leave(call, session, by).await),
                None => (call, Ok(Event::Left { call })),
            },
            Request::Swap { call, name, expected, contents } => {
                match timeout_at(by, self.swaps.acquire()).await {
                    Ok(_permit) => (call, requests.swap(call, &name, (expected, contents), by).await),
                    Err(_) => (call, Err("too many requests wait for etcd".to_owned())),
                }
            }
            Request::Watch { call } | Request::ListBackends { call, .. } => {
                (call, Err("it is no request for an answer of etcd's".to_owned()))
            }
        };
        answer.unwrap_or_else(|why| Event::Unanswered { call, why })
    }

    /// Watches until the watch is lost.
    pub(crate) async fn watch(&self, call: CallId, events: &mpsc::Sender<Event>) -> Event {
        let watching = Watching { requests: &self.requests, foreign: &self.foreign, events, call };
        let why = watching.run(Instant::now() + self.request_timeout).await;
        Event::WatchLost { watch: call, why }
    }
}
