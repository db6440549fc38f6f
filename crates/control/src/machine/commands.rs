//! The table of console commands: word, argument, role, how it compares with PgBouncer's, help, function.
//! To add a command: a row, and its function below.

use messages::{Command, ConsoleClient, ReplyPart, Role, ShutdownMode};
use settings::Compat;

use crate::interface::{Operation, OperationKind, Output};
use crate::machine::dispatch::CommandContext;
use crate::machine::fleet_pools::{self, HoldOrder};
use crate::request::Purpose;
use crate::views::VIEWS;
use crate::{CONSOLE, CommandError, Control};

/// A command of the console.
#[derive(Debug)]
pub struct CommandRow {
    /// The first word; the case of what is typed does not matter. Also the reply's tag.
    pub word: &'static str,
    /// Its argument.
    pub argument: Argument,
    /// The required role.
    pub role: Role,
    /// How it compares with PgBouncer's.
    pub compat: Compat,
    /// What SHOW HELP writes after the word; None where the command is not listed.
    pub help: Option<&'static str>,
    /// What it does, in a sentence, for documentation.
    pub about: &'static str,
    /// Runs the command, or starts it.
    pub(crate) run: fn(&mut Control, &CommandContext<'_>) -> Result<(), CommandError>,
}

/// The argument of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// Nothing.
    None,
    /// A word, or nothing.
    Optional,
    /// A word.
    Required,
    /// A database and one of its hosts, or a word that follows it; each may be absent.
    Host,
}

impl Argument {
    pub(crate) fn allows(self, argument: Option<&str>) -> bool {
        match self {
            Argument::None => argument.is_none(),
            // What is missing is named by the command.
            Argument::Optional | Argument::Host => true,
            Argument::Required => argument.is_some(),
        }
    }
}

/// Rows of the table.
macro_rules! commands {
    ($($word:literal, $argument:ident, $role:ident, $compat:ident, $help:expr, $about:expr, $run:expr;)*) => {
        &[$(CommandRow {
            word: $word, argument: Argument::$argument, role: Role::$role, compat: Compat::$compat, help: $help,
            about: $about, run: $run,
        },)*]
    };
}

/// Every command except SET, which has its own syntax.
pub static COMMANDS: &[CommandRow] = commands! {
    "SHOW", Required, Stats, Same, None, "Shows a view.",
        Control::show;
    // Tools that check a connection by SELECT get a view by it; PgBouncer does the same.
    "SELECT", Required, Stats, Same, None, "As SHOW.",
        Control::show;
    "RELOAD", None, Admin, Same, Some(""), "Reads the configuration file again; a bad one changes nothing.",
        reload;
    "PAUSE", Host, Admin, Same, Some(" [<db>] [FLEET]"), "Waits for running transactions, closes server connections and makes clients wait, of one database or of all; with FLEET on all nodes of the fleet.",
        pause;
    "RESUME", Host, Admin, Same, Some(" [<db>] [FLEET]"), "Undoes PAUSE and KILL; with FLEET on all nodes.",
        resume;
    "RECONNECT", Optional, Admin, Same, Some(" [<db>]"), "Closes server connections as they become free and opens new ones.",
        reconnect;
    "KILL", Optional, Admin, Same, Some(" [<db>]"), "Closes all client and server connections at once and makes new clients wait until RESUME.",
        kill;
    "KILL_CLIENT", Optional, Admin, Same, Some(" <client_id>"), "Closes the client that SHOW CLIENTS shows with this id.",
        kill_client;
    "CANCEL_CLIENT", Optional, Admin, Own, Some(" <client_id>"), "Cancels the query that the client with this id is running; the client stays connected.",
        cancel_client;
    "RESET_QUERIES", Optional, Admin, Own, Some(" [<db>]"), "Discards what SHOW QUERIES has counted, of one database or of all.",
        reset_queries;
    "SHUTDOWN", Optional, Admin, Same, Some(" [WAIT_FOR_SERVERS|WAIT_FOR_CLIENTS]"), "Ends the process: at once, when server connections are free, or when the last client has left.",
        shutdown;
    "TAKEOVER", Optional, Admin, Own, None, "Sent by another Weir started with -R: hands everything over to it.",
        crate::machine::takeover::take_over;
    "DISABLE", Host, Admin, Same, Some(" <db> [FLEET]"), "Rejects new clients of a database; connected ones stay; with FLEET on all nodes of the fleet.",
        disable;
    "ENABLE", Host, Admin, Same, Some(" <db> [FLEET]"), "Undoes DISABLE; with FLEET on all nodes.",
        enable;
    "DRAIN", Host, Admin, Own, Some(" [<node>] [END_CLIENTS]"), "Refuses new clients of this process, or of another node of its fleet, and fails /readyz; END_CLIENTS ends connected ones outside of transactions.",
        crate::machine::drain::drain;
    "UNDRAIN", Optional, Admin, Own, Some(" [<node>]"), "Undoes DRAIN.",
        crate::machine::drain::undrain;
    "DETACH", Host, Admin, Own, Some(" <db> <host>[:<port>]"), "Sends no reads to one of the hosts of an entry with read_write_split; its connections for reads are closed as they become free.",
        detach;
    "ATTACH", Host, Admin, Own, Some(" <db> <host>[:<port>]"), "Undoes DETACH.",
        attach;
    "SWITCHOVER", Host, Admin, Own, Some(" <db> [TO <host>]"), "Asks Patroni to make another server of an entry with topology=patroni the primary: the named one, or the one that Patroni chooses. The answer is Patroni's.",
        crate::machine::switchover::switch_over;
    "SUSPEND", None, Admin, Same, Some(""), "Flushes buffers, then suspends all activity until RESUME.",
        suspend;
    "WAIT_CLOSE", Optional, Admin, Same, Some(" [<db>]"), "Waits until server connections made obsolete by RECONNECT or RELOAD are closed.",
        wait_close;
};

/// What SHOW HELP says: what can be typed, from the tables of views and commands.
pub(super) fn help() -> String {
    let mut text = String::from("\n\tSHOW ");
    let views: Vec<&str> = VIEWS.iter().map(|view| view.name).collect();
    text.push_str(&views.join("|"));
    text.push_str("\n\tSET key = arg");
    for command in COMMANDS {
        if let Some(help) = command.help {
            text.push_str("\n\t");
            text.push_str(command.word);
            text.push_str(help);
        }
    }
    text
}

fn pause(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    if let Some(name) = fleet_pools::target(control, context)? {
        return control.hold_in_fleet(context, HoldOrder::Pause(name));
    }
    log_issued(control, "PAUSE", context);
    let database = database(control, context, "pause")?;
    control.pause_state.pause(database.as_deref())?;
    control.pause_shards(Some(context.requester), database);
    Ok(())
}

fn resume(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    if let Some(name) = fleet_pools::target(control, context)? {
        return control.hold_in_fleet(context, HoldOrder::Resume(name));
    }
    log_issued(control, "RESUME", context);
    if context.argument.is_none() && control.is_ending() {
        return Err(CommandError::ShuttingDown);
    }
    if let Some(name) =
        context.argument.filter(|&name| control.config.database(name).is_none() && name != CONSOLE)
    {
        return Err(CommandError::NoSuchDatabase(name.to_owned()));
    }
    control.pause_state.resume(context.argument)?;
    control.resume_shards(context.argument.map(str::to_owned));
    // While all was paused, nothing was paused for itself.
    control.hold_as_in_fleet();
    control.report_fleet_pools();
    control.complete(context.requester, "RESUME");
    Ok(())
}

fn reload(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    log_issued(control, "RELOAD", context);
    control.request_reload(Some(context.requester));
    Ok(())
}

fn reconnect(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    log_issued(control, "RECONNECT", context);
    let database = database(control, context, "reconnect")?;
    control.broadcast(&Command::Reconnect { database });
    control.complete(context.requester, "RECONNECT");
    Ok(())
}

fn disable(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    set_disabled(control, context, "DISABLE", "disable", true)
}

fn enable(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    set_disabled(control, context, "ENABLE", "enable", false)
}

fn set_disabled(
    control: &mut Control,
    context: &CommandContext<'_>,
    word: &'static str,
    verb: &'static str,
    disabled: bool,
) -> Result<(), CommandError> {
    if context.argument.is_none() {
        return Err(CommandError::DatabaseNeeded);
    }
    if context.host.is_some()
        && let Some(Some(name)) = fleet_pools::target(control, context)?
    {
        let order = if disabled { HoldOrder::Disable(name) } else { HoldOrder::Enable(name) };
        return control.hold_in_fleet(context, order);
    }
    log_issued(control, word, context);
    let Some(database) = database(control, context, verb)? else { return Err(CommandError::DatabaseNeeded) };
    control.pause_state.set_disabled(&database, disabled);
    control.broadcast(&Command::Disable { database, disabled });
    control.report_fleet_pools();
    control.complete(context.requester, word);
    Ok(())
}

fn detach(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    set_detached(control, context, "DETACH", "detach hosts of", true)
}

fn attach(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    set_detached(control, context, "ATTACH", "attach hosts of", false)
}

fn set_detached(
    control: &mut Control,
    context: &CommandContext<'_>,
    word: &'static str,
    verb: &'static str,
    detached: bool,
) -> Result<(), CommandError> {
    let Some(database) = database(control, context, verb)? else { return Err(CommandError::DatabaseNeeded) };
    let host = host(control, &database, context.host.ok_or(CommandError::HostNeeded)?)?;
    log_host_command(control, context, word, &database, &format!("{database} {host}"));
    control.pause_state.set_detached(&database, &host, detached);
    let order =
        |request| Command::Detach { request, database: database.clone(), host: host.clone(), detached };
    control.request_all(Some(context.requester), Purpose::Detach(word), false, order);
    Ok(())
}

/// Name and port of the host that is meant: one of the entry's, or one that it had when it was detached.
fn host(control: &Control, database: &str, written: &str) -> Result<String, CommandError> {
    if control.pause_state.detaches(database, written) {
        return Ok(written.to_owned());
    }
    let entry =
        control.config.database(database).ok_or_else(|| CommandError::NoSuchDatabase(database.to_owned()))?;
    if !entry.read_write_split {
        return Err(CommandError::NotSplit(database.to_owned()));
    }
    let hosts = entry.host.iter().enumerate();
    let labels = hosts.map(|(place, host)| (host.as_str(), format!("{host}:{}", entry.port.of(place))));
    let mut found: Vec<String> =
        labels.filter(|(name, label)| *name == written || label == written).map(|(_, label)| label).collect();
    found.dedup();
    match (found.pop(), found.is_empty()) {
        (Some(host), true) => Ok(host),
        (Some(last), false) => {
            let labels = [found.join(", "), last].join(", ");
            Err(CommandError::SeveralHosts { host: written.to_owned(), labels })
        }
        (None, _) => {
            Err(CommandError::NoSuchHost { database: database.to_owned(), host: written.to_owned() })
        }
    }
}

fn suspend(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    control.pause_state.suspend()?;
    log_issued(control, "SUSPEND", context);
    control
        .request_all(Some(context.requester), Purpose::Suspend, true, |request| Command::Suspend { request });
    Ok(())
}

fn wait_close(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    log_issued(control, "WAIT_CLOSE", context);
    let database = database(control, context, "wait in")?;
    let order = |request| Command::WaitClose { request, database: database.clone() };
    control.request_all(Some(context.requester), Purpose::WaitClose, true, order);
    Ok(())
}

fn kill(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    log_issued(control, "KILL", context);
    let database = database(control, context, "kill")?;
    control.pause_state.kill(database.as_deref())?;
    let order = |request| Command::Kill { request, database: database.clone() };
    control.request_all(Some(context.requester), Purpose::Kill, false, order);
    Ok(())
}

fn kill_client(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    let id = context.argument.unwrap_or_default().parse().map_err(|_| CommandError::BadClientId)?;
    note_unlogged(control, context.sender, OperationKind::Command, "KILL_CLIENT", context.argument);
    let order = |request| Command::KillClient { request, id };
    control.request_all(Some(context.requester), Purpose::KillClient(0), false, order);
    Ok(())
}

fn cancel_client(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    let id = context.argument.unwrap_or_default().parse().map_err(|_| CommandError::BadClientId)?;
    note_unlogged(control, context.sender, OperationKind::Command, "CANCEL_CLIENT", context.argument);
    let order = |request| Command::CancelClient { request, id };
    control.request_all(Some(context.requester), Purpose::CancelClient(0), false, order);
    Ok(())
}

fn reset_queries(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    let database = database(control, context, "reset queries of")?;
    note_unlogged(control, context.sender, OperationKind::Command, "RESET_QUERIES", context.argument);
    control.broadcast(&Command::ResetQueries { database });
    control.complete(context.requester, "RESET_QUERIES");
    Ok(())
}

fn shutdown(control: &mut Control, context: &CommandContext<'_>) -> Result<(), CommandError> {
    let mode = match context.argument.map(str::to_ascii_uppercase).as_deref() {
        None => None,
        Some("WAIT_FOR_SERVERS") => Some(ShutdownMode::WaitForServers),
        Some("WAIT_FOR_CLIENTS") => Some(ShutdownMode::WaitForClients),
        Some(_) => return Err(context.invalid()),
    };
    match mode {
        // As in PgBouncer, no reply: the connection lasts as long as the process.
        None => {
            log_command(control, context, "SHUTDOWN", None);
            control.push(Output::Exit);
        }
        Some(mode) => {
            let word = if mode == ShutdownMode::WaitForServers { "SERVERS" } else { "CLIENTS" };
            log_command(control, context, &format!("SHUTDOWN WAIT_FOR_{word}"), None);
            // Listeners are closed before the reply is sent.
            control.begin_shutdown(mode);
            control.complete(context.requester, "SHUTDOWN");
        }
    }
    Ok(())
}

/// Session parameters that client tools set and show on their own.
pub(crate) const SESSION: &[(&str, &str)] = &[
    ("client_encoding", "UTF-8"),
    ("default_transaction_isolation", "read committed"),
    ("standard_conforming_strings", "on"),
    ("datestyle", "ISO"),
    ("timezone", "GMT"),
    ("extra_float_digits", "2"),
    ("application_name", ""),
    ("client_min_messages", "notice"),
    ("bytea_output", "hex"),
    ("statement_timeout", "0"),
    ("search_path", "\"$user\", public"),
];

impl Control {
    /// SET: ignores session parameters of client tools; a setting keeps its value until the next RELOAD.
    pub(crate) fn set(
        &mut self,
        context: &CommandContext<'_>,
        key: &str,
        value: &str,
    ) -> Result<(), CommandError> {
        if SESSION.iter().any(|(name, _)| name.eq_ignore_ascii_case(key)) {
            let parts = vec![ReplyPart::Notice("SET ignored".to_owned()), ReplyPart::Complete("SET")];
            self.reply(context.requester, parts, true);
            return Ok(());
        }
        if context.role < Role::Admin {
            return Err(CommandError::AdminNeeded);
        }
        if key.eq_ignore_ascii_case("quota") {
            return self.set_quota(context, value);
        }
        let changed = settings::set(&self.config, key, value);
        let changed = changed.map_err(|fault| CommandError::Setting { key: key.to_owned(), fault })?;
        let shown = settings::shown_value(&changed, key).unwrap_or_default();
        let argument = format!("{} = {shown}", key.to_ascii_lowercase());
        note_unlogged(self, context.sender, OperationKind::Edit, "SET", Some(&argument));
        self.apply_setting(context.requester, key, value, changed);
        Ok(())
    }
}

/// What PgBouncer logs of a command, whether it then succeeds or not.
fn log_issued(control: &mut Control, word: &str, context: &CommandContext<'_>) {
    log_command(control, context, word, context.argument);
}

pub(crate) fn log_command(
    control: &mut Control,
    context: &CommandContext<'_>,
    command: &str,
    argument: Option<&str>,
) {
    log_operation(control, context, command, argument, argument);
}

/// The same of a command about a host of a database.
pub(crate) fn log_host_command(
    control: &mut Control,
    context: &CommandContext<'_>,
    command: &str,
    database: &str,
    argument: &str,
) {
    log_operation(control, context, command, Some(argument), Some(database));
}

fn log_operation(
    control: &mut Control,
    context: &CommandContext<'_>,
    command: &str,
    argument: Option<&str>,
    database: Option<&str>,
) {
    match argument {
        Some(name) => control.log(format!("{command} '{name}' command issued")),
        None => control.log(format!("{command} command issued")),
    }
    let kind = if command == "RELOAD" { OperationKind::Reload } else { OperationKind::Command };
    note(control, context.sender, kind, command, argument, database);
}

/// What PgBouncer does not log, on the console: the audit trail has it. The panel notes its own requests.
pub(crate) fn note_unlogged(
    control: &mut Control,
    sender: Option<&ConsoleClient>,
    kind: OperationKind,
    command: &str,
    argument: Option<&str>,
) {
    if sender.is_some() {
        note(control, sender, kind, command, argument, None);
    }
}

fn note(
    control: &mut Control,
    sender: Option<&ConsoleClient>,
    kind: OperationKind,
    command: &str,
    argument: Option<&str>,
    database: Option<&str>,
) {
    let ConsoleClient { user, from } = sender.cloned().unwrap_or_default();
    control.push(Output::Operated(Operation {
        user,
        from,
        command: command.to_owned(),
        argument: argument.map(str::to_owned),
        database: database.map(str::to_owned),
        kind,
    }));
}

/// The database that a command names; none is all.
fn database(
    control: &Control,
    context: &CommandContext<'_>,
    verb: &'static str,
) -> Result<Option<String>, CommandError> {
    match context.argument {
        None => Ok(None),
        Some(CONSOLE) => Err(CommandError::ConsoleDatabase { verb }),
        Some(name) if control.config.database(name).is_none() => {
            Err(CommandError::NoSuchDatabase(name.to_owned()))
        }
        Some(name) => Ok(Some(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::harness::Harness;

    #[test]
    fn every_command_needs_its_right() {
        for row in COMMANDS.iter().filter(|row| row.role == Role::Admin) {
            let mut harness = Harness::new();
            harness.ask_as(Role::Stats, row.word);
            assert_eq!(harness.error(), ("42501", "admin access needed"), "{}", row.word);
            assert!(harness.told.is_empty() && harness.loads == 0 && !harness.exited, "{}", row.word);
        }
        let mut harness = Harness::new();
        harness.ask_as(Role::Stats, "SET pool_mode = transaction");
        assert_eq!(harness.error().0, "42501");
    }

    #[test]
    fn pause_is_answered_when_every_shard_is_done() {
        let mut harness = Harness::new();
        harness.ask("PAUSE");
        assert!(matches!(harness.told[..], [(0, Command::Pause { .. }), (1, Command::Pause { .. })]));
        harness.done(1, 0);
        assert!(harness.replies.is_empty());
        harness.now_us = 3_600 * crate::harness::SECOND_US;
        harness.input(crate::Input::Tick);
        assert!(harness.replies.is_empty(), "PAUSE waits as long as it takes");
        let request = harness.told.iter().find_map(|(_, command)| match command {
            Command::Pause { request, .. } => Some(*request),
            _ => None,
        });
        let report =
            messages::Report::Done { request: request.unwrap(), shard: messages::ShardId(0), count: 0 };
        harness.input(crate::Input::Report(report));
        assert_eq!(harness.tag(), "PAUSE");
        harness.ask("PAUSE app");
        assert_eq!(harness.error(), ("08P01", "already suspended/paused"));
    }

    #[test]
    fn resume_undoes_a_pause_and_tells_who_waited_for_it() {
        let mut harness = Harness::new();
        harness.ask("RESUME");
        assert_eq!(harness.error(), ("08P01", "pooler is not paused/suspended"));
        harness.ask("RESUME app");
        assert_eq!(harness.error(), ("08P01", "database app is not paused"));
        harness.ask("PAUSE app");
        let before = harness.replies.len();
        harness.ask("RESUME app");
        assert_eq!(harness.replies.len(), before + 2);
        assert!(matches!(&harness.replies[before].parts[..], [ReplyPart::Error { sqlstate: "57014", .. }]));
        assert_eq!(harness.tag(), "RESUME");
        assert!(
            matches!(harness.told.last(), Some((1, Command::Resume { database: Some(name) })) if name == "app")
        );
        assert_eq!(
            harness.resumed_before,
            [Some("app".to_owned())],
            "a process before, if there is one, too"
        );
        harness.done(0, 0);
        harness.done(1, 0);
        assert_eq!(harness.replies.len(), before + 2, "late Dones of a pause that is gone");
    }

    #[test]
    fn databases_are_named_as_configured() {
        let mut harness = Harness::new();
        for (sql, text) in [
            ("KILL dne", "no such database: dne"),
            ("PAUSE dne", "no such database: dne"),
            ("RESUME dne", "no such database: dne"),
            ("RECONNECT dne", "no such database: dne"),
            ("PAUSE pgbouncer", "cannot pause admin db: pgbouncer"),
            ("KILL pgbouncer", "cannot kill admin db: pgbouncer"),
        ] {
            harness.ask(sql);
            assert_eq!(harness.error(), ("08P01", text), "{sql}");
        }
        assert!(harness.told.is_empty());
    }

    #[test]
    fn kill_and_reconnect_reach_every_shard() {
        let mut harness = Harness::new();
        harness.ask("RECONNECT");
        assert_eq!((harness.tag(), harness.told.len()), ("RECONNECT", 2));
        harness.ask("KILL other");
        harness.done(0, 4);
        harness.done(1, 0);
        assert_eq!(harness.tag(), "KILL");
        harness.ask("RESUME other");
        assert_eq!(harness.tag(), "RESUME");
    }

    #[test]
    fn kill_client_says_whether_there_was_one() {
        let mut harness = Harness::new();
        for bad in ["KILL_CLIENT", "KILL_CLIENT x1", "KILL_CLIENT -1"] {
            harness.ask(bad);
            assert_eq!(harness.error(), ("08P01", "invalid client pointer supplied"));
        }
        harness.ask("KILL_CLIENT 7");
        harness.done(0, 0);
        harness.done(1, 0);
        assert_eq!(harness.error(), ("08P01", "client not found"));
        harness.ask("KILL_CLIENT 8");
        harness.done(0, 0);
        harness.done(1, 1);
        assert_eq!(harness.tag(), "KILL_CLIENT");
    }

    #[test]
    fn cancel_client_says_whether_a_query_was_running() {
        let mut harness = Harness::new();
        harness.ask("CANCEL_CLIENT x1");
        assert_eq!(harness.error(), ("08P01", "invalid client pointer supplied"));
        for (count, outcome) in [(0, None), (1, Some("CANCEL_CLIENT"))] {
            harness.ask("CANCEL_CLIENT 7");
            harness.done(0, 0);
            harness.done(1, count);
            match outcome {
                Some(tag) => assert_eq!(harness.tag(), tag),
                None => assert_eq!(harness.error(), ("08P01", "client not found, or not running a query")),
            }
        }
    }

    #[test]
    fn queries_are_reset_of_one_database_or_of_all() {
        let mut harness = Harness::new();
        harness.ask("RESET_QUERIES dne");
        assert_eq!(harness.error(), ("08P01", "no such database: dne"));
        for (sql, name) in [("RESET_QUERIES app", Some("app")), ("RESET_QUERIES", None)] {
            harness.ask(sql);
            assert_eq!(harness.tag(), "RESET_QUERIES");
            let Some((1, Command::ResetQueries { database })) = harness.told.last() else { panic!() };
            assert_eq!(database.as_deref(), name);
        }
    }

    #[test]
    fn what_is_no_command_is_invalid() {
        let mut harness = Harness::new();
        for sql in ["FROB", "SHOW", "SHOW nothing", "RELOAD now", "SHUTDOWN soon", "SHOW POOLS now"] {
            harness.ask(sql);
            let text = format!("invalid command '{sql}', use SHOW HELP;");
            assert_eq!(harness.error(), ("42601", text.as_str()));
        }
        harness.ask("");
        assert_eq!(harness.parts(), [ReplyPart::Empty]);
    }

    #[test]
    fn what_tools_set_and_show_is_humoured() {
        let mut harness = Harness::new();
        harness.ask_as(Role::Stats, "SET extra_float_digits = 3");
        assert_eq!(harness.parts(), [ReplyPart::Notice("SET ignored".into()), ReplyPart::Complete("SET")]);
        harness.ask_as(Role::Stats, "SHOW DateStyle");
        assert!(harness.parts().contains(&ReplyPart::Rows(vec![vec!["ISO".into()]])));
    }

    #[test]
    fn a_database_is_disabled_by_its_name() {
        let mut harness = Harness::new();
        harness.ask("DISABLE");
        assert_eq!(harness.error(), ("08P01", "a database is required"));
        harness.ask("DISABLE dne");
        assert_eq!(harness.error(), ("08P01", "no such database: dne"));
        harness.ask("DISABLE pgbouncer");
        assert_eq!(harness.error(), ("08P01", "cannot disable admin db: pgbouncer"));
        assert!(harness.told.is_empty());
        for (word, on) in [("DISABLE", true), ("ENABLE", false)] {
            harness.ask(&format!("{word} app"));
            assert_eq!(harness.tag(), word);
            let Some((1, Command::Disable { database, disabled })) = harness.told.last() else { panic!() };
            assert_eq!((database.as_str(), *disabled), ("app", on));
        }
    }

    #[test]
    fn a_host_is_detached_by_its_name_and_port() {
        let mut harness = Harness::with(
            2,
            "[databases]\napp = host=h1,h2,h2 port=1,2,3 read_write_split=1\nplain = host=h1,h2\n",
        );
        for (sql, text) in [
            ("DETACH", "a database is required"),
            ("DETACH app", "a host is required"),
            ("DETACH dne h1", "no such database: dne"),
            ("DETACH plain h1", "database plain does not use read_write_split"),
            ("DETACH app h3", "no such host of database app: h3"),
            ("ATTACH app h1:9", "no such host of database app: h1:9"),
            ("DETACH app h2", "h2 has several ports, name one: h2:2, h2:3"),
            ("DETACH pgbouncer h1", "cannot detach hosts of admin db: pgbouncer"),
        ] {
            harness.ask(sql);
            assert_eq!(harness.error(), ("08P01", text), "{sql}");
        }
        assert!(harness.told.is_empty() && harness.operations.is_empty());
        for (sql, word, on, label) in [
            ("DETACH app h1", "DETACH", true, "h1:1"),
            ("DETACH app h2:3", "DETACH", true, "h2:3"),
            ("attach app h1:1", "ATTACH", false, "h1:1"),
        ] {
            harness.ask(sql);
            let Some((1, Command::Detach { database, host, detached, .. })) = harness.told.last() else {
                panic!()
            };
            assert_eq!((database.as_str(), host.as_str(), *detached), ("app", label, on));
            let replies = harness.replies.len();
            harness.done(0, 1);
            assert_eq!(harness.replies.len(), replies, "{sql} is answered when every shard has done it");
            harness.done(1, 0);
            assert_eq!(harness.tag(), word);
        }
        assert!(harness.logged("DETACH 'app h2:3' command issued"));
        harness.ask("KILL app h1");
        assert_eq!(harness.error().0, "42601");
    }

    #[test]
    fn suspend_waits_for_every_shard_and_resume_ends_it() {
        let mut harness = Harness::new();
        harness.ask("PAUSE app");
        harness.ask("SUSPEND");
        assert_eq!(harness.error(), ("08P01", "cannot suspend with paused databases"));
        harness.ask("RESUME app");
        harness.ask("SUSPEND");
        harness.done(0, 0);
        harness.ask("SUSPEND");
        assert_eq!(harness.error(), ("08P01", "already suspended/paused"));
        harness.done(1, 0);
        assert_eq!(harness.tag(), "SUSPEND");
        harness.ask("RESUME");
        assert_eq!(harness.tag(), "RESUME");
    }

    #[test]
    fn wait_close_is_answered_when_every_shard_is_done() {
        let mut harness = Harness::new();
        harness.ask("WAIT_CLOSE app");
        harness.done(0, 0);
        assert!(harness.replies.is_empty());
        harness.done(1, 0);
        assert_eq!(harness.tag(), "WAIT_CLOSE");
    }
}
