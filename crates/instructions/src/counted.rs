//! The one function whose instructions are counted, callees included: valgrind finds it by its name.
//! Owns nothing; what runs outside of it costs nothing.

use std::hint::black_box;

/// What valgrind looks for among the names of functions.
pub(crate) const PATTERN: &str = "*counted_region*";

/// Runs `work` and has it counted.
#[inline(never)]
pub(crate) fn counted_region<T>(work: impl FnOnce() -> T) -> T {
    // The result is used here, so that nothing of the work is moved behind the end of this function.
    black_box(work())
}
