//! Whether a query writes: data-modifying WITH, SELECT INTO, row locks.

use super::cursor::is_word;
use super::{Access, Changes};
use crate::lexer::{Kind, Token};

const MODIFYING: &[&str] = &["insert", "update", "delete", "merge"];

/// What the words of a query show, without the functions that it calls.
pub(crate) fn of_query(tokens: &[Token<'_>]) -> (Access, Changes) {
    let mut found = (Access::Reads, Changes::NONE);
    let mut note = |access: Access, changes: Changes| {
        found = (found.0.max(access), found.1.and(changes));
    };
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        let follows = |kind: Kind| before.is_some_and(|before| before.kind == kind);
        let follows_word =
            |words: &[&str]| before.is_some_and(|before| words.iter().any(|word| is_word(*before, word)));
        let is_any = |words: &[&str]| words.iter().any(|word| is_word(*token, word));
        let is_named = |word: &str| names_temporary(token.text, token.kind == Kind::Quoted, word);
        if token.kind == Kind::Word && before.is_some_and(|before| before.kind == Kind::Dot) {
            continue; // `t.update` is a column
        }
        if is_any(MODIFYING) && (before.is_none() || follows(Kind::Open) || follows(Kind::Close)) {
            note(Access::Writes, Changes::TRIGGERS);
        } else if is_any(&["update", "share"]) && follows_word(&["for", "key"]) {
            note(Access::Writes, Changes::NONE);
        } else if is_any(&["into"]) && !follows_word(&["insert", "merge"]) {
            let (local, temporary) = (tokens.get(at + 1), tokens.get(at + 2));
            let is_temporary = [local, temporary].into_iter().flatten().any(is_temporary_word);
            note(Access::Writes, if is_temporary { Changes::TEMPORARY } else { Changes::NONE });
        } else if is_named("pg_temp") {
            note(Access::Unknown, Changes::TEMPORARY);
        }
    }
    found
}

/// TEMP or TEMPORARY.
pub(super) fn is_temporary_word(token: &Token<'_>) -> bool {
    is_word(*token, "temp") || is_word(*token, "temporary")
}

/// A token names the schema of temporary objects.
pub(super) fn is_temporary_schema(token: &Token<'_>) -> bool {
    names_temporary(token.text, token.kind == Kind::Quoted, "pg_temp")
}

/// `pg_temp` or `pg_temp_12`, in quotes as it stands.
fn names_temporary(text: &str, is_quoted: bool, schema: &str) -> bool {
    let text = if is_quoted { text.trim_matches('"') } else { text };
    let Some(head) = text.get(..schema.len()) else { return false };
    head.eq_ignore_ascii_case(schema) && matches!(text.as_bytes().get(schema.len()), None | Some(b'_'))
}
