//! `weir-bench demo`: the tutorial's journey. A PostgreSQL with 100 connections; 50 clients and 150 clients, direct, through
//! a pool of 20 and through one of 97; the lab measures and reports them as `weir bench compare` does. Beside it stands Weir
//! with its control panel, to look around in. No run gets a delay, a throttle or any other handicap.

mod stand;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser};

use lab::command::{self, Status, Task};
use lab::error::{LabError, Result};
use lab::experiment::{self, Wish};
use lab::interrupt::Interrupt;
use lab::laboratory::{Lab, Setup};
use lab::record;
use lab::screen::Screen;
use stand::Stand;
pub(crate) use stand::token;

/// The pool's name, as in the tutorial.
const POOL: &str = "test-pool";

/// PostgreSQL's max_connections, three of which are the superuser's.
const MAX_CONNECTIONS: u32 = 100;

/// The largest pool that PostgreSQL has room for: what the right size is worth shows beside it.
const LARGEST_POOL: u32 = MAX_CONNECTIONS - 3;

/// Where the result goes unless it is said; an earlier demo's makes room.
const OUT: &str = "demo-result";

/// What can be chosen.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Seconds of each run that count; the tutorial's own is 600
    #[arg(long, env = "DEMO_SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Scale of pgbench's tables, 100,000 rows each; the tutorial's own is 150
    #[arg(long, env = "DEMO_SCALE", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub scale: u32,
    /// Stay up after the runs until Ctrl-C, or not (0) [default: where somebody sits at a terminal]
    #[arg(long, env = "DEMO_KEEP", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = clap::builder::FalseyValueParser::new())]
    pub keep: Option<bool>,
    /// Server connections of the pool
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=97))]
    pub pool_size: u32,
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

    /// Whether it stays up. Scripts and CI, which nobody can interrupt by hand, get to the end.
    fn stays(&self) -> bool {
        let sits_there = || std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        self.keep.unwrap_or_else(sits_there)
    }

    /// The comparison: one round of the tutorial's rows, and of the largest pool.
    fn wish(&self) -> Result<Wish> {
        let line = format!(
            "bench compare --clients 50,150 --pool-size {},{LARGEST_POOL} --seconds {} --warm-up 2 --rounds 1 --scale {} \
             --no-open-loop",
            self.pool_size, self.seconds, self.scale
        );
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let read = Line::try_parse_from(&words).map_err(|fault| LabError::Usage(fault.to_string()))?;
        let typed = std::iter::once("weir".to_owned()).chain(words).collect();
        command::wish(&read.task, typed, env!("CARGO_PKG_VERSION"))
    }
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
    let stand = Stand::start(&lab, options)?;
    screen.step("Weir with its control panel, to look around in as long as this runs");
    stand.entrance().iter().for_each(|line| screen.remark(line));
    let out = options.out.clone().map_or_else(make_room, Ok)?;
    let wish = Wish {
        server: Some(lab.direct()),
        started: vec![("weir".to_owned(), options.weir(&lab)?)],
        pg_bin: Some(lab.programs().directory().to_path_buf()),
        out: Some(out),
        ..options.wish()?
    };
    if experiment::run(&wish, interrupt)? == Status::Interrupted {
        return Err(LabError::Interrupted);
    }
    println!("How large should the pool be? {} bench sweep --quick", options.binary().display());
    say_what_runs(&lab, &stand);
    if options.stays() { stay(&lab, &stand) } else { Ok(()) }
}

/// The usual place of the result, without an earlier one.
fn make_room() -> Result<PathBuf> {
    let usual = Path::new(OUT);
    if usual.join(record::FILE).is_file() {
        std::fs::remove_dir_all(usual).map_err(LabError::system(format!("removing an earlier {OUT}")))?;
    }
    Ok(usual.to_path_buf())
}

fn say_what_runs(lab: &Lab, stand: &Stand) {
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
fn stay(lab: &Lab, stand: &Stand) -> Result<()> {
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

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn the_lab_is_asked_for_the_tutorials_rows_and_the_largest_pool() {
        let typed = Typed::try_parse_from(["demo", "--seconds", "600", "--scale", "150"]).unwrap();
        let wish = typed.options.wish().unwrap();
        assert_eq!((wish.clients.as_slice(), wish.pool_sizes.as_slice()), (&[50, 150][..], &[20, 97][..]));
        assert_eq!((wish.span.seconds, wish.scale, wish.rounds, wish.open_loop), (600, Some(150), 1, false));
        assert_eq!(wish.workloads[0].name, "tpcb-like");
        assert!(wish.command.join(" ").starts_with("weir bench compare --clients 50,150 --pool-size 20,97 "));
    }

    #[test]
    fn staying_can_be_said_for_certain() {
        let stays = |words: &[&str]| Typed::try_parse_from(words).unwrap().options.keep;
        assert_eq!((stays(&["demo", "--keep"]), stays(&["demo", "--keep=0"])), (Some(true), Some(false)));
        assert_eq!(stays(&["demo"]), None);
    }
}
