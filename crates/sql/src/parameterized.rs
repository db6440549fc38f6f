//! A statement with parameters in place of its values, so that PostgreSQL can plan it without them.
//!
//! Unlike a fingerprint, which merges lists of values, it is still valid SQL. It holds no value but the column positions of
//! GROUP BY and ORDER BY.

use crate::TEXT_BYTES;
use crate::lexer::{Kind, Lexer, Token};

/// Types whose name may stand before a string instead of a cast.
const TYPED_LITERALS: &[&str] =
    &["date", "interval", "time", "timestamp", "timestamptz", "timetz", "numeric", "json", "jsonb", "uuid"];

/// The statement with `$1`, `$2` and so on for its values, numbered in their order. None if it is too long.
///
/// ```
/// use sql::parameterized;
///
/// let sql = parameterized("select a from t where b = 7 and c = 'x'").unwrap();
/// assert_eq!(sql, "select a from t where b = $1::integer and c = $2");
/// ```
#[must_use]
pub fn parameterized(sql: &str) -> Option<String> {
    let mut tokens: Vec<(Kind, String)> = Vec::new();
    let (mut values, mut bytes, mut in_positions) = (0_usize, 0, false);
    for token in Lexer::new(sql) {
        in_positions = match token.kind {
            Kind::Word => {
                is_word(token.text, &["by", "asc", "desc"]) && (in_positions || is_word(token.text, &["by"]))
            }
            Kind::Value => in_positions && token.is_number,
            Kind::Comma => in_positions,
            _ => false,
        };
        // PostgreSQL has no `?` for a parameter: it is an operator of jsonb.
        let text = if token.kind == Kind::Value && !in_positions && token.text != "?" {
            values += 1;
            parameter(&mut tokens, token, values)
        } else {
            token.text.to_owned()
        };
        bytes += text.len() + 1;
        if bytes > TEXT_BYTES {
            return None;
        }
        tokens.push((token.kind, text));
    }
    while matches!(tokens.last(), Some((Kind::Semicolon, _))) {
        tokens.pop();
    }
    let texts: Vec<String> = tokens.into_iter().map(|(_, text)| text).collect();
    Some(texts.join(" ").replace(|c: char| c.is_control(), " "))
}

/// The parameter for a value: with the type that PostgreSQL gives a number, and with the type before a string.
fn parameter(tokens: &mut Vec<(Kind, String)>, value: Token<'_>, number: usize) -> String {
    if value.is_number {
        drop_sign(tokens);
        let digits = value.text.bytes().all(|byte| byte.is_ascii_digit());
        let name = match value.text.len() {
            ..10 if digits => "integer",
            ..19 if digits => "bigint",
            _ => "numeric",
        };
        return format!("${number}::{name}");
    }
    let is_typed = matches!(tokens.last(), Some((Kind::Word, word)) if is_word(word, TYPED_LITERALS));
    match tokens.pop_if(|_| is_typed && !value.text.starts_with('$')) {
        Some((_, name)) => format!("cast(${number} as {name})"),
        None => format!("${number}"),
    }
}

/// A sign before a number belongs to it, unless it stands between two operands.
fn drop_sign(tokens: &mut Vec<(Kind, String)>) {
    let [before @ .., (Kind::Operator, sign)] = &tokens[..] else { return };
    let has_operand = match before.last() {
        Some((Kind::Word, word)) => {
            !is_word(word, &["select", "where", "and", "or", "then", "else", "when", "limit"])
        }
        Some((kind, _)) => matches!(kind, Kind::Quoted | Kind::Value | Kind::Close | Kind::CloseBracket),
        None => false,
    };
    if matches!(sign.as_str(), "-" | "+") && !has_operand {
        tokens.pop();
    }
}

fn is_word(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(sql: &str) -> String {
        parameterized(sql).unwrap_or_default()
    }

    #[test]
    fn values_become_parameters_and_lists_keep_their_length() {
        assert_eq!(
            text("insert into t (a, b) values (1, 'x'), (-2.5, $7);"),
            "insert into t ( a , b ) values ( $1::integer , $2 ) , ( $3::numeric , $4 )"
        );
        assert_eq!(text("select a - 1, c ? 'k'"), "select a - $1::integer , c ? $2");
        assert_eq!(text("select date '2026-01-01' + 12345678901"), "select cast($1 as date) + $2::bigint");
    }

    #[test]
    fn positions_of_columns_stay() {
        let sql = "select a, count(*) from t where b = 3 group by 1 order by 2 desc, 1 limit 5";
        let expected = "select a , count ( * ) from t where b = $1::integer group by 1 order by 2 desc , 1 limit $2::integer";
        assert_eq!(text(sql), expected);
    }

    #[test]
    fn a_long_statement_has_none() {
        assert_eq!(parameterized(&format!("select {}", "a, ".repeat(1_000))), None);
    }
}
