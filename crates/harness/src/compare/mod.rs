//! `weir-harness compare`: Weir on both I/O drivers, PgBouncer, and no pooler at all, in one interleaved series on
//! one PostgreSQL. What counts is the ratio within the series: absolute figures drift from machine to machine.

mod idle;
mod report;
mod series;
mod subjects;

use clap::{Args, ValueEnum};

use crate::series::Common;
use lab::error::Result;
use lab::interrupt::Interrupt;
use lab::laboratory::Lab;
use lab::pgbench;
use lab::screen::Screen;
use report::Report;
pub(crate) use report::table;
pub(crate) use series::order;
pub(crate) use subjects::{Contender, Subject};

/// Room for 500 clients without a pooler, and for every pooler's server connections beside them.
const MAX_CONNECTIONS: u32 = 700;

/// What can be chosen.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Who is compared
    #[arg(long, value_delimiter = ',', default_value = "weir-epoll,weir-io_uring,pgbouncer,direct")]
    #[arg(value_parser = subjects::names())]
    pub subjects: Vec<String>,
    /// What each client does
    #[arg(long, value_delimiter = ',', value_enum, default_value = "select,tpcb")]
    pub workloads: Vec<Workload>,
    /// Numbers of clients
    #[arg(long, value_delimiter = ',', default_value = "1,50,500", value_parser = clap::value_parser!(u32).range(1..=600))]
    pub clients: Vec<u32>,
    /// pgbench's query mode
    #[arg(long, default_value = "simple", value_parser = ["simple", "extended", "prepared"])]
    pub query_mode: String,
    /// Rounds; in each of them every subject has one run of every load. 0 runs no load
    #[arg(long, env = "BENCH_REPEATS", default_value_t = 3)]
    pub repeats: u32,
    /// Seconds for each run
    #[arg(long, env = "BENCH_SECONDS", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Also measure resident memory between 1,000 and 5,000 idle clients
    #[arg(long)]
    pub idle_clients: bool,
    /// What `full` lets choose too.
    #[command(flatten)]
    pub common: Common,
}

/// pgbench's two loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// One SELECT by key
    Select,
    /// The transaction of five statements
    Tpcb,
}

impl From<Workload> for pgbench::Workload {
    fn from(workload: Workload) -> Self {
        match workload {
            Workload::Select => Self::SelectOnly,
            Workload::Tpcb => Self::TpcB,
        }
    }
}

/// Runs the comparison.
///
/// # Errors
/// When the machine lacks something, a program fails, or after Ctrl-C; nothing is left running in any case.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let mut screen = Screen::standard();
    let setup = options.common.setup("bench", MAX_CONNECTIONS, options.common.scale);
    let lab = Lab::set_up(&setup, interrupt, &mut screen)?;
    let chosen = subjects::chosen(&lab, options)?;
    let idle = if options.idle_clients { idle::measure(&lab, &chosen, &mut screen)? } else { Vec::new() };
    let mut contenders = Vec::new();
    for subject in chosen {
        contenders.push(Contender::start(&lab, subject, "", &mut screen)?);
    }
    let cells = series::run(&lab, &contenders, options, &mut screen)?;
    let report = Report {
        machine: lab.machine.clone(),
        seconds: options.seconds,
        scale: options.common.scale,
        repeats: options.repeats,
        query_mode: options.query_mode.clone(),
        subjects: contenders.iter().map(Contender::described).collect(),
        cells,
        idle,
    };
    drop(contenders);
    screen.close();
    println!("\n{}", report.markdown());
    report.write(&options.common.out)?;
    println!("Written to {0}/result.md and {0}/result.json", options.common.out.display());
    Ok(())
}
