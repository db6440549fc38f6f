//! A process of Weir: the real node, and a model of its pools.

use fleet::{Allowance, BudgetName, ExternalUsage, Node, NodeId, Usage};

use crate::clock::Clock;
use crate::pool_changes::ProcessPools;
use crate::queue::Action;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// By SIGSTOP.
    Stopped,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnState {
    Opening,
    /// `is_ending`: its transaction's end is in the queue.
    Busy {
        is_ending: bool,
    },
    Idle,
    Closing,
}

/// A server connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conn {
    pub(crate) key: u32,
    /// None while it is being opened.
    pub(crate) pid: Option<u32>,
    pub(crate) state: ConnState,
    /// Since when, by the process's clock.
    pub(crate) since_us: u64,
}

/// The pools of a budget, as one.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) name: BudgetName,
    /// As published to the threads of the pools.
    pub(crate) allowance: Allowance,
    pub(crate) conns: Vec<Conn>,
    /// Clients that want a connection.
    pub(crate) demand: u32,
    pub(crate) next_key: u32,
    /// As reported last.
    pub(crate) reported: Usage,
}

impl Pool {
    pub(crate) fn new(name: BudgetName) -> Pool {
        Pool {
            name,
            allowance: Allowance::default(),
            conns: Vec::new(),
            demand: 0,
            next_key: 0,
            reported: Usage::default(),
        }
    }

    pub(crate) fn open(&self) -> u32 {
        u32::try_from(self.conns.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn count(&self, is_counted: impl Fn(ConnState) -> bool) -> u32 {
        let count = self.conns.iter().filter(|conn| is_counted(conn.state)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// What a thread that opens a connection may have, by its own clock.
    pub(crate) fn allowed(&self, clock_us: u64) -> u32 {
        let Allowance { slots, until_us, floor, .. } = self.allowance;
        if clock_us < until_us { slots } else { floor }
    }

    pub(crate) fn usage(&self) -> Usage {
        let usable = self.count(|state| state != ConnState::Closing);
        Usage {
            open: self.open(),
            in_use: self.count(|state| matches!(state, ConnState::Busy { .. } | ConnState::Opening)),
            waiting: self.demand.saturating_sub(usable),
            version: self.allowance.version,
        }
    }
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: NodeId,
    /// The number of its node; one more than there are for the double.
    pub(crate) number: usize,
    pub(crate) node: Node,
    pub(crate) state: State,
    pub(crate) clock: Clock,
    pub(crate) pools: Vec<Pool>,
    /// What has happened to it while it was stopped.
    pub(crate) held: Vec<Action>,
    pub(crate) turn: u32,
    /// When it is woken next, in true time.
    pub(crate) wake_us: u64,
    pub(crate) is_usage_due: bool,
    pub(crate) is_leaving: bool,
    /// What it believes that others use of limits without slots.
    pub(crate) external: ExternalUsage,
    pub(crate) shared_pools: ProcessPools,
    /// The store has had a session of it among those that hold floors.
    pub(crate) had_line: bool,
    /// It might open connections before that, alone.
    pub(crate) began_alone: bool,
}

impl Process {
    pub(crate) fn stays(&self) -> bool {
        self.state != State::Gone && !self.is_leaving
    }

    pub(crate) fn conn(&mut self, budget: usize, key: u32) -> Option<&mut Conn> {
        self.pools[budget].conns.iter_mut().find(|conn| conn.key == key)
    }
}
