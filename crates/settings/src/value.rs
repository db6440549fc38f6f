//! Values in general: the codec that parses and formats them, their kind, and errors.
//! The codecs themselves are in `codec.rs` (numbers, times, texts) and `choice.rs` (words).
//! Names, defaults and scopes are in the tables.

use std::fmt;

use crate::fleet_store_error::FleetStoreError;

/// Reads and shows one shape of value.
pub(crate) trait Codec {
    /// What the program works with.
    type Value: Default;
    /// The shape, for documents, samples and forms.
    const KIND: ValueKind;
    /// From the text of a file or of `SET`; blanks at both ends are already gone.
    fn read(text: &str) -> Result<Self::Value, BadValue>;
    /// As `SHOW CONFIG` writes it; `None` is SQL's NULL.
    fn show(value: &Self::Value) -> Option<String>;
}

/// The kind of a value, for documents and forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// `0` or `1` (also on/off, yes/no, true/false).
    Boolean,
    /// A whole number from 0 on.
    Number,
    /// A TCP port, 1 to 65535.
    Port,
    /// One such port, or one for each host with commas between them.
    Ports,
    /// Weights, one for all hosts or one for each.
    Weights,
    /// A percentage, 1 to 100.
    Percent,
    /// A size in bytes.
    Bytes,
    /// Bytes with a unit.
    Size,
    /// Seconds, decimals allowed.
    Seconds,
    /// Seconds, or bytes with their unit.
    Lag,
    /// Whole seconds.
    WholeSeconds,
    /// Whole milliseconds.
    Milliseconds,
    /// A file mode, octal when it begins with 0.
    FileMode,
    /// Any text.
    Text,
    /// A text that is never shown.
    Secret,
    /// Options of a directory: a text of which the password is never shown.
    LdapOptions,
    /// Texts with commas between them.
    List,
    /// `probe`, or `patroni` with URLs.
    Topology,
    /// `none`, `kubernetes`, or the URL of a store.
    FleetStore,
    /// `auto` or a number from 1 on.
    Threads,
    /// `auto` or a number from 0 on.
    PoolSize,
    /// One of these words.
    Choice(&'static [&'static str]),
}

impl fmt::Display for ValueKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ValueKind::Boolean => "0 or 1",
            ValueKind::Number => "number",
            ValueKind::Port => "port",
            ValueKind::Ports => "port, or one for each host",
            ValueKind::Weights => "number, or one for each host",
            ValueKind::Percent => "percent",
            ValueKind::Bytes => "bytes",
            ValueKind::Seconds => "seconds, decimals allowed",
            ValueKind::Size => "bytes with a unit",
            ValueKind::Lag => "seconds, or bytes with a unit",
            ValueKind::WholeSeconds => "whole seconds",
            ValueKind::Milliseconds => "milliseconds",
            ValueKind::FileMode => "file mode",
            ValueKind::Text => "text",
            ValueKind::LdapOptions => "text",
            ValueKind::Secret => "text, never shown",
            ValueKind::List => "comma-separated list",
            ValueKind::Topology => "probe, or patroni with URLs",
            ValueKind::FleetStore => "none, kubernetes, or a URL",
            ValueKind::Threads | ValueKind::PoolSize => "auto or number",
            ValueKind::Choice(words) => return out.write_str(&words.join(" | ")),
        })
    }
}

/// Why a text is not a valid value of its setting.
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
    /// Neither a time nor bytes with a unit.
    NotALag,
    /// Not bytes with a unit.
    NotASize,
    /// None of these words.
    NotAChoice(&'static [&'static str]),
    /// Empty where a value is required.
    Empty,
    /// The console's database, where one with servers is meant.
    Console,
    /// Not the base URL of a collector, and why.
    NotAUrl(&'static str),
    /// Not a list of headers, and why.
    NotHeaders(&'static str),
    /// Neither `probe` nor `patroni` with URLs, and why.
    NotATopology(&'static str),
    /// Neither `none` nor a store, and why.
    NotAFleetStore(FleetStoreError),
    /// Not the id of a node.
    NotANode,
    /// Not a host with a port.
    NotAnAddress,
    /// Not names with weights, and why.
    NotWeights(&'static str),
}

impl fmt::Display for BadValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadValue::NotANumber => out.write_str("is not a whole number"),
            BadValue::OutOfRange { least, most } => write!(out, "is not between {least} and {most}"),
            BadValue::NotABoolean => out.write_str("is not a boolean (0, 1, on, off, yes, no, true, false)"),
            BadValue::NotADuration => out.write_str("is not a time in seconds"),
            BadValue::NotALag => out.write_str("is neither a time in seconds nor a size like 16MB"),
            BadValue::NotASize => out.write_str("is not a size like 16MB"),
            BadValue::NotAChoice(words) => write!(out, "is not one of {}", words.join(", ")),
            BadValue::Empty => out.write_str("must not be empty"),
            BadValue::Console => out.write_str(
                "is the console: cannot use the reserved \"pgbouncer\" database as an auth_dbname",
            ),
            BadValue::NotAUrl(why) => {
                write!(out, "is not a URL like http://127.0.0.1:4318: {why}")
            }
            BadValue::NotHeaders(why) => write!(out, "is not a list of headers: {why}"),
            BadValue::NotAFleetStore(why) => {
                write!(out, "is neither none, kubernetes nor a URL like etcd://127.0.0.1:2379/weir: {why}")
            }
            BadValue::NotANode => out
                .write_str("is not an id of a node: 1 to 63 letters, digits, dots, hyphens and underscores"),
            BadValue::NotAnAddress => {
                out.write_str("is not a host with a port like 10.0.0.1:6432 or [fd00::1]:6432")
            }
            BadValue::NotWeights(why) => write!(out, "is not a list like alice=3,bob=2: {why}"),
            BadValue::NotATopology(why) => {
                write!(out, "is neither probe nor patroni with URLs like http://127.0.0.1:8008: {why}")
            }
        }
    }
}

impl std::error::Error for BadValue {}
