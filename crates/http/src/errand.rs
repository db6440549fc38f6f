//! Work that goes on beside the requests, and begins again if it breaks.
//!
//! Owns how long what broke rests before, so that a bug that is met every time fills no log. Never knows what the work is.

use std::future::{Future, pending};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

/// After this it begins again, and each time after twice as long, up to the longest; what has lived for the longest begins
/// with the shortest.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// How long something that breaks now and then rests.
#[derive(Debug, Default)]
pub(crate) struct Rest(Duration);

impl Rest {
    /// It has broken, after so long a life: the rest that it takes now.
    pub(crate) fn next(&mut self, lived: Duration) -> Duration {
        let is_steady = lived >= LONGEST;
        self.0 = if is_steady { SHORTEST } else { (self.0 * 2).clamp(SHORTEST, LONGEST) };
        self.0
    }
}

/// One piece of such work, as a task.
pub(crate) struct Errand {
    task: JoinSet<()>,
    /// When it begins, or began.
    begins: Instant,
    rest: Rest,
}

impl Errand {
    /// Not begun.
    pub(crate) fn new() -> Errand {
        Errand { task: JoinSet::new(), begins: Instant::now(), rest: Rest::default() }
    }

    /// Begins it, if it is not under way: at once, or when it has rested.
    pub(crate) fn keep_going<F: Future<Output = ()> + Send + 'static>(&mut self, work: impl FnOnce() -> F) {
        if !self.task.is_empty() {
            return;
        }
        self.begins = self.begins.max(Instant::now());
        let (begins, work) = (self.begins.into(), work());
        self.task.spawn(async move {
            tokio::time::sleep_until(begins).await;
            work.await;
        });
    }

    /// Ends it; it can be begun again.
    pub(crate) fn stop(&mut self) {
        self.task.abort_all();
    }

    /// Waits until it has ended or broken.
    pub(crate) async fn ended(&mut self) {
        let Some(end) = self.task.join_next().await else { return pending().await };
        if end.is_err_and(|why| why.is_panic()) {
            let now = Instant::now();
            self.begins = now + self.rest.next(now.saturating_duration_since(self.begins));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_again_and_again_rests_longer() {
        let mut rest = Rest::default();
        let rests: Vec<u64> = (0..8).map(|_| rest.next(Duration::from_secs(5)).as_secs()).collect();
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(rest.next(LONGEST), SHORTEST);
    }

    #[test]
    fn what_broke_begins_again_when_it_has_rested() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let mut errand = Errand::new();
            errand.keep_going(|| async { panic!("a bug") });
            errand.ended().await;
            assert!(errand.begins > Instant::now() + SHORTEST / 2, "it rests");
            errand.keep_going(|| async {});
            errand.ended().await;
            assert!(errand.begins <= Instant::now(), "it has begun, and ended well");
            errand.keep_going(|| async { pending().await });
            errand.stop();
            errand.ended().await;
            assert!(errand.begins <= Instant::now(), "what is stopped need not rest");
        });
    }
}
