//! What happens next: actions in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fleet::{Backend, BudgetName, CallId, Event, NodeId, Request, Usage};

use crate::faults::Fault;

/// Something that happens at a time. Processes and budgets are numbers of the world's.
#[derive(Debug)]
pub(crate) enum Action {
    /// A process's node has a deadline.
    Wake {
        process: usize,
        turn: u32,
    },
    /// A request arrives at the store. Without `answer` the process has been answered already, or never is.
    AtStore {
        process: usize,
        request: Request,
        answer: bool,
    },
    ToNode {
        process: usize,
        event: Event,
    },
    /// PostgreSQL is asked which backends there are.
    AtPostgres {
        process: usize,
        call: CallId,
        budgets: Vec<BudgetName>,
    },
    ReadUsage {
        process: usize,
    },
    GiveUsage {
        process: usize,
        usages: Vec<(usize, Usage)>,
    },
    GiveBackends {
        process: usize,
        audit: u64,
        backends: Vec<Backend>,
    },
    Opened {
        process: usize,
        budget: usize,
        conn: u32,
    },
    Closed {
        process: usize,
        budget: usize,
        conn: u32,
    },
    Released {
        process: usize,
        budget: usize,
        conn: u32,
    },
    IdleCheck {
        process: usize,
        budget: usize,
    },
    ForeignEnds {
        pid: u32,
    },
    LeaseCheck {
        id: NodeId,
    },
    Demand {
        node: usize,
        budget: usize,
        clients: u32,
    },
    Fault(Fault),
    /// A node that leaves waits no longer.
    Exit {
        process: usize,
    },
    Heal,
    Check,
}

struct Entry {
    at_us: u64,
    number: u64,
    action: Action,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at_us, self.number).cmp(&(other.at_us, other.number))
    }
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    number: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at_us: u64, action: Action) {
        self.number += 1;
        self.heap.push(Reverse(Entry { at_us, number: self.number, action }));
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Action)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at_us, entry.action))
    }
}
