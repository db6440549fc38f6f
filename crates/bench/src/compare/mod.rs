//! `weir-bench compare`: Weir on both I/O drivers, PgBouncer, and no pooler at all, in one interleaved series on
//! one PostgreSQL. What counts is the ratio within the series: absolute figures drift from machine to machine.

mod idle;
mod report;
mod series;
mod subjects;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::lab::{Lab, Setup};
use crate::pgbench;
use crate::screen::Screen;
use report::Report;
use subjects::Contender;

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
    /// Scale of pgbench's tables
    #[arg(long, env = "BENCH_SCALE", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub scale: u32,
    /// Also measure resident memory between 1,000 and 5,000 idle clients
    #[arg(long)]
    pub idle_clients: bool,
    /// Weir's binary; by default `weir` beside this program
    #[arg(long)]
    pub weir: Option<PathBuf>,
    /// PgBouncer's binary
    #[arg(long, env = "PGBOUNCER", default_value = "/usr/sbin/pgbouncer")]
    pub pgbouncer: PathBuf,
    /// Directory of the subjects' ini files
    #[arg(long, default_value = "bench")]
    pub configs: PathBuf,
    /// Directory of PostgreSQL's programs, where they are not in the usual places
    #[arg(long, env = "WEIR_PG_BIN")]
    pub pg_bin: Option<PathBuf>,
    /// Directory for the results
    #[arg(long, default_value = "bench-result")]
    pub out: PathBuf,
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
    let setup = Setup {
        purpose: "bench",
        pg_bin: options.pg_bin.clone(),
        max_connections: MAX_CONNECTIONS,
        scale: options.scale,
    };
    let lab = Lab::set_up(&setup, interrupt, &mut screen)?;
    let chosen = subjects::chosen(&lab, options)?;
    let idle = if options.idle_clients { idle::measure(&lab, &chosen, &mut screen)? } else { Vec::new() };
    let mut contenders = Vec::new();
    for subject in chosen {
        contenders.push(Contender::start(&lab, subject, &mut screen)?);
    }
    let cells = series::run(&lab, &contenders, options, &mut screen)?;
    let report = Report {
        machine: lab.machine.clone(),
        seconds: options.seconds,
        scale: options.scale,
        repeats: options.repeats,
        query_mode: options.query_mode.clone(),
        subjects: contenders.iter().map(Contender::described).collect(),
        cells,
        idle,
    };
    drop(contenders);
    screen.close();
    println!("\n{}", report.markdown());
    report.write(&options.out)?;
    println!("Written to {0}/result.md and {0}/result.json", options.out.display());
    Ok(())
}
