//! An experiment from the wish to the report: the scene is set, every combination is run round after round in random
//! order, what was measured is saved after each run, and the report is made of what is saved, also after Ctrl-C.

mod cells;
mod contender;
mod environment;
mod findings;
mod open;
mod place;
mod progress;
mod replay;
mod rounds;
mod time_limit;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) use contender::SELF_SIZED;
pub use replay::report;

use crate::advisor;
use crate::error::{LabError, Result};
use crate::interrupt::Interrupt;
use crate::load::Span;
use commandline::Paint;

use crate::options::{Driver, Mode, ProgressKind, ResultForm, Tools};
use crate::record::{Experiment, ExperimentKind, WarningKind, WorkloadRecord};
use crate::report as paper;
use crate::target::Address;
use place::ResultPlace;
use programs::Status;
use progress::ProgressReporter;
use rounds::Rounds;

/// Weir with a pool that sizes itself, within the sizes of a sweep.
#[derive(Clone, Debug)]
pub struct SelfSized {
    /// Weir's program.
    pub program: PathBuf,
    /// So long before each run the load is there, and counts for nothing, in seconds: the pool finds its size.
    pub settle_s: u32,
}

/// What is to be measured, and how.
#[derive(Clone, Debug, Default)]
pub struct ExperimentOptions {
    /// The question.
    pub question: ExperimentKind,
    /// The command that repeats it, without passwords.
    pub command: Vec<String>,
    /// Weir's version.
    pub weir: String,
    /// The PostgreSQL to measure; `None`: a private one is made.
    pub server: Option<Address>,
    /// Poolers that are running.
    pub through: Vec<(String, Address)>,
    /// Poolers to start, by their programs.
    pub started: Vec<(String, PathBuf)>,
    /// Weir with a pool that sizes itself, beside them.
    pub self_sized: Option<SelfSized>,
    /// Whether PostgreSQL itself is measured too.
    pub direct: bool,
    /// The started poolers' mode.
    pub pool_mode: Mode,
    /// Whether the started poolers' min_pool_size is their size.
    pub fills_pools: bool,
    /// What the clients do.
    pub workloads: Vec<WorkloadRecord>,
    /// How many clients there are.
    pub clients: Vec<u32>,
    /// The started poolers' sizes; empty: what suits the server.
    pub pool_sizes: Vec<u32>,
    /// `simple`, `extended` or `prepared`.
    pub query_mode: String,
    /// What makes the load.
    pub driver: Driver,
    /// Where other programs than pgbench are, and how much data they have.
    pub tools: Tools,
    /// Its threads.
    pub threads: u32,
    /// pgbench's scale, where the user named one.
    pub scale: Option<u32>,
    /// The scale of tables that the lab makes without a wish.
    pub usual_scale: u32,
    /// Whether tables may be dropped.
    pub force: bool,
    /// Whether pgbench's tables, if they are there, are of the lab's own making.
    pub owns_tables: bool,
    /// How long a run is.
    pub span: Span,
    /// Runs of everything.
    pub rounds: u32,
    /// When it should be over, since it began: fewer rounds are made if they take too long.
    pub limit: Option<Duration>,
    /// Seed of the order.
    pub seed: u64,
    /// Whether open-loop runs follow.
    pub open_loop: bool,
    /// The 99th percentile that is wanted.
    pub p99_ms: Option<f64>,
    /// Server connections of other pools.
    pub other_pools: u32,
    /// Sums over this many seconds instead of a line for each transaction.
    pub aggregate_s: Option<u32>,
    /// Whether it shall be over soon.
    pub quick: bool,
    /// max_connections of a private PostgreSQL.
    pub max_connections: u32,
    /// Standbys of a private PostgreSQL.
    pub standbys: u32,
    /// PostgreSQL's programs.
    pub pg_bin: Option<PathBuf>,
    /// The result's directory.
    pub out: Option<PathBuf>,
    /// How progress is reported.
    pub progress: ProgressKind,
    /// How the result is printed.
    pub form: ResultForm,
}

/// Runs an experiment and writes its report.
///
/// # Errors
/// When the scene cannot be set or nothing was measured; whatever was measured is saved all the same.
pub fn run(wish: &ExperimentOptions, interrupt: &Interrupt) -> Result<Status> {
    let mut news = ProgressReporter::new(wish.progress, wish.form);
    let (mut experiment, place, ended) = measure(wish, interrupt, &mut news)?;
    finish(&mut experiment, ended, &place, &mut news)
}

/// Runs an experiment that another one is prepared by: saved and reported in its directory, but not printed.
///
/// # Errors
/// As [`run`], and when it did not come to its end.
pub fn prepare(wish: &ExperimentOptions, interrupt: &Interrupt) -> Result<Experiment> {
    let mut news = ProgressReporter::new(wish.progress, wish.form);
    let (mut experiment, place, ended) = measure(wish, interrupt, &mut news)?;
    experiment.complete = ended.is_ok();
    findings::add(&mut experiment);
    experiment.save(place.path())?;
    ended?;
    publish(&experiment, place.path())?;
    Ok(experiment)
}

/// Makes all runs; what was measured until an error is there all the same.
fn measure(
    wish: &ExperimentOptions,
    interrupt: &Interrupt,
    news: &mut ProgressReporter,
) -> Result<(Experiment, ResultPlace, Result<()>)> {
    let began = Instant::now();
    refuse_early(wish)?;
    let generator = environment::generator(wish)?;
    let environment = environment::Environment::set(wish, interrupt, news)?;
    let contenders = contender::all(wish, &environment, interrupt, news)?;
    let place = ResultPlace::create(wish.out.as_deref(), cells::runs(wish, &environment, &contenders))?;
    news.begin(place.path(), cells::runs(wish, &environment, &contenders));
    let mut rounds =
        Rounds::new(wish, &environment, &contenders, generator.as_ref(), &place, interrupt, began);
    let ended = rounds.make(news);
    Ok((rounds.into_experiment(), place, ended))
}

/// What cannot end well is refused before a server is started and filled for it.
fn refuse_early(wish: &ExperimentOptions) -> Result<()> {
    if let Some(shortage) = cells::shortage(wish, None) {
        return Err(LabError::Usage(shortage));
    }
    wish.started.iter().try_for_each(|(_, program)| contender::require_program(program))?;
    wish.out.as_deref().map_or(Ok(()), place::require_free)
}

/// Saves, reports, and says how it ended.
fn finish(
    experiment: &mut Experiment,
    ended: Result<()>,
    place: &ResultPlace,
    news: &mut ProgressReporter,
) -> Result<Status> {
    experiment.complete = ended.is_ok();
    if matches!(ended, Err(LabError::Interrupted)) {
        let text = "the experiment was interrupted: what follows is what had been measured until then";
        experiment.warn(WarningKind::Interrupted, text);
    }
    findings::add(experiment);
    experiment.save(place.path())?;
    let has_figures = experiment.points.iter().any(|point| point.whole().next().is_some());
    if has_figures {
        publish(experiment, place.path())?;
    }
    let status = match ended {
        Ok(()) => verdict(experiment),
        Err(LabError::Interrupted) => Status::Interrupted,
        Err(error) => {
            news.end(experiment, place.path(), has_figures, Status::Failed);
            return Err(error);
        }
    };
    news.end(experiment, place.path(), has_figures, status);
    Ok(status)
}

/// Writes the report beside the record: text, page and pictures.
fn publish(experiment: &Experiment, directory: &Path) -> Result<()> {
    let path = directory.join("report.txt");
    std::fs::write(&path, paper::terminal(experiment, Paint::PLAIN) + "\n")
        .map_err(LabError::system(format!("writing {}", path.display())))?;
    paper::write(experiment, directory)
}

/// Whether the question was answered.
fn verdict(experiment: &Experiment) -> Status {
    let is_silent = experiment.question == ExperimentKind::Sweep && !advisor::advise(experiment).can_tell();
    if is_silent { Status::CannotTell } else { Status::Done }
}
