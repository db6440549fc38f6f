//! SELECT of nothing but set_config(), with values that stand in the text or are bound: it does what SET does.

use super::cursor::{Tokens, is_word};
use super::setting::{self, Scope};
use crate::lexer::Kind;

/// One call of set_config().
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigCall {
    /// The setting, in lower case; None if the text does not show it.
    pub name: Option<String>,
    /// For how long it is set; None if the text does not show it.
    pub scope: Option<Scope>,
}

/// The calls that these tokens are, behind SELECT; None if there is anything else.
pub(super) fn calls(mut tokens: Tokens<'_>) -> Option<Vec<ConfigCall>> {
    let mut calls = Vec::new();
    loop {
        if tokens.takes("pg_catalog") && !tokens.takes_kind(Kind::Dot) || !tokens.takes("set_config") {
            return None;
        }
        calls.push(arguments(&mut tokens)?);
        if tokens.takes("as") {
            tokens.name()?;
        }
        if tokens.is_empty() {
            return Some(calls);
        }
        if !tokens.takes_kind(Kind::Comma) {
            return None;
        }
    }
}

fn arguments(tokens: &mut Tokens<'_>) -> Option<ConfigCall> {
    let takes = |tokens: &mut Tokens<'_>, kind| tokens.takes_kind(kind).then_some(());
    takes(tokens, Kind::Open)?;
    let name = tokens.peek().and_then(setting::text).map(|name| name.to_ascii_lowercase());
    value(tokens)?;
    takes(tokens, Kind::Comma)?;
    value(tokens)?;
    takes(tokens, Kind::Comma)?;
    let scope = if tokens.takes("true") {
        Some(Scope::Local)
    } else if tokens.takes("false") {
        Some(Scope::Session)
    } else {
        value(tokens)?;
        None
    };
    takes(tokens, Kind::Close)?;
    Some(ConfigCall { name, scope })
}

/// A string, a number or a parameter, perhaps with a cast to text or boolean.
fn value(tokens: &mut Tokens<'_>) -> Option<()> {
    let is_value = tokens.takes_kind(Kind::Value);
    if is_value && tokens.takes_kind(Kind::Cast) {
        let types = ["text", "varchar", "bool", "boolean"];
        return types.iter().any(|name| tokens.peek().is_some_and(|token| is_word(token, name))).then(|| {
            tokens.next();
        });
    }
    is_value.then_some(())
}
