//! The model of the pools: connections opened for clients that wait, and closed when they are idle or too many.

use crate::postgres::Owned;
use crate::process::{Conn, ConnState, State};
use crate::queue::Action;
use crate::scenario::{MS, SECOND};
use crate::world::World;

/// A login that lasts longer compares with the allowance again before its last message.
const LONG_LOGIN_US: u64 = SECOND;

impl World {
    fn clock_us(&self, process: usize) -> u64 {
        self.processes[process].clock.shows(self.now_us)
    }

    /// Opens and closes what is due.
    pub(crate) fn step_pool(&mut self, process: usize, budget: usize) {
        if !self.is_running(process) {
            return;
        }
        let clock_us = self.clock_us(process);
        self.open_wanted(process, budget, clock_us);
        self.use_idle(process, budget);
        self.close_excess(process, budget, clock_us);
        self.end_transactions(process, budget, clock_us);
        self.usage_due(process);
    }

    fn open_wanted(&mut self, process: usize, budget: usize, clock_us: u64) {
        loop {
            let pool = &mut self.processes[process].pools[budget];
            let usable = pool.count(|state| state != ConnState::Closing);
            // Counted first, then compared.
            if usable >= pool.demand || pool.open() + 1 > pool.allowed(clock_us) {
                return;
            }
            let conn = pool.next_key;
            pool.next_key += 1;
            pool.conns.push(Conn { key: conn, pid: None, state: ConnState::Opening, since_us: clock_us });
            let at_us = self.now_us + self.prng.between(500, self.scenario.login_us);
            self.queue.push(at_us, Action::Opened { process, budget, conn });
        }
    }

    fn use_idle(&mut self, process: usize, budget: usize) {
        let pool = &mut self.processes[process].pools[budget];
        let busy = pool.count(|state| matches!(state, ConnState::Busy { .. }));
        let mut more = pool.demand.saturating_sub(busy);
        for conn in pool.conns.iter_mut().filter(|conn| conn.state == ConnState::Idle) {
            if more > 0 {
                conn.state = ConnState::Busy { is_ending: false };
                more -= 1;
            }
        }
    }

    /// Idle connections above the allowance are closed.
    fn close_excess(&mut self, process: usize, budget: usize, clock_us: u64) {
        let pool = &self.processes[process].pools[budget];
        let usable = pool.count(|state| state != ConnState::Closing);
        let excess = usable.saturating_sub(pool.allowed(clock_us)) as usize;
        let idle = pool.conns.iter().filter(|conn| conn.state == ConnState::Idle).take(excess);
        let keys: Vec<u32> = idle.map(|conn| conn.key).collect();
        for key in keys {
            self.close(process, budget, key);
        }
    }

    fn close(&mut self, process: usize, budget: usize, conn: u32) {
        if let Some(found) = self.processes[process].conn(budget, conn) {
            found.state = ConnState::Closing;
            let at_us = self.now_us + self.prng.between(300, 40 * MS);
            self.queue.push(at_us, Action::Closed { process, budget, conn });
        }
    }

    /// Transactions of which there are too many for the demand or the allowance end by and by.
    fn end_transactions(&mut self, process: usize, budget: usize, clock_us: u64) {
        let pool = &self.processes[process].pools[budget];
        let busy = pool.count(|state| matches!(state, ConnState::Busy { .. }));
        let ending = pool.count(|state| state == ConnState::Busy { is_ending: true });
        let usable = pool.count(|state| state != ConnState::Closing);
        let too_many =
            busy.saturating_sub(pool.demand).max(usable.saturating_sub(pool.allowed(clock_us)).min(busy));
        for _ in ending..too_many {
            let is_long = self.prng.percent(5);
            let for_us =
                if is_long { self.prng.between(SECOND, 3 * SECOND) } else { self.prng.between(MS, 300 * MS) };
            let pool = &mut self.processes[process].pools[budget];
            let next = pool.conns.iter_mut().find(|conn| conn.state == ConnState::Busy { is_ending: false });
            let Some(conn) = next else { return };
            conn.state = ConnState::Busy { is_ending: true };
            let conn = conn.key;
            self.queue.push(self.now_us + for_us, Action::Released { process, budget, conn });
        }
    }

    pub(crate) fn opened(&mut self, process: usize, budget: usize, key: u32) {
        let clock_us = self.clock_us(process);
        let Some(conn) = self.processes[process].conn(budget, key).copied() else { return };
        let pool = &mut self.processes[process].pools[budget];
        if clock_us > conn.since_us + LONG_LOGIN_US && pool.open() > pool.allowed(clock_us) {
            pool.conns.retain(|conn| conn.key != key);
        } else {
            let pid = self.postgres.open(Owned { budget, process: Some(process) }, &mut self.prng);
            if let Some(conn) = self.processes[process].conn(budget, key) {
                (conn.pid, conn.state, conn.since_us) = (Some(pid), ConnState::Idle, clock_us);
            }
            self.check_limit(budget);
        }
        self.step_pool(process, budget);
        self.idle_soon(process, budget);
    }

    /// Notes whether a process that may use a floor has begun without the store: see [`World::check_limit`].
    pub(crate) fn note_beginning(&mut self, process: usize, clock_us: u64) {
        let found = &mut self.processes[process];
        let is_alone = matches!(found.node.status(clock_us).state, fleet::NodeState::Alone { .. });
        found.began_alone |= !found.had_line && is_alone;
    }

    pub(crate) fn closed(&mut self, process: usize, budget: usize, key: u32) {
        let pool = &mut self.processes[process].pools[budget];
        let Some(at) = pool.conns.iter().position(|conn| conn.key == key) else { return };
        let conn = pool.conns.remove(at);
        if let Some(pid) = conn.pid {
            self.postgres.close(pid);
        }
        self.step_pool(process, budget);
    }

    pub(crate) fn released(&mut self, process: usize, budget: usize, key: u32) {
        let clock_us = self.clock_us(process);
        let Some(conn) = self.processes[process].conn(budget, key) else { return };
        if conn.state != (ConnState::Busy { is_ending: true }) {
            return;
        }
        (conn.state, conn.since_us) = (ConnState::Idle, clock_us);
        // What is too much is closed before another client gets it.
        self.close_excess(process, budget, clock_us);
        self.step_pool(process, budget);
        self.idle_soon(process, budget);
    }

    fn idle_soon(&mut self, process: usize, budget: usize) {
        let pool = &self.processes[process].pools[budget];
        if pool.conns.iter().any(|conn| conn.state == ConnState::Idle) {
            let at_us = self.now_us + self.prng.between(500 * MS, 2 * SECOND);
            self.queue.push(at_us, Action::IdleCheck { process, budget });
        }
    }

    /// Closes connections that have been idle for long.
    pub(crate) fn idle_check(&mut self, process: usize, budget: usize) {
        let clock_us = self.clock_us(process);
        let is_old = |conn: &&Conn| conn.state == ConnState::Idle && conn.since_us + 400 * MS <= clock_us;
        let old: Vec<u32> =
            self.processes[process].pools[budget].conns.iter().filter(is_old).map(|conn| conn.key).collect();
        for key in old {
            self.close(process, budget, key);
        }
        self.usage_due(process);
    }

    /// The usage is read soon.
    pub(crate) fn usage_due(&mut self, process: usize) {
        let found = &mut self.processes[process];
        if found.is_usage_due || found.pools.iter().all(|pool| pool.usage() == pool.reported) {
            return;
        }
        found.is_usage_due = true;
        let at_us = self.now_us + self.prng.between(MS, 40 * MS);
        self.queue.push(at_us, Action::ReadUsage { process });
    }

    pub(crate) fn read_usage(&mut self, process: usize) {
        let pools = &mut self.processes[process].pools;
        let mut usages = Vec::new();
        for (budget, pool) in pools.iter_mut().enumerate() {
            let usage = pool.usage();
            if usage != pool.reported {
                pool.reported = usage;
                usages.push((budget, usage));
            }
        }
        let at_us = self.now_us + self.prng.between(0, self.scenario.usage_us);
        self.queue.push(at_us, Action::GiveUsage { process, usages });
    }

    pub(crate) fn give_usage(&mut self, process: usize, usages: Vec<(usize, fleet::Usage)>) {
        let clock_us = self.clock_us(process);
        let found = &mut self.processes[process];
        found.is_usage_due = false;
        for (budget, usage) in usages {
            found.node.set_usage(&found.pools[budget].name, usage, clock_us);
        }
        self.pump(process);
        self.usage_due(process);
    }

    /// The number of clients changes.
    pub(crate) fn demand(&mut self, number: usize, budget: usize, clients: u32) {
        self.demand[number][budget] = clients;
        let is_it =
            |process: &crate::process::Process| process.number == number && process.state != State::Gone;
        let Some(process) = self.processes.iter().position(is_it) else { return };
        if !self.processes[process].is_leaving {
            self.processes[process].shared_pools.is_change_due |= clients % 3 == 1;
            let has_pools = self.has_pools[number][budget];
            self.processes[process].pools[budget].demand = if has_pools { clients } else { 0 };
            self.step_pool(process, budget);
        }
    }
}
