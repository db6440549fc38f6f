//! Changes of pools, and questions to servers, on their way to the control thread and back.
//!
//! Owns how many are under way and for how long one waits. What a server has said of itself is kept for a moment, so that
//! a page that looks often does not ask often. Never judges a change: the control thread does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use control::{
    ExplainOutcome, ExplainRequest, Input, PoolChange, PoolError, PoolOutcome, PoolRequest, ServerInfo,
};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout};

use crate::failure::Failure;

/// At most so many changes and questions are under way.
const PLACES: usize = 16;

/// A change that has not come whole after this is given up; it may still be made.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that has not answered after this is not waited for.
const SERVER_PATIENCE: Duration = Duration::from_secs(2);

/// How long an answer of a server counts, and how long it counts that there was none.
const FRESH: Duration = Duration::from_secs(5);

/// At most so many servers are remembered.
const SERVERS: usize = 1_000;

/// Hands something to the control thread; never waits.
pub type Tell = Arc<dyn Fn(Input) + Send + Sync>;

/// What came of a change.
pub(crate) type Outcome = Result<PoolOutcome, PoolError>;

/// The panel's end.
pub(crate) struct PoolsDesk {
    tell: Tell,
    numbers: AtomicU64,
    places: Semaphore,
    waiting: Arc<PoolsWaiting>,
    /// What servers have said, by cluster.
    facts: Mutex<HashMap<String, (Instant, Option<ServerInfo>)>>,
}

/// Whom answers are for.
#[derive(Default)]
pub(crate) struct PoolsWaiting {
    changes: Mutex<HashMap<u64, oneshot::Sender<Outcome>>>,
    questions: Mutex<HashMap<u64, oneshot::Sender<Option<ServerInfo>>>>,
    explains: Mutex<HashMap<u64, oneshot::Sender<ExplainOutcome>>>,
}

impl PoolsWaiting {
    /// A change was made, or not.
    pub(crate) fn changed(&self, id: u64, outcome: Outcome) {
        let asker = self.changes.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        asker.map(|asker| asker.send(outcome));
    }

    /// A server has answered, or will not.
    pub(crate) fn inquired(&self, id: u64, facts: Option<ServerInfo>) {
        let asker = self.questions.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        asker.map(|asker| asker.send(facts));
    }

    /// A statement was explained, or cannot be.
    pub(crate) fn explained(&self, id: u64, outcome: ExplainOutcome) {
        let asker = self.explains.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        asker.map(|asker| asker.send(outcome));
    }
}

impl PoolsDesk {
    pub(crate) fn new(tell: Tell, waiting: Arc<PoolsWaiting>) -> PoolsDesk {
        let places = Semaphore::new(PLACES);
        PoolsDesk { tell, numbers: AtomicU64::new(1), places, waiting, facts: Mutex::default() }
    }

    /// Asks for a change, or for what it would be.
    ///
    /// # Errors
    /// Why it is not made, as the asker is told.
    pub(crate) async fn change(
        &self,
        change: PoolChange,
        preview: bool,
        server: Option<ServerInfo>,
    ) -> Result<PoolOutcome, Failure> {
        let busy = || Failure::unavailable("too many changes are under way");
        let place = timeout(PATIENCE / 2, self.places.acquire()).await;
        let _place = place.map_err(|_| busy())?.map_err(|_| busy())?;
        let id = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting.changes.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        (self.tell)(Input::Pools(PoolRequest { id, change, preview, server }));
        match timeout(PATIENCE, answer).await {
            Ok(Ok(outcome)) => outcome.map_err(Failure::from),
            _ => {
                self.waiting.changes.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                Err(Failure::unavailable("the pooler did not answer in time"))
            }
        }
    }

    /// What the server of a cluster says of itself. `ways` are entries and users by which it may be asked, the likeliest
    /// first. None where nobody gets an answer soon.
    pub(crate) async fn facts(&self, cluster: &str, ways: Vec<(String, String)>) -> Option<ServerInfo> {
        if let Some(known) = self.remembered(cluster) {
            return known;
        }
        let asked = timeout(SERVER_PATIENCE, async {
            for (database, user) in ways {
                if let Some(facts) = self.ask(database, user).await {
                    return Some(facts);
                }
            }
            None
        });
        let facts = asked.await.ok().flatten();
        let mut all = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= SERVERS {
            all.clear();
        }
        all.insert(cluster.to_owned(), (Instant::now(), facts.clone()));
        facts
    }

    /// The plan of a statement, or why there is none.
    ///
    /// # Errors
    /// Nobody has answered in time.
    pub(crate) async fn explain(
        &self,
        database: String,
        user: String,
        statement: String,
        generic: bool,
    ) -> Result<ExplainOutcome, Failure> {
        let late = || Failure::unavailable("the server did not answer in time");
        let place = timeout(PATIENCE / 2, self.places.acquire()).await;
        let _place = place.map_err(|_| late())?.map_err(|_| late())?;
        let id = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting.explains.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let _underway = Underway { desk: self, id };
        (self.tell)(Input::Explain(ExplainRequest { id, database, user, statement, generic }));
        timeout(PATIENCE / 2, answer).await.ok().and_then(Result::ok).ok_or_else(late)
    }

    fn remembered(&self, cluster: &str) -> Option<Option<ServerInfo>> {
        let all = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, facts) = all.get(cluster)?;
        (since.elapsed() < FRESH).then(|| facts.clone())
    }

    async fn ask(&self, database: String, user: String) -> Option<ServerInfo> {
        let _place = self.places.acquire().await.ok()?;
        let id = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting.questions.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        // Whoever goes away before the answer takes the question back.
        let _underway = Underway { desk: self, id };
        (self.tell)(Input::QueryServer { id, database, user });
        answer.await.ok().flatten()
    }
}

/// A question under way.
struct Underway<'a> {
    desk: &'a PoolsDesk,
    id: u64,
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        let waiting = &self.desk.waiting;
        let mut questions = waiting.questions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut explains = waiting.explains.lock().unwrap_or_else(PoisonError::into_inner);
        if questions.remove(&self.id).is_some() || explains.remove(&self.id).is_some() {
            (self.desk.tell)(Input::CancelServerQuery { id: self.id });
        }
    }
}

impl From<PoolError> for Failure {
    fn from(refusal: PoolError) -> Failure {
        let (message, field) = (refusal.to_string(), refusal.of_field());
        let failure = match refusal {
            PoolError::Field { .. } => Failure::unprocessable(message),
            PoolError::Exists { .. } | PoolError::Broken(_) => Failure::conflict(message),
            PoolError::NotFound(_) => Failure::not_found(),
            PoolError::NotOurs { .. } | PoolError::NoPoolsFile => Failure::forbidden(message),
            PoolError::Unreadable { .. } | PoolError::Unwritable { .. } => {
                Failure::with_status(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
            }
            PoolError::Ending => Failure::unavailable(message),
        };
        match field {
            Some(field) => failure.of(field),
            None => failure,
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

    /// A desk whose control thread notes what it is told, and knows one server.
    fn desk(asked: &Arc<Mutex<Vec<String>>>) -> PoolsDesk {
        let waiting = Arc::new(PoolsWaiting::default());
        let (far, asked) = (Arc::clone(&waiting), Arc::clone(asked));
        let tell = move |input: Input| match input {
            Input::QueryServer { id, user, .. } => {
                let facts = (user == "right").then(ServerInfo::default);
                asked.lock().expect("a lock").push(user.clone());
                if user != "silent" {
                    far.inquired(id, facts);
                }
            }
            Input::CancelServerQuery { .. } => asked.lock().expect("a lock").push("no more".to_owned()),
            Input::Pools(request) => far.changed(request.id, Err(PoolError::Ending)),
            other => panic!("{other:?}"),
        };
        PoolsDesk::new(Arc::new(tell), waiting)
    }

    fn ways(users: &[&str]) -> Vec<(String, String)> {
        users.iter().map(|user| ("app".to_owned(), (*user).to_owned())).collect()
    }

    #[test]
    fn a_server_is_asked_until_somebody_gets_an_answer_and_not_again_at_once() {
        let asked = Arc::default();
        let desk = desk(&asked);
        run(async {
            assert!(desk.facts("c", ways(&["wrong", "right", "unused"])).await.is_some());
            assert!(desk.facts("c", ways(&["right"])).await.is_some());
            assert_eq!(*asked.lock().expect("a lock"), ["wrong", "right"]);
            tokio::time::sleep(FRESH).await;
            assert!(desk.facts("c", ways(&["wrong"])).await.is_none());
        });
    }

    #[test]
    fn a_silent_server_is_given_up() {
        let asked = Arc::default();
        let desk = desk(&asked);
        assert!(run(desk.facts("c", ways(&["silent", "right"]))).is_none());
        assert_eq!(*asked.lock().expect("a lock"), ["silent", "no more"]);
        assert_eq!(desk.places.available_permits(), PLACES);
    }

    #[test]
    fn a_refused_change_is_told() {
        let desk = desk(&Arc::default());
        assert!(run(desk.change(PoolChange::Delete("a".to_owned()), false, None)).is_err());
    }
}
