//! The `weir` binary: wiring only. Options to a booted process, or to the document that was asked for.
#![forbid(unsafe_code)]

mod bench_command;
mod boot;
mod check;
mod cli;
mod compat;
mod control_loop;
mod credentials;
mod files;
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
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use telemetry::{Level, Record};

use boot::BootError;
use cli::{Options, Task};
use logging::Logger;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(words) = cli::help_of_bench(&words).filter(|_| bench_command::find().is_ok()) {
        return bench_command::run(&words);
    }
    match Options::read(words) {
        Ok(options) if options.version => {
            print(&format!("{}\nio drivers: io_uring, epoll\n", control::VERSION))
        }
        Ok(Options { task: Some(Task::Check { file }), .. }) => check::run(&file),
        Ok(Options { task: Some(Task::Import(task)), .. }) => pgpool::run(&task),
        Ok(Options { task: Some(Task::Quota(task)), .. }) => quota_command::run(&task),
        Ok(Options { task: Some(Task::Panel(task)), .. }) => credentials::run(&task),
        Ok(Options { task: Some(Task::Bench { words }), .. }) => bench_command::run(&words),
        Ok(options) => match options.generate {
            Some(document) => print(&generate::generate(document)),
            None => serve(&options),
        },
        Err(no) if no.is_help => print(&no.text),
        Err(no) => {
            let _ = write!(std::io::stderr(), "{}", no.text);
            ExitCode::FAILURE
        }
    }
}

/// Runs the pooler; errors go to standard error even with --quiet.
fn serve(options: &Options) -> ExitCode {
    let logger = Arc::new(Logger::new(!options.quiet));
    match boot::run(options, &logger) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            if let BootError::File(_, findings) = &fault {
                findings.iter().for_each(|finding| drop(writeln!(std::io::stderr(), "{finding}")));
            }
            logger.write_to_stderr_too(&Record::new(Level::Fatal, fault.to_string()));
            ExitCode::FAILURE
        }
    }
}

/// Prints; a closed pipe is no failure.
fn print(text: &str) -> ExitCode {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}
