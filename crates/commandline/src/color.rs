//! Whether output has colours: `--color`, else NO_COLOR (<https://no-color.org>), CLICOLOR_FORCE and CLICOLOR, else whether it goes to a
//! terminal. Owns the option and its place among the words; never paints.

use std::ffi::{OsStr, OsString};

use clap::{Args, ValueEnum};

use crate::paint::Paint;

/// When there are colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// At a terminal, unless the environment says otherwise.
    #[default]
    Auto,
    /// In any case.
    Always,
    /// In no case.
    Never,
}

/// The option, of every command.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColorOption {
    /// Colours: at a terminal, unless NO_COLOR is set; always; or never
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = false
    )]
    pub color: ColorWhen,
}

const OPTION: &str = "--color";

impl ColorWhen {
    /// Whether a stream is painted, and how.
    #[must_use]
    pub fn paint(self, is_terminal: bool) -> Paint {
        Paint::new(self.is_on(is_terminal, |name| std::env::var_os(name)))
    }

    fn is_on(self, is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        match self {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto if set("NO_COLOR").is_some() => false,
            ColorWhen::Auto if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") => true,
            ColorWhen::Auto => {
                is_terminal
                    && set("CLICOLOR").is_none_or(|value| value != "0")
                    && set("TERM").is_none_or(|value| value != "dumb")
            }
        }
    }

    /// What the words say, where they cannot be read as a whole or ask for help.
    #[must_use]
    pub fn of_words(words: &[OsString]) -> ColorWhen {
        let options = words.iter().take_while(|word| *word != "--");
        let mut next = options.clone().skip(1);
        let mut when = ColorWhen::Auto;
        for word in options {
            let value = match word.to_str().and_then(|word| word.strip_prefix(OPTION)) {
                Some("") => next.clone().next().and_then(|value| value.to_str()),
                Some(value) => value.strip_prefix('='),
                None => None,
            };
            when = value.and_then(|value| ColorWhen::from_str(value, false).ok()).unwrap_or(when);
            next.next();
        }
        when
    }
}

impl ColorOption {
    /// The words with an option that stands before a command behind it: `--color never check` is `check --color never`; no other
    /// option may stand before a command. `help` takes none: its colours are those of [`ColorWhen::of_words`].
    #[must_use]
    pub fn settle(mut words: Vec<OsString>, is_command: impl Fn(&OsStr) -> bool) -> Vec<OsString> {
        let count = length(&words, 1);
        if count > 0 && words.get(1 + count).is_some_and(|word| is_command(word)) {
            words[1..=1 + count].rotate_left(count);
        }
        if words.get(1).is_some_and(|word| word == "help") {
            while let Some(place) = (2..words.len()).find(|place| length(&words, *place) > 0) {
                let end = words.len().min(place + length(&words, place));
                words.drain(place..end);
            }
        }
        words
    }
}

/// How many words the option has that stands there; 0 where none does.
fn length(words: &[OsString], place: usize) -> usize {
    match words.get(place).and_then(|word| word.to_str()).and_then(|word| word.strip_prefix(OPTION)) {
        Some("") => 2,
        Some(value) if value.starts_with('=') => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(Into::into).collect()
    }

    #[test]
    fn the_option_wins_then_the_environment_then_the_terminal() {
        let on = |when: ColorWhen, is_terminal: bool, set: &[(&str, &str)]| {
            let value = |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
            };
            when.is_on(is_terminal, value)
        };
        let auto = ColorWhen::Auto;
        assert!(on(auto, true, &[]) && !on(auto, false, &[]));
        assert!(
            on(ColorWhen::Always, false, &[("NO_COLOR", "1")])
                && !on(ColorWhen::Never, true, &[("CLICOLOR_FORCE", "1")])
        );
        assert!(!on(auto, true, &[("NO_COLOR", "0")]), "any value");
        assert!(on(auto, true, &[("NO_COLOR", "")]), "but an empty one");
        assert!(on(auto, false, &[("CLICOLOR_FORCE", "1")]) && !on(auto, false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!on(auto, false, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]));
        assert!(!on(auto, true, &[("CLICOLOR", "0")]) && !on(auto, true, &[("TERM", "dumb")]));
    }

    #[test]
    fn words_that_cannot_be_read_have_a_color_too() {
        let of = |line: &str| ColorWhen::of_words(&words(line));
        assert_eq!(of("weir --color never --frob"), ColorWhen::Never);
        assert_eq!(of("weir --frob --color=always"), ColorWhen::Always);
        assert_eq!(
            (of("weir --color"), of("weir --color pink"), of("weir -- --color never")),
            Default::default()
        );
    }

    #[test]
    fn an_option_before_a_command_is_one_of_it() {
        let moved = |line: &str| {
            ColorOption::settle(words(line), |word| {
                ["check", "help"].contains(&word.to_str().unwrap_or_default())
            })
        };
        assert_eq!(moved("weir --color never check x.ini"), words("weir check --color never x.ini"));
        assert_eq!(moved("weir --color=never check x.ini"), words("weir check --color=never x.ini"));
        for line in [
            "weir --color never help check",
            "weir help --color=never check",
            "weir help check --color never",
            "weir help check --color",
        ] {
            assert_eq!(moved(line), words("weir help check"), "{line}");
        }
        for line in [
            "weir --color never x.ini",
            "weir check --color never",
            "weir --colored check",
            "weir --color",
            "weir",
        ] {
            assert_eq!(moved(line), words(line));
        }
    }
}
