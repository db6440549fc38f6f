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
    for view in VIEWS {
        compared(&mut text, "console", &format!("SHOW {}", view.name), "", view.compat, view.about);
    }
    for command in COMMANDS.iter().filter(|command| !["SHOW", "SELECT"].contains(&command.word)) {
        compared(&mut text, "console", command.word, "", command.compat, command.about);
    }
    row(&mut text, "console", "SET", "", "same", "");
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
        compared(text, group, info.name, info.default.unwrap_or_default(), info.compat, info.doc);
    }
}

/// A line about a row of a table. What PgBouncer does not have is described; `about` does that.
fn compared(text: &mut String, group: &str, name: &str, default: &str, compat: Compat, about: &str) {
    let (verdict, note) = match compat {
        Compat::Same => ("same", ""),
        Compat::Better(how) => ("better", how),
        Compat::Different(why) => ("different", why),
        Compat::Own => ("own", about),
    };
    row(text, group, name, default, verdict, note);
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
