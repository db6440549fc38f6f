//! `weir-harness demo`: the tutorial's journey. A PostgreSQL with 100 connections; 50 clients and 150 clients, direct and through
//! a pool whose size a short sweep has found; the lab measures and reports them as `weir-bench compare` does. Beside it stands
//! Weir with its control panel, to look around in. No run gets a delay, a throttle or any other handicap.

mod server;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser};

use lab::command::{self, Task};
use lab::error::{LabError, Result};
use lab::experiment::{self, ExperimentOptions};
use lab::interrupt::Interrupt;
use lab::laboratory::{Lab, Setup};
use lab::record::{self, Experiment};
use lab::report;
use lab::screen::Screen;
use programs::Status;
use server::DemoServer;
pub(crate) use server::token;

/// The pool's name, as in the tutorial.
const POOL: &str = "test-pool";

/// PostgreSQL's max_connections, three of which are the superuser's.
const MAX_CONNECTIONS: u32 = 100;

/// Rounds of the comparison: as few as give an interval.
const ROUNDS: u32 = 3;

/// A pool is large enough with this part of the best size's throughput.
const ENOUGH: f64 = 0.95;

/// Where the result goes unless it is said; an earlier demo's makes room.
const OUT: &str = "demo-result";

/// What can be chosen.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Seconds that count of each row, in three rounds; the tutorial's own is 600
    #[arg(long, env = "DEMO_SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Scale of pgbench's tables, 100,000 rows each; the tutorial's own is 150
    #[arg(long, env = "DEMO_SCALE", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub scale: u32,
    /// Stay up after the runs until Ctrl-C, or not (0) [default: where somebody sits at a terminal]
    #[arg(long, env = "DEMO_KEEP", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = clap::builder::FalseyValueParser::new())]
    pub keep: Option<bool>,
    /// Server connections of the pool [default: what a short sweep finds]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=97))]
    pub pool_size: Option<u32>,
    /// The pooler; by default `weir` beside this program
    #[arg(long)]
    pub pooler_binary: Option<PathBuf>,
    /// Directory of PostgreSQL's programs, where they are not in the usual places
    #[arg(long, env = "WEIR_PG_BIN")]
    pub pg_bin: Option<PathBuf>,
    /// New directory for the page and the figures [default: demo-result, where an earlier one makes room]
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// What the lab is asked for, as it could be typed.
#[derive(Debug, Parser)]
struct Line {
    #[command(subcommand)]
    task: Task,
}

impl Options {
    /// Weir's program, where the lab's user can run it.
    fn weir(&self, lab: &Lab) -> Result<PathBuf> {
        lab.program(&self.binary(), "build it: cargo build --release -p weir")
    }

    /// The same where it was built.
    fn binary(&self) -> PathBuf {
        let beside = || std::env::current_exe().unwrap_or_default().with_file_name("weir");
        self.pooler_binary.clone().unwrap_or_else(beside)
    }

    /// The same with `weir-bench` beside it, where that was built: Weir's panel starts it.
    fn weir_with_lab(&self, lab: &Lab) -> Result<PathBuf> {
        let bench = self.binary().with_file_name(programs::BENCH);
        if bench.is_file() {
            lab.program(&bench, "build it: cargo build --release -p weir-lab")?;
        }
        self.weir(lab)
    }

    /// What a line of the lab's options means for this Weir.
    fn wish(&self, line: &str) -> Result<ExperimentOptions> {
        let own = ["--weir".to_owned(), self.binary().display().to_string()];
        let words: Vec<String> = line.split(' ').map(str::to_owned).chain(own).collect();
        let read = Line::try_parse_from(&words).map_err(|fault| LabError::Usage(fault.to_string()))?;
        command::wish(&read.task, words, env!("CARGO_PKG_VERSION"))
    }

    /// Whether it stays up. Scripts and CI, which cannot press Ctrl-C, end.
    fn stays(&self) -> bool {
        let sits_there = || std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        self.keep.unwrap_or_else(sits_there)
    }

    /// The comparison: the tutorial's rows, in rounds that together count for the seconds that were asked for.
    fn comparison(&self, pool_size: u32) -> Result<ExperimentOptions> {
        self.wish(&format!(
            "weir-bench compare --clients 50,150 --pool-size {pool_size} --seconds {} --warm-up 1 --rounds {ROUNDS} --scale {} \
             --no-open-loop",
            self.seconds.div_ceil(ROUNDS),
            self.scale
        ))
    }

    /// The sweep that finds a size for it: short, so that it says which sizes are far too small and no more.
    fn sweep(&self) -> Result<ExperimentOptions> {
        self.wish(&format!(
            "weir-bench sweep --workload tpcb-like --clients 150 --pool-sizes 5,10,20,40 --seconds 1 --warm-up 1 --rounds 2 \
             --scale {} --no-direct --no-open-loop",
            self.scale
        ))
    }
}

/// The smallest size of a sweep whose median throughput is enough beside the highest.
fn enough(swept: &Experiment) -> Option<u32> {
    let mut sizes: Vec<(u32, f64)> =
        swept.points.iter().filter_map(|point| Some((point.pool_size?, point.tps()?.median))).collect();
    sizes.sort_by_key(|(size, _)| *size);
    let best = sizes.iter().map(|(_, tps)| *tps).fold(0.0, f64::max);
    sizes.into_iter().find(|(_, tps)| *tps >= ENOUGH * best).map(|(size, _)| size)
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
    let lab = Lab::start(&setup, interrupt, &mut screen)?;
    let out = options.out.clone().map_or_else(make_room, Ok)?;
    let on_it = |wish: ExperimentOptions, out: PathBuf| -> Result<ExperimentOptions> {
        Ok(ExperimentOptions {
            server: Some(lab.direct()),
            started: vec![("weir".to_owned(), options.weir(&lab)?)],
            pg_bin: Some(lab.programs().directory().to_path_buf()),
            owns_tables: true,
            out: Some(out),
            ..wish
        })
    };
    let size = match options.pool_size {
        Some(size) => size,
        None => {
            screen.step("A short sweep of pool sizes");
            let swept = experiment::prepare(&on_it(options.sweep()?, beside(&out))?, interrupt)?;
            let size = enough(&swept).ok_or_else(|| LabError::program("the sweep", "no run ended well"))?;
            screen.remark(&format!(
                "pool size {size}: the smallest of 5, 10, 20 and 40 with 95 % of the highest throughput, by two short rounds"
            ));
            size
        }
    };
    let stand = DemoServer::start(&lab, options, size)?;
    screen.step("Weir with its control panel, to look around in as long as this runs");
    stand.entrance().iter().for_each(|line| screen.remark(line));
    if experiment::run(&on_it(options.comparison(size)?, out.clone())?, interrupt)? == Status::Interrupted {
        return Err(LabError::Interrupted);
    }
    println!("\nIn short:");
    report::headlines(&Experiment::load(&out)?).iter().for_each(|line| println!("  {line}"));
    let bench = options.binary().with_file_name(programs::BENCH);
    println!("How large should the pool be? {} sweep --quick", bench.display());
    say_what_runs(&lab, &stand);
    if options.stays() { stay(&lab, &stand) } else { Ok(()) }
}

/// The usual place of the result, without an earlier one.
fn make_room() -> Result<PathBuf> {
    let usual = PathBuf::from(OUT);
    for place in [&usual, &beside(&usual)] {
        if place.join(record::FILE).is_file() {
            let doing = LabError::system(format!("removing an earlier {}", place.display()));
            std::fs::remove_dir_all(place).map_err(doing)?;
        }
    }
    Ok(usual)
}

/// Where the sweep's own result goes.
fn beside(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push("-sweep");
    PathBuf::from(name)
}

fn say_what_runs(lab: &Lab, stand: &DemoServer) {
    println!(
        "Started: PostgreSQL (process {}, port {}) and Weir (process {}), both in {}\n",
        lab.cluster().process_id(),
        lab.cluster().port(),
        stand.pooler().process_id(),
        lab.place().path().display()
    );
    println!("pool: {}", stand.uri());
    stand.entrance().iter().for_each(|line| println!("{line}"));
}

/// Waits for Ctrl-C, which is the good end here.
fn stay(lab: &Lab, stand: &DemoServer) -> Result<()> {
    let pgbench = lab.programs().program("pgbench");
    println!("\nOpen the panel, log in with the token, and watch the load that this makes:");
    println!("    {} -n -c 50 -j 2 -T 60 '{}'", pgbench.display(), stand.uri());
    println!("Press Ctrl-C (or: kill {}) to stop it all and remove the directory.", std::process::id());
    while !lab.interrupt().is_set() {
        if lab.interrupt().sleep(Duration::from_millis(500)).is_ok() && !stand.pooler().is_alive() {
            return Err(LabError::program("Weir", "it ended by itself"));
        }
    }
    println!("\nStopping PostgreSQL and Weir, removing {}", lab.place().path().display());
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use lab::record::{Point, Run};

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn the_lab_is_asked_for_the_tutorials_rows_in_three_rounds_of_the_same_time() {
        let typed = Typed::try_parse_from(["demo", "--seconds", "600", "--scale", "150"]).unwrap();
        let wish = typed.options.comparison(16).unwrap();
        assert_eq!((wish.clients.as_slice(), wish.pool_sizes.as_slice()), (&[50, 150][..], &[16][..]));
        assert_eq!((wish.span.seconds, wish.scale, wish.rounds, wish.open_loop), (200, Some(150), 3, false));
        assert_eq!(wish.workloads[0].name, "tpcb-like");
        assert!(wish.command.join(" ").starts_with("weir-bench compare --clients 50,150 --pool-size 16 "));
        let sweep = typed.options.sweep().unwrap();
        assert_eq!((sweep.pool_sizes.as_slice(), sweep.rounds), (&[5, 10, 20, 40][..], 2));
    }

    #[test]
    fn the_smallest_size_that_is_enough_is_taken() {
        let point = |size, tps| Point {
            pool_size: Some(size),
            runs: vec![Run { tps, ..Run::default() }],
            ..Point::default()
        };
        let swept = |points| enough(&Experiment { points, ..Experiment::default() });
        assert_eq!(
            swept(vec![point(40, 990.0), point(5, 500.0), point(20, 1000.0), point(10, 951.0)]),
            Some(10)
        );
        assert_eq!(swept(vec![Point { runs: Vec::new(), ..point(5, 0.0) }]), None);
    }

    #[test]
    fn staying_can_be_said_for_certain() {
        let stays = |words: &[&str]| Typed::try_parse_from(words).unwrap().options.keep;
        assert_eq!((stays(&["demo", "--keep"]), stays(&["demo", "--keep=0"])), (Some(true), Some(false)));
        assert_eq!(stays(&["demo"]), None);
    }
}
