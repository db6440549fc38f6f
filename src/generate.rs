//! Documents that are made from the tables: the manual page and the annotated configuration file.
//! Never says anything that a table does not say.

use clap::CommandFactory as _;
use clap_mangen::roff::{Roff, bold, italic, roman};
use commandline::{Manual, Shell, completions, task_list};
use control::{COMMANDS, VIEWS};
use settings::{Scope, SettingInfo};

use crate::cli::{Document, Options};

/// The document's text.
pub(crate) fn generate(document: Document) -> String {
    match document {
        Document::Ini => settings::sample_ini(),
        Document::Parity => crate::compat::rows(),
        Document::Pgpool => import::page(),
        Document::Man => manual(),
        Document::CompletionsBash => completions(Shell::Bash, &Options::command()),
        Document::CompletionsZsh => completions(Shell::Zsh, &Options::command()),
        Document::CompletionsFish => completions(Shell::Fish, &Options::command()),
    }
}

/// The manual page.
fn manual() -> String {
    let manual = Manual::of(Options::command(), control::VERSION);
    let manual =
        manual.section(&task_list(&Options::command(), "TASKS", false)).statuses().section(&console());
    let scopes = [
        (Scope::Global, "SETTINGS OF [pgbouncer]"),
        (Scope::Database, "KEYS OF AN ENTRY OF [databases]"),
        (Scope::User, "KEYS OF AN ENTRY OF [users]"),
        (Scope::Peer, "KEYS OF AN ENTRY OF [peers]"),
    ];
    scopes
        .into_iter()
        .fold(manual, |manual, (scope, heading)| manual.section(&section(scope, heading)))
        .text()
}

/// What can be typed into the console.
fn console() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["CONSOLE"]);
    roff.text([
        roman("The database "),
        bold(control::CONSOLE),
        roman(" is the console; it is for admin_users and, as far as SHOW goes, for stats_users."),
    ]);
    let views: Vec<&str> = VIEWS.iter().map(|view| view.name).collect();
    roff.control("TP", []);
    roff.text([bold("SHOW "), roman(views.join(" | "))]);
    roff.text([roman("Shows rows, with PgBouncer's columns.")]);
    for command in COMMANDS {
        if let Some(help) = command.help {
            roff.control("TP", []);
            roff.text([bold(command.word), roman(help)]);
            roff.text([roman(command.about)]);
        }
    }
    roff.control("TP", []);
    roff.text([bold("SET "), italic("key"), roman(" = "), italic("value")]);
    roff.text([roman("Changes a setting until the next RELOAD.")]);
    roff
}

/// The settings of one section of the file.
fn section(scope: Scope, heading: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    let is_shown = |info: &&SettingInfo| info.scope == scope;
    for info in settings::manual_rows().into_iter().filter(is_shown) {
        roff.control("TP", []);
        let default = info.default.filter(|text| !text.is_empty()).map(|text| format!(", default {text}"));
        roff.text([bold(info.name), roman(format!(" ({}{})", info.kind, default.unwrap_or_default()))]);
        roff.text([roman(info.doc)]);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_every_option_command_and_setting() {
        let page = generate(Document::Man).replace('\\', "");
        for word in [
            "--daemon",
            "weir check",
            "weir import",
            "KILL_CLIENT",
            "default_pool_size",
            "connect_query",
            "SHARDS",
            "EXIT STATUS",
            "as PgBouncer does",
        ] {
            assert!(page.contains(word), "{word}");
        }
        assert!(!page.contains("--generate"), "it is not for users");
    }

    #[test]
    fn shells_complete_commands_and_options() {
        for document in [Document::CompletionsBash, Document::CompletionsZsh, Document::CompletionsFish] {
            let text = generate(document);
            for word in ["check", "human-readable", "reboot"] {
                assert!(text.contains(word), "{document:?}: {word}");
            }
            assert!(!text.contains("generate"), "it is not for users");
        }
    }

    #[test]
    fn the_sample_is_the_settings_own() {
        assert!(generate(Document::Ini).contains("[databases]"));
    }
}
