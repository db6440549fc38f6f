//! Queries of the panel's thread to the control thread: parsed statements up, typed rows down.
//!
//! Owns how many queries may be in flight ([`MAX_IN_FLIGHT`]) and for how long ([`TIMEOUT`]). Further queries wait
//! here, never in the control thread. Never parses or writes SQL.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control::{PanelQuery, Statement, TypedView, ViewColumn};
use messages::{Cell, ErrorKind, ReplyPart, Role};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout, timeout_at};

use crate::table::{ViewRow, ViewTable};

/// Queries in flight.
const MAX_IN_FLIGHT: usize = 16;

/// An answer that has not come whole after this is given up.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Hands a question to the control thread; never waits.
pub type SendQuery = Arc<dyn Fn(PanelQuery) + Send + Sync>;

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ControlError {
    /// The caller's fault: the control thread rejected it, and why.
    Rejected { kind: ErrorKind, message: String },
    /// Weir's: too many requests to the pooler are in flight.
    Busy,
    /// Weir's: the answer has not come in time. What was asked for may still become true.
    TimedOut,
}

impl fmt::Display for ControlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::Rejected { message, .. } => out.write_str(message),
            ControlError::Busy => out.write_str("too many requests to the pooler are in flight"),
            ControlError::TimedOut => out.write_str("the pooler did not answer in time"),
        }
    }
}

/// A piece of an answer, and whether it is the last.
type ReplySlice = (Vec<ReplyPart>, bool);

/// The panel's end.
pub(crate) struct ControlClient {
    ask: SendQuery,
    next_id: AtomicU64,
    permits: Semaphore,
    pending: Arc<PendingReplies>,
}

/// The receivers of replies. The control thread is the other user: the lock is held for one look-up only.
#[derive(Default)]
pub(crate) struct PendingReplies(Mutex<HashMap<u64, mpsc::UnboundedSender<ReplySlice>>>);

impl PendingReplies {
    /// A slice of a reply. One without a receiver is dropped.
    pub(crate) fn reply_received(&self, id: u64, parts: Vec<ReplyPart>, last: bool) {
        if let Some(sender) = self.map().get(&id) {
            let _ = sender.send((parts, last));
        }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<u64, mpsc::UnboundedSender<ReplySlice>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A query in flight; forgotten when it is dropped, also before its reply.
struct InFlight<'a> {
    pending: &'a PendingReplies,
    id: u64,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.pending.map().remove(&self.id);
    }
}

impl ControlClient {
    /// A client without queries in flight.
    pub(crate) fn new(ask: SendQuery, pending: Arc<PendingReplies>) -> ControlClient {
        ControlClient { ask, next_id: AtomicU64::new(1), permits: Semaphore::new(MAX_IN_FLIGHT), pending }
    }

    /// Runs a command of the console.
    ///
    /// # Errors
    /// [`ControlError`].
    pub(crate) async fn command(&self, word: &str, argument: Option<String>) -> Result<(), ControlError> {
        let statement = Statement::Command { word: word.to_owned(), argument };
        self.query(Role::Admin, statement, drop).await
    }

    /// A command about one of the hosts of an entry, as an admin.
    ///
    /// # Errors
    /// [`ControlError`].
    pub(crate) async fn host_command(
        &self,
        word: &str,
        database: String,
        host: String,
    ) -> Result<(), ControlError> {
        let statement = Statement::HostCommand { word: word.to_owned(), database, host };
        self.query(Role::Admin, statement, drop).await
    }

    /// Changes a line of `quotas_file`, as SET QUOTA does.
    ///
    /// # Errors
    /// [`ControlError`].
    pub(crate) async fn set_quota(&self, line: String) -> Result<(), ControlError> {
        let statement = Statement::Set { key: "quota".to_owned(), value: line };
        self.query(Role::Admin, statement, drop).await
    }

    /// All rows of a view. For small views; see [`ControlClient::for_each_row`].
    ///
    /// # Errors
    /// [`ControlError`].
    pub(crate) async fn show<C: ViewColumn>(&self, view: TypedView<C>) -> Result<ViewTable<C>, ControlError> {
        let mut all = Vec::new();
        self.query(Role::Stats, show(view.name), |rows| all.extend(rows)).await?;
        Ok(ViewTable::new(all))
    }

    /// Passes on the rows of a view as they arrive, so that a long listing is never whole in memory.
    ///
    /// # Errors
    /// [`ControlError`]; rows that arrived before were passed on.
    pub(crate) async fn for_each_row<C: ViewColumn>(
        &self,
        view: TypedView<C>,
        mut take: impl FnMut(ViewRow<'_, C>),
    ) -> Result<(), ControlError> {
        let each = |rows: Vec<Vec<Cell>>| rows.iter().for_each(|cells| take(ViewRow::new(cells)));
        self.query(Role::Stats, show(view.name), each).await
    }

    async fn query(
        &self,
        role: Role,
        statement: Statement,
        mut take: impl FnMut(Vec<Vec<Cell>>),
    ) -> Result<(), ControlError> {
        let deadline = Instant::now() + TIMEOUT;
        let permit = timeout(TIMEOUT / 2, self.permits.acquire()).await;
        let _place = permit.map_err(|_| ControlError::Busy)?.map_err(|_| ControlError::Busy)?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, mut slices) = mpsc::unbounded_channel();
        self.pending.map().insert(id, sender);
        let _underway = InFlight { pending: &self.pending, id };
        (self.ask)(PanelQuery { id, role, statement });
        loop {
            let slice = timeout_at(deadline, slices.recv()).await.map_err(|_| ControlError::TimedOut)?;
            let (parts, last) = slice.ok_or(ControlError::TimedOut)?;
            for part in parts {
                match part {
                    ReplyPart::Rows(rows) => take(rows),
                    ReplyPart::Error { kind, message, .. } => {
                        return Err(ControlError::Rejected { kind, message });
                    }
                    _ => {}
                }
            }
            if last {
                return Ok(());
            }
        }
    }
}

/// The statement that looks at a view.
fn show(view: &str) -> Statement {
    Statement::Command { word: "SHOW".to_owned(), argument: Some(view.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::{POOLS, PoolColumn, SHARDS};
    use messages::{Column, ColumnType};
    use std::future::Future;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(future)
    }

    /// A bridge whose control thread answers at once with these pieces.
    fn control_client(slices: Vec<ReplySlice>) -> ControlClient {
        let pending = Arc::new(PendingReplies::default());
        let far = Arc::clone(&pending);
        let ask = move |question: PanelQuery| {
            for (parts, last) in slices.clone() {
                far.reply_received(question.id, parts, last);
            }
        };
        ControlClient::new(Arc::new(ask), pending)
    }

    #[test]
    fn slices_of_an_answer_are_one_table() {
        let columns = vec![Column { name: "database", kind: ColumnType::Text }];
        let row = |name: &str| ReplyPart::Rows(vec![vec![Cell::from(name)]]);
        let slices = vec![
            (vec![ReplyPart::Columns(columns), row("a")], false),
            (vec![row("b"), ReplyPart::Complete("SHOW")], true),
        ];
        let control_client = control_client(slices);
        let table = run(control_client.show(POOLS)).expect("an answer");
        assert_eq!(table.iter().map(|row| row.owned(PoolColumn::Database)).collect::<Vec<_>>(), ["a", "b"]);
        assert!(control_client.pending.map().is_empty());
    }

    #[test]
    fn a_refusal_is_told_and_silence_given_up() {
        let error =
            ReplyPart::Error { sqlstate: "42501", kind: ErrorKind::Forbidden, message: "no".to_owned() };
        let refused = run(control_client(vec![(vec![error], true)]).show(SHARDS));
        assert!(matches!(refused, Err(ControlError::Rejected { kind: ErrorKind::Forbidden, .. })));
        let silent = control_client(Vec::new());
        assert!(matches!(run(silent.show(POOLS)), Err(ControlError::TimedOut)));
        assert!(silent.pending.map().is_empty());
    }

    #[test]
    fn no_more_than_so_many_questions_reach_the_control_thread() {
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        let ask = move |_: PanelQuery| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let control_client = Arc::new(ControlClient::new(Arc::new(ask), Arc::default()));
        let outcomes = run(async {
            let local = tokio::task::LocalSet::new();
            let ask = || {
                let control_client = Arc::clone(&control_client);
                local.spawn_local(async move { control_client.show(POOLS).await.err() })
            };
            let all: Vec<_> = (0..40).map(|_| ask()).collect();
            local
                .run_until(async {
                    let mut outcomes = Vec::new();
                    for one in all {
                        outcomes.push(one.await.expect("no panic"));
                    }
                    outcomes
                })
                .await
        });
        assert_eq!(asked.load(Ordering::Relaxed), 16);
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == Some(ControlError::Busy)).count(), 24);
    }
}
