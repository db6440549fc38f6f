//! SELECT of nothing but set_config(), with values that stand in the text or are bound: it does what SET does.

use super::cursor::{Tokens, is_word};
use crate::lexer::Kind;

/// These tokens, behind SELECT, are calls of set_config() and nothing else.
pub(super) fn is_all(mut tokens: Tokens<'_>) -> bool {
    loop {
        if tokens.takes("pg_catalog") && !tokens.takes_kind(Kind::Dot) {
            return false;
        }
        if !(tokens.takes("set_config") && arguments(&mut tokens)) {
            return false;
        }
        if tokens.takes("as") && tokens.name().is_none() {
            return false;
        }
        if tokens.is_empty() {
            return true;
        }
        if !tokens.takes_kind(Kind::Comma) {
            return false;
        }
    }
}

fn arguments(tokens: &mut Tokens<'_>) -> bool {
    tokens.takes_kind(Kind::Open)
        && value(tokens)
        && tokens.takes_kind(Kind::Comma)
        && value(tokens)
        && tokens.takes_kind(Kind::Comma)
        && (tokens.takes_any(&["true", "false"]) || value(tokens))
        && tokens.takes_kind(Kind::Close)
}

/// A string, a number or a parameter, perhaps with a cast to text or boolean.
fn value(tokens: &mut Tokens<'_>) -> bool {
    let is_value = tokens.takes_kind(Kind::Value);
    if is_value && tokens.takes_kind(Kind::Cast) {
        let types = ["text", "varchar", "bool", "boolean"];
        return tokens.next().is_some_and(|token| types.iter().any(|name| is_word(token, name)));
    }
    is_value
}
