//! `weir quota`: what users see and operators change of quotas, in the words of Linux's tools: quota, setquota, edquota, repquota and warnquota.
//!
//! Owns the command's words and its order of steps. Usage is asked of the running process by its console; limits are changed by it, too, or in the file where none runs.

mod edit;
mod table;

use std::io::Write as _;
use std::process::{Command, Stdio};

use clap::{Args, Subcommand};
use commandline::Paint;
use programs::Status;
use settings::{Config, quotas_path};

use crate::config_option::ConfigOption;
use crate::console::Console;
use crate::files::Disk;
use crate::quotas_file;
use table::QuotaLine;

/// What the process's log calls its connections.
const APPLICATION_NAME: &str = "weir quota";

/// `weir quota`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct QuotaTask {
    #[command(subcommand)]
    command: Option<QuotaCommand>,

    #[command(flatten)]
    show: ShowOptions,
}

#[derive(Args, Clone, Debug, PartialEq)]
struct ShowOptions {
    /// The user; without any subject it is the one that PGUSER names, else the system's.
    #[arg(short, long, value_name = "NAME")]
    user: Option<String>,
    /// A group.
    #[arg(short, long, value_name = "NAME", conflicts_with = "user")]
    group: Option<String>,
    /// A database.
    #[arg(short, long, value_name = "NAME", conflicts_with_all = ["user", "group"])]
    database: Option<String>,
    /// An application_name.
    #[arg(short = 'A', long, value_name = "NAME", conflicts_with_all = ["user", "group", "database"])]
    application_name: Option<String>,
    /// Every subject.
    #[arg(short, long, conflicts_with_all = ["user", "group", "database", "application_name"])]
    all: bool,
    /// Resources of which nothing was used, too.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    at: ConfigOption,
}

#[derive(Args, Clone, Copy, Debug, PartialEq)]
struct Form {
    /// Figures in units that people read: 1.5K, 2h30m.
    #[arg(short = 's', long)]
    human_readable: bool,
    /// A JSON array.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, PartialEq, Subcommand)]
enum QuotaCommand {
    /// Set the limits of a subject for a resource; 0 is none.
    Set {
        /// user, group, database or application_name.
        subject: String,
        /// Its name; default stands for all that have no limits of their own.
        name: String,
        /// connections, storage, temp_files, or server_seconds, queries or bytes with /hour, /day or /month.
        resource: String,
        /// The soft limit.
        soft: String,
        /// The hard limit.
        hard: String,
        /// How long the soft limit may be exceeded: 7d, 12h, 30m; 0 does not end.
        grace: Option<String>,
        /// Of storage: what is allowed above the limit.
        #[arg(long, value_name = "none|delete")]
        allow: Option<String>,
        #[command(flatten)]
        at: ConfigOption,
    },
    /// Edit the file of quotas with EDITOR; it is put in place if it is valid.
    Edit {
        #[command(flatten)]
        at: ConfigOption,
    },
    /// Print a table of all subjects.
    Report {
        #[command(flatten)]
        form: Form,
        #[command(flatten)]
        at: ConfigOption,
    },
    /// Print a warning for each subject above a soft limit, or give it to a command.
    Warn {
        /// Runs for each subject, with the warning as standard input and WEIR_QUOTA_SUBJECT and WEIR_QUOTA_NAME set.
        #[arg(long, value_name = "COMMAND")]
        mail_command: Option<String>,
        #[command(flatten)]
        at: ConfigOption,
    },
}

/// Does what the words say.
pub(crate) fn run(task: &QuotaTask, paint: Paint) -> Status {
    let outcome = match &task.command {
        None => show(&task.show, paint),
        Some(QuotaCommand::Set { subject, name, resource, soft, hard, grace, allow, at }) => {
            let mut line = line(subject, name, resource, [soft, hard], grace.as_deref());
            if let Some(allow) = allow {
                line += &format!(" allow={allow}");
            }
            set(at, &line)
        }
        Some(QuotaCommand::Edit { at }) => edit(at),
        Some(QuotaCommand::Report { form, at }) => report(*form, at, paint),
        Some(QuotaCommand::Warn { mail_command, at }) => warn(mail_command.as_deref(), at),
    };
    outcome.unwrap_or_else(|why| {
        let _ = writeln!(std::io::stderr(), "weir quota: {why}");
        Status::Failed
    })
}

fn path_of(config: &Config) -> Result<String, String> {
    let path = quotas_path(&config.global).map(str::to_owned);
    path.ok_or_else(|| "the setting quotas_file does not name a file".to_owned())
}

fn lines(at: &ConfigOption) -> Result<Vec<QuotaLine>, String> {
    let mut console = Console::connect(&at.load()?.global, APPLICATION_NAME)?;
    console.rows("SHOW QUOTAS")?.iter().map(|row| QuotaLine::read(row)).collect()
}

/// One subject's usage, or that of all. Fails with status 1 if a limit is exceeded.
fn show(options: &ShowOptions, paint: Paint) -> Result<Status, String> {
    let named = [
        ("user", &options.user),
        ("group", &options.group),
        ("database", &options.database),
        ("application_name", &options.application_name),
    ];
    let named = named.into_iter().find_map(|(kind, name)| Some((kind, name.clone()?)));
    let own = || {
        let name = ["PGUSER", "LOGNAME", "USER"].iter().find_map(|name| std::env::var(name).ok());
        name.map(|name| ("user", name)).ok_or("who you are is not known: name a user")
    };
    let mut lines = lines(&options.at)?;
    if !options.all {
        let (kind, name) = named.map_or_else(own, Ok)?;
        lines.retain(|line| line.subject == kind && line.name == name);
        if lines.is_empty() && !options.form.json {
            crate::print(&format!("Quotas of {kind} {name}: none\n"));
        }
    }
    lines.retain(|line| options.verbose || line.used > 0 || line.is_over());
    let is_over = lines.iter().any(QuotaLine::is_over);
    crate::print(&match options.form.json {
        true => table::json(&lines),
        false => table::quota(&lines, options.form.human_readable, paint),
    });
    Ok(if is_over { Status::Failed } else { Status::Done })
}

fn report(form: Form, at: &ConfigOption, paint: Paint) -> Result<Status, String> {
    let lines = lines(at)?;
    crate::print(&if form.json {
        table::json(&lines)
    } else {
        table::report(&lines, form.human_readable, paint)
    });
    Ok(Status::Done)
}

fn warn(command: Option<&str>, at: &ConfigOption) -> Result<Status, String> {
    let mut failed = false;
    for (subject, name, text) in table::warnings(&lines(at)?) {
        match command {
            None => _ = crate::print(&text),
            Some(command) => {
                if let Err(why) = give(command, &subject, &name, &text) {
                    failed = true;
                    let _ = writeln!(std::io::stderr(), "weir quota: {subject} {name}: {why}");
                }
            }
        }
    }
    Ok(if failed { Status::Failed } else { Status::Done })
}

fn give(command: &str, subject: &str, name: &str, text: &str) -> Result<(), String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).env("WEIR_QUOTA_SUBJECT", subject).env("WEIR_QUOTA_NAME", name);
    let mut child =
        shell.stdin(Stdio::piped()).spawn().map_err(|why| format!("cannot run the command: {why}"))?;
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(text.as_bytes()); // A command need not read it.
    }
    let status = child.wait().map_err(|why| why.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("the command has failed: {status}")) }
}

/// The line of the file that the words of `set` make.
fn line(subject: &str, name: &str, resource: &str, [soft, hard]: [&str; 2], grace: Option<&str>) -> String {
    let name = match name {
        "default" => name.to_owned(),
        name => format!("\"{}\"", name.replace('"', "\"\"")),
    };
    let grace = grace.map_or(String::new(), |grace| format!(" grace={grace}"));
    format!("{subject} {name} {resource} soft={soft} hard={hard}{grace}")
}

/// By the running process; in the file where none runs.
fn set(at: &ConfigOption, line: &str) -> Result<Status, String> {
    let config = at.load()?;
    match Console::connect(&config.global, APPLICATION_NAME) {
        Ok(mut console) => _ = console.rows(&format!("SET QUOTA {line}"))?,
        Err(_) if !Console::is_there(&config.global) => {
            quotas_file::change(&path_of(&config)?, line)?;
        }
        Err(why) => return Err(why),
    }
    Ok(Status::Done)
}

fn edit(at: &ConfigOption) -> Result<Status, String> {
    // The file may be what is wrong with the configuration, and is to be mended.
    let config = settings::load(&Disk, &at.config, &[]).or_else(|findings| {
        edit::config_without_quotas(&at.config, &findings).ok_or_else(|| at.unusable(&findings))
    })?;
    let path = path_of(&config)?;
    if edit::edit(&path)? && Console::is_there(&config.global) {
        Console::connect(&config.global, APPLICATION_NAME)?.rows("RELOAD")?;
    }
    Ok(Status::Done)
}
