//! The `weir` binary: wiring only. Options to a booted process, or to the document that was asked for.
#![forbid(unsafe_code)]

mod bench_command;
mod boot;
mod check;
mod cli;
mod compat;
mod config_option;
mod console;
mod container;
mod control_loop;
mod credentials;
mod files;
mod fleet;
mod fleet_command;
mod generate;
mod logging;
mod panel_thread;
mod panics;
mod pgpool;
mod pools_file;
mod quota_command;
mod quotas_file;
mod service_manager;
mod takeover;
mod tls;
mod workers;

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use commandline::ColorWhen;
use programs::Status;
use telemetry::{Level, Record};

use boot::BootError;
use cli::{Options, Task};
use logging::Logger;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(words) = cli::help_of_bench(&words).filter(|_| bench_command::find().is_ok()) {
        return bench_command::run(&words).into();
    }
    match Options::read(&words) {
        Ok(options) => run(options, &words),
        Err(no) if commandline::show(&no, ColorWhen::of_words(&words)) => Status::Done,
        Err(_) => {
            suggest(&words);
            cli::usage_status(&words)
        }
    }
    .into()
}

fn run(options: Options, words: &[OsString]) -> Status {
    let paint = options.color.color.paint(std::io::stdout().is_terminal());
    match options.task {
        Some(Task::Check { file, json }) => check::run(&file, json, paint),
        Some(Task::Container(task)) => container::run(task, |options| serve(options, words)),
        Some(Task::Import(task)) => pgpool::run(&task),
        Some(Task::Quota(task)) => quota_command::run(&task, paint),
        Some(Task::Fleet(task)) => fleet_command::run(&task, paint),
        Some(Task::Panel(task)) => credentials::run(&task),
        Some(Task::Bench { words }) => bench_command::run(&cli::bench_words(options.color, words)),
        None if options.version => print(&format!("{}\nio drivers: io_uring, epoll\n", control::VERSION)),
        None => match options.generate {
            Some(document) => print(&generate::generate(document)),
            None => serve(&options, words),
        },
    }
}

/// A file that is not there may be a command that is misspelt.
fn suggest(words: &[OsString]) {
    if let Some(command) = cli::meant(words) {
        let _ = writeln!(std::io::stderr(), "tip: a similar command exists: '{command}'");
    }
}

/// Runs the pooler; errors go to standard error even with --quiet.
fn serve(options: &Options, words: &[OsString]) -> Status {
    let logger = Arc::new(Logger::new(!options.quiet));
    match boot::run(options, &logger) {
        Ok(()) => Status::Done,
        Err(fault) => {
            if let BootError::File(_, findings) = &fault {
                findings.iter().for_each(|finding| drop(writeln!(std::io::stderr(), "{finding}")));
            }
            logger.write_to_stderr_too(&Record::new(Level::Fatal, fault.to_string()));
            suggest(words);
            Status::Failed
        }
    }
}

/// Prints; a closed pipe is no failure.
fn print(text: &str) -> Status {
    let _ = std::io::stdout().write_all(text.as_bytes());
    Status::Done
}
