//! What can go wrong.

/// Something that goes wrong, or ends. Nodes are the numbers of node ids; it happens to the process that has the id then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Cut {
        node: usize,
        is_cut: bool,
    },
    StoreDown {
        is_down: bool,
    },
    Stop {
        node: usize,
    },
    Continue {
        node: usize,
    },
    /// `is_lost`: with its machine, so that PostgreSQL finds out late of idle connections, too.
    Kill {
        node: usize,
        is_lost: bool,
    },
    Start {
        node: usize,
    },
    /// In place of a process that was killed, under a name that no other has had.
    StartRenamed {
        node: usize,
    },
    TakeOver {
        node: usize,
    },
    Leave {
        node: usize,
    },
    /// The watch is over, as by a compaction.
    WatchLost {
        node: usize,
    },
    /// The watch shows nothing more, and is found lost later.
    WatchStalls {
        node: usize,
    },
    /// A node has another limit than its configured one.
    Limit {
        node: usize,
        budget: usize,
        limit: u32,
    },
    /// A node has no pool any more that counts in the budget, or has one again.
    Pools {
        node: usize,
        budget: usize,
        has: bool,
    },
    Foreign {
        budget: usize,
        for_us: u64,
    },
    /// PostgreSQL cannot be asked.
    Unlistable {
        is_on: bool,
    },
}
