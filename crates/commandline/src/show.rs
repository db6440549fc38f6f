//! Help, versions and errors as clap words them: where they are printed, and in which colours.

use std::io::{IsTerminal as _, Write as _, stderr, stdout};

use clap::builder::Styles;
use clap::builder::styling::{AnsiColor, Style};

use crate::color::ColorWhen;

/// The colours of help and of errors.
pub const STYLES: Styles = Styles::styled()
    .header(Style::new().bold())
    .usage(Style::new().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Prints what was asked for to standard output, and what is wrong to standard error; true for the former. A closed pipe is no failure.
pub fn show(error: &clap::Error, when: ColorWhen) -> bool {
    let is_wanted = !error.use_stderr();
    let is_terminal = if is_wanted { stdout().is_terminal() } else { stderr().is_terminal() };
    let text = error.render();
    let text = if when.paint(is_terminal).is_on() { text.ansi().to_string() } else { text.to_string() };
    if is_wanted {
        let _ = stdout().write_all(text.as_bytes());
    } else {
        let _ = stderr().write_all(text.as_bytes());
    }
    is_wanted
}
