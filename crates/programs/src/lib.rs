//! What Weir's two programs, `weir` and `weir-bench`, agree on: names, exit statuses, and the workloads that the panel may ask for.
//!
//! Owns no behaviour. `weir` does not depend on the lab, and the lab does not depend on the pooler.
#![forbid(unsafe_code)]

mod status;

pub use status::{MEANINGS, POOLER_USAGE, Status, statuses};

/// The pooler's file name.
pub const WEIR: &str = "weir";

/// The lab's file name.
pub const BENCH: &str = "weir-bench";

/// Names the Weir that `weir-bench` measures, as its option `--weir` does: `weir bench` sets it to its own program.
pub const MEASURED: &str = "WEIR_PROGRAM";

/// The lab's own workloads for pgbench; pgbench's own come first.
pub const WORKLOADS: &[&str] = &[
    "tpcb-like",
    "simple-update",
    "select-only",
    "point-read",
    "read-write",
    "connect-storm",
    "idle-heavy",
    "slow-mix",
];
