//! What happens next: actions in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fleet::{Backend, BudgetName, CallId, Event, NodeId, Request, Usage};

use crate::fault::Fault;

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

/// See the module's head.
#[derive(Default)]
pub(crate) struct Queue {
    /// Time, number, place in `actions`.
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    actions: Vec<Option<Action>>,
    free: Vec<usize>,
    number: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at_us: u64, action: Action) {
        self.number += 1;
        let place = self.free.pop().unwrap_or(self.actions.len());
        if place == self.actions.len() {
            self.actions.push(Some(action));
        } else {
            self.actions[place] = Some(action);
        }
        self.heap.push(Reverse((at_us, self.number, place)));
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Action)> {
        let Reverse((at_us, _, place)) = self.heap.pop()?;
        self.free.push(place);
        Some((at_us, self.actions[place].take()?))
    }
}
