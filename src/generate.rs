//! Documents that are made from the tables: the manual page and the annotated configuration file.
//! Never says anything that a table does not say.

use clap::CommandFactory as _;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};
use control::{COMMANDS, VIEWS};
use settings::{Scope, SettingInfo};

use crate::cli::{Document, Options};

/// The document's text.
pub(crate) fn generate(document: Document) -> String {
    match document {
        Document::Ini => settings::sample_ini(),
        Document::Parity => crate::compat::rows(),
        Document::Pgpool => import::page(),
        Document::Man => String::from_utf8_lossy(&manual().unwrap_or_default()).into_owned(),
    }
}

/// The manual page; writing to memory does not fail.
fn manual() -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let man = Man::new(Options::command()).title("WEIR").section("1").manual("Weir").source(control::VERSION);
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    tasks().to_writer(&mut page)?;
    console().to_writer(&mut page)?;
    for (scope, heading) in [
        (Scope::Global, "SETTINGS OF [pgbouncer]"),
        (Scope::Database, "KEYS OF AN ENTRY OF [databases]"),
        (Scope::User, "KEYS OF AN ENTRY OF [users]"),
        (Scope::Peer, "KEYS OF AN ENTRY OF [peers]"),
    ] {
        section(scope, heading).to_writer(&mut page)?;
    }
    Ok(page)
}

/// What the binary does besides pooling.
fn tasks() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["TASKS"]);
    for task in Options::command().get_subcommands() {
        document(&mut roff, "weir", task);
    }
    roff
}

/// A task, and the tasks below it, each with what it does.
fn document(roff: &mut Roff, above: &str, task: &clap::Command) {
    let name = format!("{above} {}", task.get_name());
    let about = task.get_about().map(ToString::to_string).unwrap_or_default();
    let values = task.get_positionals().filter_map(clap::Arg::get_value_names).flatten();
    roff.control("TP", []);
    let mut head = vec![bold(&name)];
    head.extend(values.map(|value| italic(format!(" {value}"))));
    if task.has_subcommands() {
        head.push(italic(" TASK"));
    }
    roff.text(head);
    roff.text([roman(about)]);
    if let Some(more) = task.get_after_help() {
        roff.control("IP", []);
        roff.text([roman(more.to_string())]);
    }
    task.get_subcommands().for_each(|below| document(roff, &name, below));
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
        ] {
            assert!(page.contains(word), "{word}");
        }
        assert!(!page.contains("--generate"), "it is not for users");
    }

    #[test]
    fn the_sample_is_the_settings_own() {
        assert!(generate(Document::Ini).contains("[databases]"));
    }
}
