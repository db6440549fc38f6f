//! What must hold: never more connections than the limit; in the end, fair service, unused slots given back, and no writes at rest.

use fleet::NodeState;

use crate::process::State;
use crate::queue::Action;
use crate::scenario::{MS, SECOND};
use crate::stage::{Stage, Violation};
use crate::world::World;

/// For all demand to be served after the last fault: leases end, orphans are found and reclaimed.
const SERVED_US: u64 = 60 * SECOND;
/// For all slots to come back when there is no demand.
const RETURNED_US: u64 = 30 * SECOND;
/// Nothing is written for so long then.
const REST_US: u64 = 3 * SECOND;
const CHECK_US: u64 = 500 * MS;

impl World {
    /// The limit of a budget, after a connection has been opened.
    pub(crate) fn check_limit(&mut self, budget: usize) {
        let most = self.most[budget];
        let (mut open, mut floors) = (0, 0);
        for count in self.postgres.counts(budget) {
            open += count;
            floors += count.min(most.floor);
        }
        let (at_us, excess) = (self.now_us, open - floors);
        if excess > most.shared {
            self.violation = Some(Violation::OverShared { at_us, budget, excess, shared: most.shared });
        }
        // Backends that have outlived their process count. One that has begun without the store may have a floor on top (crate fleet, `floors`).
        let alone = self.processes.iter().filter(|process| process.began_alone).count();
        let alone = u32::try_from(alone).unwrap_or(u32::MAX);
        let limit = most.shared + most.floor.saturating_mul(self.scenario.configured.saturating_add(alone));
        if open > limit {
            self.violation = Some(Violation::OverLimit { at_us, budget, open, limit });
        }
    }

    /// That no other node with a lease has the number of this one, after it has heard something.
    pub(crate) fn check_number(&mut self, process: usize) {
        let Some(number) = self.number(process) else { return };
        let (at_us, others) = (self.now_us, 0..self.processes.len());
        if let Some(other) = others.filter(|at| *at != process).find(|at| self.number(*at) == Some(number)) {
            let processes = [process, other];
            self.violation = Some(Violation::TwoNumbers { at_us, number, processes });
        }
    }

    /// The number that a process believes in, if its session has a lease.
    fn number(&self, at: usize) -> Option<u32> {
        let process = self.processes.get(at).filter(|process| process.state != State::Gone)?;
        let leased = self.store.nodes.get(&process.id).filter(|leased| leased.until_us > self.now_us)?;
        let is_its = leased.record.session == process.node.hand_over().session;
        process.node.peer_number(process.clock.shows(self.now_us)).filter(|_| is_its)
    }

    /// Looks whether the end is as it should be.
    pub(crate) fn check(&mut self) {
        let now_us = self.now_us;
        if matches!(self.stage, Stage::Served { .. }) {
            self.note_turns();
        }
        let (wrong, since_us, good_us, for_us) = match self.stage {
            Stage::Served { since_us, good_us } => (self.unserved(), since_us, good_us, SERVED_US),
            Stage::Returned { since_us, good_us } => (self.not_returned(), since_us, good_us, RETURNED_US),
            Stage::Chaos | Stage::Over => return,
        };
        // Where there is not a slot for each, nodes take turns, and write that.
        let last_write_us = if self.takes_turns() { 0 } else { self.last_write_us };
        let good_us = good_us.unwrap_or(now_us).max(last_write_us);
        let is_over = wrong.is_none() && now_us >= good_us + REST_US;
        let good_us = wrong.is_none().then_some(good_us);
        let is_late = now_us > since_us + for_us;
        let what = wrong.unwrap_or_else(|| "the store is written at rest".to_owned());
        self.stage = match self.stage {
            Stage::Served { .. } if is_over => self.end_demand(),
            Stage::Served { .. } if !is_late => Stage::Served { since_us, good_us },
            Stage::Served { .. } => self.fail_stage(Violation::Unserved(what)),
            Stage::Returned { .. } if is_over => Stage::Over,
            Stage::Returned { .. } if !is_late => Stage::Returned { since_us, good_us },
            _ => self.fail_stage(Violation::NotReturned(what)),
        };
        self.queue.push(now_us + CHECK_US, Action::Check);
    }

    fn fail_stage(&mut self, violation: Violation) -> Stage {
        self.violation = Some(violation);
        Stage::Over
    }

    fn end_demand(&mut self) -> Stage {
        for number in 0..self.demand.len() {
            for budget in 0..self.scenario.budgets.len() {
                self.demand(number, budget, 0);
            }
        }
        Stage::Returned { since_us: self.now_us, good_us: None }
    }

    /// What is not as the fair division says.
    fn unserved(&self) -> Option<String> {
        let mut running: Vec<usize> =
            (0..self.processes.len()).filter(|at| self.processes[*at].state == State::Running).collect();
        running.sort_by(|one, other| self.processes[*one].id.cmp(&self.processes[*other].id));
        let budgets = 0..self.scenario.budgets.len();
        let unserved = budgets.clone().find_map(|budget| self.unserved_of(budget, &running));
        let unserved = unserved.or_else(|| running.iter().find_map(|at| self.not_joined(*at)));
        unserved.or_else(|| self.mistaken(&running)).or_else(|| self.wrong_pools(&running))
    }

    fn not_joined(&self, at: usize) -> Option<String> {
        let process = &self.processes[at];
        match process.node.status(process.clock.shows(self.now_us)).state {
            NodeState::Joined { is_watching: true } if self.number(at).is_none() => {
                Some(format!("process {at} has no number"))
            }
            NodeState::Joined { is_watching: true } => None,
            other => Some(format!("process {at} is {other:?}")),
        }
    }

    /// The processes that want connections of a budget of which there is not one for each of them.
    fn takers(&self, budget: usize, running: &[usize]) -> Vec<usize> {
        let division = self.scenario.division(budget);
        let wants = |at: &usize| self.processes[*at].pools[budget].demand > 0;
        let takers: Vec<usize> = running.iter().copied().filter(wants).collect();
        let is_scarce = division.floor == 0 && takers.len() > division.shared as usize;
        if is_scarce { takers } else { Vec::new() }
    }

    fn running(&self) -> Vec<usize> {
        (0..self.processes.len()).filter(|at| self.processes[*at].state == State::Running).collect()
    }

    fn takes_turns(&self) -> bool {
        let running = self.running();
        matches!(self.stage, Stage::Served { .. })
            && (0..self.scenario.budgets.len()).any(|budget| !self.takers(budget, &running).is_empty())
    }

    /// Notes who has had a connection of a budget of which there is not one for each.
    pub(crate) fn note_turns(&mut self) {
        let running = self.running();
        for budget in 0..self.scenario.budgets.len() {
            for at in self.takers(budget, &running) {
                if self.processes[at].pools[budget].open() > 0 {
                    self.had_turn.insert((at, budget));
                }
            }
        }
    }

    fn unserved_of(&self, budget: usize, running: &[usize]) -> Option<String> {
        let division = self.scenario.division(budget);
        let demand = |at: usize| self.processes[at].pools[budget].demand;
        let takers = self.takers(budget, running);
        if !takers.is_empty() {
            let without =
                takers.iter().find(|at| division.shared > 0 && !self.had_turn.contains(&(**at, budget)));
            return without.map(|at| format!("process {at} has had no connection of budget {budget}"));
        }
        let wanted: Vec<u32> = running.iter().map(|at| demand(*at).saturating_sub(division.floor)).collect();
        let targets = one_by_one(division.shared, &wanted);
        for (at, leased) in running.iter().zip(targets) {
            let expected = demand(*at).min(division.floor + leased);
            let open = self.processes[*at].pools[budget].open();
            if open != expected {
                return Some(format!(
                    "process {at} has {open} connections of budget {budget}, should have {expected}"
                ));
            }
        }
        None
    }

    fn not_returned(&self) -> Option<String> {
        for (at, process) in self.processes.iter().enumerate() {
            let open: u32 = process.pools.iter().map(crate::process::Pool::open).sum();
            if open > 0 {
                return Some(format!("process {at} has {open} connections"));
            }
        }
        let mut objects = self.store.objects.iter().filter(|(name, _)| name.0[0] == "slots");
        objects.next().map(|(name, (_, contents))| format!("{name:?}: {}", String::from_utf8_lossy(contents)))
    }
}

/// One slot after the other to the first of those that have least and want more.
fn one_by_one(capacity: u32, wanted: &[u32]) -> Vec<u32> {
    let mut given = vec![0; wanted.len()];
    for _ in 0..capacity {
        let next = (0..wanted.len()).filter(|at| given[*at] < wanted[*at]).min_by_key(|at| given[*at]);
        match next {
            Some(at) => given[at] += 1,
            None => break,
        }
    }
    given
}
