//! The loop of an experiment: one run after the other, each on a target that was just made ready, each saved at once.
//! A run that fails is part of the result; when several in a row do, there is no use in going on.

use std::path::Path;
use std::time::{Duration, Instant};

use super::contender::Contender;
use super::environment::Environment;
use super::place::{MOST_LINES, ResultPlace, utc_now};
use super::progress::ProgressReporter;
use super::time_limit::TimeLimit;
use super::{ExperimentOptions, cells, open};
use crate::account::{Account, Watched};
use crate::error::{LabError, Result};
use crate::generator;
use crate::interrupt::Interrupt;
use crate::load::{self, Asked, Event, Generator, Job, RawFiles, Span};
use crate::record::{Ended, Experiment, FORMAT, MachineRecord, Plan, Point, RawKind, Run, WorkloadRecord};

/// This many failed runs in a row end the experiment.
const FAILURES_IN_A_ROW: u32 = 3;

/// How often a number of clients is lowered until the server lets all of them in.
const ADMISSION_ATTEMPTS: u32 = 6;

/// The experiment under way.
pub(super) struct Rounds<'a> {
    pub(super) wish: &'a ExperimentOptions,
    environment: &'a Environment,
    contenders: &'a [Contender],
    generator: &'a dyn Generator,
    place: &'a ResultPlace,
    interrupt: &'a Interrupt,
    began: Instant,
    pub(super) experiment: Experiment,
    /// Runs made so far.
    order: u32,
    failures: u32,
}

impl<'a> Rounds<'a> {
    /// Nothing run yet.
    pub(super) fn new(
        wish: &'a ExperimentOptions,
        environment: &'a Environment,
        contenders: &'a [Contender],
        generator: &'a dyn Generator,
        place: &'a ResultPlace,
        interrupt: &'a Interrupt,
        began: Instant,
    ) -> Self {
        let points = cells::closed(wish, environment.room(), contenders);
        let experiment = Experiment {
            format: FORMAT,
            question: wish.question,
            command: wish.command.clone(),
            weir: wish.weir.clone(),
            began: utc_now(),
            machine: MachineRecord::from(&environment.machine),
            server: environment.record.clone(),
            targets: contenders.iter().map(|contender| contender.record.clone()).collect(),
            workloads: wish.workloads.clone(),
            generator: generator.record(),
            plan: Plan {
                warm_up_s: wish.span.warm_up_s,
                seconds: wish.span.seconds,
                transactions: wish.span.transactions,
                min_pool_size: wish.fills_pools,
                rounds: wish.rounds,
                seed: wish.seed,
                p99_target_ms: wish.p99_ms,
                pool_sizes: cells::all_sizes(&points),
                clients: wish.clients.clone(),
                query_mode: wish.query_mode.clone(),
                runs: cells::runs(wish, environment, contenders),
                other_pools: wish.other_pools,
            },
            points,
            ..Experiment::default()
        };
        let (order, failures) = (0, 0);
        Self {
            wish,
            environment,
            contenders,
            generator,
            place,
            interrupt,
            began,
            experiment,
            order,
            failures,
        }
    }

    /// What came of it.
    pub(super) fn into_experiment(mut self) -> Experiment {
        self.experiment.took_s = self.began.elapsed().as_secs_f64();
        self.experiment
    }

    /// Makes all runs: the closed loop first, for the open one needs its peaks.
    ///
    /// # Errors
    /// [`LabError::Interrupted`]; a full disk; a server that is gone; too many failures in a row.
    pub(super) fn make(&mut self, news: &mut ProgressReporter) -> Result<()> {
        self.experiment.save(self.place.path())?;
        self.closed_loop(news)?;
        if self.wish.open_loop {
            self.open_loop(news)?;
        }
        Ok(())
    }

    fn closed_loop(&mut self, news: &mut ProgressReporter) -> Result<()> {
        let count = self.experiment.points.len();
        let open_runs = cells::open_runs(self.wish, self.contenders);
        let mut patience = TimeLimit::new(self.wish.limit, self.elapsed());
        for (round, index) in cells::order(count, self.wish.rounds, self.wish.seed) {
            if !patience.allows(round, self.elapsed(), f64::from(open_runs) / count.max(1) as f64) {
                let plan = &mut self.experiment.plan;
                plan.runs = plan.runs.saturating_sub(open_runs) / plan.rounds * round + open_runs;
                plan.rounds = round;
                news.shorten(plan.runs, &format!("{round} rounds are made: more would take too long"));
                break;
            }
            self.one(index, round, news)?;
        }
        Ok(())
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn open_loop(&mut self, news: &mut ProgressReporter) -> Result<()> {
        let closed = self.experiment.points.len();
        let points = open::points(self.wish, &self.experiment);
        self.experiment.points.extend(points);
        let count = self.experiment.points.len() - closed;
        for (round, index) in cells::order(count, cells::open_rounds(self.wish), !self.wish.seed) {
            self.one(closed + index, round, news)?;
        }
        Ok(())
    }

    /// One run of one point, and what it says saved. Direct clients of whom some are refused run again, as many as are
    /// let in.
    fn one(&mut self, index: usize, round: u32, news: &mut ProgressReporter) -> Result<()> {
        let point = self.experiment.points[index].clone();
        let Some(contender) = self.contenders.iter().find(|one| one.name == point.target) else {
            return Ok(());
        };
        // What was refused once is refused again: one run has shown it.
        let mut refused = self.refused(&point);
        for attempt in 0..ADMISSION_ATTEMPTS {
            let run = self.attempt(&point, contender, round, refused, news)?;
            let ended = run.ended.clone();
            news.ran(&point, &run);
            self.experiment.points[index].runs.push(run);
            self.experiment.took_s = self.began.elapsed().as_secs_f64();
            self.experiment.save(self.place.path())?;
            match ended {
                Ended::Refused(_) if contender.is_direct() => {
                    let room = self.environment.room().unwrap_or(point.clients).saturating_sub(attempt * 2);
                    refused = point.clients.saturating_sub(room).max(refused + 1);
                    if refused >= point.clients {
                        break;
                    }
                }
                _ => return self.count_failure(&ended),
            }
        }
        self.count_failure(&Ended::Failed("no client was admitted".to_owned()))
    }

    /// How many clients of such a point are refused, as far as an earlier run has shown who is let in.
    fn refused(&self, point: &Point) -> u32 {
        let is_same = |other: &&Point| {
            other.target == point.target && other.clients == point.clients && point.pool_size.is_none()
        };
        let same = self.experiment.points.iter().filter(is_same);
        same.flat_map(Point::whole).map(|run| run.refused).max().unwrap_or_default()
    }

    fn count_failure(&mut self, ended: &Ended) -> Result<()> {
        let (Ended::Failed(said) | Ended::Refused(said)) = ended else {
            self.failures = 0;
            return if *ended == Ended::Interrupted { Err(LabError::Interrupted) } else { Ok(()) };
        };
        self.failures += 1;
        if self.failures < FAILURES_IN_A_ROW {
            return Ok(());
        }
        let name = self.experiment.generator.name.clone();
        Err(LabError::program(&name, format!("{said}\n  ({FAILURES_IN_A_ROW} runs in a row failed)")))
    }

    /// Runs the load for those who are not `refused`.
    fn attempt(
        &mut self,
        point: &Point,
        contender: &Contender,
        round: u32,
        refused: u32,
        news: &mut ProgressReporter,
    ) -> Result<Run> {
        let Some(workload) = self.wish.workloads.iter().find(|one| one.name == point.workload) else {
            return Ok(Run::default());
        };
        self.environment.settle(workload.writes)?;
        let (wish, environment) = (self.wish, self.environment);
        let up = contender.up(point.pool_size, point.clients, wish, environment, self.interrupt)?;
        let directory = self.place.run(self.order, point, round)?;
        let sampling = self.sampling(point);
        let clients = point.clients.saturating_sub(refused).max(1);
        news.running(point, round, self.order);
        let job = Job {
            address: &up.address,
            workload,
            clients,
            threads: wish.threads,
            span: wish.span,
            query_mode: &wish.query_mode,
            rate_tps: point.offered.map(|load| load.tps),
            sampling,
            aggregate_s: wish.aggregate_s,
            scale: environment.scale(),
            directory: &directory,
            shared: &self.place.shared(),
        };
        let began_s = self.began.elapsed().as_secs_f64();
        if let Some(seconds) = contender.settle_s() {
            self.settle(&job, seconds, news)?;
        }
        let watched = Watched { server: environment.process, pooler: up.process };
        let mut left = self.load(&job, watched, news)?;
        let said = [
            ("placement.txt", RawKind::Placement, up.placement()?.map(|placement| placement.text())),
            ("found-size.txt", RawKind::FoundSize, up.found_size()?.map(|size| format!("{size}\n"))),
        ];
        for (name, kind, text) in said {
            let Some(text) = text else { continue };
            write(&directory.join(name), &text)?;
            left.files.push((name.to_owned(), kind));
        }
        drop(up);
        let mut run = Run { round, order: self.order, began_s, sampling, ..Run::default() };
        self.order += 1;
        run.raw = self.place.logs(&directory, left.files)?;
        if left.is_interrupted {
            run.ended = Ended::Interrupted;
            return Ok(run);
        }
        let asked = asked(&self.experiment.plan, workload, &run, clients);
        let files = RawFiles { directory: self.place.path(), logs: &run.raw };
        let figures = generator::figures(&self.experiment.generator.name, &files, &asked)?;
        figures.fill(&mut run);
        run.refused += refused;
        Ok(run)
    }

    /// The load for this many seconds that count for nothing: the pool finds its size.
    fn settle(&self, job: &Job<'_>, seconds: u32, news: &mut ProgressReporter) -> Result<()> {
        news.remark(&format!("{seconds} s in which the pool finds its size"));
        let directory = job.directory.join("settling");
        let doing = || LabError::system(format!("making or removing {}", directory.display()));
        std::fs::create_dir(&directory).map_err(doing())?;
        let span = Span::seconds(0, seconds);
        let job = Job { span, sampling: 0.0, aggregate_s: None, directory: &directory, ..job.clone() };
        self.generator.run(&job, self.interrupt, &mut |_| {})?;
        std::fs::remove_dir_all(&directory).map_err(doing())
    }

    /// Makes the load and looks at who spends CPU while it counts.
    fn load(&mut self, job: &Job<'_>, watched: Watched, news: &mut ProgressReporter) -> Result<Left> {
        let mut account = Account::new(watched);
        let mut looks = 0;
        let (begin, mut end) =
            (f64::from(job.span.warm_up_s), f64::from(job.span.warm_up_s + job.span.seconds));
        if job.span.transactions.is_some() {
            end = f64::INFINITY; // It is known only when it is there.
        }
        let made = self.generator.run(job, self.interrupt, &mut |event| match event {
            Event::Started { process_id } => {
                account.set_generator(process_id);
                if begin == 0.0 {
                    account.look();
                    looks += 1;
                }
            }
            Event::Second(second) => {
                let at_s = second.at_s.round();
                if (looks == 0 && at_s >= begin) || (looks == 1 && at_s >= end) {
                    account.look();
                    looks += 1;
                }
                news.second(&second);
            }
        });
        let (mut files, is_interrupted) = match made {
            Ok(files) => (files, false),
            Err(LabError::Interrupted) => (present(job.directory), true),
            Err(error) => return Err(error),
        };
        if job.span.transactions.is_some() {
            account.look(); // The generator has left: its own time is not known then.
        }
        write(&job.directory.join("accounting.txt"), account.text())?;
        files.push(("accounting.txt".to_owned(), RawKind::Accounting));
        Ok(Left { files, is_interrupted })
    }

    /// The part of the transactions that is logged: all, unless earlier runs of the workload say that it is too many.
    fn sampling(&self, point: &Point) -> f64 {
        let of_workload = self.experiment.points.iter().filter(|other| other.workload == point.workload);
        let most_tps = of_workload.flat_map(|other| other.runs.iter().map(|run| run.tps)).fold(0.0, f64::max);
        let lines = match self.wish.span.transactions {
            Some(transactions) => f64::from(transactions) * f64::from(point.clients),
            None => most_tps * f64::from(self.wish.span.total_s()),
        };
        if lines <= MOST_LINES { 1.0 } else { ((MOST_LINES / lines) * 1000.0).ceil() / 1000.0 }
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(LabError::system(format!("writing {}", path.display())))
}

/// What a run left.
struct Left {
    files: Vec<load::Left>,
    is_interrupted: bool,
}

/// The files of a run that was interrupted, whatever they are.
fn present(directory: &Path) -> Vec<load::Left> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), RawKind::Progress)).collect()
}

/// What the reader of a run's raw files must know, from the record.
pub(super) fn asked(plan: &Plan, workload: &WorkloadRecord, run: &Run, clients: u32) -> Asked {
    Asked {
        span: Span { warm_up_s: plan.warm_up_s, seconds: plan.seconds, transactions: plan.transactions },
        sampling: run.sampling,
        think_us: workload.scripts.iter().map(|script| script.think_us).collect(),
        clients,
    }
}
