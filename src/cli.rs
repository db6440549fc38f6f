//! The command line, as PgBouncer's: what scripts and service files say today goes on being understood.
//! `boot.rs` and `generate.rs` act on the options. Owns which errors of the command line end with which status.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Args, Command, CommandFactory as _, Parser, Subcommand, ValueEnum, ValueHint};
use commandline::{ColorOption, ColorWhen};
use programs::Status;

use crate::fleet_command::FleetTask;
use crate::quota_command::QuotaTask;

/// A PostgreSQL connection pooler that takes PgBouncer's place.
#[derive(Debug, Default, Parser)]
#[command(name = programs::WEIR, disable_version_flag = true, max_term_width = 100, styles = commandline::STYLES)]
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
    #[arg(value_name = "FILE.ini", value_hint = ValueHint::FilePath, required_unless_present_any = ["version", "generate"])]
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

    #[command(flatten)]
    pub(crate) color: ColorOption,

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
        #[arg(value_name = "FILE.ini", value_hint = ValueHint::FilePath)]
        file: String,
        /// A JSON object: counts, and each finding with file, line, severity and text.
        #[arg(long)]
        json: bool,
    },
    /// Convert a configuration of pgpool-II to one of Weir, and list what becomes of each of its settings.
    #[command(after_help = IMPORT_HELP)]
    Import(ImportTask),
    /// Make a line of http_auth_file: who may use the control panel.
    #[command(subcommand)]
    Panel(CredentialTask),
    /// Run as the first process of a container: with a configuration that is mounted, or one made of the environment of PgBouncer's images.
    Container(ContainerTask),
    /// Show, set and report quotas: what users, groups, databases and application_names may use.
    Quota(Box<QuotaTask>),
    /// Show the nodes of a fleet; have one refuse new clients before it is upgraded, and accept them again.
    Fleet(FleetTask),
    /// Measure what a pool is worth and how large it should be, with pgbench, on a private PostgreSQL or on yours: the program weir-bench.
    #[command(disable_help_flag = true)]
    Bench {
        /// What weir-bench is given: compare, sweep, replay or report, and its options; weir bench help lists them.
        #[arg(value_name = "WORDS", trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}

/// What `weir container` does instead of running.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ContainerTask {
    /// Print the configuration that is made of the environment, without secrets, and exit.
    #[arg(long)]
    pub(crate) print: bool,

    /// Ask the process of this container whether it is ready: for health checks.
    #[arg(long, conflicts_with = "print")]
    pub(crate) health: bool,

    /// Ask the process of this container whether it lives, though it may take no new clients: for liveness probes.
    #[arg(long, conflicts_with_all = ["print", "health"])]
    pub(crate) alive: bool,

    /// End the process of this container without interrupting a transaction, and wait until it has ended: for preStop hooks. Connected clients
    /// have SECONDS to leave; after that only transactions in progress are waited for.
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["print", "health", "alive"])]
    pub(crate) drain: Option<u32>,

    /// With --drain: accept clients for SECONDS more before, while load balancers learn of it.
    #[arg(long, value_name = "SECONDS", requires = "drain")]
    pub(crate) delay: Option<u32>,
}

const IMPORT_HELP: &str = "Without --output the configuration goes to standard output and the list to standard error. \
    With --output FILE the list goes to standard output; --pool-hba FILE copies pgpool-II's rules to weir_hba.conf beside it, and --pool-passwd FILE writes the \
    secrets to userlist.txt beside it, with mode 0600. Files that are there already are replaced only with --force.";

/// What `weir import` converts, and where to.
#[derive(Args, Clone, Debug, PartialEq)]
pub(crate) struct ImportTask {
    /// The configuration of pgpool-II.
    #[arg(value_name = "pgpool.conf", value_hint = ValueHint::FilePath)]
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
    /// What bash completes.
    CompletionsBash,
    /// What zsh completes.
    CompletionsZsh,
    /// What fish completes.
    CompletionsFish,
}

impl Options {
    /// Reads the command line; the first word is the program's own name.
    pub(crate) fn read(words: &[OsString]) -> Result<Options, clap::Error> {
        Options::try_parse_from(ColorOption::settle(words.to_vec(), is_command))
    }

    /// What the command line says about settings; it wins over the file, on RELOAD too.
    pub(crate) fn flags(&self) -> Vec<(&'static str, String)> {
        let verbose = (self.verbose > 0).then(|| ("verbose", self.verbose.to_string()));
        let user = self.user.clone().map(|user| ("user", user));
        verbose.into_iter().chain(user).collect()
    }
}

fn is_command(word: &OsStr) -> bool {
    word == "help" || Options::command().find_subcommand(word).is_some()
}

/// How a command line ends that cannot be read: that of a command by the table of all commands, the pooler's as PgBouncer's.
pub(crate) fn usage_status(words: &[OsString]) -> Status {
    let words = ColorOption::settle(words.to_vec(), is_command);
    if words.get(1).is_some_and(|word| is_command(word)) { Status::Usage } else { Status::Failed }
}

/// The command that the first word may mean, or the one behind `help`, where it names neither a command nor a file.
pub(crate) fn meant(words: &[OsString]) -> Option<String> {
    let word = match words {
        [_, help, word] if help == "help" => word,
        [_, word, ..] if !Path::new(word).exists() => word,
        _ => return None,
    };
    if is_command(word) {
        return None;
    }
    let commands = Command::new(programs::WEIR).subcommands(Options::command().get_subcommands().cloned());
    let unknown =
        commands.subcommand_required(true).try_get_matches_from([OsStr::new(programs::WEIR), word]).err()?;
    match unknown.get(ContextKind::SuggestedSubcommand)? {
        ContextValue::Strings(names) => names.last().cloned(),
        ContextValue::String(name) => Some(name.clone()),
        _ => None,
    }
}

/// The words of weir-bench, with an option that stands before them, which is of weir-bench too.
pub(crate) fn bench_words(ColorOption { color }: ColorOption, words: Vec<OsString>) -> Vec<OsString> {
    let color = color.to_possible_value().filter(|_| color != ColorWhen::Auto);
    let option = color.map(|value| format!("--color={}", value.get_name()).into());
    option.into_iter().chain(words).collect()
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

    fn words(line: &str) -> Vec<OsString> {
        std::iter::once("weir").chain(line.split(' ')).map(Into::into).collect()
    }

    fn read(line: &str) -> Result<Options, clap::Error> {
        Options::read(&words(line))
    }

    fn is_told(line: &str, text: &str) -> bool {
        read(line).is_err_and(|no| no.use_stderr() && no.to_string().contains(text))
    }

    #[test]
    fn the_table_of_options_is_sound() {
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
        assert_eq!(check.task, Some(Task::Check { file: "x.ini".into(), json: false }));
        assert!(read("x.ini").is_ok_and(|options| options.task.is_none()));
        assert!(is_told("check", "FILE.ini"));
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
            assert!(is_told(line, "--output"), "{line}");
        }
    }

    #[test]
    fn a_container_does_one_thing() {
        let drain = read("container --drain 60 --delay 5").expect("a task");
        let asked = ContainerTask { drain: Some(60), delay: Some(5), ..ContainerTask::default() };
        assert_eq!(drain.task, Some(Task::Container(asked)));
        for line in [
            "container --drain 60 --alive",
            "container --drain 60 --health",
            "container --drain 60 --print",
            "container --delay 5",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
        assert!(is_told("container --drain soon", "soon") && is_told("container --drain -1", "-1"));
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
        let colored = read("bench --color never report x").expect("a task");
        let Some(Task::Bench { words: passed }) = colored.task else { panic!("not the lab") };
        assert_eq!(bench_words(colored.color, passed), ["--color=never", "report", "x"]);
        let help = |line: &str| help_of_bench(&words(line));
        assert_eq!(help("help bench sweep"), Some(vec!["help".into(), "sweep".into()]));
        assert_eq!((help("help check"), help("bench help")), (None, None));
    }

    #[test]
    fn help_is_a_word_too() {
        for (line, word) in [
            ("help", "--daemon"),
            ("help check", "FILE.ini"),
            ("help bench", "weir-bench"),
            ("--color never help check", "--json"),
            ("help check --color never", "--json"),
            ("panel help", "token"),
        ] {
            assert!(read(line).is_err_and(|no| !no.use_stderr() && no.to_string().contains(word)), "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        assert!(read("-h").is_err_and(|no| !no.use_stderr() && no.to_string().contains("--daemon")));
        assert!(is_told("--frob x.ini", "--frob") && is_told("-q", "FILE.ini"));
        assert!(is_told("--verbse x.ini", "'--verbose'") && is_told("quota reprot", "'report'"));
        assert!(is_told("check --jsno x.ini", "'--json'"));
    }

    #[test]
    fn a_misspelt_command_is_meant_where_no_file_has_its_name() {
        let meant = |line: &str| meant(&words(line));
        assert_eq!(meant("chekc x.ini").as_deref(), Some("check"));
        assert_eq!(meant("benhc").as_deref(), Some("bench"));
        assert_eq!(meant("help quoat").as_deref(), Some("quota"));
        for line in ["check x.ini", "weir.ini", "Cargo.toml", "help", "-d chekc", ""] {
            assert_eq!(meant(line), None, "{line}");
        }
        let there = std::env::temp_dir().join(format!("chekc-{}", std::process::id()));
        std::fs::write(&there, "").expect("a file");
        assert_eq!(meant(&there.display().to_string()), None);
        std::fs::remove_file(there).expect("removed");
    }

    #[test]
    fn the_poolers_command_line_ends_as_pgbouncers_and_others_by_the_table() {
        for line in ["--frob x.ini", "-u", "x.ini y.ini", "chekc x.ini", "--color never --frob"] {
            assert!(read(line).is_err() && usage_status(&words(line)) == Status::Failed, "{line}");
        }
        for line in
            ["check", "check --frob x", "quota frob", "import", "panel", "help frob", "--color never check"]
        {
            assert!(read(line).is_err() && usage_status(&words(line)) == Status::Usage, "{line}");
        }
    }

    #[test]
    fn colours_are_an_option_of_every_command() {
        use commandline::ColorWhen::{Auto, Never};
        let color = |line: &str| read(line).expect("a line").color.color;
        for line in [
            "--color never x.ini",
            "x.ini --color=never",
            "check x.ini --color never",
            "--color never check x.ini",
            "quota report --color never",
        ] {
            assert_eq!(color(line), Never, "{line}");
        }
        assert_eq!((color("x.ini"), color("check x.ini")), (Auto, Auto));
        assert!(is_told("check x.ini --color pink", "always"));
    }
}
