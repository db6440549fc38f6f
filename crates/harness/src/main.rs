//! `weir-harness`: its command line. Reads what is wanted, installs the signal flag, runs one of its
//! programs, and turns an error into a sentence and an exit code (130 after Ctrl-C, as a shell expects).
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lab::error::LabError;
use lab::interrupt::Interrupt;
use weir_harness::{compare, demo, fleet, full, panel, replicas};

const AFTER_CTRL_C: u8 = 130;

#[derive(Debug, Parser)]
#[command(name = "weir-harness", about = "What a pool is worth: pgbench on a private PostgreSQL", version)]
struct Arguments {
    #[command(subcommand)]
    program: Program,
}

#[derive(Debug, Subcommand)]
enum Program {
    /// Four pgbench runs, direct and through a pool, as a table and a page
    Demo(demo::Options),
    /// A primary and its standbys behind one entry: reads spread, and the primary is killed under load
    Replicas(replicas::Options),
    /// Five Weirs that share a limit by way of etcd: one is killed, one cut off, one upgraded, under load
    Fleet(fleet::Options),
    /// Weir on both I/O drivers, PgBouncer, and no pooler, in one interleaved series
    Compare(compare::Options),
    /// Every scenario and every subject, with intervals and bars: hours
    Full(full::Options),
    /// What the data path notices of requests to the control panel, pair by pair
    Panel(panel::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let interrupt = match Interrupt::install() {
        Ok(interrupt) => interrupt,
        Err(error) => {
            eprintln!("weir-harness: cannot watch for signals: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = match &arguments.program {
        Program::Demo(options) => demo::run(options, &interrupt),
        Program::Replicas(options) => replicas::run(options, &interrupt),
        Program::Fleet(options) => fleet::run(options, &interrupt),
        Program::Compare(options) => compare::run(options, &interrupt),
        Program::Full(options) => full::run(options, &interrupt),
        Program::Panel(options) => panel::run(options, &interrupt),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(LabError::Interrupted) => {
            eprintln!("weir-harness: stopped; nothing is left behind");
            ExitCode::from(AFTER_CTRL_C)
        }
        Err(error) => {
            eprintln!("weir-harness: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound_and_its_defaults_are_the_issues() {
        Arguments::command().debug_assert();
        let Ok(arguments) = Arguments::try_parse_from(["weir-harness", "demo"]) else {
            panic!("no defaults")
        };
        let Program::Demo(options) = arguments.program else { panic!("not the demo") };
        assert_eq!((options.seconds, options.scale, options.pool_size, options.keep), (15, 50, None, None));
    }
}
