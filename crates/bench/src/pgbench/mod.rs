//! pgbench: how it is called, what it prints, and what its log of transactions says. PostgreSQL's own program
//! makes every load of the lab; there is no other generator.

mod log;
mod parse;

use std::path::PathBuf;
use std::process::Command;

pub use log::Latency;
pub use parse::{Progress, Summary, initialised, progress, summary};

use crate::error::{LabError, Result};
use crate::interrupt::Interrupt;
use crate::postgres::Programs;
use crate::process;
use crate::workplace::Workplace;

/// Threads of the generator, as the tutorial's `-j 2`.
const THREADS: u32 = 2;

/// What each client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// pgbench's own: a transaction of five statements, close to TPC-B.
    TpcB,
    /// One SELECT by key.
    SelectOnly,
}

impl Workload {
    /// As reports name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TpcB => "TPC-B",
            Self::SelectOnly => "select-only",
        }
    }
}

/// One load.
#[derive(Clone, Debug)]
pub struct Load {
    /// What each client does.
    pub workload: Workload,
    /// How many clients.
    pub clients: u32,
    /// For how long.
    pub seconds: u32,
    /// The part of the transactions that is logged for the percentiles; 1 is all, 0 none.
    pub sampling: f64,
    /// `simple`, `extended` or `prepared`.
    pub query_mode: String,
}

/// Where the load goes, on this machine.
#[derive(Clone, Debug)]
pub struct Target {
    /// Port of PostgreSQL or the pooler.
    pub port: u16,
    /// The role.
    pub user: String,
    /// The database, or the pool.
    pub database: String,
}

/// What came of a load.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// pgbench's figures; `None` when it stopped before it had any.
    pub summary: Option<Summary>,
    /// Seconds since the start and transactions per second, once a second.
    pub progress: Vec<Progress>,
    /// Percentiles from the log.
    pub latency: Option<Latency>,
    /// Lines in which a server refused or pgbench gave up.
    pub complaints: Vec<String>,
}

/// pgbench, ready to run.
#[derive(Clone, Debug)]
pub struct Pgbench {
    program: PathBuf,
}

impl Pgbench {
    /// The pgbench of these programs.
    #[must_use]
    pub fn of(programs: &Programs) -> Self {
        Self { program: programs.program("pgbench") }
    }

    /// Fills the tables; `watch` gets the part done, between 0 and 1, and pgbench's line.
    ///
    /// # Errors
    /// When pgbench fails.
    pub fn initialise(
        &self,
        target: &Target,
        scale: u32,
        place: &Workplace,
        interrupt: &Interrupt,
        watch: &mut dyn FnMut(f64, &str),
    ) -> Result<()> {
        let mut command = self.command(target, place);
        command.args(["-i", "-s", &scale.to_string()]);
        let finished = process::run(command, place.identity(), interrupt, &mut |line| {
            if let Some(done) = initialised(line) {
                watch(done, line);
            }
        })?;
        finished.success("pgbench -i").map(drop)
    }

    /// Runs a load; `watch` gets each second's progress. A load that a server refuses is an outcome, no error.
    ///
    /// # Errors
    /// When pgbench does not start or is interrupted.
    pub fn run(
        &self,
        target: &Target,
        load: &Load,
        place: &Workplace,
        interrupt: &Interrupt,
        watch: &mut dyn FnMut(&Progress),
    ) -> Result<Outcome> {
        let mut command = self.command(target, place);
        command.args(arguments(load));
        let mut seen = Vec::new();
        let finished = process::run(command, place.identity(), interrupt, &mut |line| {
            if let Some(found) = progress(line) {
                watch(&found);
                seen.push(found);
            }
        })?;
        let latency = log::collect(place.path())?;
        let summary = summary(&finished.stdout);
        let complaints = parse::complaints(&finished.stderr);
        if summary.is_none() && complaints.is_empty() {
            return Err(LabError::program("pgbench", finished.last_words()));
        }
        Ok(Outcome { summary, progress: seen, latency, complaints })
    }

    fn command(&self, target: &Target, place: &Workplace) -> Command {
        let mut command = Command::new(&self.program);
        command
            .current_dir(place.path())
            .args(["-h", "127.0.0.1", "-p", &target.port.to_string(), "-U", &target.user])
            .env("PGDATABASE", &target.database)
            .env("PGSSLMODE", "disable")
            .env("PGGSSENCMODE", "disable")
            .env("LC_ALL", "C");
        command
    }
}

fn arguments(load: &Load) -> Vec<String> {
    let mut arguments: Vec<String> = ["-n", "-P", "1", "-M"].iter().map(|&word| word.to_owned()).collect();
    arguments.push(load.query_mode.clone());
    for (option, number) in [("-c", load.clients), ("-j", THREADS.min(load.clients)), ("-T", load.seconds)] {
        arguments.extend([option.to_owned(), number.to_string()]);
    }
    if load.workload == Workload::SelectOnly {
        arguments.push("-S".to_owned());
    }
    if load.sampling > 0.0 {
        arguments.extend(["-l".to_owned(), format!("--log-prefix={}", log::PREFIX)]);
    }
    if load.sampling > 0.0 && load.sampling < 1.0 {
        arguments.push(format!("--sampling-rate={}", load.sampling));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_becomes_pgbenchs_options() {
        let mut load = Load {
            workload: Workload::SelectOnly,
            clients: 1,
            seconds: 8,
            sampling: 0.1,
            query_mode: "simple".into(),
        };
        assert_eq!(
            arguments(&load).join(" "),
            "-n -P 1 -M simple -c 1 -j 1 -T 8 -S -l --log-prefix=transactions --sampling-rate=0.1"
        );
        load = Load { workload: Workload::TpcB, clients: 50, sampling: 0.0, ..load };
        assert_eq!(arguments(&load).join(" "), "-n -P 1 -M simple -c 50 -j 2 -T 8");
    }
}
