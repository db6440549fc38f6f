//! Parses and formats numbers, durations and texts as PgBouncer does, one codec per shape.
//! Owns bounds and units. Knows no setting: each table row names its codec.

use crate::value::{BadValue, Codec, ValueKind};
use std::time::Duration;

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
pub(crate) fn bounded(text: &str, least: u32, most: u32) -> Result<u32, BadValue> {
    let out_of_range = BadValue::OutOfRange { least: least.into(), most: most.into() };
    let number = u32::try_from(integer(text)?).map_err(|_| out_of_range.clone())?;
    if number < least || number > most { Err(out_of_range) } else { Ok(number) }
}

/// PgBouncer keeps these in a C `int`.
const INT_MAX: u32 = i32::MAX as u32;

/// The console's database.
pub(crate) const CONSOLE: &str = "pgbouncer";

/// The largest `peer_id`, as in PgBouncer.
pub(crate) const PEER_ID_MAX: u32 = 16_383;

pub(crate) struct Boolean;
impl Codec for Boolean {
    type Value = bool;
    const KIND: ValueKind = ValueKind::Boolean;
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
            const KIND: ValueKind = ValueKind::$kind;
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
    /// A number of a process in a group; 0 is in none.
    PeerId, Number, 0, PEER_ID_MAX;
    /// Permission bits. `SHOW CONFIG` writes them in decimal, as PgBouncer does.
    FileMode, FileMode, 0, 0o7777;
}

/// A limit where 0 and below mean unlimited: PgBouncer's files may have -1.
pub(crate) struct Limit;
impl Codec for Limit {
    type Value = u32;
    const KIND: ValueKind = ValueKind::Number;
    fn read(text: &str) -> Result<u32, BadValue> {
        if is_negative(text) { Ok(0) } else { Number::read(text) }
    }
    fn show(value: &u32) -> Option<String> {
        Some(value.to_string())
    }
}

/// A limit of one database or user: 0 and below inherit the global one, as in PgBouncer.
pub(crate) struct InheritedLimit;
impl Codec for InheritedLimit {
    type Value = Option<u32>;
    const KIND: ValueKind = ValueKind::Number;
    fn read(text: &str) -> Result<Option<u32>, BadValue> {
        Limit::read(text).map(|limit| Some(limit).filter(|limit| *limit > 0))
    }
    fn show(value: &Option<u32>) -> Option<String> {
        value.map(|limit| limit.to_string())
    }
}

/// Whether a text is a whole number below 0.
fn is_negative(text: &str) -> bool {
    text.strip_prefix('-')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A TCP port.
pub(crate) struct Port;
impl Codec for Port {
    type Value = u16;
    const KIND: ValueKind = ValueKind::Port;
    fn read(text: &str) -> Result<u16, BadValue> {
        let number = bounded(text, 1, u16::MAX.into())?;
        u16::try_from(number).map_err(|_| BadValue::NotANumber)
    }
    fn show(value: &u16) -> Option<String> {
        Some(value.to_string())
    }
}

/// A TCP port, or 0 for none.
pub(crate) struct PortOrOff;
impl Codec for PortOrOff {
    type Value = u16;
    const KIND: ValueKind = ValueKind::Port;
    fn read(text: &str) -> Result<u16, BadValue> {
        let number = bounded(text, 0, u16::MAX.into())?;
        u16::try_from(number).map_err(|_| BadValue::NotANumber)
    }
    fn show(value: &u16) -> Option<String> {
        Some(value.to_string())
    }
}

/// A duration in seconds that may have decimals, capped at a little over a century.
pub(crate) struct Seconds;
impl Codec for Seconds {
    type Value = Duration;
    const KIND: ValueKind = ValueKind::Seconds;
    fn read(text: &str) -> Result<Duration, BadValue> {
        // Rust reads "inf" and "nan" as numbers; a time is made of digits.
        if !text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '.' | '+' | '-')) {
            return Err(BadValue::NotADuration);
        }
        let seconds: f64 = text.parse().map_err(|_| BadValue::NotADuration)?;
        Duration::try_from_secs_f64(seconds.min(f64::from(u32::MAX))).map_err(|_| BadValue::NotADuration)
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
            const KIND: ValueKind = ValueKind::$kind;
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
    const KIND: ValueKind = ValueKind::Text;
    fn read(text: &str) -> Result<Option<String>, BadValue> {
        Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
    }
    fn show(value: &Option<String>) -> Option<String> {
        value.clone()
    }
}

/// `auth_dbname`: a database name other than the console's, which has no servers.
pub(crate) struct AuthDatabase;
impl Codec for AuthDatabase {
    type Value = Option<String>;
    const KIND: ValueKind = ValueKind::Text;
    fn read(text: &str) -> Result<Option<String>, BadValue> {
        if text == CONSOLE { Err(BadValue::Console) } else { Text::read(text) }
    }
    fn show(value: &Option<String>) -> Option<String> {
        value.clone()
    }
}

/// A text that is never empty.
pub(crate) struct NonEmptyText;
impl Codec for NonEmptyText {
    type Value = String;
    const KIND: ValueKind = ValueKind::Text;
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
    const KIND: ValueKind = ValueKind::List;
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
    const KIND: ValueKind = ValueKind::Text;
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

/// A value of `[databases]` or `[users]` that inherits a wider setting when unset, or when it is PgBouncer's `-1` or less.
pub(crate) struct Inherited<C>(std::marker::PhantomData<C>);
impl<C: Codec> Codec for Inherited<C> {
    type Value = Option<C::Value>;
    const KIND: ValueKind = C::KIND;
    fn read(text: &str) -> Result<Self::Value, BadValue> {
        if is_negative(text) { Ok(None) } else { C::read(text).map(Some) }
    }
    fn show(value: &Self::Value) -> Option<String> {
        value.as_ref().and_then(C::show)
    }
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
        reads::<Seconds>("99999999999", "4294967295");
        refuses::<Seconds>(&["", "-1", "-0.1", "inf", "NaN", "10s", "1h"]);
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
    fn an_empty_check_is_not_no_check() {
        assert_eq!(CheckQuery::read(""), Ok(None));
        assert_eq!(CheckQuery::read("<empty>"), Ok(Some(String::new())));
        reads::<CheckQuery>("", "");
        reads::<CheckQuery>("<empty>", "<empty>");
        reads::<CheckQuery>("select 1", "select 1");
    }

    #[test]
    fn the_console_has_no_servers_to_ask() {
        refuses::<AuthDatabase>(&["pgbouncer"]);
        reads::<AuthDatabase>("users", "users");
        assert_eq!(AuthDatabase::read(""), Ok(None));
    }

    #[test]
    fn minus_one_inherits() {
        assert_eq!(Inherited::<Number>::read("-1"), Ok(None));
        assert_eq!(Inherited::<Number>::read("0"), Ok(Some(0)));
        assert_eq!(Inherited::<Seconds>::read("-20"), Ok(None));
        refuses::<Inherited<Number>>(&["-", "-x", ""]);
    }

    #[test]
    fn a_limit_of_nothing_is_none_or_the_wider_one() {
        assert_eq!((Limit::read("-1"), Limit::read("0"), Limit::read("7")), (Ok(0), Ok(0), Ok(7)));
        assert_eq!((InheritedLimit::read("-1"), InheritedLimit::read("0")), (Ok(None), Ok(None)));
        assert_eq!(InheritedLimit::read("7"), Ok(Some(7)));
        refuses::<Limit>(&["", "-", "many"]);
    }
}
