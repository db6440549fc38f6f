//! From the panel's thread to the control thread and back: parsed statements up, typed rows down.
//!
//! Owns how many questions may be under way ([`QUESTIONS`]) and for how long ([`PATIENCE`]). Whoever asks too much waits
//! here, never the control thread. Never parses or makes a text of SQL.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control::{PanelQuery, Statement};
use messages::{Cell, Column, ReplyPart, Role};
use telemetry::Record;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout, timeout_at};

use crate::table::Table;

/// At most so many questions are under way.
const QUESTIONS: usize = 16;

/// An answer that has not come whole after this is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Hands a question to the control thread; never waits.
pub type Ask = Arc<dyn Fn(PanelQuery) + Send + Sync>;

/// Writes to the log of the process.
pub type Log = Arc<dyn Fn(Record) + Send + Sync>;

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The asker's fault: the control thread said no, with an SQLSTATE and why.
    Refused { sqlstate: &'static str, message: String },
    /// Weir's: too many questions are under way.
    Busy,
    /// Weir's: the answer has not come in time. What was asked for may still become true.
    Late,
}

/// A piece of an answer, and whether it is the last.
type Piece = (Vec<ReplyPart>, bool);

/// The panel's end.
pub(crate) struct Bridge {
    ask: Ask,
    numbers: AtomicU64,
    places: Semaphore,
    waiting: Arc<Waiting>,
}

/// Whom answers are for. The control thread is the other user: nobody keeps the lock for longer than one look.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<HashMap<u64, mpsc::UnboundedSender<Piece>>>);

impl Waiting {
    /// A piece of an answer has come. One that nobody waits for any more is dropped.
    pub(crate) fn answered(&self, id: u64, parts: Vec<ReplyPart>, last: bool) {
        if let Some(asker) = self.map().get(&id) {
            let _ = asker.send((parts, last));
        }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<u64, mpsc::UnboundedSender<Piece>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question under way; forgotten with it, also when its asker goes away.
struct Underway<'a> {
    waiting: &'a Waiting,
    id: u64,
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.waiting.map().remove(&self.id);
    }
}

impl Bridge {
    /// A bridge on which nobody is yet.
    pub(crate) fn new(ask: Ask, waiting: Arc<Waiting>) -> Bridge {
        Bridge { ask, numbers: AtomicU64::new(1), places: Semaphore::new(QUESTIONS), waiting }
    }

    /// Asks, and gives all rows of the answer. For views that are small; see [`Bridge::each`].
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub(crate) async fn ask(&self, role: Role, statement: Statement) -> Result<Table, NoAnswer> {
        let mut table = Table::default();
        let keep = |columns: &[Column], rows: Vec<Vec<Cell>>| {
            if table.columns.is_empty() {
                table.columns = columns.to_vec();
            }
            table.rows.extend(rows);
        };
        self.each(role, statement, keep).await?;
        Ok(table)
    }

    /// Looks at a view.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub(crate) async fn show(&self, view: &str) -> Result<Table, NoAnswer> {
        self.ask(Role::Stats, show(view)).await
    }

    /// Asks, and hands rows on slice by slice, so that no long listing is ever whole in memory.
    ///
    /// # Errors
    /// [`NoAnswer`]; slices that came before were handed on.
    pub(crate) async fn each(
        &self,
        role: Role,
        statement: Statement,
        mut take: impl FnMut(&[Column], Vec<Vec<Cell>>),
    ) -> Result<(), NoAnswer> {
        let deadline = Instant::now() + PATIENCE;
        let place = timeout(PATIENCE / 2, self.places.acquire()).await;
        let _place = place.map_err(|_| NoAnswer::Busy)?.map_err(|_| NoAnswer::Busy)?;
        let id = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, mut pieces) = mpsc::unbounded_channel();
        self.waiting.map().insert(id, sender);
        let _underway = Underway { waiting: &self.waiting, id };
        (self.ask)(PanelQuery { id, role, statement });
        let mut columns = Vec::new();
        loop {
            let piece = timeout_at(deadline, pieces.recv()).await.map_err(|_| NoAnswer::Late)?;
            let (parts, last) = piece.ok_or(NoAnswer::Late)?;
            for part in parts {
                match part {
                    ReplyPart::Columns(names) => columns = names,
                    ReplyPart::Rows(rows) => take(&columns, rows),
                    ReplyPart::Error { sqlstate, message } => {
                        return Err(NoAnswer::Refused { sqlstate, message });
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
pub(crate) fn show(view: &str) -> Statement {
    Statement::Command { word: "SHOW".to_owned(), argument: Some(view.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use messages::ColumnType;
    use std::future::Future;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(future)
    }

    /// A bridge whose control thread answers at once with these pieces.
    fn bridge(pieces: Vec<Piece>) -> Bridge {
        let waiting = Arc::new(Waiting::default());
        let far = Arc::clone(&waiting);
        let ask = move |question: PanelQuery| {
            for (parts, last) in pieces.clone() {
                far.answered(question.id, parts, last);
            }
        };
        Bridge::new(Arc::new(ask), waiting)
    }

    #[test]
    fn slices_of_an_answer_are_one_table() {
        let columns = vec![Column { name: "id", kind: ColumnType::Int8 }];
        let row = |id: u64| ReplyPart::Rows(vec![vec![Cell::from(id)]]);
        let pieces = vec![
            (vec![ReplyPart::Columns(columns), row(1)], false),
            (vec![row(2), ReplyPart::Complete("SHOW")], true),
        ];
        let bridge = bridge(pieces);
        let table = run(bridge.show("CLIENTS")).expect("an answer");
        assert_eq!(table.iter().map(|row| row.number("id")).collect::<Vec<_>>(), [1, 2]);
        assert!(bridge.waiting.map().is_empty());
    }

    #[test]
    fn a_refusal_is_told_and_silence_given_up() {
        let error = ReplyPart::Error { sqlstate: "42501", message: "no".to_owned() };
        let refused = run(bridge(vec![(vec![error], true)]).show("FDS"));
        assert!(matches!(refused, Err(NoAnswer::Refused { sqlstate: "42501", .. })));
        let silent = bridge(Vec::new());
        assert!(matches!(run(silent.show("POOLS")), Err(NoAnswer::Late)));
        assert!(silent.waiting.map().is_empty());
    }

    #[test]
    fn no_more_than_so_many_questions_reach_the_control_thread() {
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        let ask = move |_: PanelQuery| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let bridge = Arc::new(Bridge::new(Arc::new(ask), Arc::default()));
        let outcomes = run(async {
            let local = tokio::task::LocalSet::new();
            let ask = || {
                let bridge = Arc::clone(&bridge);
                local.spawn_local(async move { bridge.show("POOLS").await.err() })
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
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == Some(NoAnswer::Busy)).count(), 24);
    }
}
