//! `weir-harness full`: every scenario of the table in `rows.rs`, every subject, interleaved rounds, and a report that
//! says with which certainty each bar is reached. `compare` is its quick sister.

mod account;
mod calls;
mod json;
mod report;
mod rows;
mod sample;
mod secrets;
mod series;
mod subjects;
mod work;

use std::path::Path;

use clap::Args;

use crate::series::Common;
use lab::error::{LabError, Result};
use lab::interrupt::Interrupt;
use lab::laboratory::Lab;
use lab::screen::Screen;
use report::Report;
use rows::{ROWS, Row};
use secrets::Secrets;

/// Room for 500 clients without a pooler, and beside them for the 200 pools of several subjects.
const MAX_CONNECTIONS: u32 = 1_400;

/// Runs of very many clients take longer.
const CLIENTS_A_SECOND: u32 = 200;

/// What can be chosen.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Scenarios: all, or some by name
    #[arg(long, value_delimiter = ',', value_parser = names())]
    pub rows: Vec<String>,
    /// Who is compared: weir-epoll, weir-io_uring, pgbouncer, pgpool, haproxy, direct; what is not installed is left out
    #[arg(long, value_delimiter = ',', default_value = subjects::DEFAULT)]
    pub subjects: Vec<String>,
    /// A further pooler: NAME=BINARY:FILE[,FILE…][:ARGUMENTS]. In the files @PORT@, @POSTGRES_PORT@ and @DIR@ are put
    /// in; in the arguments @CONFIG@ is the first file, @CONFIG2@ the second. A file FILE.tls (unix, scram, scram-tls,
    /// pools) is for the rows that want that
    #[arg(long = "subject", value_name = "NAME=BINARY:FILE")]
    pub further: Vec<String>,
    /// Rounds; in each of them every subject has one run of every row
    #[arg(long, env = "BENCH_ROUNDS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Seconds for each run that is one of time
    #[arg(long, env = "BENCH_SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Everything once and small: does the harness itself work? Figures of such a run say nothing
    #[arg(long)]
    pub quick: bool,
    /// What `compare` lets choose too.
    #[command(flatten)]
    pub common: Common,
}

/// How large a run is.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    rounds: u32,
    seconds: u32,
    warm_up_seconds: u32,
    scale: u32,
    /// No row has more active clients.
    most_clients: u32,
    /// Bytes of a large result, and of a COPY.
    bulk_bytes: u64,
    pools: u32,
    /// Idle clients, few and many.
    idle: (u32, u32),
    /// Idle and active clients of the crowd.
    crowd: (u32, u32),
}

impl Sizes {
    fn of(options: &Options) -> Self {
        let full = Self {
            rounds: options.rounds,
            seconds: options.seconds,
            warm_up_seconds: 2,
            scale: options.common.scale,
            most_clients: u32::MAX,
            bulk_bytes: 500_000_000,
            pools: 200,
            idle: (1_000, 10_000),
            crowd: (15_000, 100),
        };
        if !options.quick {
            return full;
        }
        Self {
            rounds: 1,
            seconds: options.seconds.min(2),
            warm_up_seconds: 1,
            scale: 1,
            most_clients: 60,
            bulk_bytes: 8_000_000,
            pools: 20,
            idle: (20, 60),
            crowd: (200, 10),
        }
    }
}

impl Sizes {
    /// The least duration of a run of a number of clients, so that the cost of their logins is a small part of it.
    fn seconds_for(&self, clients: u32) -> u32 {
        self.seconds.max(clients / CLIENTS_A_SECOND)
    }
}

/// What every run needs.
struct Bench<'a> {
    lab: &'a Lab,
    secrets: &'a Secrets,
    sizes: Sizes,
    /// The result's directory.
    out: &'a Path,
}

fn names() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.name).collect()
}

/// Runs the series and writes the report.
///
/// # Errors
/// When the machine lacks something, or after Ctrl-C; nothing is left running in any case. A subject that fails in one
/// row is left out of that row, with the reason in the report.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let mut screen = Screen::terse();
    let sizes = Sizes::of(options);
    let raw = options.common.out.join("raw");
    std::fs::create_dir_all(&raw).map_err(LabError::system(format!("making {}", raw.display())))?;
    let setup = options.common.setup("full", MAX_CONNECTIONS, sizes.scale);
    let lab = Lab::set_up(&setup, interrupt, &mut screen)?;
    let secrets = Secrets::make(&lab)?;
    let subjects = subjects::chosen(&lab, options, &mut screen)?;
    let bench = Bench { lab: &lab, secrets: &secrets, sizes, out: &options.common.out };
    let mut report = Report::new(&bench, options);
    let wanted = |row: &&Row| options.rows.is_empty() || options.rows.iter().any(|name| name == row.name);
    for row in ROWS.iter().filter(wanted) {
        let results = series::run(&bench, row, &subjects, &mut screen)?;
        report.results.push(results);
        // After each row: a series of hours that is ended early has said what it knew.
        report.write(&options.common.out)?;
    }
    screen.close();
    println!("\n{}", report.markdown());
    println!(
        "Written to {0}/result.md and {0}/result.json, raw logs to {0}/raw",
        options.common.out.display()
    );
    Ok(())
}
