//! Which threads are the panel's, and how many bugs they have run into.
//!
//! Owns the names and the count. A panic of theirs ends no more than what they were at (a request, an export), or the
//! thread, which begins again; that of any other thread ends the process, in the hook that asks here. Never catches one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;

/// The panel's thread, and those that wait for files and passwords in its stead.
pub(crate) const PANEL: &str = "weir-http";

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
