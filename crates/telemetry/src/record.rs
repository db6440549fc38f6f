//! A log record and the line it becomes: `2026-11-21 10:00:00.000 UTC [123] LOG C-0x1: db/user@host:port text`.
//!
//! Owns levels, escaping and the time stamp. Never decides where a line goes.

use std::fmt::Write as _;

/// The severity; names and order are PgBouncer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The process exits.
    Fatal,
    /// An error.
    Error,
    /// A warning.
    Warning,
    /// Normal operation.
    Log,
    /// `verbose` 1 and above.
    Debug,
    /// `verbose` 2 and above.
    Noise,
}

impl Level {
    /// The word in the line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Level::Fatal => "FATAL",
            Level::Error => "ERROR",
            Level::Warning => "WARNING",
            Level::Log => "LOG",
            Level::Debug => "DEBUG",
            Level::Noise => "NOISE",
        }
    }
}

/// A log record, not yet written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The severity.
    pub level: Level,
    /// The text after the level; may begin with `C-…:` or `S-…:`.
    pub text: String,
}

impl Record {
    /// A record of a level.
    #[must_use]
    pub fn new(level: Level, text: impl Into<String>) -> Record {
        Record { level, text: text.into() }
    }
}

/// Formats lines. The date is cached per second, and the buffer is reused.
#[derive(Debug, Default)]
pub struct LineFormatter {
    second: u64,
    /// That second as [`date_time`] has it; empty before the first line.
    date_time: String,
    line: String,
}

impl LineFormatter {
    /// The whole line, with a newline; `wall_us` is microseconds since 1970 (UTC).
    ///
    /// The text is escaped as by [`printable`], so that nothing a peer sent can forge a line.
    pub fn line(&mut self, record: &Record, wall_us: u64, process_id: u32) -> &str {
        let second = wall_us / 1_000_000;
        if self.date_time.is_empty() || second != self.second {
            self.second = second;
            self.date_time = date_time(wall_us);
        }
        self.line.clear();
        let (date_time, word) = (&self.date_time, record.level.word());
        let _ = write!(self.line, "{date_time}.{:03} UTC [{process_id}] {word} ", milliseconds(wall_us));
        push_printable(&mut self.line, &record.text);
        self.line.push('\n');
        &self.line
    }
}

/// A record's text alone. Control characters, those that are not seen or change the order of others, and the backslash are escaped:
/// `\x0a`, `\u{2028}`, `\\`.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    push_printable(&mut line, text);
    line
}

fn push_printable(line: &mut String, text: &str) {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'\\') {
        return line.push_str(text);
    }
    for character in text.chars() {
        let code = u32::from(character);
        match character {
            '\\' => line.push_str("\\\\"),
            _ if character.is_control() => _ = write!(line, "\\x{code:02x}"),
            _ if is_unprintable(character) => _ = write!(line, "\\u{{{code:x}}}"),
            _ => line.push(character),
        }
    }
}

/// Separators of lines and paragraphs, and what formats others (Unicode's Zl, Zp and Cf): a viewer could interpret them.
fn is_unprintable(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

/// `YYYY-MM-DD hh:mm:ss.mmm` of microseconds since 1970.
#[must_use]
pub fn stamp(wall_us: u64) -> String {
    format!("{}.{:03}", date_time(wall_us), milliseconds(wall_us))
}

/// Of the second.
fn milliseconds(wall_us: u64) -> u64 {
    wall_us / 1_000 % 1_000
}

/// `YYYY-MM-DD hh:mm:ss` of microseconds since 1970 (proleptic Gregorian, UTC).
#[must_use]
pub fn date_time(wall_us: u64) -> String {
    let seconds = wall_us / 1_000_000;
    let (year, month, day) = civil(seconds / 86_400);
    let of_day = seconds % 86_400;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", of_day / 3_600, of_day / 60 % 60, of_day % 60)
}

/// Year, month and day of a count of days since 1970-01-01, by 400-year eras that begin on 1 March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_pgbouncers_shape() {
        let record = Record::new(Level::Log, "C-0x1: db/user@127.0.0.1:1 login");
        let mut lines = LineFormatter::default();
        let line = lines.line(&record, 1_795_000_000_123_456, 42);
        assert_eq!(line, "2026-11-18 11:06:40.123 UTC [42] LOG C-0x1: db/user@127.0.0.1:1 login\n");
        let next = lines.line(&Record::new(Level::Fatal, "x"), 1_795_000_001_000_000, 42);
        assert_eq!(next, "2026-11-18 11:06:41.000 UTC [42] FATAL x\n");
    }

    #[test]
    fn nothing_a_peer_sends_forges_a_line() {
        let record = Record::new(Level::Warning, "user \"a\nFATAL x\"");
        assert_eq!(LineFormatter::default().line(&record, 0, 1).matches('\n').count(), 1);
        for (sent, shown) in [
            ("a\nb\u{85}\u{1b}[1m", r"a\x0ab\x85\x1b[1m"),
            ("a\u{2028}b\u{202e}c\u{feff}", r"a\u{2028}b\u{202e}c\u{feff}"),
            (r"a\x0ab", r"a\\x0ab"),
            ("größer \"क्षि\"", "größer \"क्षि\""),
        ] {
            assert_eq!(printable(sent), shown);
            assert!(
                LineFormatter::default()
                    .line(&Record::new(Level::Log, sent), 0, 1)
                    .ends_with(&format!(" {shown}\n"))
            );
        }
    }

    #[test]
    fn leap_days_are_days() {
        assert_eq!(date_time(951_782_400_000_000), "2000-02-29 00:00:00");
        assert_eq!(date_time(1_709_164_800_000_000), "2024-02-29 00:00:00");
        assert_eq!(date_time(0), "1970-01-01 00:00:00");
    }
}
