//! Rows that pgbench makes: closed loops, connections, and fixed rates.

use crate::full::Bench;
use crate::full::account::{Cost, accounted};
use crate::full::rows::{Row, Work};
use crate::full::sample::Sample;
use crate::full::subjects::{BASE, Contender};
use crate::full::work::Label;
use lab::error::Result;
use lab::figures::whole;
use lab::pgbench::{Load, Outcome, Workload};
use lab::screen::Screen;

/// How a row's load is run this time.
#[derive(Clone, Copy, Debug)]
pub(in crate::full) struct Pace {
    pub(in crate::full) seconds: u32,
    /// Only so that connections are there and caches are warm.
    pub(in crate::full) is_warm_up: bool,
    /// What the base can at most, in transactions per second.
    pub(in crate::full) peak: Option<f64>,
    /// Whether latencies are measured and logs kept.
    pub(in crate::full) is_kept: bool,
}

/// Runs a row's pgbench once.
pub(in crate::full) fn pgbench(
    bench: &Bench<'_>,
    row: &Row,
    contender: &Contender,
    pace: &Pace,
    label: &Label,
    screen: &mut Screen,
) -> Result<Sample> {
    let Some(load) = load(bench, row, contender, pace) else { return Ok(Sample::default()) };
    run(bench, contender, load, label, pace.is_kept, screen)
}

/// Runs a load, keeps its logs where wanted, and makes a sample of it.
pub(super) fn run(
    bench: &Bench<'_>,
    contender: &Contender,
    mut load: Load,
    label: &Label,
    is_kept: bool,
    screen: &mut Screen,
) -> Result<Sample> {
    let directory = label.file("pgbench");
    load.keep = is_kept.then(|| bench.out.join(&directory));
    let seconds = f64::from(load.seconds);
    let name = &contender.name;
    let (measured, cost) = accounted(contender.leader(), || {
        bench.lab.measure(&contender.target, &load, None, &mut |now| {
            screen.progress(now.at_s / seconds, &format!("{name} {} TPS", whole(now.tps)));
        })
    })?;
    screen.close();
    let mut sample = sample(&measured.outcome, cost);
    if is_kept {
        sample.logs = measured.outcome.files.iter().map(|file| directory.join(file)).collect();
    }
    Ok(sample)
}

fn load(bench: &Bench<'_>, row: &Row, contender: &Contender, pace: &Pace) -> Option<Load> {
    let seconds = pace.seconds;
    let fitting = |clients: u32| clients.min(bench.sizes.most_clients);
    let sampling = |part: f64| if pace.is_kept { part } else { 0.0 };
    match row.work {
        Work::Pgbench(closed) => {
            let is_base = contender.name == BASE;
            let clients = fitting(closed.clients);
            Some(Load {
                workload: closed.workload,
                clients,
                seconds: if pace.is_warm_up { seconds } else { bench.sizes.seconds_for(clients) },
                sampling: sampling(if closed.workload == Workload::SelectOnly { 0.1 } else { 1.0 }),
                query_mode: if is_base { closed.base_query_mode } else { closed.query_mode }.to_owned(),
                reconnect: closed.reconnect,
                ..Load::default()
            })
        }
        Work::Rate { clients, part_of_peak } => Some(Load {
            workload: Workload::SelectOnly,
            clients: fitting(clients),
            seconds,
            sampling: sampling(0.25),
            query_mode: "simple".to_owned(),
            rate_tps: Some((pace.peak? * part_of_peak).max(1.0)),
            ..Load::default()
        }),
        _ => None,
    }
}

fn sample(outcome: &Outcome, cost: Cost) -> Sample {
    let summary = outcome.summary.as_ref().filter(|summary| summary.transactions > 0);
    Sample {
        units: summary.map_or(0.0, |summary| summary.transactions as f64),
        rate: summary.map(|summary| summary.tps),
        mean_ms: summary.and_then(|summary| summary.latency_average_ms),
        p50_ms: outcome.latency_us.map(|latency| latency.p50 / 1000.0),
        p99_ms: outcome.latency_us.map(|latency| latency.p99 / 1000.0),
        cost,
        complaints: outcome.complaints.clone(),
        ..Sample::default()
    }
}
