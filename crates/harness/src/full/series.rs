//! One row for all subjects: all are started, warmed up and then run in turn, round after round, each round in
//! another order, so that drift of the machine meets all alike. A subject that fails stays in the report with its reason.

use crate::compare::order;
use crate::full::Bench;
use crate::full::calls::{self, Calls};
use crate::full::rows::{Row, Work};
use crate::full::sample::{Figure, Sample};
use crate::full::subjects::{BASE, Contender, Subject};
use crate::full::work::{self, Label, Pace};
use lab::error::{LabError, Result};
use lab::figures::{or_dash, short};
use lab::pgbench::{Load, Workload};
use lab::screen::Screen;

/// Rounds of what hardly scatters.
const STEADY_ROUNDS: u32 = 3;

/// All that came of one row.
#[derive(Clone, Debug)]
pub(super) struct Results {
    pub(super) row: Row,
    pub(super) subjects: Vec<Runs>,
}

/// One subject's runs of a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    pub(super) name: String,
    /// Its version string.
    pub(super) version: String,
    /// One for each round; without figures where the run failed.
    pub(super) samples: Vec<Sample>,
    pub(super) calls: Option<Calls>,
    /// Why it was not run.
    pub(super) left_out: Option<String>,
}

/// A subject in its place in a row.
struct Place<'a> {
    subject: &'a Subject,
    contender: Option<Contender>,
    runs: Runs,
}

/// Runs one row.
pub(super) fn run(
    bench: &Bench<'_>,
    row: &Row,
    subjects: &[Subject],
    screen: &mut Screen,
) -> Result<Results> {
    screen.step(&format!("{}: {}", row.name, row.title));
    let mut places = Vec::new();
    for subject in subjects {
        places.push(place(bench, row, subject, screen)?);
    }
    let peak = peak(bench, row, &places, screen)?;
    for place in &mut places {
        prepare(bench, row, place, peak, screen)?;
    }
    let rounds =
        if row.work.is_steady() { bench.sizes.rounds.min(STEADY_ROUNDS) } else { bench.sizes.rounds };
    for round in 0..rounds {
        for index in order(places.len(), round) {
            one(bench, row, &mut places[index], round, peak, screen)?;
        }
    }
    for place in &mut places {
        place.runs.calls = count_calls(bench, row, place, screen)?;
    }
    let subjects = places.into_iter().map(|place| place.runs).collect();
    left(bench, screen)?;
    Ok(Results { row: *row, subjects })
}

/// Starts a subject for a row, or says why not.
fn place<'a>(bench: &Bench<'_>, row: &Row, subject: &'a Subject, screen: &mut Screen) -> Result<Place<'a>> {
    let mut runs = Runs { name: subject.name.clone(), ..Runs::default() };
    let mut contender = None;
    match subject.start(bench, row.variant)? {
        Ok(started) => {
            runs.version = started.described();
            runs.left_out = impossible(bench, row, subject);
            contender = runs.left_out.is_none().then_some(started);
        }
        Err(reason) => runs.left_out = Some(reason),
    }
    if let Some(reason) = &runs.left_out {
        screen.remark(&format!("{} is left out: {reason}", subject.name));
    }
    Ok(Place { subject, contender, runs })
}

/// Why a subject that is up cannot run this row.
fn impossible(bench: &Bench<'_>, row: &Row, subject: &Subject) -> Option<String> {
    let most = subject.most_clients?;
    let clients = match row.work {
        Work::Pgbench(closed) => closed.clients.min(bench.sizes.most_clients),
        Work::Rate { clients, .. } => clients.min(bench.sizes.most_clients),
        Work::Select | Work::CopyIn => 1,
        Work::Idle => bench.sizes.idle.1,
        Work::Crowd => bench.sizes.crowd.0 + bench.sizes.crowd.1,
        Work::Pools => bench.sizes.pools,
    };
    let is_without_memory = row.work == Work::Idle && subject.is_direct();
    (clients > most || is_without_memory)
        .then(|| format!("each client has a server connection of its own, so it is not asked for {clients}"))
}

/// What the base can at most, for rows at a part of it.
fn peak(bench: &Bench<'_>, row: &Row, places: &[Place<'_>], screen: &mut Screen) -> Result<Option<f64>> {
    let Work::Rate { clients, .. } = row.work else { return Ok(None) };
    let up = |place: &&Place<'_>| place.contender.is_some();
    let base = places.iter().filter(up).find(|place| place.subject.name == BASE);
    let Some(base) = base.or_else(|| places.iter().find(up)) else { return Ok(None) };
    let Some(contender) = &base.contender else { return Ok(None) };
    let load = Load {
        workload: Workload::SelectOnly,
        clients: clients.min(bench.sizes.most_clients),
        seconds: bench.sizes.seconds,
        query_mode: "simple".to_owned(),
        ..Load::default()
    };
    let tps = match bench.lab.measure(&contender.target, &load, None, &mut |_| {}) {
        Ok(measured) => measured.tps(),
        Err(LabError::Interrupted) => return Err(LabError::Interrupted),
        Err(error) => {
            screen.remark(&error.to_string());
            None
        }
    };
    screen.remark(&format!("peak of {}: {} TPS", contender.name, or_dash(tps, short)));
    Ok(tps)
}

/// Warms a subject up; one that fails already then is left out.
fn prepare(
    bench: &Bench<'_>,
    row: &Row,
    place: &mut Place<'_>,
    peak: Option<f64>,
    screen: &mut Screen,
) -> Result<()> {
    let Some(contender) = &place.contender else { return Ok(()) };
    match work::warm_up(bench, row, contender, peak, screen) {
        Ok(()) => {}
        Err(LabError::Interrupted) => return Err(LabError::Interrupted),
        Err(error) => {
            screen.remark(&format!("{} is left out: {error}", contender.name));
            place.runs.left_out = Some(error.to_string());
            place.contender = None;
        }
    }
    if row.work.is_fresh() {
        place.contender = None;
    }
    Ok(())
}

/// One run of one subject.
fn one(
    bench: &Bench<'_>,
    row: &Row,
    place: &mut Place<'_>,
    round: u32,
    peak: Option<f64>,
    screen: &mut Screen,
) -> Result<()> {
    if place.runs.left_out.is_some() {
        return Ok(());
    }
    let fresh = if row.work.is_fresh() { Some(place.subject.start(bench, row.variant)?) } else { None };
    let fresh = match fresh.transpose() {
        Ok(fresh) => fresh,
        Err(reason) => {
            place.runs.samples.push(failed(reason));
            return Ok(());
        }
    };
    let Some(contender) = fresh.as_ref().or(place.contender.as_ref()) else { return Ok(()) };
    if is_writing(row.work) {
        bench.lab.settle()?;
    }
    let label = Label { row: row.name, round: round + 1, subject: contender.name.clone() };
    let sample = match work::run(bench, row, contender, &label, peak, screen) {
        Ok(sample) => sample,
        Err(LabError::Interrupted) => return Err(LabError::Interrupted),
        Err(error) => failed(error.to_string()),
    };
    screen.remark(&said(row, &label, &sample));
    place.runs.samples.push(sample);
    drop(fresh);
    if row.work.is_fresh() {
        left(bench, screen)?;
    }
    Ok(())
}

/// Waits until no client is connected to the server; one that stays is reported and does not end a series of hours.
fn left(bench: &Bench<'_>, screen: &mut Screen) -> Result<()> {
    match bench.lab.wait_until_left() {
        Err(LabError::Interrupted) => Err(LabError::Interrupted),
        Err(error) => {
            screen.remark(&error.to_string());
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn is_writing(work: Work) -> bool {
    matches!(work, Work::Pgbench(closed) if closed.workload == Workload::TpcB)
}

fn failed(reason: String) -> Sample {
    Sample { complaints: vec![reason], ..Sample::default() }
}

/// System calls, in a run of their own after the timed ones.
fn count_calls(
    bench: &Bench<'_>,
    row: &Row,
    place: &Place<'_>,
    screen: &mut Screen,
) -> Result<Option<Calls>> {
    let Some(contender) = &place.contender else { return Ok(None) };
    let (Work::Pgbench(_), Some(leader)) = (row.work, contender.leader()) else { return Ok(None) };
    let label = Label { row: row.name, round: 0, subject: contender.name.clone() };
    let pace = Pace { seconds: bench.sizes.seconds, is_warm_up: false, peak: None, is_kept: false };
    let log = label.file("calls");
    let counted = calls::counted(leader, bench.out, &log, || {
        work::pgbench(bench, row, contender, &pace, &label, screen).map(|sample| sample.units)
    });
    match counted {
        Ok(found) => Ok(found),
        Err(LabError::Interrupted) => Err(LabError::Interrupted),
        Err(_) => Ok(None),
    }
}

fn said(row: &Row, label: &Label, sample: &Sample) -> String {
    let show = |figure: Figure| {
        format!("{} {}", or_dash(figure.of(sample, row.unit), short), figure.title(row.unit))
    };
    let figures = match row.work {
        Work::Idle => vec![Figure::ClientKib],
        Work::Crowd => vec![Figure::AloneP99, Figure::P99],
        _ => vec![Figure::Rate, Figure::Cpu],
    };
    let figures: Vec<String> = figures.into_iter().map(show).collect();
    let complaint = sample.complaints.first().map(|line| format!("  {line}")).unwrap_or_default();
    format!("round {}  {:14} {}{complaint}", label.round, label.subject, figures.join("  "))
}
