//! Background tasks that restart after a panic, with the names of their threads.
//!
//! Owns how long what broke rests before, so that a bug that is met every time fills no log. Never knows what the work is.

use std::future::{Future, pending};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

/// The panel's thread, and those that wait for files and passwords in its stead.
pub(crate) const PANEL: &str = "weir-panel";

/// Listens to a run of the lab.
pub(crate) const LAB: &str = "weir-lab";

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts a panic if the thread is one of the panel's; false if it is not.
#[must_use]
pub fn count_panic(thread: &Thread) -> bool {
    let is_own = matches!(thread.name(), Some(PANEL | LAB));
    if is_own {
        PANICS.fetch_add(1, Ordering::Relaxed);
    }
    is_own
}

/// Panics since the process began.
pub(crate) fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// After this it begins again, and each time after twice as long, up to the longest; what has lived for the longest begins
/// with the shortest.
const MIN_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);

/// How long something that breaks now and then rests.
#[derive(Debug, Default)]
pub(crate) struct Backoff(Duration);

impl Backoff {
    /// It has broken, after so long a life: the rest that it takes now.
    pub(crate) fn next(&mut self, lived: Duration) -> Duration {
        let is_steady = lived >= MAX_DELAY;
        self.0 = if is_steady { MIN_DELAY } else { (self.0 * 2).clamp(MIN_DELAY, MAX_DELAY) };
        self.0
    }
}

/// One piece of such work, as a task.
pub(crate) struct SupervisedTask {
    task: JoinSet<()>,
    /// When it begins, or began.
    starts_at: Instant,
    backoff: Backoff,
}

impl SupervisedTask {
    /// Not begun.
    pub(crate) fn new() -> SupervisedTask {
        SupervisedTask { task: JoinSet::new(), starts_at: Instant::now(), backoff: Backoff::default() }
    }

    /// Begins it, if it is not under way: at once, or when it has rested.
    pub(crate) fn ensure_running<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        work: impl FnOnce() -> F,
    ) {
        if !self.task.is_empty() {
            return;
        }
        self.starts_at = self.starts_at.max(Instant::now());
        let (starts_at, work) = (self.starts_at.into(), work());
        self.task.spawn(async move {
            tokio::time::sleep_until(starts_at).await;
            work.await;
        });
    }

    /// Ends it; it can be begun again.
    pub(crate) fn stop(&mut self) {
        self.task.abort_all();
    }

    /// Waits until it has ended or broken.
    pub(crate) async fn finished(&mut self) {
        let Some(end) = self.task.join_next().await else { return pending().await };
        if end.is_err_and(|why| why.is_panic()) {
            let now = Instant::now();
            self.starts_at = now + self.backoff.next(now.saturating_duration_since(self.starts_at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_again_and_again_rests_longer() {
        let mut backoff = Backoff::default();
        let rests: Vec<u64> = (0..8).map(|_| backoff.next(Duration::from_secs(5)).as_secs()).collect();
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.next(MAX_DELAY), MIN_DELAY);
    }

    #[test]
    fn what_broke_begins_again_when_it_has_rested() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let mut task = SupervisedTask::new();
            task.ensure_running(|| async { panic!("a bug") });
            task.finished().await;
            assert!(task.starts_at > Instant::now() + MIN_DELAY / 2, "it rests");
            task.ensure_running(|| async {});
            task.finished().await;
            assert!(task.starts_at <= Instant::now(), "it has begun, and ended well");
            task.ensure_running(|| async { pending().await });
            task.stop();
            task.finished().await;
            assert!(task.starts_at <= Instant::now(), "what is stopped need not rest");
        });
    }
}
