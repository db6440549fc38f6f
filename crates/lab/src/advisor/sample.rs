//! A made-up experiment for tests of the advisor and of the report: two workloads of which the truth is known, direct and
//! through a pool, with an open loop, a refused point and names that must be escaped.

use std::collections::BTreeMap;

use crate::advisor::usl::Usl;
use crate::interval::SplitMix;
use crate::record::{
    Database, Ended, Experiment, ExperimentKind, FORMAT, Generator, Latency, MachineRecord, Offered,
    Percentiles, Plan, Point, RawKind, RawLog, Run, Script, Second, ServerRecord, Spending, TargetKind,
    TargetRecord, WarningKind, WorkloadRecord,
};

const SIZES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const ROUNDS: u32 = 5;
const CLIENTS: u32 = 150;

/// The experiment.
pub(crate) fn experiment() -> Experiment {
    let mut experiment = scene();
    let mut random = SplitMix(11);
    let writes = Usl { lambda: 1000.0, sigma: 0.3, kappa: 0.006 };
    let reads = Usl { lambda: 12_000.0, sigma: 0.35, kappa: 0.03 };
    for (workload, law) in [("writes", writes), ("reads", reads)] {
        let direct = Point { target: "direct".into(), pool_size: None, ..point(workload) };
        let refused = Ended::Refused("FATAL:  sorry, too many <clients> already".into());
        let runs =
            (0..ROUNDS).map(|round| Run { round, refused: 53, ended: refused.clone(), ..Run::default() });
        experiment.points.push(Point { runs: runs.collect(), ..direct });
        for size in SIZES {
            let runs = (0..ROUNDS).map(|round| run(law.tps(f64::from(size)), round, &mut random)).collect();
            experiment.points.push(Point { pool_size: Some(size), runs, ..point(workload) });
        }
        let peak = law.highest(1.0, 64.0);
        for percent in [50.0, 70.0, 80.0, 90.0] {
            let offered = Offered { tps: peak * percent / 100.0, percent_of_peak: percent };
            let run = |round| Run {
                latency_us: Some(latency(2000.0 / (1.0 - percent / 100.0))),
                ..run(offered.tps, round, &mut SplitMix(u64::from(round)))
            };
            let runs = (0..ROUNDS).map(run).collect();
            experiment.points.push(Point {
                pool_size: Some(8),
                offered: Some(offered),
                runs,
                ..point(workload)
            });
        }
    }
    experiment
}

fn point(workload: &str) -> Point {
    Point { target: "weir".into(), workload: workload.into(), clients: CLIENTS, ..Point::default() }
}

fn run(tps: f64, round: u32, random: &mut SplitMix) -> Run {
    let mut noisy = |part: f64| tps * (1.0 + part * (random.below(2001) as f64 / 1000.0 - 1.0));
    let per_second = (1..=12).map(|second| Second {
        at_s: f64::from(second),
        warm_up: second <= 2,
        tps: noisy(0.1) * if second <= 2 { 0.6 } else { 1.0 },
        mean_ms: Some(5.0),
        failed: 0,
    });
    Run {
        per_second: per_second.collect(),
        round,
        seconds: 10.0,
        tps: noisy(0.01),
        transactions: 10_000,
        latency_us: Some(latency(f64::from(CLIENTS) / tps * 1e6)),
        sampling: 1.0,
        cpu_us: Spending { server: Some(8e6), pooler: Some(1e6), generator: Some(2e6), machine: Some(12e6) },
        raw: vec![RawLog {
            path: format!("raw/{round}/transactions.1"),
            kind: RawKind::Transactions,
            bytes: 9,
        }],
        ..Run::default()
    }
}

fn latency(mean: f64) -> Latency {
    let percentiles =
        Percentiles { p50: mean * 0.8, p90: mean * 1.8, p95: mean * 2.4, p99: mean * 4.0, p999: mean * 7.0 };
    Latency { count: 10_000, mean, max: mean * 9.0, percentiles: Some(percentiles) }
}

fn machine() -> MachineRecord {
    MachineRecord {
        processor: "Sample CPU".into(),
        cores: 2,
        memory_mib: 24_000,
        kernel: "6.18".into(),
        system: "Debian 12".into(),
        load_before: 0.3,
    }
}

fn scene() -> Experiment {
    let settings = [("max_connections", "100"), ("superuser_reserved_connections", "3"), ("fsync", "on")];
    let target = |name: &str, kind| TargetRecord { name: name.into(), kind, ..TargetRecord::default() };
    let script = Script {
        name: "a <b>.sql".into(),
        weight: 1,
        text: "SELECT '<script>alert(1)</script>';\n".into(),
        ..Script::default()
    };
    let mut experiment = Experiment {
        format: FORMAT,
        question: ExperimentKind::Sweep,
        command: ["weir-bench", "sweep", "--workload", "it's & <mine>"].map(str::to_owned).into(),
        weir: "0.1.0".into(),
        began: "2026-11-21T21:30:00Z".into(),
        took_s: 754.0,
        machine: machine(),
        server: ServerRecord {
            version: "15.20".into(),
            embedded: true,
            same_machine: true,
            place: "127.0.0.1:5432/bench".into(),
            settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            standbys: Vec::new(),
            others: 0,
            database: Database { bytes: 800_000_000, scale: Some(50), made: true },
        },
        targets: vec![target("direct", TargetKind::Direct), target("weir", TargetKind::Started)],
        workloads: vec![
            WorkloadRecord {
                name: "writes".into(),
                what: "TPC-B".into(),
                scripts: vec![script],
                ..Default::default()
            },
            WorkloadRecord { name: "reads".into(), what: "one row by its key".into(), ..Default::default() },
        ],
        generator: Generator {
            name: "pgbench".into(),
            version: "pgbench (PostgreSQL) 15.20".into(),
            threads: 2,
        },
        plan: Plan {
            warm_up_s: 2,
            seconds: 10,
            rounds: ROUNDS,
            seed: 7,
            pool_sizes: SIZES.into(),
            clients: vec![CLIENTS],
            query_mode: "simple".into(),
            ..Plan::default()
        },
        complete: true,
        ..Experiment::default()
    };
    experiment.points = Vec::new();
    experiment.warn(WarningKind::SharedMachine, "generator, server and pooler shared 2 CPUs");
    let errors: BTreeMap<String, u64> = [("server closed the <connection>".to_owned(), 2)].into();
    experiment.points.push(Point {
        target: "direct".into(),
        clients: 50,
        runs: vec![Run { errors, failed: 2, ..run(2000.0, 0, &mut SplitMix(3)) }],
        ..point("writes")
    });
    experiment
}
