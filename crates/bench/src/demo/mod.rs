//! `weir-bench demo`: the tutorial's journey. PostgreSQL with 100 connections, 50 clients, 150 clients, then the
//! same through a pool of 20; what came of it as a table, JSON and a page. No run gets a delay, a throttle or any
//! other handicap, and where the pool loses the words say so.

mod chart;
mod page;
mod report;
mod runs;
mod words;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::lab::{Lab, ROLE, Setup};
use crate::pooler::Pooler;
use crate::screen::Screen;
use report::Report;

/// The pool's name, as in the tutorial.
const POOL: &str = "test-pool";

/// PostgreSQL's max_connections, three of which are the superuser's.
const MAX_CONNECTIONS: u32 = 100;

/// What can be chosen.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Seconds for each run; the tutorial's own is 600
    #[arg(long, env = "DEMO_SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Scale of pgbench's tables, 100,000 rows each; the tutorial's own is 150
    #[arg(long, env = "DEMO_SCALE", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub scale: u32,
    /// Stay up after the runs until Ctrl-C
    #[arg(long, env = "DEMO_KEEP", value_parser = clap::builder::FalseyValueParser::new())]
    pub keep: bool,
    /// Server connections of the pool
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=97))]
    pub pool_size: u32,
    /// The pooler; by default `weir` beside this program
    #[arg(long)]
    pub pooler_binary: Option<PathBuf>,
    /// Directory of PostgreSQL's programs, where they are not in the usual places
    #[arg(long, env = "WEIR_PG_BIN")]
    pub pg_bin: Option<PathBuf>,
    /// Directory for the page and the JSON
    #[arg(long, default_value = "demo-result")]
    pub out: PathBuf,
}

/// Runs the demo.
///
/// # Errors
/// When the machine lacks something, a program fails, or after Ctrl-C; nothing is left running in any case.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let mut screen = Screen::standard();
    let setup = Setup {
        purpose: "demo",
        pg_bin: options.pg_bin.clone(),
        max_connections: MAX_CONNECTIONS,
        scale: options.scale,
    };
    let lab = Lab::set_up(&setup, interrupt, &mut screen)?;
    let mut journey = runs::Journey::new(&lab, options)?;
    let (runs, pooler) = journey.make(&mut screen)?;
    screen.close();
    let report = Report {
        runs,
        seconds: options.seconds,
        scale: options.scale,
        pool_size: options.pool_size,
        machine: lab.machine.clone(),
        pooler: pooler.version().to_owned(),
        io_driver: pooler.io_driver().map(str::to_owned),
        uri: format!("postgres://{ROLE}@127.0.0.1:{}/{POOL}?sslmode=disable", pooler.port()),
    };
    println!("\n{}", report.table());
    report.write(&options.out)?;
    say_what_runs(&report, &lab, &pooler, options);
    if options.keep { stay(&lab, &pooler, &report) } else { Ok(()) }
}

fn say_what_runs(report: &Report, lab: &Lab, pooler: &Pooler, options: &Options) {
    let page = options.out.join("index.html");
    let page = page.canonicalize().unwrap_or(page);
    println!("Connection  {}", report.uri);
    println!("            (psql '{}'; direct, without the pool: port {})", report.uri, lab.cluster().port());
    println!("Page        {}  and {}", page.display(), options.out.join("result.json").display());
    println!(
        "Started     PostgreSQL (process {}), the pooler (process {}), both in {}",
        lab.cluster().process_id(),
        pooler.process_id(),
        lab.place().path().display()
    );
    if !options.keep {
        println!("Stopping    both now and removing the directory; DEMO_KEEP=1 keeps them up until Ctrl-C");
    }
}

/// Waits for Ctrl-C, which is the good end here.
fn stay(lab: &Lab, pooler: &Pooler, report: &Report) -> Result<()> {
    println!("Stopping    press Ctrl-C (or: kill {}), and all of it is removed", std::process::id());
    println!("pool: {}", report.uri);
    while !lab.interrupt().is_set() {
        if lab.interrupt().sleep(Duration::from_millis(500)).is_ok() && !pooler.is_alive() {
            return Err(crate::error::LabError::program("the pooler", "it ended by itself"));
        }
    }
    println!("\nStopping PostgreSQL and the pooler, removing {}", lab.place().path().display());
    Ok(())
}
