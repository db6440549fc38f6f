//! The interleaved series: for each load, round after round, every subject has one run, each round in another
//! order, so that drift of the machine meets all alike.

use crate::compare::Options;
use crate::compare::subjects::Contender;
use lab::error::Result;
use lab::figures::{or_dash, short, whole};
use lab::laboratory::{Lab, Measured};
use lab::pgbench::{Load, Workload};
use lab::screen::Screen;

/// Seconds of each load for each subject before its first round: server connections and caches. PostgreSQL alone
/// may need one of them to let 500 clients in.
const WARM_UP_SECONDS: u32 = 2;

/// All runs of one load.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) workload: Workload,
    pub(super) clients: u32,
    /// The runs of each subject, in the order of the subjects.
    pub(super) runs: Vec<Vec<Measured>>,
}

/// Runs everything that the options ask for.
pub(super) fn run(
    lab: &Lab,
    contenders: &[Contender],
    options: &Options,
    screen: &mut Screen,
) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    if options.repeats == 0 {
        return Ok(cells);
    }
    for workload in options.workloads.iter().map(|workload| Workload::from(*workload)) {
        for &clients in &options.clients {
            let load = Load {
                workload,
                clients,
                seconds: options.seconds,
                sampling: if workload == Workload::SelectOnly { 0.1 } else { 1.0 },
                query_mode: options.query_mode.clone(),
                ..Load::default()
            };
            screen.step(&format!("{}, {clients} clients", workload.name()));
            let runs = cell(lab, contenders, &load, options.repeats, screen)?;
            cells.push(Cell { workload, clients, runs });
        }
    }
    Ok(cells)
}

fn cell(
    lab: &Lab,
    contenders: &[Contender],
    load: &Load,
    repeats: u32,
    screen: &mut Screen,
) -> Result<Vec<Vec<Measured>>> {
    for contender in contenders {
        let warm_up = Load { seconds: WARM_UP_SECONDS, sampling: 0.0, ..load.clone() };
        lab.measure(&contender.target, &warm_up, None, &mut |_| {})?;
    }
    let mut runs = vec![Vec::new(); contenders.len()];
    for round in 0..repeats {
        for index in order(contenders.len(), round) {
            if load.workload == Workload::TpcB {
                lab.settle()?;
            }
            let contender = &contenders[index];
            let seconds = f64::from(load.seconds);
            let measured = lab.measure(&contender.target, load, contender.pooler.as_ref(), &mut |now| {
                screen.progress(now.at_s / seconds, &format!("{} {} TPS", contender.name, whole(now.tps)));
            })?;
            screen.remark(&said(&contender.name, round, &measured));
            runs[index].push(measured);
        }
    }
    Ok(runs)
}

fn said(name: &str, round: u32, measured: &Measured) -> String {
    let tps = or_dash(measured.tps(), whole);
    let pooler = or_dash(measured.pooler_us(), short);
    let complaint = measured.outcome.complaints.first().map(|line| format!("  {line}")).unwrap_or_default();
    format!("round {}  {name:14} {tps:>8} TPS  pooler {pooler:>5} µs{complaint}", round + 1)
}

/// The subjects' order in a round: each begins once, and every other round runs backwards.
pub(crate) fn order(count: usize, round: u32) -> Vec<usize> {
    let shift = usize::try_from(round).unwrap_or_default();
    let mut order: Vec<usize> = (0..count).map(|index| (index + shift) % count).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_every_subject_and_its_own_order() {
        assert_eq!(order(3, 0), [0, 1, 2]);
        assert_eq!(order(3, 1), [0, 2, 1]);
        assert_eq!(order(3, 2), [2, 0, 1]);
        for round in 0..10 {
            let mut sorted = order(4, round);
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        assert!(order(0, 1).is_empty());
    }
}
