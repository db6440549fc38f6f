//! The store in etcd: carries requests out.

mod api;
mod client;
mod failure;
mod keys;
mod members;
mod options;
mod requests;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use fleet::{CallId, Event, Request};
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
        }))
    }

    /// The answer to a request other than a watch, within the request timeout.
    pub(crate) async fn answer(&self, request: Request) -> Event {
        let by = Instant::now() + self.request_timeout;
        let requests = &self.requests;
        let (call, answer) = match request {
            Request::Join { call, record } => (call, requests.join(call, &record, by).await),
            Request::Renew { call, record } => (call, requests.renew(call, &record, by).await),
            Request::Leave { call, session } => (call, requests.leave(call, session, by).await),
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
