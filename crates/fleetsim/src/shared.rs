//! What nodes tell each other that they use of limits without slots: the clients of each budget stand for such a limit.

use fleet::{ExternalUsage, SharedUsage, UsageFigure, UsageKind, UsageName};

use crate::process::{Process, State};
use crate::world::World;

fn name(budget: usize) -> UsageName {
    UsageName { kind: UsageKind::User, name: format!("budget {budget}\n").into(), period_s: (0, 0) }
}

impl Process {
    /// Tells the node what is used, and takes what others use.
    pub(crate) fn exchange_usage(&mut self, clock_us: u64) {
        let figures = self.pools.iter().enumerate().map(|(budget, pool)| UsageFigure {
            name: name(budget),
            amount: pool.demand.into(),
            limit: 1_000,
        });
        let usage =
            SharedUsage { clients: true, quotas: false, figures: figures.collect(), left_out: 0, wall_s: 1 };
        self.node.set_shared_usage(usage, clock_us);
        if let Some(external) = self.node.next_external_usage(clock_us) {
            self.external = external;
        }
    }
}

/// What a process uses of each budget that is used.
fn used(process: &Process) -> impl Iterator<Item = (UsageName, u64)> {
    let pools = process.pools.iter().enumerate().filter(|(_, pool)| pool.demand > 0);
    pools.map(|(budget, pool)| (name(budget), pool.demand.into()))
}

impl World {
    /// What a process believes of the others, and should not.
    pub(crate) fn mistaken(&self, running: &[usize]) -> Option<String> {
        running.iter().find_map(|at| {
            let others = self.processes.iter().enumerate();
            let others = others.filter(|(other, process)| other != at && process.state == State::Running);
            let mut expected = ExternalUsage::new();
            for (name, amount) in others.flat_map(|(_, process)| used(process)) {
                *expected.entry(name).or_default() += amount;
            }
            let found = &self.processes[*at].external;
            (*found != expected)
                .then(|| format!("process {at} believes that others use {found:?}, not {expected:?}"))
        })
    }
}
