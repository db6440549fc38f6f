//! The options that compare, sweep and replay share, and what they mean together.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;

use super::{Named, weir};
use crate::error::{LabError, Result};
use crate::experiment::{ExperimentOptions, SELF_SIZED, SelfSized};
use crate::load::Span;
use crate::options::{Driver, Mode, ProgressKind, Tools};
use crate::record::{ExperimentKind, WorkloadRecord};
use crate::target::Address;
use crate::workload;

/// Runs of everything: a disk that is slow for a while makes a whole round slow, and the median must not care.
const USUAL_ROUNDS: u32 = 5;

/// What drifts is slower than a run: more and shorter ones tell more than fewer and longer ones.
const QUICK_ROUNDS: u32 = 6;

/// A quick experiment is over within five minutes, report included.
const QUICK: Duration = Duration::from_secs(260);

/// Options of every experiment.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct Common {
    /// Measure this PostgreSQL (postgresql://…) instead of a private one that is made for the purpose; its password is
    /// taken from PGPASSWORD or ~/.pgpass too, where no list of processes shows it. With a primary and its standbys
    /// (postgresql://me@db1,db2,db3/shop) poolers send reads to the standbys (read_write_split)
    #[arg(long, value_name = "URI", help_heading = "What is measured")]
    pub server: Option<String>,
    /// Also through a pooler that runs already; it must lead to the same database
    #[arg(long, value_name = "NAME=URI", help_heading = "What is measured")]
    pub through: Vec<Named>,
    /// Also through this program, which is started like Weir, with a file in PgBouncer's language
    #[arg(long, value_name = "NAME=PROGRAM", help_heading = "What is measured")]
    pub pooler: Vec<Named>,
    /// Weir's program [default: the one beside weir-bench, else the one in PATH]
    #[arg(long, value_name = "PROGRAM", env = programs::MEASURED, hide_env = true, help_heading = "What is measured")]
    pub weir: Option<PathBuf>,
    /// Not through Weir
    #[arg(long, help_heading = "What is measured")]
    pub no_weir: bool,
    /// Not direct
    #[arg(long, help_heading = "What is measured")]
    pub no_direct: bool,
    /// When the started poolers take a server connection back
    #[arg(
        long,
        value_enum,
        value_name = "MODE",
        default_value = "transaction",
        help_heading = "What is measured"
    )]
    pub pool_mode: Mode,
    /// Started poolers open all server connections of a pool when its first client comes (min_pool_size = pool size)
    #[arg(long, help_heading = "What is measured")]
    pub min_pool_size: bool,
    /// What the clients do, as tpcb-like,select-only; of sysbench as oltp_read_only, or a directory of sysbench-tpcc
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', help_heading = "The load")]
    pub workload: Vec<String>,
    /// Your own script in pgbench's language, beside --workload's; several are one workload, by weight
    #[arg(long, value_name = "FILE[@WEIGHT]", help_heading = "The load")]
    pub script: Vec<String>,
    /// How queries are sent: simple, extended or prepared
    #[arg(long, value_name = "MODE", default_value = "simple", value_parser = ["simple", "extended", "prepared"], help_heading = "The load")]
    pub query_mode: String,
    /// The program that makes the load
    #[arg(long, value_enum, value_name = "PROGRAM", default_value = "pgbench", help_heading = "The load")]
    pub driver: Driver,
    /// Threads of pgbench; the others have one for each client
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "The load")]
    pub threads: u32,
    /// The places and sizes of other programs than pgbench.
    #[command(flatten)]
    pub tools: Tools,
    /// Scale of pgbench's tables, 100,000 rows each [default: 50, quick 10, or what is there]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "The load")]
    pub scale: Option<u32>,
    /// Drop tables with the names of pgbench's, whatever is in them
    #[arg(long, help_heading = "The load")]
    pub force: bool,
    /// Seconds of each run that count [default: 20, quick 2]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=86_400), help_heading = "The method")]
    pub seconds: Option<u32>,
    /// Seconds before them that do not [default: 4, quick 1]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(0..=3_600), help_heading = "The method")]
    pub warm_up: Option<u32>,
    /// Transactions of each client in place of seconds (pgbench alone); all of them count
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["seconds", "warm_up", "aggregate_interval"], help_heading = "The method")]
    pub transactions: Option<u32>,
    /// Runs of everything, interleaved in random order [default: 5, quick 6 or as many as fit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000), help_heading = "The method")]
    pub rounds: Option<u32>,
    /// Seed of that order, to repeat it
    #[arg(long, value_name = "N", help_heading = "The method")]
    pub seed: Option<u64>,
    /// No runs at 50, 70, 80 and 90 % of the peak, which show the latency that users would meet
    #[arg(long, help_heading = "The method")]
    pub no_open_loop: bool,
    /// What 99 of 100 transactions should stay within; a larger pool is not advised for throughput alone
    #[arg(long, value_name = "MS", value_parser = milliseconds, help_heading = "The method")]
    pub p99: Option<f64>,
    /// Server connections that other pools need
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "The method")]
    pub other_pools: u32,
    /// Log sums over this many seconds instead of every transaction: less to write, no percentiles
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3_600), help_heading = "The method")]
    pub aggregate_interval: Option<u32>,
    /// Short runs on a small database: less than five minutes for a sweep
    #[arg(long, help_heading = "The method")]
    pub quick: bool,
    /// Standbys of the private PostgreSQL, to which poolers send reads (read_write_split)
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=8), conflicts_with = "server", help_heading = "The private PostgreSQL")]
    pub standbys: u32,
    /// max_connections of the private PostgreSQL
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(10..=10_000), help_heading = "The private PostgreSQL")]
    pub max_connections: u32,
    /// Directory of PostgreSQL's programs (pgbench, psql; postgres and initdb for a private one)
    #[arg(long, value_name = "DIRECTORY", env = "WEIR_PG_BIN", help_heading = "The private PostgreSQL")]
    pub pg_bin: Option<PathBuf>,
    /// A new directory for the result [default: weir-bench-DATE-TIME]
    #[arg(long, value_name = "DIRECTORY", help_heading = "The result")]
    pub out: Option<PathBuf>,
    /// The result as JSON on standard output, in place of tables; what goes on is told on standard error
    #[arg(long, conflicts_with = "progress", help_heading = "The result")]
    pub json: bool,
    /// How it is told what goes on
    #[arg(long, value_enum, value_name = "KIND", default_value = "auto", help_heading = "The result")]
    pub progress: ProgressKind,
}

impl Common {
    /// These files instead of a workload.
    pub(super) fn with_scripts(mut self, files: &[String]) -> Result<Self> {
        if !self.workload.is_empty() || !self.script.is_empty() {
            return Err(LabError::Usage(
                "replay runs its files alone: no --workload, no --script".to_owned(),
            ));
        }
        self.script = files.to_vec();
        Ok(self)
    }

    /// What the options mean for `question`.
    pub(super) fn wish(&self, question: ExperimentKind) -> Result<ExperimentOptions> {
        let usual = |quick: u32, else_: u32| if self.quick { quick } else { else_ };
        let span = Span {
            warm_up_s: self.warm_up.unwrap_or(usual(1, 4)),
            seconds: self.seconds.unwrap_or(usual(2, 20)),
            transactions: None,
        };
        let span = match self.transactions {
            None => span,
            transactions => Span { warm_up_s: 0, seconds: 0, transactions },
        };
        if self.no_weir && self.no_direct && self.pooler.is_empty() && self.through.is_empty() {
            return Err(LabError::Usage(
                "nothing to measure: no Weir, no direct, no other pooler".to_owned(),
            ));
        }
        Ok(ExperimentOptions {
            question,
            server: self.server.as_deref().map(address).transpose()?,
            through: self.running()?,
            started: self.started()?,
            direct: !self.no_direct,
            pool_mode: self.pool_mode,
            fills_pools: self.min_pool_size,
            workloads: self.workloads(question)?,
            query_mode: self.query_mode.clone(),
            driver: self.driver,
            tools: self.tools.clone(),
            threads: self.threads,
            scale: self.scale,
            usual_scale: usual(10, 50),
            force: self.force,
            span,
            rounds: self.rounds.unwrap_or(usual(QUICK_ROUNDS, USUAL_ROUNDS)),
            limit: (self.quick && self.rounds.is_none()).then_some(QUICK),
            seed: self.seed.unwrap_or_else(fresh_seed),
            open_loop: !self.no_open_loop,
            p99_ms: self.p99,
            other_pools: self.other_pools,
            aggregate_s: self.aggregate_interval,
            quick: self.quick,
            max_connections: self.max_connections,
            standbys: self.standbys,
            pg_bin: self.pg_bin.clone(),
            out: self.out.clone(),
            progress: self.progress,
            ..ExperimentOptions::default()
        })
    }

    fn running(&self) -> Result<Vec<(String, Address)>> {
        let one = |named: &Named| {
            let found = address(&named.value)?;
            if !found.others.is_empty() {
                return Err(LabError::Usage(format!("{}: a pooler has one address", named.name)));
            }
            Ok((named.name.clone(), found))
        };
        self.through.iter().map(one).collect()
    }

    /// Weir with a pool that sizes itself, which may take this many seconds to find a size before a run.
    pub(super) fn self_sized(&self, settle_s: Option<u32>) -> Result<SelfSized> {
        let usage = |words: &str| Err(LabError::Usage(words.to_owned()));
        if self.no_weir {
            return usage("--auto compares Weir with Weir: leave --no-weir out");
        }
        if self.pool_mode == Mode::Session {
            return usage("--auto: in session pooling a pool does not size itself");
        }
        if self.pooler.iter().chain(&self.through).any(|named| named.name == SELF_SIZED) {
            return Err(LabError::Usage(format!("two poolers are called {SELF_SIZED:?}")));
        }
        let usual = if self.quick { 10 } else { 30 };
        Ok(SelfSized { program: weir::program(self.weir.as_ref())?, settle_s: settle_s.unwrap_or(usual) })
    }

    fn started(&self) -> Result<Vec<(String, PathBuf)>> {
        let mut started = Vec::new();
        if !self.no_weir {
            started.push(("weir".to_owned(), weir::program(self.weir.as_ref())?));
        }
        started.extend(self.pooler.iter().map(|named| (named.name.clone(), PathBuf::from(&named.value))));
        let names = started.iter().map(|(name, _)| name).chain(self.through.iter().map(|named| &named.name));
        let mut names: Vec<&String> = names.collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(LabError::Usage(format!("two poolers are called {:?}", pair[0]))),
            None => Ok(started),
        }
    }

    fn workloads(&self, question: ExperimentKind) -> Result<Vec<WorkloadRecord>> {
        let usage = |error: LabError| LabError::Usage(error.to_string());
        let mut names: Vec<&str> = self.workload.iter().map(String::as_str).collect();
        self.tools.check(
            self.driver,
            &[
                ("--script", !self.script.is_empty()),
                ("--aggregate-interval", self.aggregate_interval.is_some()),
                ("--transactions", self.transactions.is_some()),
                ("--scale", self.driver == Driver::Sysbench && self.scale.is_some()),
                ("--query-mode extended", self.driver == Driver::Sysbench && self.query_mode == "extended"),
            ],
        )?;
        if names.is_empty() && self.script.is_empty() && self.driver == Driver::Pgbench {
            names.push("tpcb-like");
            if question == ExperimentKind::Sweep && !self.quick {
                names.push("select-only");
            }
        }
        names.dedup();
        if names.is_empty() && !self.script.is_empty() {
            return Ok(vec![workload::from_scripts(&self.script).map_err(usage)?]);
        }
        let mut workloads = self.tools.workloads(self.driver, &names).map_err(usage)?;
        if !self.script.is_empty() {
            workloads.push(workload::from_scripts(&self.script).map_err(usage)?);
        }
        Ok(workloads)
    }
}

fn address(uri: &str) -> Result<Address> {
    Address::parse(uri).map_err(|error| LabError::Usage(error.to_string()))
}

fn milliseconds(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "a number of milliseconds above 0 is wanted".to_owned())
}

/// Different each time; it is in the record.
fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| u64::from(since.subsec_nanos()) + 1)
}
