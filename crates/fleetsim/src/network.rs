//! Between the nodes, the store and PostgreSQL: delays, losses, watches.

use fleet::{CallId, Event, NodeId, Request};

use crate::postgres::Owned;
use crate::process::State;
use crate::queue::Action;
use crate::scenario::{MS, SECOND};
use crate::store::{Change, shown};
use crate::watcher::Watcher;
use crate::world::World;

impl World {
    fn latency(&mut self) -> u64 {
        let most_us = self.scenario.latency_us;
        if self.prng.percent(self.late) {
            self.prng.between(1, most_us * 4)
        } else {
            self.prng.between(100, most_us)
        }
    }

    fn is_cut(&self, process: usize) -> bool {
        self.is_store_down || self.cut[self.processes[process].number]
    }

    /// Sends a request of a process on its way.
    pub(crate) fn send(&mut self, process: usize, request: Request) {
        let at_us = self.now_us + self.latency();
        if let Request::ListBackends { call, budgets } = request {
            self.queue.push(at_us, Action::AtPostgres { process, call, budgets });
            return;
        }
        let is_lost = self.is_cut(process) || self.prng.percent(self.lossy);
        if !is_lost {
            self.queue.push(at_us, Action::AtStore { process, request, answer: true });
            return;
        }
        let answered_us = self.now_us + self.prng.between(100 * MS, 2 * SECOND);
        self.fail(process, &request, answered_us);
        if matches!(request, Request::Watch { .. }) {
            return;
        }
        match self.prng.below(4) {
            // Carried out, but its answer is lost.
            0 if !self.is_cut(process) => {
                self.queue.push(at_us, Action::AtStore { process, request, answer: false })
            }
            // Carried out late.
            0 | 1 => {
                let late_us = self.now_us + self.prng.between(0, 10 * SECOND);
                self.queue.push(late_us, Action::AtStore { process, request, answer: false });
            }
            _ => {}
        }
    }

    /// The node gives up waiting.
    fn fail(&mut self, process: usize, request: &Request, at_us: u64) {
        let why = String::new();
        let event = match request {
            Request::Watch { call } => Event::WatchLost { watch: *call, why },
            Request::Join { call, .. }
            | Request::Renew { call, .. }
            | Request::Leave { call, .. }
            | Request::Swap { call, .. }
            | Request::ListBackends { call, .. } => Event::Unanswered { call: *call, why },
        };
        self.queue.push(at_us, Action::ToNode { process, event });
    }

    pub(crate) fn at_store(&mut self, process: usize, request: Request, answer: bool) {
        if answer && self.is_cut(process) {
            let at_us = self.now_us + self.prng.between(100 * MS, 2 * SECOND);
            self.fail(process, &request, at_us);
            return;
        }
        if let Request::Watch { call } = request {
            self.watch(process, call);
            return;
        }
        let id = self.processes[process].id.clone();
        let lease_us = self.scenario.lease_us;
        // The store's clock; it may also be late in ending a lease, never early.
        let late_us = if self.prng.percent(10) { self.prng.below(2 * SECOND) } else { 0 };
        let until_us = self.store_clock.reaches(self.store_clock.shows(self.now_us) + lease_us) + late_us;
        let (event, change) = self.store.carry_out(&id, request, lease_us, until_us);
        self.note(|| format!("store: {id} (process {process}) {event:?}"));
        if let Some(Event::Renewed { .. }) = &event {
            self.queue.push(until_us, Action::LeaseCheck { id });
        }
        if let Some(change) = change {
            self.note_lines(&change);
            self.broadcast(&change);
        }
        if let Some(event) = event.filter(|_| answer) {
            let at_us = self.now_us + self.latency();
            self.queue.push(at_us, Action::ToNode { process, event });
        }
    }

    fn watch(&mut self, process: usize, call: CallId) {
        let event = self.store.snapshot(call);
        let last_us = self.now_us + self.latency();
        self.queue.push(last_us, Action::ToNode { process, event });
        self.watchers.retain(|watcher| watcher.process != process);
        self.watchers.push(Watcher { process, call, last_us });
    }

    /// Notes which processes hold floors.
    fn note_lines(&mut self, change: &Change) {
        let Change::Object(object) = change else { return };
        if object.name.0 != ["floors"] {
            return;
        }
        let text = String::from_utf8_lossy(object.contents.as_deref().unwrap_or_default());
        for process in &mut self.processes {
            let session = format!("{:016x}", process.node.hand_over().session.0);
            process.had_line |= text.contains(&session);
        }
    }

    fn broadcast(&mut self, change: &Change) {
        if let Change::Object(_) = change {
            self.last_write_us = self.now_us;
        }
        for at in 0..self.watchers.len() {
            let latency_us = self.latency();
            let watcher = &mut self.watchers[at];
            watcher.last_us = watcher.last_us.max(self.now_us + latency_us);
            let (at_us, process) = (watcher.last_us, watcher.process);
            let event = shown(change, watcher.call);
            self.queue.push(at_us, Action::ToNode { process, event });
        }
    }

    pub(crate) fn lease_check(&mut self, id: &NodeId) {
        if let Some(change) = self.store.expire(id, self.now_us) {
            self.note(|| format!("store: the lease of {id} is over"));
            self.broadcast(&change);
        }
    }

    /// A process's watch shows nothing more; it finds out at most so much later.
    pub(crate) fn break_watch(&mut self, process: usize, within_us: u64) {
        let Some(at) = self.watchers.iter().position(|watcher| watcher.process == process) else { return };
        let watcher = self.watchers.remove(at);
        let at_us = watcher.last_us.max(self.now_us + self.prng.below(within_us));
        let event = Event::WatchLost { watch: watcher.call, why: String::new() };
        self.queue.push(at_us, Action::ToNode { process, event });
    }

    /// Nothing is sent to a process that is gone.
    pub(crate) fn drop_watch(&mut self, process: usize) {
        self.watchers.retain(|watcher| watcher.process != process);
    }

    pub(crate) fn at_postgres(&mut self, process: usize, call: CallId, budgets: &[fleet::BudgetName]) {
        let mut lists = Vec::new();
        for name in budgets {
            let budget = self.scenario.budgets.iter().position(|(other, _)| other == name);
            if let Some(budget) = budget.filter(|_| !self.is_unlistable) {
                lists.push((name.clone(), self.postgres.list(budget)));
            }
        }
        let at_us = self.now_us + self.prng.between(MS, 200 * MS);
        self.queue.push(at_us, Action::ToNode { process, event: Event::Backends { call, budgets: lists } });
    }

    /// A client that is no node connects.
    pub(crate) fn open_foreign(&mut self, budget: usize, for_us: u64) {
        let pid = self.postgres.open(Owned { budget, process: None }, &mut self.prng);
        let until_us = (self.now_us + for_us).min(self.scenario.chaos_us + SECOND);
        self.queue.push(until_us, Action::ForeignEnds { pid });
    }

    pub(crate) fn is_running(&self, process: usize) -> bool {
        self.processes[process].state == State::Running
    }
}
