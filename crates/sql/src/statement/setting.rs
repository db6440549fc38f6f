//! SET, RESET and what means the same: of which setting, for how long, and the value.

use super::Name;
use super::cursor::{Tokens, name_of};
use crate::lexer::{Backslash, Kind, Token};

/// For how long a setting is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Until the session ends, unless the transaction is rolled back.
    Session,
    /// Until the transaction ends.
    Local,
}

/// SET, RESET or a relative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetCommand {
    /// SET name TO value; also SET TIME ZONE, NAMES, SCHEMA, ROLE, SESSION AUTHORIZATION, XML OPTION.
    Setting {
        /// For how long.
        scope: Scope,
        /// The setting's name, in lower case.
        name: String,
        /// To what.
        value: SettingValue,
    },
    /// RESET of one setting.
    Reset(Name),
    /// RESET ALL.
    ResetAll,
    /// SET SESSION CHARACTERISTICS AS TRANSACTION: defaults of the transactions to come.
    Characteristics,
    /// SET TRANSACTION or SET CONSTRAINTS: of this transaction only.
    Transaction,
    /// A name or a form that is not recognised.
    Other,
}

/// What a setting is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// DEFAULT: what RESET sets.
    Default,
    /// Of a list several.
    Values(Vec<Value>),
    /// The text does not show it: an interval, an escape, CURRENT.
    Unknown,
}

/// One value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A word or a quoted name, as PostgreSQL folds it.
    Name(String),
    /// A string.
    Text(String),
    /// A number, with its sign.
    Number(String),
}

/// What stands behind SET.
pub(super) fn set(tokens: &mut Tokens<'_>) -> SetCommand {
    let mut scope = Scope::Session;
    if tokens.takes("local") {
        scope = Scope::Local;
    } else if tokens.takes("session") {
        if tokens.takes("characteristics") {
            return SetCommand::Characteristics;
        }
        if tokens.takes("authorization") {
            return setting(scope, "session_authorization", word_or_text(tokens));
        }
    }
    if tokens.takes("transaction") || tokens.takes("constraints") {
        return SetCommand::Transaction;
    }
    let Some(name) = setting_name(tokens) else { return SetCommand::Other };
    let assigns = tokens.takes("to") || is_equals(*tokens) && tokens.next().is_some();
    match (name.as_str(), assigns) {
        (_, true) => setting(scope, &name, values(tokens)),
        ("time", _) if tokens.takes("zone") => setting(scope, "timezone", zone(tokens)),
        ("names", _) if tokens.is_empty() => setting(scope, "client_encoding", SettingValue::Default),
        ("names", _) => setting(scope, "client_encoding", word_or_text(tokens)),
        ("schema", _) => setting(scope, "search_path", word_or_text(tokens)),
        ("role", _) => setting(scope, "role", word_or_text(tokens)),
        ("session", _) if tokens.takes("authorization") => {
            setting(scope, "session_authorization", word_or_text(tokens))
        }
        ("xml", _) if tokens.takes("option") => setting(scope, "xmloption", word_or_text(tokens)),
        _ => SetCommand::Other,
    }
}

fn setting(scope: Scope, name: &str, value: SettingValue) -> SetCommand {
    SetCommand::Setting { scope, name: name.to_owned(), value }
}

/// What stands behind RESET.
pub(super) fn reset(tokens: &mut Tokens<'_>) -> SetCommand {
    if tokens.takes("all") {
        return SetCommand::ResetAll;
    }
    let Some(name) = setting_name(tokens) else { return SetCommand::Reset(None) };
    let name = match name.as_str() {
        "time" if tokens.takes("zone") => "timezone",
        "session" if tokens.takes("authorization") => "session_authorization",
        "transaction" if tokens.takes("isolation") => "transaction_isolation",
        other => other,
    };
    SetCommand::Reset(Some(name.to_owned()))
}

/// The name of a setting, which may have dots, in lower case: PostgreSQL ignores its case, quoted or not.
fn setting_name(tokens: &mut Tokens<'_>) -> Name {
    let mut name = tokens.name()?.to_ascii_lowercase();
    while tokens.takes_kind(Kind::Dot) {
        name.push('.');
        name.push_str(&tokens.name()?.to_ascii_lowercase());
    }
    Some(name)
}

fn is_equals(tokens: Tokens<'_>) -> bool {
    tokens.peek().is_some_and(|token| token.kind == Kind::Operator && token.text == "=")
}

/// All that is left, as values between commas.
fn values(tokens: &mut Tokens<'_>) -> SettingValue {
    if tokens.rest().len() == 1 && tokens.is("default") {
        return SettingValue::Default;
    }
    let mut found = Vec::new();
    loop {
        let Some(value) = value(tokens) else { return SettingValue::Unknown };
        found.push(value);
        if tokens.is_empty() {
            return SettingValue::Values(found);
        }
        if !tokens.takes_kind(Kind::Comma) {
            return SettingValue::Unknown;
        }
    }
}

/// A single value behind SET ROLE and the like.
fn word_or_text(tokens: &mut Tokens<'_>) -> SettingValue {
    match values(tokens) {
        SettingValue::Values(found) if found.len() != 1 => SettingValue::Unknown,
        value => value,
    }
}

/// A time zone: LOCAL is the default, an interval is not read.
fn zone(tokens: &mut Tokens<'_>) -> SettingValue {
    if tokens.is("local") { SettingValue::Default } else { word_or_text(tokens) }
}

fn value(tokens: &mut Tokens<'_>) -> Option<Value> {
    let token = tokens.next()?;
    match token.kind {
        Kind::Word | Kind::Quoted => name_of(token).map(Value::Name),
        Kind::Value if token.is_number => Some(Value::Number(token.text.to_owned())),
        Kind::Value => text(token).map(Value::Text),
        Kind::Operator if matches!(token.text, "+" | "-") => {
            let number = tokens.next().filter(|number| number.is_number)?;
            Some(Value::Number(format!("{}{}", token.text, number.text)))
        }
        _ => None,
    }
}

/// What a string says, if that does not depend on escapes.
pub(super) fn text(token: Token<'_>) -> Option<String> {
    let inside = token.text.strip_prefix('\'')?.strip_suffix('\'')?;
    if token.is_parted {
        return None;
    }
    let is_plain = token.backslash == Backslash::Literal || !inside.contains('\\');
    is_plain.then(|| inside.replace("''", "'"))
}
