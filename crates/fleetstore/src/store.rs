//! The store as the thread of the fleet uses it: requests in, events out.
//!
//! Owns that every request is answered in time, and that events of one watch come in their order.

use std::sync::Arc;

use fleet::{Event, Request};
use settings::Config;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::backends::BackendQuery;
use crate::etcd::{Etcd, EtcdOptions, OptionsError};

/// Events that wait to be taken. A watch that has more waits, and etcd with it.
const MAX_EVENTS: usize = 256;

/// A store, with the PostgreSQL servers that are asked for their client backends. All that is under way ends with it.
pub struct Store {
    etcd: Arc<Etcd>,
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
        let (sender, events) = mpsc::channel(MAX_EVENTS);
        Ok(Store { etcd: Etcd::new(options)?, backends, tasks: JoinSet::new(), sender, events })
    }

    /// Begins to carry a request out; never waits. Its answer is an event within the request timeout (that of a [`Request::ListBackends`] within
    /// [`BackendQuery::LIMIT`]).
    pub fn submit(&mut self, request: Request) {
        let (etcd, sender) = (Arc::clone(&self.etcd), self.sender.clone());
        match request {
            Request::Watch { call } => self.tasks.spawn(async move {
                let lost = etcd.watch(call, &sender).await;
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
                let answer = etcd.answer(request).await;
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
