//! Everything comparable with PgBouncer, as lines of `group TAB name TAB default TAB verdict TAB note`, read from the
//! tables that the pooler itself works by. `scripts/parity` makes the page on PgBouncer of it, with the tests that
//! prove each line. Owns the sentences about what is in no table: signals and options.

use std::fmt::Write as _;

use clap::CommandFactory as _;
use control::{COMMANDS, VIEWS};
use settings::{Compat, Scope};

use crate::cli::Options;

/// Signals, each with what it does and how that compares.
const SIGNALS: &[(&str, &str)] = &[
    ("SIGHUP", "reload"),
    ("SIGINT", "SHUTDOWN WAIT_FOR_SERVERS; again: at once"),
    ("SIGQUIT", "end at once"),
    ("SIGTERM", "SHUTDOWN WAIT_FOR_CLIENTS; again: at once"),
    ("SIGUSR1", "PAUSE"),
    ("SIGUSR2", "RESUME"),
];

/// Views and commands that PgBouncer does not have, or that say more here.
const CONSOLE: &[(&str, &str, &str)] = &[
    ("SHOW FDS", "different", "shows no secret and sends no descriptor: Weir's takeover does not use it"),
    ("SHOW MEM", "different", "counts Weir's own objects, which are fewer kinds than PgBouncer's"),
    ("SHOW ERRORS", "own", "errors sent to clients, by SQLSTATE"),
    ("SHOW HISTOGRAMS", "own", "how long clients waited, transactions and queries took"),
    ("SHOW QUERIES", "own", "time of each kind of query, while track_queries is on"),
    ("SHOW QUERY_HISTOGRAMS", "own", "the same durations in buckets"),
    (
        "SHOW QUERY_TEXTS",
        "own",
        "a statement of each kind with parameters instead of values, as EXPLAIN (GENERIC_PLAN) takes it",
    ),
    ("SHOW SERVER_ERRORS", "own", "pools whose server logins fail: since when, and why"),
    ("SHOW SHARDS", "own", "activity of each thread"),
    (
        "SHOW SHARD_CLIENTS",
        "own",
        "SHOW CLIENTS with each client's thread and the reason why it keeps its server outside of a request",
    ),
    ("SHOW SHARD_SERVERS", "own", "SHOW SERVERS likewise"),
    ("CANCEL_CLIENT", "own", "cancels the query that a client is running; the client stays connected"),
    ("RESET_QUERIES", "own", "discards what SHOW QUERIES has counted, of one database or of all"),
    ("TAKEOVER", "own", "sent by a process that was started with -R to the process it replaces"),
    ("SHOW VERSION", "different", "begins with PgBouncer's version and names Weir after it"),
];

/// Options that mean something else here, or more.
const OPTIONS: &[(&str, &str, &str)] = &[(
    "-R",
    "better",
    "takes over while both processes run; a connection moves when it is idle; connections with TLS or replication \
     stay with the old process until they end; PgBouncer 1.26 has dropped it",
)];

/// The lines.
pub(crate) fn rows() -> String {
    let mut text = String::new();
    settings(&mut text);
    for word in settings::AuthType::WORDS {
        let (verdict, note) = match *word {
            "peer" => ("own", "PgBouncer has it in HBA rules only"),
            "ldap" => (
                "better",
                "user names are escaped, many logins are checked at once, and every wait has a time limit",
            ),
            "pam" => ("better", "many logins are checked at once; an empty password is refused"),
            _ => ("same", ""),
        };
        row(&mut text, "auth_type", word, "", verdict, note);
    }
    let views = VIEWS.iter().map(|view| format!("SHOW {}", view.name));
    let commands = COMMANDS.iter().filter(|command| !["SHOW", "SELECT"].contains(&command.word));
    for name in views.chain(commands.map(|command| command.word.to_owned())).chain(["SET".to_owned()]) {
        let (verdict, note) = CONSOLE
            .iter()
            .find(|(word, ..)| *word == name)
            .map_or(("same", ""), |(_, verdict, note)| (verdict, note));
        row(&mut text, "console", &name, "", verdict, note);
    }
    for (name, note) in SIGNALS {
        row(&mut text, "signals", name, "", "same", note);
    }
    for argument in Options::command().get_arguments().filter(|argument| !argument.is_hide_set()) {
        if let Some(letter) = argument.get_short() {
            let name = format!("-{letter}");
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let known = OPTIONS.iter().find(|(known, ..)| *known == name);
            let (verdict, note) = known.map_or(("same", &*help), |(_, verdict, note)| (*verdict, *note));
            row(&mut text, "options", &name, "", verdict, note);
        }
    }
    text
}

fn settings(text: &mut String) {
    for info in settings::manual_rows() {
        let group = match info.scope {
            Scope::Global => "[pgbouncer]",
            Scope::Database => "[databases]",
            Scope::User => "[users]",
            Scope::Peer => "[peers]",
        };
        let (verdict, note) = match info.compat() {
            Compat::Same => ("same", ""),
            Compat::Better(how) => ("better", how),
            Compat::Different(why) => ("different", why),
            Compat::Own => ("own", info.doc),
        };
        row(text, group, info.name, info.default.unwrap_or_default(), verdict, note);
    }
}

fn row(text: &mut String, group: &str, name: &str, default: &str, verdict: &str, note: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{group}\t{name}\t{default}\t{verdict}\t{note}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_five_fields() {
        let text = rows();
        assert!(text.lines().all(|line| line.split('\t').count() == 5), "{text}");
        for name in ["pool_size", "SHOW POOLS", "SIGHUP", "-q", "KILL_CLIENT", "SET"] {
            assert!(text.lines().any(|line| line.split('\t').nth(1) == Some(name)), "{name}");
        }
    }
}
