//! The sections that the manual pages of both programs have: what a program is, its options, its commands, how they end.

use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

/// A manual page.
pub struct Manual(Vec<u8>);

impl Manual {
    /// Begins the page of a program: name, synopsis, description, options.
    #[must_use]
    pub fn of(command: Command, version: &str) -> Manual {
        let title = command.get_name().to_uppercase();
        let man = Man::new(command).title(title).section("1").manual("Weir").source(version);
        let mut page = Vec::new();
        // Writing to memory does not fail.
        let _ = man.render_title(&mut page);
        let _ = man.render_name_section(&mut page);
        let _ = man.render_synopsis_section(&mut page);
        let _ = man.render_description_section(&mut page);
        let _ = man.render_options_section(&mut page);
        Manual(page)
    }

    /// Adds a section.
    #[must_use]
    pub fn section(mut self, roff: &Roff) -> Manual {
        let _ = roff.to_writer(&mut self.0);
        self
    }

    /// Adds the section on how commands end.
    #[must_use]
    pub fn statuses(self) -> Manual {
        let mut roff = Roff::new();
        roff.control("SH", ["EXIT STATUS"]);
        for (code, meaning) in programs::MEANINGS {
            roff.control("TP", []);
            roff.text([bold(code.to_string())]);
            roff.text([roman(*meaning)]);
        }
        roff.control("PP", []);
        roff.text([roman(programs::POOLER_USAGE)]);
        self.section(&roff)
    }

    /// The text.
    #[must_use]
    pub fn text(self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

/// The section on a program's commands; `has_options` with the options of each.
#[must_use]
pub fn task_list(command: &Command, heading: &str, has_options: bool) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    for task in command.get_subcommands().filter(|task| task.get_name() != "help") {
        document(&mut roff, command.get_name(), task);
    }
    if has_options {
        options(&mut roff, command);
    }
    roff
}

/// A task, and the tasks below it, each with what it does.
fn document(roff: &mut Roff, above: &str, task: &Command) {
    let name = format!("{above} {}", task.get_name());
    let about = task.get_about().map(ToString::to_string).unwrap_or_default();
    let values = task.get_positionals().filter_map(Arg::get_value_names).flatten();
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
    task.get_subcommands()
        .filter(|below| below.get_name() != "help")
        .for_each(|below| document(roff, &name, below));
}

/// Every option of the commands, once, below its heading; with the commands that have it, where not all that have many do.
fn options(roff: &mut Roff, command: &Command) {
    let tasks: Vec<&Command> = command.get_subcommands().collect();
    let all: Vec<&Arg> = tasks.iter().flat_map(|task| listed(task)).collect();
    let heading_of = |option: &Arg| option.get_help_heading().unwrap_or("Options").to_owned();
    let mut headings: Vec<String> = all.iter().map(|option| heading_of(option)).collect();
    // In the order of their first options.
    let mut seen = Vec::new();
    headings.retain(|heading| {
        !seen.contains(heading) && {
            seen.push(heading.clone());
            true
        }
    });
    for heading in headings {
        roff.control("SS", [&*heading]);
        let mut seen = Vec::new();
        for option in all.iter().filter(|option| heading_of(option) == heading) {
            if !seen.contains(&option.get_id()) {
                seen.push(option.get_id());
                describe(roff, option, &tasks);
            }
        }
    }
}

fn describe(roff: &mut Roff, option: &Arg, tasks: &[&Command]) {
    let has = |task: &&&Command| listed(task).any(|other| other.get_id() == option.get_id());
    let is_everywhere = tasks.iter().filter(|task| listed(task).count() > 1).all(|task| has(&task));
    let having: Vec<&str> = tasks.iter().filter(has).map(|task| task.get_name()).collect();
    let of = if is_everywhere { String::new() } else { format!(" ({})", having.join(", ")) };
    let value = option.get_value_names().filter(|_| option.get_action().takes_values());
    let value = value.into_iter().flatten().map(|name| italic(format!(" {name}")));
    let name = bold(format!("--{}", option.get_long().unwrap_or_default()));
    roff.control("TP", []);
    roff.text(std::iter::once(name).chain(value).collect::<Vec<_>>());
    let help = option.get_help().map(ToString::to_string).unwrap_or_default();
    roff.text([roman(format!("{help}{of}"))]);
}

/// The options of a command that are its own.
fn listed(task: &Command) -> impl Iterator<Item = &Arg> {
    let is_own = |long: &str| !["help", "color"].contains(&long);
    task.get_arguments().filter(move |option| option.get_long().is_some_and(is_own) && !option.is_hide_set())
}
