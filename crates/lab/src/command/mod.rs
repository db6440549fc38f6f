//! `weir-bench …`: what can be typed, which question it asks, and how it ends. Reads words; what is run is decided in
//! `experiment`. Exit statuses are [`Status`].

mod common;
mod repeat;
mod values;
mod weir;

pub use common::Common;
pub use values::{Named, Numbers};

use std::io::IsTerminal as _;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use commandline::ColorWhen;

use crate::error::LabError;
use crate::experiment::{self, ExperimentOptions};
use crate::interrupt::Interrupt;
use crate::options::{ProgressKind, ResultForm};
use crate::record::ExperimentKind;
use programs::Status;

/// What is asked of the lab.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum Task {
    /// Measure direct against pooled, at several numbers of clients
    Compare(Compare),
    /// Measure pool sizes, and say how large the pool should be
    Sweep(Sweep),
    /// Run your own script in pgbench's language, direct and pooled
    Replay(Replay),
    /// Make the report of a saved result anew, from its raw logs alone
    Report(Report),
}

/// `weir-bench compare`.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct Compare {
    /// Numbers of clients, as 50,150 or 10-100:10
    #[arg(long, value_name = "N,…", default_value = "50,150")]
    pub clients: Numbers,
    /// Server connections of the poolers that are started, as 20 or 20,97
    #[arg(long, value_name = "N,…", default_value = "20")]
    pub pool_size: Numbers,
    /// Further options.
    #[command(flatten)]
    pub common: Common,
}

/// `weir-bench sweep`.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct Sweep {
    /// Pool sizes, as 1,2,4,8 or 10-80:10; by default powers of two that the server has room for
    #[arg(long, value_name = "N,…")]
    pub pool_sizes: Option<Numbers>,
    /// Numbers of clients, as 80 or 50,200
    #[arg(long, value_name = "N,…", default_value = "80")]
    pub clients: Numbers,
    /// Also through Weir with a pool that sizes itself (pool_size = auto), from the smallest to the largest of the sizes
    #[arg(long, help_heading = "What is measured")]
    pub auto: bool,
    /// Seconds of load before each of its runs, in which it finds its size [default: 30, quick 10]
    #[arg(long, value_name = "S", requires = "auto", value_parser = clap::value_parser!(u32).range(1..=3_600), help_heading = "The method")]
    pub settle: Option<u32>,
    /// Further options.
    #[command(flatten)]
    pub common: Common,
}

/// `weir-bench replay`.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct Replay {
    /// Scripts in pgbench's language; each transaction takes one, by weight
    #[arg(value_name = "FILE[@WEIGHT]", required = true, value_hint = ValueHint::FilePath)]
    pub files: Vec<String>,
    /// Numbers of clients, as 50,150 or 10-100:10
    #[arg(long, value_name = "N,…", default_value = "50")]
    pub clients: Numbers,
    /// Server connections of the poolers that are started
    #[arg(long, value_name = "N,…", default_value = "20")]
    pub pool_sizes: Numbers,
    /// Further options.
    #[command(flatten)]
    pub common: Common,
}

/// `weir-bench report`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct Report {
    /// The directory of a result
    #[arg(value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
    /// The result as JSON on standard output, in place of tables
    #[arg(long)]
    pub json: bool,
}

impl Task {
    /// The options of every experiment.
    fn common(&self) -> Option<&Common> {
        match self {
            Task::Compare(task) => Some(&task.common),
            Task::Sweep(task) => Some(&task.common),
            Task::Replay(task) => Some(&task.common),
            Task::Report(_) => None,
        }
    }

    /// Weir's program where the environment alone names it and it has a path of its own: a command that repeats this one has to name it, too.
    fn elsewhere(&self) -> Option<PathBuf> {
        let named = self.common()?.weir.clone().filter(|program| !program.starts_with("/proc"));
        named.filter(|program| weir::beside().as_ref() != Some(program))
    }
}

/// Does what was asked. `words` is the command line (for the record), `weir` the version that stands in it; colours as `color` says.
#[must_use]
pub fn run(task: &Task, words: Vec<String>, weir: &str, color: ColorWhen) -> Status {
    let form = |json: bool| match json {
        true => ResultForm::Json,
        false => ResultForm::Text(color.paint(std::io::stdout().is_terminal())),
    };
    let result = Interrupt::install().map_err(LabError::system("watching for signals")).and_then(
        |interrupt| match task {
            Task::Report(report) => experiment::report(&report.directory, form(report.json)),
            Task::Compare(_) | Task::Sweep(_) | Task::Replay(_) => {
                let mut wish = wish(task, words, weir)?;
                wish.form = form(task.common().is_some_and(|common| common.json));
                if wish.progress == ProgressKind::Json {
                    let output = std::io::stdout().as_fd().try_clone_to_owned();
                    let watched = output.and_then(|output| interrupt.watch_reader(output));
                    watched.map_err(LabError::system("watching the reader of the progress"))?;
                }
                experiment::run(&wish, &interrupt)
            }
        },
    );
    match result {
        Ok(status) => status,
        Err(error) => {
            eprintln!("weir-bench: {error}");
            match error {
                LabError::Usage(_) => Status::Usage,
                LabError::Interrupted => Status::Interrupted,
                _ => Status::Failed,
            }
        }
    }
}

/// What the words mean; `words` is the whole command line, for the record.
///
/// # Errors
/// [`LabError::Usage`] where they make no sense together.
pub fn wish(task: &Task, words: Vec<String>, weir: &str) -> crate::error::Result<ExperimentOptions> {
    let mut wish = match task {
        Task::Compare(compare) => ExperimentOptions {
            clients: compare.clients.list(),
            pool_sizes: compare.pool_size.list(),
            ..compare.common.wish(ExperimentKind::Compare)?
        },
        Task::Sweep(sweep) => ExperimentOptions {
            clients: sweep.clients.list(),
            pool_sizes: sweep.pool_sizes.as_ref().map(Numbers::list).unwrap_or_default(),
            self_sized: if sweep.auto { Some(sweep.common.self_sized(sweep.settle)?) } else { None },
            ..sweep.common.wish(ExperimentKind::Sweep)?
        },
        Task::Replay(replay) => ExperimentOptions {
            clients: replay.clients.list(),
            pool_sizes: replay.pool_sizes.list(),
            ..replay.common.clone().with_scripts(&replay.files)?.wish(ExperimentKind::Replay)?
        },
        Task::Report(_) => ExperimentOptions::default(),
    };
    wish.weir = weir.to_owned();
    wish.command = repeat::repeatable(words, wish.seed, task.elsewhere().as_deref());
    Ok(wish)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        task: Task,
    }

    fn read(line: &str) -> Result<ExperimentOptions, String> {
        // Beside the tests there is none.
        let measured =
            if line.contains("--no-direct") || line == "replay" { "" } else { " --weir /bin/true" };
        let line = format!("bench {line}{measured}");
        let words = line.split(' ');
        let line = Line::try_parse_from(words).map_err(|fault| fault.to_string())?;
        wish(&line.task, vec!["weir".into()], "weir 0").map_err(|fault| fault.to_string())
    }

    #[test]
    fn the_table_of_options_is_sound() {
        use clap::CommandFactory as _;
        Line::command().debug_assert();
    }

    #[test]
    fn the_tutorials_rows_are_the_default() {
        let wish = read("compare").unwrap();
        assert_eq!((wish.clients.as_slice(), wish.pool_sizes.as_slice()), (&[50, 150][..], &[20][..]));
        assert_eq!(wish.workloads.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["tpcb-like"]);
        assert_eq!(wish.started.len(), 1, "Weir itself");
    }

    #[test]
    fn a_quick_sweep_is_short() {
        let quick = read("sweep --quick --pool-sizes 10-30:10").unwrap();
        let slow = read("sweep").unwrap();
        assert_eq!(quick.pool_sizes, [10, 20, 30]);
        assert!(quick.span.seconds < slow.span.seconds && slow.pool_sizes.is_empty());
        let settle_s = |line: &str| read(line).unwrap().self_sized.map(|found| found.settle_s);
        assert_eq!((settle_s("sweep"), settle_s("sweep --auto")), (None, Some(30)));
        assert_eq!(
            (settle_s("sweep --auto --quick"), settle_s("sweep --auto --settle 5")),
            (Some(10), Some(5))
        );
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for (line, words) in [
            ("sweep --pool-sizes 0", "0"),
            ("compare --clients 5-1", "5-1"),
            ("compare --workload tpcc", "tpcc"),
            ("replay", "FILE"),
            ("sweep --settle 5", "--auto"),
            ("sweep --auto --no-weir", "--auto"),
            ("sweep --auto --pool-mode session", "--auto"),
            ("sweep --auto --pooler weir-auto=/bin/true", "weir-auto"),
            ("compare --no-weir --no-direct", "nothing to measure"),
            ("compare --through x", "NAME=URI"),
            ("compare --pooler direct=/bin/true", "direct"),
        ] {
            let said = read(line).unwrap_err();
            assert!(said.contains(words), "{line}: {said}");
        }
    }
}
