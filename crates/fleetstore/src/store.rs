//! The store as the thread of the fleet uses it: requests in, events out.
//!
//! Owns that every request is answered in time, and that events of one watch come in their order.

use std::sync::Arc;

use fleet::{CallId, Event, Request};
use settings::Config;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::backends::BackendQuery;
use crate::etcd::{Etcd, EtcdOptions, OptionsError};
use crate::kubernetes::{Kubernetes, KubernetesOptions};

/// Events that wait to be taken. A watch that has more waits, and the store with it.
const MAX_EVENTS: usize = 256;

/// What carries requests out.
#[derive(Clone)]
enum Kind {
    Etcd(Arc<Etcd>),
    Kubernetes(Arc<Kubernetes>),
}

impl Kind {
    async fn answer(&self, request: Request) -> Event {
        match self {
            Kind::Etcd(etcd) => etcd.answer(request).await,
            Kind::Kubernetes(kubernetes) => kubernetes.answer(request).await,
        }
    }

    async fn watch(&self, call: CallId, events: &mpsc::Sender<Event>) -> Event {
        match self {
            Kind::Etcd(etcd) => etcd.watch(call, events).await,
            Kind::Kubernetes(kubernetes) => kubernetes.watch(call, events).await,
        }
    }
}

/// A store, with the PostgreSQL servers that are asked for their client backends. All that is under way ends with it.
pub struct Store {
    kind: Kind,
    backends: BackendQuery,
    tasks: JoinSet<()>,
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
}

impl Store {
    /// A store in etcd. The first request connects. Called in the tokio runtime (with IO and time) that will carry requests out.
    ///
    /// # Errors
    /// [`OptionsError`]: a certificate or key cannot be used. Whether etcd can be reached is not known yet.
    pub fn etcd(options: &EtcdOptions, backends: BackendQuery) -> Result<Store, OptionsError> {
        Ok(Store::new(Kind::Etcd(Etcd::new(options)?), backends))
    }

    /// A store in the API server of Kubernetes; otherwise as [`Store::etcd`].
    ///
    /// # Errors
    /// [`OptionsError`]: a certificate or key cannot be used.
    pub fn kubernetes(options: &KubernetesOptions, backends: BackendQuery) -> Result<Store, OptionsError> {
        Ok(Store::new(Kind::Kubernetes(Kubernetes::new(options)?), backends))
    }

    fn new(kind: Kind, backends: BackendQuery) -> Store {
        let (sender, events) = mpsc::channel(MAX_EVENTS);
        Store { kind, backends, tasks: JoinSet::new(), sender, events }
    }

    /// Begins to carry a request out; never waits. Its answer is an event within the request timeout (that of a [`Request::ListBackends`] within
    /// [`BackendQuery::LIMIT`]).
    pub fn submit(&mut self, request: Request) {
        let (kind, sender) = (self.kind.clone(), self.sender.clone());
        match request {
            Request::Watch { call } => self.tasks.spawn(async move {
                let lost = kind.watch(call, &sender).await;
                let _ = sender.send(lost).await;
            }),
            Request::ListBackends { call, budgets } => {
                let asking = self.backends.ask(budgets);
                self.tasks.spawn(async move {
                    let budgets = asking.await;
                    let _ = sender.send(Event::Backends { call, budgets }).await;
                })
            }
            request => self.tasks.spawn(async move {
                let answer = kind.answer(request).await;
                let _ = sender.send(answer).await;
            }),
        };
    }

    /// The next event. Never ends; may be dropped and called again. Has to be called again soon: events wait for it, and requests for them.
    pub async fn next(&mut self) -> Event {
        loop {
            tokio::select! {
                Some(event) = self.events.recv() => return event,
                Some(_) = self.tasks.join_next() => {}
            }
        }
    }

    /// Another configuration says where PostgreSQL servers are; who asks them as in [`BackendQuery::new`].
    pub fn configure(&mut self, config: &Arc<Config>, user: Option<String>) {
        self.backends.configure(config, user);
    }
}
