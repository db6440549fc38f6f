//! The command line, as PgBouncer's: what scripts and service files say today goes on being understood.
//! `boot.rs` and `generate.rs` act on the options.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::quota_command::QuotaTask;

/// A PostgreSQL connection pooler that takes PgBouncer's place.
#[derive(Debug, Parser)]
#[command(name = "weir", disable_version_flag = true, max_term_width = 100)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    infer_long_args = true // as getopt_long: --verb
)]
pub(crate) struct Options {
    /// What else the binary does.
    #[command(subcommand)]
    pub(crate) task: Option<Task>,

    /// The configuration file, in PgBouncer's language.
    #[arg(value_name = "FILE.ini", required_unless_present_any = ["version", "generate"])]
    pub(crate) file: Option<String>,

    /// Run in the background. Needs `pidfile`.
    #[arg(short, long)]
    pub(crate) daemon: bool,

    /// Write nothing to standard error once the process is up.
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Log more; twice logs most.
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Become this user after start.
    #[arg(short, long, value_name = "USER")]
    pub(crate) user: Option<String>,

    /// Take over from the running process: its sockets, clients and servers, without losing a query.
    #[arg(short = 'R', long)]
    pub(crate) reboot: bool,

    /// Print the version and exit.
    #[arg(short = 'V', long)]
    pub(crate) version: bool,

    /// Print a document that is made from the tables, and exit.
    #[arg(long, hide = true, value_enum, value_name = "DOCUMENT")]
    pub(crate) generate: Option<Document>,
}

/// What the binary does besides pooling.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub(crate) enum Task {
    /// Say what is wrong with a configuration file, and what differs from PgBouncer. Fails if it cannot be used.
    Check {
        /// The configuration file, in PgBouncer's language.
        #[arg(value_name = "FILE.ini")]
        file: String,
    },
    /// Convert a configuration of pgpool-II to one of Weir, and list what becomes of each of its settings.
    #[command(after_help = IMPORT_HELP)]
    Import(ImportTask),
    /// Make a line of http_auth_file: who may use the control panel.
    #[command(subcommand)]
    Panel(CredentialTask),
    /// Show, set and report quotas: what users, groups, databases and application_names may use.
    Quota(Box<QuotaTask>),
    /// Measure what a pool is worth and how large it should be, with pgbench, on a private PostgreSQL or on yours: the program weir-bench.
    #[command(disable_help_flag = true)]
    Bench {
        /// What weir-bench is given: compare, sweep, replay or report, and its options; weir bench help lists them.
        #[arg(value_name = "WORDS", trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}

const IMPORT_HELP: &str = "Without --output the configuration goes to standard output and the list to standard error. \
    With --output FILE the list goes to standard output; --pool-hba FILE copies pgpool-II's rules to weir_hba.conf beside it, and --pool-passwd FILE writes the \
    secrets to userlist.txt beside it, with mode 0600. Files that are there already are replaced only with --force.";

/// What `weir import` converts, and where to.
#[derive(Args, Clone, Debug, PartialEq)]
pub(crate) struct ImportTask {
    /// The configuration of pgpool-II.
    #[arg(value_name = "pgpool.conf")]
    pub(crate) file: String,

    /// The configuration file to write.
    #[arg(short, long, value_name = "FILE.ini")]
    pub(crate) output: Option<String>,

    /// pgpool-II's rules of who may log in, to be copied.
    #[arg(long, value_name = "pool_hba.conf", requires = "output")]
    pub(crate) pool_hba: Option<String>,

    /// pgpool-II's passwords, to be written as a user list.
    #[arg(long, value_name = "pool_passwd", requires = "output")]
    pub(crate) pool_passwd: Option<String>,

    /// Replace files that are there already.
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}

/// For whom a line of `http_auth_file` is made. The line goes to standard output, all else to standard error.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub(crate) enum CredentialTask {
    /// A user with a password, which is asked for (or read from standard input if that is no terminal).
    Password {
        /// The user's name.
        name: String,
        /// What it may do: read, operate, admin, view_credentials.
        #[arg(long, default_value = "read,operate,admin,view_credentials")]
        scopes: String,
    },
    /// A program with a token, which is told once.
    Token {
        /// A name for whoever has it.
        name: String,
        /// What it may do: read, operate, admin, view_credentials.
        #[arg(long, default_value = "read")]
        scopes: String,
    },
}

/// What `--generate` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Document {
    /// The manual page.
    Man,
    /// The annotated configuration file.
    Ini,
    /// Everything that PgBouncer's users know, a line each, with how it compares.
    Parity,
    /// docs/pgpool.md: what becomes of pgpool-II's settings.
    Pgpool,
}

/// Why nothing is started: the text, and whether somebody only asked for help.
#[derive(Debug)]
pub(crate) struct CliExit {
    pub(crate) text: String,
    pub(crate) is_help: bool,
}

impl Options {
    /// Reads the command line; the first word is the program's own name.
    pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Options, CliExit> {
        Options::try_parse_from(words).map_err(|fault| CliExit {
            text: fault.to_string(),
            is_help: fault.kind() == ErrorKind::DisplayHelp,
        })
    }

    /// What the command line says about settings; it wins over the file, on RELOAD too.
    pub(crate) fn flags(&self) -> Vec<(&'static str, String)> {
        let verbose = (self.verbose > 0).then(|| ("verbose", self.verbose.to_string()));
        let user = self.user.clone().map(|user| ("user", user));
        verbose.into_iter().chain(user).collect()
    }
}

/// `weir help bench …` is for weir-bench, where it is installed: its words.
pub(crate) fn help_of_bench(words: &[OsString]) -> Option<Vec<OsString>> {
    match words {
        [_, help, bench, rest @ ..] if help == "help" && bench == "bench" => {
            Some(std::iter::once("help".into()).chain(rest.iter().cloned()).collect())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, CliExit> {
        Options::read(std::iter::once("weir").chain(line.split(' ')).map(Into::into))
    }

    #[test]
    fn the_table_of_options_is_sound() {
        use clap::CommandFactory as _;
        Options::command().debug_assert();
    }

    #[test]
    fn pgbouncers_lines_are_understood() {
        let options = read("-dqvv -u postgres x.ini").expect("a line of a service file");
        assert!(options.daemon && options.quiet);
        assert_eq!(options.file.as_deref(), Some("x.ini"));
        assert_eq!(options.flags(), [("verbose", "2".into()), ("user", "postgres".into())]);
        assert!(
            read("--reboot --quiet x.ini").is_ok_and(|options| options.reboot && options.flags().is_empty())
        );
        assert!(read("--verb --us=postgres x.ini").is_ok_and(|options| options.verbose == 1));
        assert!(read("--ver x.ini").is_err(), "--verbose or --version");
        assert!(read("-V").is_ok_and(|options| options.version));
        assert!(read("--version").is_ok_and(|options| options.version));
    }

    #[test]
    fn a_file_is_checked_instead_of_served() {
        let check = read("check x.ini").expect("a task");
        assert_eq!(check.task, Some(Task::Check { file: "x.ini".into() }));
        assert!(read("x.ini").is_ok_and(|options| options.task.is_none()));
        assert!(read("check").is_err_and(|no| no.text.contains("FILE.ini")));
    }

    #[test]
    fn other_files_of_an_import_need_a_place_for_theirs() {
        let import = read("import pgpool.conf --output weir.ini --pool-hba h --pool-passwd p --force")
            .expect("a task");
        assert!(
            matches!(import.task, Some(Task::Import(task)) if task.file == "pgpool.conf" && task.force && task.pool_hba.is_some())
        );
        assert!(read("import pgpool.conf").is_ok() && read("import").is_err());
        for line in ["import x --pool-hba h", "import x --pool-passwd p", "import x --force"] {
            assert!(read(line).is_err_and(|no| no.text.contains("--output")), "{line}");
        }
    }

    #[test]
    fn the_labs_words_are_passed_on_as_they_are() {
        for line in
            ["sweep --quick", "--help", "-V", "help sweep", "replay -- x --verb", "report --color never"]
        {
            let bench = read(&format!("bench {line}")).expect("a task");
            let words = line.split(' ').map(Into::into).collect();
            assert_eq!(bench.task, Some(Task::Bench { words }));
        }
        assert_eq!(
            read("bench").expect("weir-bench says what it lacks").task,
            Some(Task::Bench { words: vec![] })
        );
        assert!(read("bench.ini").is_ok_and(|options| options.task.is_none()), "a file of that name");
        let help = |line: &str| help_of_bench(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        assert_eq!(help("weir help bench sweep"), Some(vec!["help".into(), "sweep".into()]));
        assert_eq!((help("weir help check"), help("weir bench help")), (None, None));
    }

    #[test]
    fn help_is_a_word_too() {
        for (line, word) in [
            ("help", "--daemon"),
            ("help check", "FILE.ini"),
            ("help bench", "weir-bench"),
            ("panel help", "token"),
        ] {
            assert!(read(line).is_err_and(|no| no.is_help && no.text.contains(word)), "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        assert!(read("-h").is_err_and(|no| no.is_help && no.text.contains("--daemon")));
        assert!(read("--frob x.ini").is_err_and(|no| !no.is_help && no.text.contains("--frob")));
        assert!(read("-q").is_err_and(|no| !no.is_help && no.text.contains("FILE.ini")));
    }
}
