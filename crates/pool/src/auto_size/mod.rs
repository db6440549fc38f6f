//! `pool_size = auto`: finds and follows the size with the most throughput, by trying the neighbours of the present one.
//!
//! Owns the decisions of one pool for all shards: figures of an interval go in, changes of the size come out, each with its reason. Sees no clock and no
//! connection. A size is tried for a second or two, and kept if it gives more; of two that give the same, the smaller one is kept. Nothing is decided
//! while figures say nothing of the size ([`SizeHold`]).

mod controller;
#[cfg(test)]
mod controller_tests;
mod estimates;
mod figures;
mod window;

pub use controller::{SizeChange, SizeChangeKind, SizeController};
pub use figures::{SizeFigures, SizeReport};

/// What a controller is told of an interval, of about a third of a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct SizeInterval {
    /// How long it was, by the clock of the shard that decides.
    pub elapsed_us: u64,
    /// What all shards have counted meanwhile.
    pub counted: SizeReport,
    /// How many shards have counted.
    pub reporters: u32,
    /// Server connections that are open now.
    pub open: u32,
    /// Further ones that the reserve may have opened.
    pub reserve: u32,
    /// Clients that wait now.
    pub waiting: u32,
    /// Servers whose transactions have gone on for much longer than is usual.
    pub stuck: u32,
    /// Why figures would say nothing of the size, as far as the shard knows.
    pub obstacle: Option<SizeHold>,
}

/// Why no other size is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeHold {
    /// Clients wait for no server, and not all servers are busy.
    NoDemand,
    /// Too few transactions end to compare sizes.
    FewTransactions,
    /// PAUSE, SUSPEND, a shutdown, or another process takes over.
    Paused,
    /// Logins to servers fail.
    LoginFailures,
    /// No host of the entry is what its connections go to.
    Failover,
    /// Transactions go on for much longer than is usual: locks, or reports.
    LongTransactions,
    /// Another limit, or the server, keeps the size from being reached.
    NotReached,
    /// Time has jumped: the process was stopped, or its thread did not run.
    ClockJump,
}

impl SizeHold {
    /// In SHOW POOL_SIZES.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            SizeHold::NoDemand => "no client waits and not all servers are busy",
            SizeHold::FewTransactions => "too few transactions to compare sizes",
            SizeHold::Paused => "paused",
            SizeHold::LoginFailures => "logins to the server fail",
            SizeHold::Failover => "no host that connections go to",
            SizeHold::LongTransactions => "transactions that take much longer than usual keep servers",
            SizeHold::NotReached => "another limit or the server keeps the size from being reached",
            SizeHold::ClockJump => "the thread did not run for a while",
        }
    }
}

/// What a controller is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeState {
    /// It tries sizes, or is about to.
    Seeks,
    /// The size is found; its neighbours are tried again from time to time.
    Rests,
    /// The size stays as it is, because figures say nothing of it.
    Holds(SizeHold),
}

impl SizeState {
    /// In SHOW POOL_SIZES.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            SizeState::Seeks => "seeks",
            SizeState::Rests => "rests",
            SizeState::Holds(_) => "holds",
        }
    }
}
