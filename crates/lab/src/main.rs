//! `weir-bench`: the lab as a program. Reads the command line, and ends with the status of what was asked.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, ValueEnum};
use commandline::{ColorOption, ColorWhen, Manual, Shell, completions, task_list};
use programs::Status;

/// Measures what a pool of server connections is worth and how large it should be, with pgbench, sysbench or JMeter.
#[derive(Debug, Parser)]
#[command(name = programs::BENCH, version, max_term_width = 100, after_help = programs::statuses(&Status::ALL))]
#[command(styles = commandline::STYLES)]
struct Options {
    #[command(subcommand)]
    task: lab::command::Task,

    #[command(flatten)]
    color: ColorOption,
}

/// What `--generate`, alone on the line, prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Document {
    /// The manual page.
    Man,
    /// For bash.
    CompletionsBash,
    /// For zsh.
    CompletionsZsh,
    /// For fish.
    CompletionsFish,
}

impl Document {
    fn asked(words: &[OsString]) -> Option<Document> {
        let [_, option, name] = words else { return None };
        (option == "--generate").then(|| Document::from_str(name.to_str()?, false).ok()).flatten()
    }

    fn text(self) -> String {
        let mut command = Options::command();
        match self {
            Document::Man => {
                command.build();
                let tasks = task_list(&command, "COMMANDS", true);
                let version = concat!("weir-bench ", env!("CARGO_PKG_VERSION"));
                // How it ends is a section of its own.
                let manual = Manual::of(Options::command().after_help(None::<&str>), version);
                manual.section(&tasks).statuses().text()
            }
            Document::CompletionsBash => completions(Shell::Bash, &command),
            Document::CompletionsZsh => completions(Shell::Zsh, &command),
            Document::CompletionsFish => completions(Shell::Fish, &command),
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(document) = Document::asked(&words) {
        let _ = std::io::stdout().write_all(document.text().as_bytes()); // A closed pipe is no failure.
        return Status::Done.into();
    }
    match Options::try_parse_from(ColorOption::settle(words.clone(), |_| false)) {
        Ok(options) => {
            let typed = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            lab::command::run(&options.task, typed, env!("CARGO_PKG_VERSION"), options.color.color).into()
        }
        Err(no) if commandline::show(&no, ColorWhen::of_words(&words)) => Status::Done.into(),
        Err(_) => Status::Usage.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_options_is_sound() {
        Options::command().debug_assert();
        assert!(Options::try_parse_from(["weir-bench"]).is_err());
        let of = |line: &str| Document::asked(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        assert_eq!(of("weir-bench --generate completions-zsh"), Some(Document::CompletionsZsh));
        assert_eq!(
            (of("weir-bench --generate"), of("weir-bench --generate x"), of("weir-bench sweep")),
            (None, None, None)
        );
    }

    #[test]
    fn the_manual_has_every_command_and_option_and_how_they_end() {
        let page = Document::Man.text().replace('\\', "");
        for words in [
            "weir-bench sweep",
            "--pool-sizes",
            "(sweep, replay)",
            "--transactions",
            "EXIT STATUS",
            "interrupted",
        ] {
            assert!(page.contains(words), "{words}\n{page}");
        }
        assert_eq!(page.matches("--max-connections").count(), 1, "once for all commands");
        assert!(Document::CompletionsFish.text().contains("pool-sizes"));
    }
}
