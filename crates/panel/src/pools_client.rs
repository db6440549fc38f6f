//! Changes of pools, and questions to servers, on their way to the control thread and back.
//!
//! Owns how many are under way and for how long one waits. What a server has said of itself is kept for a moment, so that
//! a page that looks often does not ask often. Never judges a change: the control thread does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use control::{
    ExplainOutcome, ExplainRequest, Input, PoolChange, PoolError, PoolOutcome, PoolRequest, ServerInfo,
};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout};

use crate::control_client::ControlError;
use crate::failure::Failure;

/// Changes and queries in flight.
const MAX_IN_FLIGHT: usize = 16;

/// A change that has not come whole after this is given up; it may still be made.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A server that has not answered after this is not waited for.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long an answer of a server counts, and how long it counts that there was none.
const SERVER_INFO_TTL: Duration = Duration::from_secs(5);

/// Servers whose answer is cached.
const MAX_SERVERS: usize = 1_000;

/// Hands something to the control thread; never waits.
pub type SendInput = Arc<dyn Fn(Input) + Send + Sync>;

/// What came of a change.
pub(crate) type PoolResult = Result<PoolOutcome, PoolError>;

/// The panel's end.
pub(crate) struct PoolsClient {
    send: SendInput,
    next_id: AtomicU64,
    permits: Semaphore,
    pending: Arc<PendingPoolRequests>,
    /// What servers have said, by cluster.
    server_info: Mutex<HashMap<String, (Instant, Option<ServerInfo>)>>,
}

/// Whom answers are for.
#[derive(Default)]
pub(crate) struct PendingPoolRequests {
    changes: Mutex<HashMap<u64, oneshot::Sender<PoolResult>>>,
    server_queries: Mutex<HashMap<u64, oneshot::Sender<Option<ServerInfo>>>>,
    explains: Mutex<HashMap<u64, oneshot::Sender<ExplainOutcome>>>,
}

impl PendingPoolRequests {
    /// A change was made, or not.
    pub(crate) fn changed(&self, id: u64, outcome: PoolResult) {
        let sender = self.changes.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        sender.map(|sender| sender.send(outcome));
    }

    /// A server has answered, or will not.
    pub(crate) fn server_answered(&self, id: u64, server_info: Option<ServerInfo>) {
        let sender = self.server_queries.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        sender.map(|sender| sender.send(server_info));
    }

    /// A statement was explained, or cannot be.
    pub(crate) fn explained(&self, id: u64, outcome: ExplainOutcome) {
        let sender = self.explains.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        sender.map(|sender| sender.send(outcome));
    }
}

impl PoolsClient {
    pub(crate) fn new(send: SendInput, pending: Arc<PendingPoolRequests>) -> PoolsClient {
        let permits = Semaphore::new(MAX_IN_FLIGHT);
        PoolsClient { send, next_id: AtomicU64::new(1), permits, pending, server_info: Mutex::default() }
    }

    /// Asks for a change, or for what it would be.
    ///
    /// # Errors
    /// Why the change is not made.
    pub(crate) async fn change(
        &self,
        change: PoolChange,
        preview: bool,
        server: Option<ServerInfo>,
        may_name_servers: bool,
    ) -> Result<PoolOutcome, Failure> {
        let busy = || Failure::TooManyChanges;
        let permit = timeout(TIMEOUT / 2, self.permits.acquire()).await;
        let _place = permit.map_err(|_| busy())?.map_err(|_| busy())?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.pending.changes.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        (self.send)(Input::Pools(PoolRequest { id, change, preview, server, may_name_servers }));
        match timeout(TIMEOUT, answer).await {
            Ok(Ok(outcome)) => outcome.map_err(Failure::Pool),
            _ => {
                self.pending.changes.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                Err(ControlError::TimedOut.into())
            }
        }
    }

    /// What the server of a cluster says of itself. `ways` are entries and users by which it may be asked, the likeliest
    /// first. None where no login gets an answer soon.
    pub(crate) async fn server_info(
        &self,
        cluster: &str,
        login_candidates: Vec<(String, String)>,
    ) -> Option<ServerInfo> {
        if let Some(known) = self.cached(cluster) {
            return known;
        }
        let asked = timeout(SERVER_TIMEOUT, async {
            for (database, user) in login_candidates {
                if let Some(server_info) = self.ask(database, user).await {
                    return Some(server_info);
                }
            }
            None
        });
        let server_info = asked.await.ok().flatten();
        let mut all = self.server_info.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_SERVERS {
            all.clear();
        }
        all.insert(cluster.to_owned(), (Instant::now(), server_info.clone()));
        server_info
    }

    /// The plan of a statement, or why there is none.
    ///
    /// # Errors
    /// No answer in time.
    pub(crate) async fn explain(
        &self,
        database: String,
        user: String,
        statement: String,
        generic: bool,
    ) -> Result<ExplainOutcome, Failure> {
        let late = || Failure::ServerTimedOut;
        let permit = timeout(TIMEOUT / 2, self.permits.acquire()).await;
        let _place = permit.map_err(|_| late())?.map_err(|_| late())?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.pending.explains.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let _underway = InFlight { client: self, id };
        (self.send)(Input::Explain(ExplainRequest { id, database, user, statement, generic }));
        timeout(TIMEOUT / 2, answer).await.ok().and_then(Result::ok).ok_or_else(late)
    }

    fn cached(&self, cluster: &str) -> Option<Option<ServerInfo>> {
        let all = self.server_info.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, server_info) = all.get(cluster)?;
        (since.elapsed() < SERVER_INFO_TTL).then(|| server_info.clone())
    }

    async fn ask(&self, database: String, user: String) -> Option<ServerInfo> {
        let _place = self.permits.acquire().await.ok()?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.pending.server_queries.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        // Dropped before the answer, the query is cancelled.
        let _underway = InFlight { client: self, id };
        (self.send)(Input::QueryServer { id, database, user });
        answer.await.ok().flatten()
    }
}

/// A question under way.
struct InFlight<'a> {
    client: &'a PoolsClient,
    id: u64,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let pending = &self.client.pending;
        let mut server_queries = pending.server_queries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut explains = pending.explains.lock().unwrap_or_else(PoisonError::into_inner);
        if server_queries.remove(&self.id).is_some() || explains.remove(&self.id).is_some() {
            (self.client.send)(Input::CancelServerQuery { id: self.id });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(future)
    }

    /// A client whose control thread records its inputs, and knows one server.
    fn client(asked: &Arc<Mutex<Vec<String>>>) -> PoolsClient {
        let pending = Arc::new(PendingPoolRequests::default());
        let (far, asked) = (Arc::clone(&pending), Arc::clone(asked));
        let send = move |input: Input| match input {
            Input::QueryServer { id, user, .. } => {
                let server_info = (user == "right").then(ServerInfo::default);
                asked.lock().expect("a lock").push(user.clone());
                if user != "silent" {
                    far.server_answered(id, server_info);
                }
            }
            Input::CancelServerQuery { .. } => asked.lock().expect("a lock").push("no more".to_owned()),
            Input::Pools(request) => far.changed(request.id, Err(PoolError::Ending)),
            other => panic!("{other:?}"),
        };
        PoolsClient::new(Arc::new(send), pending)
    }

    fn login_candidates(users: &[&str]) -> Vec<(String, String)> {
        users.iter().map(|user| ("app".to_owned(), (*user).to_owned())).collect()
    }

    #[test]
    fn a_server_is_asked_until_somebody_gets_an_answer_and_not_again_at_once() {
        let asked = Arc::default();
        let client = client(&asked);
        run(async {
            assert!(client.server_info("c", login_candidates(&["wrong", "right", "unused"])).await.is_some());
            assert!(client.server_info("c", login_candidates(&["right"])).await.is_some());
            assert_eq!(*asked.lock().expect("a lock"), ["wrong", "right"]);
            tokio::time::sleep(SERVER_INFO_TTL).await;
            assert!(client.server_info("c", login_candidates(&["wrong"])).await.is_none());
        });
    }

    #[test]
    fn a_silent_server_is_given_up() {
        let asked = Arc::default();
        let client = client(&asked);
        assert!(run(client.server_info("c", login_candidates(&["silent", "right"]))).is_none());
        assert_eq!(*asked.lock().expect("a lock"), ["silent", "no more"]);
        assert_eq!(client.permits.available_permits(), MAX_IN_FLIGHT);
    }

    #[test]
    fn a_refused_change_is_told() {
        let client = client(&Arc::default());
        assert!(run(client.change(PoolChange::Delete("a".to_owned()), false, None, false)).is_err());
    }
}
