//! What shells complete, made of the table of options: what is hidden in help is not completed.

use clap::{Arg, Command};
use clap_complete::{Shell, generate};

/// The file that a shell reads.
#[must_use]
pub fn completions(shell: Shell, command: &Command) -> String {
    let name = command.get_name();
    // The generator for bash takes a hyphen in a program's name for the end of it.
    let plain = if shell == Shell::Bash { name.replace('-', "_") } else { name.to_owned() };
    let mut visible = Command::new(plain.clone())
        .disable_version_flag(command.is_disable_version_flag_set())
        .version(command.get_version().unwrap_or_default().to_owned())
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()).map(completed))
        .subcommands(command.get_subcommands().cloned());
    let mut text = Vec::new();
    generate(shell, &mut visible, plain.clone(), &mut text);
    let text = String::from_utf8_lossy(&text);
    text.replace(&format!(" -o default {plain}\n"), &format!(" -o default {name}\n"))
}

/// An argument as far as completion looks at it: whether it is required may depend on a hidden one.
fn completed(argument: &Arg) -> Arg {
    if !argument.is_positional() {
        return argument.clone();
    }
    Arg::new(argument.get_id().clone()).value_hint(argument.get_value_hint())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_a_program_with_a_hyphen_are_completed_and_hidden_options_are_not() {
        let task = Command::new("task").arg(Arg::new("own").long("own"));
        let program =
            Command::new("a-b").version("1").arg(Arg::new("no").long("no").hide(true)).subcommand(task);
        let bash = completions(Shell::Bash, &program);
        assert!(bash.contains("        a_b__subcmd__task)\n            opts=\"-h --own --help\""), "{bash}");
        assert!(bash.ends_with(" -o bashdefault -o default a-b\nfi\n"), "{bash}");
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = completions(shell, &program);
            assert!(text.contains("own") && !text.contains("--no") && !text.contains("-l no "), "{text}");
        }
    }
}
