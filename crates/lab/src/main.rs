//! `weir-bench`: the lab as a program. Reads the command line, and ends with the status of what was asked.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use programs::Status;

/// Measures what a pool of server connections is worth and how large it should be, with pgbench, sysbench or JMeter.
#[derive(Debug, Parser)]
#[command(name = programs::BENCH, version, max_term_width = 100, after_help = programs::STATUSES)]
struct Options {
    #[command(subcommand)]
    task: lab::command::Task,
}

fn main() -> ExitCode {
    match Options::try_parse() {
        Ok(options) => {
            let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            lab::command::run(&options.task, words, env!("CARGO_PKG_VERSION")).into()
        }
        Err(no) if matches!(no.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            let _ = write!(std::io::stdout(), "{no}"); // A closed pipe is no failure.
            ExitCode::SUCCESS
        }
        Err(no) => {
            let _ = write!(std::io::stderr(), "{no}");
            Status::Usage.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_options_is_sound() {
        use clap::CommandFactory as _;
        Options::command().debug_assert();
        assert!(Options::try_parse_from(["weir-bench"]).is_err());
    }
}
