//! How the text of one value becomes a typed value and back: one codec per shape of value.
//! Owns the words that a value may be (`on`, `0.5`, `transaction`, ...), as PgBouncer reads them.
//! Never knows which setting it reads: names, defaults and scopes stand in the tables.

use std::fmt;
use std::time::Duration;

/// Reads and shows one shape of value.
pub(crate) trait Codec {
    /// What the program works with.
    type Value: Default;
    /// The shape, for documents, samples and forms.
    const KIND: Kind;
    /// From the text of a file or of `SET`; blanks at both ends are already gone.
    fn read(text: &str) -> Result<Self::Value, BadValue>;
    /// As `SHOW CONFIG` writes it; `None` is SQL's NULL.
    fn show(value: &Self::Value) -> Option<String>;
}

/// The shape of a value, for whoever describes a setting to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `0` or `1` (also on/off, yes/no, true/false).
    Boolean,
    /// A whole number from 0 on.
    Number,
    /// A TCP port, 1 to 65535.
    Port,
    /// A percentage, 1 to 100.
    Percent,
    /// A size in bytes.
    Bytes,
    /// Seconds, decimals allowed.
    Seconds,
    /// Whole seconds.
    WholeSeconds,
    /// Whole milliseconds.
    Milliseconds,
    /// A file mode, octal when it begins with 0.
    FileMode,
    /// Any text.
    Text,
    /// Texts with commas between them.
    List,
    /// `auto` or a number from 1 on.
    Threads,
    /// One of these words.
    Choice(&'static [&'static str]),
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Kind::Boolean => "0 or 1",
            Kind::Number => "number",
            Kind::Port => "port",
            Kind::Percent => "percent",
            Kind::Bytes => "bytes",
            Kind::Seconds => "seconds, decimals allowed",
            Kind::WholeSeconds => "whole seconds",
            Kind::Milliseconds => "milliseconds",
            Kind::FileMode => "file mode",
            Kind::Text => "text",
            Kind::List => "comma-separated list",
            Kind::Threads => "auto or number",
            Kind::Choice(words) => return out.write_str(&words.join(" | ")),
        })
    }
}

/// Why a text is not a value of its setting; always the fault of whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadValue {
    /// Not a whole number.
    NotANumber,
    /// A number, but outside these bounds (both allowed).
    OutOfRange {
        /// The least that is allowed.
        least: i64,
        /// The most that is allowed.
        most: i64,
    },
    /// Neither a number nor one of the words for yes and no.
    NotABoolean,
    /// Not a number of seconds, or a negative or immense one.
    NotADuration,
    /// None of these words.
    NotAChoice(&'static [&'static str]),
    /// A word that PgBouncer knows and this version of Weir does not; these it does.
    NotYet(&'static [&'static str]),
    /// The one place where an empty text means nothing.
    Empty,
}

impl fmt::Display for BadValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadValue::NotANumber => out.write_str("is not a whole number"),
            BadValue::OutOfRange { least, most } => write!(out, "is not between {least} and {most}"),
            BadValue::NotABoolean => out.write_str("is not a boolean (0, 1, on, off, yes, no, true, false)"),
            BadValue::NotADuration => out.write_str("is not a time in seconds"),
            BadValue::NotAChoice(words) => write!(out, "is not one of {}", words.join(", ")),
            BadValue::NotYet([]) => out.write_str("is not supported by this version of Weir"),
            BadValue::NotYet(words) => {
                write!(out, "is not supported by this version of Weir (only {} is)", spelled(words))
            }
            BadValue::Empty => out.write_str("must not be empty"),
        }
    }
}

impl std::error::Error for BadValue {}

/// The allowed values for a message: `""` is spelled `empty`.
fn spelled(words: &[&str]) -> String {
    let words: Vec<&str> = words.iter().map(|word| if word.is_empty() { "empty" } else { word }).collect();
    words.join(", ")
}

/// A whole number as C's `strtol` with base 0 reads it: `0x` is hexadecimal, a leading `0` octal.
fn integer(text: &str) -> Result<i64, BadValue> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(BadValue::NotANumber);
    }
    let number = i64::from_str_radix(digits, radix).map_err(|_| BadValue::NotANumber)?;
    Ok(if negative { -number } else { number })
}

/// A whole number between two bounds.
fn bounded(text: &str, least: u32, most: u32) -> Result<u32, BadValue> {
    let out_of_range = BadValue::OutOfRange { least: least.into(), most: most.into() };
    let number = u32::try_from(integer(text)?).map_err(|_| out_of_range.clone())?;
    if number < least || number > most { Err(out_of_range) } else { Ok(number) }
}

/// PgBouncer keeps these in a C `int`; a larger number would not have meant anything there.
const INT_MAX: u32 = i32::MAX as u32;

/// Yes or no.
pub(crate) struct Boolean;
impl Codec for Boolean {
    type Value = bool;
    const KIND: Kind = Kind::Boolean;
    fn read(text: &str) -> Result<bool, BadValue> {
        match text.to_ascii_lowercase().as_str() {
            "on" | "yes" | "true" => Ok(true),
            "off" | "no" | "false" => Ok(false),
            other => integer(other).map(|number| number != 0).map_err(|_| BadValue::NotABoolean),
        }
    }
    fn show(value: &bool) -> Option<String> {
        Some(u8::from(*value).to_string())
    }
}

/// A `u32` codec: its name, its kind, its bounds.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident, $kind:ident, $least:expr, $most:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;
        impl Codec for $name {
            type Value = u32;
            const KIND: Kind = Kind::$kind;
            fn read(text: &str) -> Result<u32, BadValue> {
                bounded(text, $least, $most)
            }
            fn show(value: &u32) -> Option<String> {
                Some(value.to_string())
            }
        }
    )*};
}

numbers! {
    /// A count, where most settings mean "no limit" by 0.
    Number, Number, 0, INT_MAX;
    /// A count that cannot be 0.
    Positive, Number, 1, INT_MAX;
    /// A size in bytes, up to what 32 bits hold.
    Bytes, Bytes, 0, u32::MAX;
    /// A share of a whole.
    Percent, Percent, 1, 100;
    /// Permission bits. `SHOW CONFIG` writes them in decimal, as PgBouncer does.
    FileMode, FileMode, 0, 0o7777;
}

/// A TCP port.
pub(crate) struct Port;
impl Codec for Port {
    type Value = u16;
    const KIND: Kind = Kind::Port;
    fn read(text: &str) -> Result<u16, BadValue> {
        let number = bounded(text, 1, u16::MAX.into())?;
        u16::try_from(number).map_err(|_| BadValue::NotANumber)
    }
    fn show(value: &u16) -> Option<String> {
        Some(value.to_string())
    }
}

/// A time in seconds that may have decimals.
pub(crate) struct Seconds;
impl Codec for Seconds {
    type Value = Duration;
    const KIND: Kind = Kind::Seconds;
    fn read(text: &str) -> Result<Duration, BadValue> {
        // Rust reads "inf" and "nan" as numbers; a time is made of digits.
        if !text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '.' | '+' | '-')) {
            return Err(BadValue::NotADuration);
        }
        let seconds: f64 = text.parse().map_err(|_| BadValue::NotADuration)?;
        if !(0.0..=f64::from(u32::MAX)).contains(&seconds) {
            return Err(BadValue::NotADuration);
        }
        Duration::try_from_secs_f64(seconds).map_err(|_| BadValue::NotADuration)
    }
    fn show(value: &Duration) -> Option<String> {
        Some(value.as_secs_f64().to_string())
    }
}

/// A codec of whole numbers of a unit of time: its name, its kind, its least, from and to a number.
macro_rules! times {
    ($($(#[$doc:meta])* $name:ident, $kind:ident, $least:expr, $from:ident, $to:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;
        impl Codec for $name {
            type Value = Duration;
            const KIND: Kind = Kind::$kind;
            fn read(text: &str) -> Result<Duration, BadValue> {
                bounded(text, $least, INT_MAX).map(|number| Duration::$from(number.into()))
            }
            fn show(value: &Duration) -> Option<String> {
                Some(value.$to().to_string())
            }
        }
    )*};
}

times! {
    /// A time in whole seconds, where PgBouncer takes an integer.
    WholeSeconds, WholeSeconds, 0, from_secs, as_secs;
    /// A time in whole seconds that cannot be 0.
    PositiveSeconds, WholeSeconds, 1, from_secs, as_secs;
    /// A time in whole milliseconds, where the kernel takes them.
    Milliseconds, Milliseconds, 0, from_millis, as_millis;
}

/// A text; the empty one is `None`.
pub(crate) struct Text;
impl Codec for Text {
    type Value = Option<String>;
    const KIND: Kind = Kind::Text;
    fn read(text: &str) -> Result<Option<String>, BadValue> {
        Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
    }
    fn show(value: &Option<String>) -> Option<String> {
        value.clone()
    }
}

/// A text that is never empty.
pub(crate) struct Word;
impl Codec for Word {
    type Value = String;
    const KIND: Kind = Kind::Text;
    fn read(text: &str) -> Result<String, BadValue> {
        if text.is_empty() { Err(BadValue::Empty) } else { Ok(text.to_owned()) }
    }
    fn show(value: &String) -> Option<String> {
        Some(value.clone())
    }
}

/// Texts with commas between them; blanks around each are dropped, and so are empty ones.
pub(crate) struct List;
impl Codec for List {
    type Value = Vec<String>;
    const KIND: Kind = Kind::List;
    fn read(text: &str) -> Result<Vec<String>, BadValue> {
        Ok(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect())
    }
    fn show(value: &Vec<String>) -> Option<String> {
        Some(value.join(","))
    }
}

/// `server_check_query`: nothing is `None`, PgBouncer's word `<empty>` is the empty query.
pub(crate) struct CheckQuery;
impl Codec for CheckQuery {
    type Value = Option<String>;
    const KIND: Kind = Kind::Text;
    fn read(text: &str) -> Result<Option<String>, BadValue> {
        Ok(match text {
            "" => None,
            "<empty>" => Some(String::new()),
            query => Some(query.to_owned()),
        })
    }
    fn show(value: &Option<String>) -> Option<String> {
        Some(match value.as_deref() {
            None => String::new(),
            Some("") => "<empty>".to_owned(),
            Some(query) => query.to_owned(),
        })
    }
}

/// A value of `[databases]` or `[users]` that, unless given, follows a wider setting. PgBouncer's `-1` says so too.
pub(crate) struct Inherited<C>(std::marker::PhantomData<C>);
impl<C: Codec> Codec for Inherited<C> {
    type Value = Option<C::Value>;
    const KIND: Kind = C::KIND;
    fn read(text: &str) -> Result<Self::Value, BadValue> {
        if text == "-1" { Ok(None) } else { C::read(text).map(Some) }
    }
    fn show(value: &Self::Value) -> Option<String> {
        value.as_ref().and_then(C::show)
    }
}

/// How many shard threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Threads {
    /// As many as the process may use processors.
    #[default]
    Auto,
    /// This many, at least one.
    Count(u32),
}

impl Codec for Threads {
    type Value = Self;
    const KIND: Kind = Kind::Threads;
    fn read(text: &str) -> Result<Self, BadValue> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Threads::Auto);
        }
        bounded(text, 1, 1024).map(Threads::Count)
    }
    fn show(value: &Self) -> Option<String> {
        Some(match value {
            Threads::Auto => "auto".to_owned(),
            Threads::Count(count) => count.to_string(),
        })
    }
}

/// An enum whose values are words; words after `not yet` are PgBouncer's, known but refused.
macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }
        not yet [$($later:literal),*];)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// The words of a file, in the order of the values.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            /// The word of a file and of the console.
            pub const fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(self.word())
            }
        }

        impl Codec for $name {
            type Value = Self;
            const KIND: Kind = Kind::Choice(Self::WORDS);
            fn read(text: &str) -> Result<Self, BadValue> {
                const LATER: &[&str] = &[$($later),*];
                let word = text.to_ascii_lowercase();
                match word.as_str() {
                    $($word => Ok($name::$variant),)*
                    other if LATER.contains(&other) => Err(BadValue::NotYet(Self::WORDS)),
                    _ => Err(BadValue::NotAChoice(Self::WORDS)),
                }
            }
            fn show(value: &Self) -> Option<String> {
                Some(value.word().to_owned())
            }
        }
    )*};
}

choices! {
    /// When a server connection goes back to its pool.
    PoolMode {
        /// When the client leaves.
        #[default]
        Session = "session",
        /// When the transaction ends.
        Transaction = "transaction",
        /// When the statement ends; transactions of several statements are refused.
        Statement = "statement",
    } not yet [];

    /// How clients prove who they are.
    AuthType {
        /// Not at all, and the name is ignored too: every database must force a user.
        Any = "any",
        /// Not at all, but the name must be known.
        Trust = "trust",
        /// By the password in clear.
        Plain = "plain",
        /// By MD5, or by SCRAM where the stored secret is a SCRAM one.
        #[default]
        Md5 = "md5",
        /// By SCRAM-SHA-256 (RFC 7677).
        ScramSha256 = "scram-sha-256",
    } not yet ["cert", "hba", "ldap", "pam"];

    /// What asks the kernel for bytes.
    IoDriver {
        /// io_uring where it works, else epoll.
        #[default]
        Auto = "auto",
        /// Readiness.
        Epoll = "epoll",
        /// Completion.
        IoUring = "io_uring",
    } not yet [];

    /// How one of several hosts is chosen.
    LoadBalance {
        /// Each new connection goes to the next host.
        #[default]
        RoundRobin = "round-robin",
        /// The first host is used until it cannot be reached.
        Disable = "disable",
    } not yet [];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads<C: Codec>(text: &str, shown: &str) {
        let read = C::read(text).map(|value| C::show(&value));
        assert_eq!(read, Ok(Some(shown.to_owned())), "{text:?}");
    }

    fn refuses<C: Codec>(texts: &[&str]) {
        for text in texts {
            assert!(C::read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn whole_numbers_are_read_as_c_reads_them() {
        for (text, shown) in [
            ("0", "0"),
            ("20", "20"),
            ("+5", "5"),
            ("0x1F", "31"),
            ("0777", "511"),
            ("2147483647", "2147483647"),
        ] {
            reads::<Number>(text, shown);
        }
        refuses::<Number>(&[
            "",
            "-",
            "-1",
            "1.5",
            "ten",
            "08",
            "0x",
            "0x+1",
            "+-1",
            "2147483648",
            "99999999999999999999",
            "1 2",
            "\u{ff11}",
        ]);
        reads::<Bytes>("4294967295", "4294967295");
        refuses::<Positive>(&["0"]);
        refuses::<Percent>(&["0", "101"]);
        refuses::<Port>(&["0", "65536", "-1"]);
    }

    #[test]
    fn booleans_are_words_or_numbers() {
        for text in ["1", "on", "YES", "true", "2"] {
            reads::<Boolean>(text, "1");
        }
        for text in ["0", "off", "No", "false"] {
            reads::<Boolean>(text, "0");
        }
        refuses::<Boolean>(&["", "y", "maybe"]);
    }

    #[test]
    fn times_may_have_decimals_and_an_end() {
        for (text, shown) in
            [("0", "0"), ("120", "120"), ("0.5", "0.5"), (".25", "0.25"), ("1e2", "100"), ("3600.0", "3600")]
        {
            reads::<Seconds>(text, shown);
        }
        refuses::<Seconds>(&["", "-1", "-0.1", "inf", "NaN", "+inf", "1e300", "10s", "1h"]);
        assert_eq!(Milliseconds::read("1500"), Ok(Duration::from_millis(1500)));
        refuses::<WholeSeconds>(&["0.5"]);
        refuses::<PositiveSeconds>(&["0"]);
    }

    #[test]
    fn lists_drop_blanks_and_empty_parts() {
        assert_eq!(List::read(" a, b ,,c,"), Ok(["a", "b", "c"].map(str::to_owned).to_vec()));
        assert_eq!(List::read(""), Ok(Vec::new()));
    }

    #[test]
    fn choices_ignore_case_and_name_what_is_allowed() {
        assert_eq!(PoolMode::read("TRANSACTION"), Ok(PoolMode::Transaction));
        assert_eq!(IoDriver::read("io_uring"), Ok(IoDriver::IoUring));
        assert_eq!(PoolMode::read("tx"), Err(BadValue::NotAChoice(PoolMode::WORDS)));
        assert_eq!(AuthType::read("hba"), Err(BadValue::NotYet(AuthType::WORDS)));
        assert_eq!(Threads::read("auto"), Ok(Threads::Auto));
        assert_eq!(Threads::read("4"), Ok(Threads::Count(4)));
        refuses::<Threads>(&["0", "many", "5000"]);
    }

    #[test]
    fn an_empty_check_is_not_no_check() {
        assert_eq!(CheckQuery::read(""), Ok(None));
        assert_eq!(CheckQuery::read("<empty>"), Ok(Some(String::new())));
        reads::<CheckQuery>("", "");
        reads::<CheckQuery>("<empty>", "<empty>");
        reads::<CheckQuery>("select 1", "select 1");
    }

    #[test]
    fn minus_one_inherits() {
        assert_eq!(Inherited::<Number>::read("-1"), Ok(None));
        assert_eq!(Inherited::<Number>::read("0"), Ok(Some(0)));
        refuses::<Inherited<Number>>(&["-2", ""]);
    }
}
