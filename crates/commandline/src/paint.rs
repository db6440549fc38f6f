//! Text in colours, or as it is. Owns which colour means what.

use clap::builder::styling::{AnsiColor, Style};

/// Paints, or does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paint(bool);

impl Paint {
    /// Text as it is, for files and programs.
    pub const PLAIN: Paint = Paint(false);

    pub(crate) fn new(is_on: bool) -> Paint {
        Paint(is_on)
    }

    /// Whether there are colours.
    #[must_use]
    pub fn is_on(self) -> bool {
        self.0
    }

    /// What is wrong.
    #[must_use]
    pub fn bad(self, text: &str) -> String {
        self.with(AnsiColor::Red.on_default().bold(), text)
    }

    /// What may go wrong.
    #[must_use]
    pub fn doubtful(self, text: &str) -> String {
        self.with(AnsiColor::Yellow.on_default(), text)
    }

    /// What is to be taken.
    #[must_use]
    pub fn good(self, text: &str) -> String {
        self.with(AnsiColor::Green.on_default().bold(), text)
    }

    /// What is worth knowing.
    #[must_use]
    pub fn noted(self, text: &str) -> String {
        self.with(AnsiColor::Cyan.on_default(), text)
    }

    /// A heading.
    #[must_use]
    pub fn heading(self, text: &str) -> String {
        self.with(Style::new().bold(), text)
    }

    /// Blanks at the ends stay unpainted, and lines are painted one by one.
    fn with(self, style: Style, text: &str) -> String {
        if !self.0 {
            return text.to_owned();
        }
        let painted = |line: &str| match line.trim() {
            "" => line.to_owned(),
            inner => line.replacen(inner, &format!("{style}{inner}{style:#}"), 1),
        };
        text.split('\n').map(painted).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_painted_is_the_same_text() {
        assert_eq!(Paint::PLAIN.bad("a\nb"), "a\nb");
        let painted = Paint::new(true).bad("  a b \nc\n");
        assert_eq!(painted, "  \u{1b}[1m\u{1b}[31ma b\u{1b}[0m \n\u{1b}[1m\u{1b}[31mc\u{1b}[0m\n");
    }
}
