//! The run of a seed: all that there is, and what happens in it.

use std::collections::BTreeSet;

use fleet::{Division, ExternalUsage, Node, NodeConfig, SessionId};

use crate::clock::Clock;
use crate::fault::Fault;
use crate::faults::schedule;
use crate::pool_changes::{ProcessPools, SaidOfChanges};
use crate::postgres::Postgres;
use crate::prng::Prng;
use crate::process::{ConnState, Pool, Process, State};
use crate::queue::{Action, Queue};
use crate::scenario::{MS, SECOND, Scenario};
use crate::stage::{Stage, Violation};
use crate::store::Store;
use crate::watcher::Watcher;

/// Percent of messages that take much longer than others, up to the end of the faults.
const LATE: u64 = 3;
/// No run has more.
const MOST_ACTIONS: u64 = 200_000;

/// What came of a seed.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Of all that happened: two runs of a seed have the same.
    pub hash: u64,
    /// Actions.
    pub actions: u64,
    /// Writes of objects.
    pub writes: u64,
    /// Microseconds of the run's time.
    pub took_us: u64,
    /// What was broken, if anything.
    pub violation: Option<Violation>,
    /// What happened, if that was asked for.
    pub lines: Vec<String>,
}

/// See the module's head.
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) prng: Prng,
    pub(crate) queue: Queue,
    pub(crate) now_us: u64,
    pub(crate) processes: Vec<Process>,
    pub(crate) store: Store,
    pub(crate) store_clock: Clock,
    pub(crate) watchers: Vec<Watcher>,
    pub(crate) postgres: Postgres,
    /// By node: the store cannot be reached.
    pub(crate) cut: Vec<bool>,
    pub(crate) is_store_down: bool,
    pub(crate) is_unlistable: bool,
    pub(crate) lossy: u64,
    /// Percent of messages that take much longer than others.
    pub(crate) late: u64,
    /// Clients, by node and budget.
    pub(crate) demand: Vec<Vec<u32>>,
    /// Limits, by node and budget.
    limits: Vec<Vec<u32>>,
    /// Whether the node has pools that count in the budget, by node and budget.
    pub(crate) has_pools: Vec<Vec<bool>>,
    /// The largest parts of each budget by any configuration.
    pub(crate) most: Vec<Division>,
    clocks: Vec<Clock>,
    /// By node: how often it has got another name.
    names: Vec<u32>,
    pub(crate) stage: Stage,
    pub(crate) violation: Option<Violation>,
    pub(crate) last_write_us: u64,
    /// Processes that have had a connection of a budget since the last fault, where nodes take turns.
    pub(crate) had_turn: BTreeSet<(usize, usize)>,
    pub(crate) said_of_changes: SaidOfChanges,
    lines: Option<Vec<String>>,
}

/// Runs a seed; `keep_lines`: says what happens.
#[must_use]
pub fn run(seed: u64, keep_lines: bool) -> Report {
    let mut world = World::new(seed, keep_lines);
    let (mut actions, mut hash) = (0, seed);
    while world.violation.is_none() && world.stage != Stage::Over && actions < MOST_ACTIONS {
        let Some((at_us, action)) = world.queue.pop() else { break };
        world.now_us = at_us;
        actions += 1;
        hash = (hash ^ at_us).wrapping_mul(0x0100_0000_01b3);
        world.act(action);
    }
    if world.violation.is_none() && world.stage != Stage::Over {
        world.violation = Some(Violation::Unserved(format!("not at an end after {actions} actions")));
    }
    Report {
        seed,
        hash,
        actions,
        writes: world.store.writes,
        took_us: world.now_us,
        violation: world.violation,
        lines: world.lines.unwrap_or_default(),
    }
}

impl World {
    fn new(seed: u64, keep_lines: bool) -> World {
        let mut prng = Prng::new(seed);
        let scenario = Scenario::of(&mut prng);
        let processes = scenario.nodes + usize::from(scenario.has_double);
        let mut clock = || Clock {
            offset_us: prng.between(0, 100 * SECOND),
            ppm: prng.below(10_001).cast_signed() - 5_000,
        };
        let clocks = (0..processes).map(|_| clock()).collect();
        let store_clock = clock();
        let mut queue = Queue::default();
        schedule(&scenario, &mut prng, &mut queue);
        let limits: Vec<u32> = scenario.budgets.iter().map(|(_, limit)| *limit).collect();
        let most = (0..scenario.budgets.len()).map(|budget| scenario.division(budget)).collect();
        let mut world = World {
            prng,
            queue,
            now_us: 0,
            processes: Vec::new(),
            store: Store::default(),
            store_clock,
            watchers: Vec::new(),
            postgres: Postgres::new(),
            cut: vec![false; processes],
            is_store_down: false,
            is_unlistable: false,
            lossy: scenario.lossy,
            late: LATE,
            demand: vec![vec![0; limits.len()]; processes],
            has_pools: vec![vec![true; limits.len()]; processes],
            limits: vec![limits; processes],
            most,
            clocks,
            names: vec![0; processes],
            stage: Stage::Chaos,
            had_turn: BTreeSet::new(),
            said_of_changes: SaidOfChanges::default(),
            violation: None,
            last_write_us: 0,
            lines: keep_lines.then(Vec::new),
            scenario,
        };
        let shown = if keep_lines { format!("{:?}", world.scenario) } else { String::new() };
        world.note(|| shown);
        (0..processes).for_each(|number| world.start(number));
        world
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>10} {}", self.now_us, line()));
        }
    }

    fn act(&mut self, action: Action) {
        if self.lines.is_some() && !matches!(action, Action::Wake { .. } | Action::Check) {
            let shown = format!("{action:?}");
            self.note(|| shown);
        }
        match action {
            Action::AtStore { process, request, answer } => self.at_store(process, request, answer),
            Action::AtPostgres { process, call, budgets } => self.at_postgres(process, call, &budgets),
            Action::ForeignEnds { pid } => self.postgres.close(pid),
            Action::LeaseCheck { id } => self.lease_check(&id),
            Action::Demand { node, budget, clients } => self.demand(node, budget, clients),
            Action::Fault(fault) => self.fault(fault),
            Action::Exit { process } => self.exit(process, false),
            Action::Heal => self.heal(),
            Action::Check => self.check(),
            other => self.in_process(other),
        }
    }

    /// What happens in a process, unless it is stopped or gone.
    fn in_process(&mut self, action: Action) {
        let process = match &action {
            Action::Wake { process, .. }
            | Action::ToNode { process, .. }
            | Action::ReadUsage { process }
            | Action::GiveUsage { process, .. }
            | Action::GiveBackends { process, .. }
            | Action::Opened { process, .. }
            | Action::Closed { process, .. }
            | Action::Released { process, .. }
            | Action::IdleCheck { process, .. } => *process,
            _ => return,
        };
        let found = &mut self.processes[process];
        match (found.state, &action) {
            (State::Running, _) => self.do_in_process(process, action),
            (State::Stopped, Action::Wake { .. }) => {}
            (State::Stopped, _) => found.held.push(action),
            // The query of a killed process is over.
            (State::Gone, Action::Closed { budget, conn, .. }) => self.closed(process, *budget, *conn),
            (State::Gone, _) => {}
        }
    }

    fn do_in_process(&mut self, process: usize, action: Action) {
        let clock_us = self.processes[process].clock.shows(self.now_us);
        match action {
            Action::Wake { turn, .. } if turn != self.processes[process].turn => {}
            Action::Wake { .. } => {
                self.processes[process].wake_us = u64::MAX;
                self.pump(process);
            }
            Action::ToNode { event, .. } => {
                self.processes[process].node.handle(event, clock_us);
                self.pump(process);
            }
            Action::GiveBackends { audit, backends, .. } => {
                self.processes[process].node.set_own_backends(audit, &backends, clock_us);
                self.pump(process);
            }
            Action::ReadUsage { .. } => self.read_usage(process),
            Action::GiveUsage { usages, .. } => self.give_usage(process, usages),
            Action::Opened { budget, conn, .. } => self.opened(process, budget, conn),
            Action::Closed { budget, conn, .. } => self.closed(process, budget, conn),
            Action::Released { budget, conn, .. } => self.released(process, budget, conn),
            Action::IdleCheck { budget, .. } => self.idle_check(process, budget),
            _ => {}
        }
    }

    /// What a node's caller does after each call.
    pub(crate) fn pump(&mut self, process: usize) {
        let clock_us = self.processes[process].clock.shows(self.now_us);
        self.processes[process].exchange_usage(clock_us);
        self.exchange_pools(process, clock_us);
        while let Some(request) = self.processes[process].node.poll(clock_us) {
            self.note(|| format!("process {process}: {request:?}"));
            self.send(process, request);
        }
        let until_us = self.processes[process].node.sure_until_us();
        self.processes[process].pools.iter_mut().for_each(|pool| pool.allowance.until_us = until_us);
        while let Some((name, allowance)) = self.processes[process].node.next_allowance() {
            self.note(|| format!("process {process}: {allowance:?}"));
            let pools = &mut self.processes[process].pools;
            if let Some(budget) = pools.iter().position(|pool| pool.name == name) {
                pools[budget].allowance = allowance;
                if allowance.floor > 0 {
                    self.note_beginning(process, clock_us);
                }
                self.step_pool(process, budget);
            }
        }
        let _ = self.processes[process].node.next_peer_numbers(clock_us);
        self.answer_question(process, clock_us);
        let found = &mut self.processes[process];
        let due_us =
            found.node.deadline_us().map_or(u64::MAX, |due_us| found.clock.reaches(due_us).max(self.now_us));
        if due_us != found.wake_us {
            found.wake_us = due_us;
            found.turn += 1;
            let turn = found.turn;
            if due_us != u64::MAX {
                self.queue.push(due_us, Action::Wake { process, turn });
            }
        }
        self.check_number(process);
        if self.processes[process].is_leaving {
            self.look_whether_left(process, clock_us);
        }
    }

    fn answer_question(&mut self, process: usize, clock_us: u64) {
        let Some(question) = self.processes[process].node.backends_question(clock_us) else { return };
        let pools = self.processes[process].pools.iter().filter(|pool| !question.except.contains(&pool.name));
        let pids = pools.flat_map(|pool| pool.conns.iter()).filter_map(|conn| conn.pid);
        let backends = pids.map(|pid| self.postgres.backend(pid)).collect();
        let at_us = self.now_us + self.prng.between(0, 50 * MS);
        self.queue.push(at_us, Action::GiveBackends { process, audit: question.audit, backends });
    }

    fn config(&self, number: usize) -> NodeConfig {
        let id = if number < self.scenario.nodes { number } else { 0 };
        let name = match self.names[number] {
            0 => format!("n{id}"),
            times => format!("n{id}-{times}"),
        };
        NodeConfig {
            id: name.into(),
            address: String::new(),
            version: String::new(),
            started_s: 0,
            nodes: self.scenario.configured,
            min_servers: self.scenario.min_servers,
        }
    }

    fn budgets(&self, number: usize) -> Vec<(fleet::BudgetName, u32)> {
        let names = self.scenario.budgets.iter().map(|(name, _)| name.clone());
        let budgets = names.zip(self.limits[number].iter().copied()).zip(&self.has_pools[number]);
        budgets.filter(|(_, has)| **has).map(|(budget, _)| budget).collect()
    }

    /// The process of a node, if one runs.
    fn process_of(&self, number: usize) -> Option<usize> {
        self.processes.iter().position(|process| process.number == number && process.state != State::Gone)
    }

    fn start(&mut self, number: usize) {
        if let Some(process) = self.process_of(number) {
            if !self.processes[process].is_leaving {
                return;
            }
            self.exit(process, false);
        }
        let session = SessionId(self.prng.next());
        let clock_us = self.clocks[number].shows(self.now_us);
        let node = Node::new(self.config(number), session, clock_us);
        let process = self.add(number, node);
        self.pump(process);
    }

    fn add(&mut self, number: usize, mut node: Node) -> usize {
        let clock = self.clocks[number];
        node.set_budgets(&self.budgets(number), clock.shows(self.now_us));
        node.set_most_peer_names(self.scenario.peer_names);
        let pools = self.scenario.budgets.iter().enumerate().map(|(budget, (name, _))| {
            let mut pool = Pool::new(name.clone());
            pool.demand = if self.has_pools[number][budget] { self.demand[number][budget] } else { 0 };
            pool
        });
        let process = Process {
            id: self.config(number).id,
            number,
            node,
            state: State::Running,
            clock,
            pools: pools.collect(),
            held: Vec::new(),
            turn: 0,
            wake_us: u64::MAX,
            is_usage_due: false,
            is_leaving: false,
            external: ExternalUsage::new(),
            shared_pools: ProcessPools::default(),
            had_line: false,
            began_alone: false,
        };
        self.processes.push(process);
        self.processes.len() - 1
    }

    fn look_whether_left(&mut self, process: usize, clock_us: u64) {
        if self.processes[process].node.status(clock_us).state == fleet::NodeState::Left {
            self.exit(process, false);
        }
    }

    /// The process ends, killed or by itself; queries that it runs may go on for a while, and if its machine `is_lost`, so do idle connections.
    fn exit(&mut self, process: usize, is_lost: bool) {
        if self.processes[process].state == State::Gone {
            return;
        }
        self.processes[process].state = State::Gone;
        self.drop_watch(process);
        let last_us = (self.scenario.chaos_us + SECOND).max(self.now_us + 1);
        for budget in 0..self.scenario.budgets.len() {
            let conns = std::mem::take(&mut self.processes[process].pools[budget].conns);
            for conn in conns {
                let Some(pid) = conn.pid else { continue };
                let is_busy = matches!(conn.state, ConnState::Busy { .. });
                if (is_busy || is_lost) && self.scenario.has_survivors && self.prng.percent(60) {
                    let most_us = if self.prng.percent(70) { 3 * SECOND } else { 15 * SECOND };
                    let at_us = (self.now_us + self.prng.between(1, most_us)).min(last_us);
                    self.processes[process].pools[budget].conns.push(conn);
                    self.queue.push(at_us, Action::Closed { process, budget, conn: conn.key });
                } else {
                    self.postgres.close(pid);
                }
            }
        }
    }

    fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Cut { node, is_cut } => {
                self.cut[node] = is_cut;
                if let Some(process) = self.process_of(node).filter(|_| is_cut) {
                    self.break_watch(process, 3 * SECOND);
                }
            }
            Fault::StoreDown { is_down } => {
                self.is_store_down = is_down;
                for process in (0..self.processes.len()).filter(|_| is_down) {
                    self.break_watch(process, 3 * SECOND);
                }
            }
            Fault::WatchLost { node } => self.break_watch_of(node, 10 * MS),
            Fault::WatchStalls { node } => self.break_watch_of(node, 6 * SECOND),
            Fault::Limit { node, budget, limit } => self.set_limit(node, budget, limit),
            Fault::Pools { node, budget, has } => self.set_pools(node, budget, has),
            Fault::Foreign { budget, for_us } => self.open_foreign(budget, for_us),
            Fault::Unlistable { is_on } => self.is_unlistable = is_on,
            Fault::Stop { node } => {
                if let Some(process) = self.process_of(node) {
                    self.processes[process].state = State::Stopped;
                }
            }
            Fault::Continue { node } => self.go_on(node),
            Fault::Kill { node, is_lost } => {
                if let Some(process) = self.process_of(node) {
                    self.exit(process, is_lost);
                }
            }
            Fault::Start { node } => self.start(node),
            Fault::StartRenamed { node } => {
                if self.process_of(node).is_none() {
                    self.names[node] += 1;
                    self.start(node);
                }
            }
            Fault::TakeOver { node } => self.take_over(node),
            Fault::Leave { node } => self.leave(node),
        }
    }

    fn break_watch_of(&mut self, node: usize, within_us: u64) {
        if let Some(process) = self.process_of(node) {
            self.break_watch(process, within_us);
        }
    }

    fn set_limit(&mut self, number: usize, budget: usize, limit: u32) {
        self.limits[number][budget] = limit;
        let division = Division::new(limit, self.scenario.configured, self.scenario.min_servers);
        let most = &mut self.most[budget];
        most.floor = most.floor.max(division.floor);
        most.shared = most.shared.max(division.shared);
        self.reload(number);
    }

    fn set_pools(&mut self, number: usize, budget: usize, has: bool) {
        self.has_pools[number][budget] = has;
        self.reload(number);
        self.demand(number, budget, self.demand[number][budget]);
    }

    fn reload(&mut self, number: usize) {
        if let Some(process) = self.process_of(number) {
            let budgets = self.budgets(number);
            let clock_us = self.processes[process].clock.shows(self.now_us);
            self.processes[process].node.set_budgets(&budgets, clock_us);
            if self.is_running(process) {
                self.pump(process);
            }
        }
    }

    /// A stopped process goes on: its pools or its node first, as it happens.
    fn go_on(&mut self, number: usize) {
        let Some(process) = self.process_of(number) else { return };
        if self.processes[process].state != State::Stopped {
            return;
        }
        self.processes[process].state = State::Running;
        if self.prng.percent(70) {
            (0..self.scenario.budgets.len()).for_each(|budget| self.step_pool(process, budget));
        }
        for action in std::mem::take(&mut self.processes[process].held) {
            self.in_process(action);
        }
        self.pump(process);
    }

    /// `-R`: another process goes on with the connections and the session.
    fn take_over(&mut self, number: usize) {
        let Some(process) = self.process_of(number).filter(|process| self.is_running(*process)) else {
            return;
        };
        if self.processes[process].is_leaving {
            return;
        }
        let clock_us = self.clocks[number].shows(self.now_us);
        let from = self.processes[process].node.hand_over();
        self.processes[process].state = State::Gone;
        self.drop_watch(process);
        let node = Node::resume(self.config(number), from, clock_us);
        let conns: Vec<Vec<_>> =
            self.processes[process].pools.iter_mut().map(|pool| std::mem::take(&mut pool.conns)).collect();
        let had_line = self.processes[process].had_line;
        let heir = self.add(number, node);
        self.processes[heir].had_line = had_line;
        for (budget, conns) in conns.into_iter().enumerate() {
            for mut conn in conns {
                let Some(pid) = conn.pid else { continue };
                self.postgres.give(pid, heir);
                let pool = &mut self.processes[heir].pools[budget];
                conn.key = pool.next_key;
                pool.next_key += 1;
                if conn.state == ConnState::Closing {
                    self.queue
                        .push(self.now_us + MS, Action::Closed { process: heir, budget, conn: conn.key });
                } else {
                    conn.state = ConnState::Busy { is_ending: false };
                }
                self.processes[heir].pools[budget].conns.push(conn);
            }
        }
        self.pump(heir);
    }

    fn leave(&mut self, number: usize) {
        let Some(process) = self.process_of(number).filter(|process| self.is_running(*process)) else {
            return;
        };
        self.processes[process].is_leaving = true;
        let clock_us = self.processes[process].clock.shows(self.now_us);
        self.processes[process].node.leave(clock_us);
        for budget in 0..self.scenario.budgets.len() {
            self.processes[process].pools[budget].demand = 0;
            self.step_pool(process, budget);
        }
        self.queue.push(self.now_us + 6 * SECOND, Action::Exit { process });
        self.pump(process);
    }

    /// Faults are over; what is left of them ends soon.
    fn heal(&mut self) {
        self.cut.iter_mut().for_each(|is_cut| *is_cut = false);
        self.is_store_down = false;
        self.is_unlistable = false;
        (self.lossy, self.late) = (0, 0);
        // Two processes with one id are a fault, too.
        if let Some(double) = self.process_of(self.scenario.nodes) {
            self.exit(double, false);
        }
        for number in 0..self.scenario.nodes {
            for budget in 0..self.scenario.budgets.len() {
                self.set_limit(number, budget, self.scenario.budgets[budget].1);
                self.set_pools(number, budget, true);
            }
            self.go_on(number);
            let is_last = number + 1 == self.scenario.nodes && !self.processes.iter().any(Process::stays);
            let is_up = self.process_of(number).is_some_and(|process| self.processes[process].stays());
            if !is_up && (is_last || self.prng.percent(50)) {
                self.start(number);
            }
            for budget in 0..self.scenario.budgets.len() {
                let clients = self.prng.small(0, self.scenario.budgets[budget].1 + 2);
                self.demand(number, budget, clients);
            }
        }
        let since_us = self.now_us;
        self.stage = Stage::Served { since_us, good_us: None };
        self.queue.push(since_us, Action::Check);
    }
}
