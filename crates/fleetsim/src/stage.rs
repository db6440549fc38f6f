//! How far a run is, and what was broken in it.

use std::fmt;

/// What was broken, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// PostgreSQL has more connections of nodes than the limit.
    OverLimit {
        /// Microseconds since the beginning.
        at_us: u64,
        /// Its number.
        budget: usize,
        /// Connections.
        open: u32,
        /// What is allowed.
        limit: u32,
    },
    /// More connections above floors than the shared part.
    OverShared {
        /// Microseconds since the beginning.
        at_us: u64,
        /// Its number.
        budget: usize,
        /// Connections above the floors.
        excess: u32,
        /// What is allowed.
        shared: u32,
    },
    /// Two nodes with leases believe in one number.
    TwoNumbers {
        /// Microseconds since the beginning.
        at_us: u64,
        /// In which both believe.
        number: u32,
        /// The processes.
        processes: [usize; 2],
    },
    /// Faults are over, and demand is not served as it should be.
    Unserved(String),
    /// There is no demand, and something is left.
    NotReturned(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::OverLimit { at_us, budget, open, limit } => {
                write!(f, "{at_us} us: budget {budget} has {open} connections, limit {limit}")
            }
            Violation::OverShared { at_us, budget, excess, shared } => {
                write!(
                    f,
                    "{at_us} us: budget {budget} has {excess} connections above floors, shared part {shared}"
                )
            }
            Violation::TwoNumbers { at_us, number, processes: [one, other] } => {
                write!(f, "{at_us} us: processes {one} and {other} both have the number {number}")
            }
            Violation::Unserved(what) => write!(f, "not served: {what}"),
            Violation::NotReturned(what) => write!(f, "not returned: {what}"),
        }
    }
}

/// What the end of a run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Chaos,
    /// Demand is to be served, since then.
    Served {
        since_us: u64,
        good_us: Option<u64>,
    },
    /// Slots are to come back, since then.
    Returned {
        since_us: u64,
        good_us: Option<u64>,
    },
    Over,
}
