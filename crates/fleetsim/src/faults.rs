//! Faults: which there are, and when they happen.

use crate::fault::Fault;
use crate::prng::Prng;
use crate::queue::{Action, Queue};
use crate::scenario::{MS, SECOND, Scenario};

/// Puts the faults and the demand of a run into the queue.
pub(crate) fn schedule(scenario: &Scenario, prng: &mut Prng, queue: &mut Queue) {
    for _ in 0..scenario.faults {
        let at_us = prng.between(0, scenario.chaos_us);
        let for_us =
            if prng.percent(60) { prng.between(1, 4 * SECOND) } else { prng.between(1, 14 * SECOND) };
        let node = prng.index(scenario.nodes);
        let mut fault = |at_us: u64, fault: Fault| {
            if at_us < scenario.chaos_us {
                queue.push(at_us, Action::Fault(fault));
            }
        };
        let end_us = at_us + for_us;
        match prng.below(17) {
            0..=2 => {
                fault(at_us, Fault::Cut { node, is_cut: true });
                fault(end_us, Fault::Cut { node, is_cut: false });
            }
            3 => {
                fault(at_us, Fault::StoreDown { is_down: true });
                fault(end_us, Fault::StoreDown { is_down: false });
            }
            4..=6 => {
                fault(at_us, Fault::Stop { node });
                fault(end_us, Fault::Continue { node });
            }
            7..=9 => {
                let is_lost = prng.percent(20);
                let end_us = if prng.percent(50) { at_us + prng.between(1, 300 * MS) } else { end_us };
                let is_renamed = scenario.has_renames && prng.percent(50);
                let start = if is_renamed { Fault::StartRenamed { node } } else { Fault::Start { node } };
                fault(at_us, Fault::Kill { node, is_lost });
                fault(end_us, start);
            }
            10 => fault(at_us, Fault::TakeOver { node }),
            11 => {
                fault(at_us, Fault::Leave { node });
                fault(end_us, Fault::Start { node });
            }
            12 => fault(at_us, Fault::WatchLost { node }),
            13 => fault(at_us, Fault::WatchStalls { node }),
            14 => {
                let budget = prng.index(scenario.budgets.len());
                fault(at_us, Fault::Foreign { budget, for_us });
            }
            15 => {
                let budget = prng.index(scenario.budgets.len());
                fault(at_us, Fault::Pools { node, budget, has: false });
                fault(end_us, Fault::Pools { node, budget, has: true });
            }
            _ => {
                fault(at_us, Fault::Unlistable { is_on: true });
                fault(end_us, Fault::Unlistable { is_on: false });
            }
        }
    }
    schedule_limits(scenario, prng, queue);
    schedule_demand(scenario, prng, queue);
    queue.push(scenario.chaos_us, Action::Heal);
}

fn schedule_limits(scenario: &Scenario, prng: &mut Prng, queue: &mut Queue) {
    if !scenario.has_limits {
        return;
    }
    let budget = prng.index(scenario.budgets.len());
    let other = prng.small(1, 40);
    for node in 0..scenario.nodes {
        if prng.percent(70) {
            let at_us = prng.between(0, scenario.chaos_us - 1);
            queue.push(at_us, Action::Fault(Fault::Limit { node, budget, limit: other }));
        }
    }
}

fn schedule_demand(scenario: &Scenario, prng: &mut Prng, queue: &mut Queue) {
    for budget in 0..scenario.budgets.len() {
        let limit = scenario.budgets[budget].1;
        for node in 0..scenario.nodes + usize::from(scenario.has_double) {
            let mut at_us = prng.between(0, 500 * MS);
            while at_us < scenario.chaos_us {
                let clients = match prng.below(4) {
                    0 => 0,
                    1 => prng.small(0, 3),
                    2 => prng.small(0, limit),
                    _ => prng.small(0, limit + 4),
                };
                queue.push(at_us, Action::Demand { node, budget, clients });
                at_us += prng.between(300 * MS, 8 * SECOND);
            }
        }
    }
}
