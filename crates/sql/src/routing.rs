//! Whether a hot standby may run a query string, by its text and by what the catalog says about the names in it.
//!
//! Owns the decision, which is the same for all texts of one [`crate::shape`]. In doubt it is the primary: a read there is only slower. What a standby
//! refuses by itself is left to it in functions that are declared not to write; what it would answer otherwise than the primary is not.

pub mod built_in;
mod hint;
mod names;
mod seen;
mod words;

pub use hint::{PriorityHint, RouteHint, priority_hint, route_hint};
pub use names::{RoutingNames, is_implied_operator};
pub use seen::SeenTexts;

use crate::lexer::{Backslash, Kind, Lexer, Token};
use crate::plain::{self, Beginning};
use crate::statement::{ANALYSED_BYTES, access, calls, is_word, split};
use crate::{Access, Command, SetCommand, statements};
use built_in::WRITING;

/// Where a query string may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// One statement that only reads, as far as the text and the catalog show: a standby may run it.
    Read,
    /// It is about the session or its transaction only (SET, SHOW, LISTEN, DEALLOCATE, CLOSE, BEGIN, COMMIT, empty text): the primary, or where the transaction
    /// is, and it writes no data of its own.
    Session,
    /// BEGIN or START TRANSACTION that declares READ ONLY, and not SERIALIZABLE, which a hot standby refuses.
    ReadOnlyTransaction,
    /// Everything else, and what is not known: the primary, and it may write.
    Write,
}

/// Where this text, up to a NUL if it has one, may run.
///
/// ```
/// use sql::{Routing, RoutingNames, routing};
///
/// let names = RoutingNames::new(["is_due".into()], ["audit_view".into()], []);
/// assert_eq!(routing(b"SELECT abalance FROM pgbench_accounts WHERE aid = 1", &names), Routing::Read);
/// assert_eq!(routing(b"SELECT count(*) FROM t WHERE is_due(t)", &names), Routing::Read);
/// assert_eq!(routing(b"SELECT * FROM audit_view", &names), Routing::Write);
/// assert_eq!(routing(b"SELECT nextval('s')", &names), Routing::Write);
/// assert_eq!(routing(b"SELECT * FROM t FOR UPDATE", &names), Routing::Write);
/// ```
#[inline]
#[must_use]
pub fn routing(text: &[u8], names: &RoutingNames) -> Routing {
    routing_at_a_glance(text, names).unwrap_or_else(|| judged(text, names))
}

/// The same, where it is seen without tokens; None if it is not. All texts of one shape have the same answer of [`routing`], but not of this.
#[inline]
#[must_use]
pub fn routing_at_a_glance(text: &[u8], names: &RoutingNames) -> Option<Routing> {
    let text = plain::statement(text);
    match Beginning::of(text) {
        // Nothing can be called without a parenthesis, but by names and operators.
        Beginning::Select if names.is_unknown() => Some(Routing::Write),
        Beginning::Select => {
            (!plain::has_any_sign(text) && names.allow_all_words(text)).then_some(Routing::Read)
        }
        Beginning::Modify | Beginning::Insert => Some(Routing::Write),
        Beginning::Other => plain::is_of_transaction(text).then_some(Routing::Session),
    }
}

/// By the tokens, and by both meanings of a backslash.
#[inline(never)]
pub(crate) fn judged(text: &[u8], names: &RoutingNames) -> Routing {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.len() > ANALYSED_BYTES {
        return Routing::Write;
    }
    let seen = String::from_utf8_lossy(text);
    let tokens: Vec<Token<'_>> = Lexer::new(&seen).collect();
    let found = of_text(text, &tokens, Backslash::Literal, names);
    // In a comment it means nothing.
    if found == Routing::Write || !tokens.iter().any(|token| token.text.contains('\\')) {
        return found;
    }
    // To a server, a backslash may be a part of a character of some other encoding.
    if !text.is_ascii() || tokens.iter().any(|token| token.is_parted) {
        return Routing::Write;
    }
    let tokens: Vec<Token<'_>> = Lexer::reading(&seen, Backslash::Escape).collect();
    if of_text(text, &tokens, Backslash::Escape, names) == found { found } else { Routing::Write }
}

fn of_text(text: &[u8], tokens: &[Token<'_>], backslash: Backslash, names: &RoutingNames) -> Routing {
    let mut statement = split(tokens);
    let Some(first) = statement.next() else { return Routing::Session };
    if statement.next().is_some() {
        return Routing::Write;
    }
    if let Some(query) = query_of(first) {
        return of_query(query, names);
    }
    match statements(text, backslash).as_slice() {
        [found] => of_command(&found.command, first),
        _ => Routing::Write,
    }
}

/// The query that a statement is, or that it explains.
fn query_of<'a, 'b>(statement: &'a [Token<'b>]) -> Option<&'a [Token<'b>]> {
    match statement {
        [first, rest @ ..] if is_word(*first, "explain") => explained(rest),
        _ => Some(statement),
    }
    .filter(|query| begins_query(query))
}

/// SELECT, VALUES or TABLE, or what may stand before one of them.
fn begins_query(tokens: &[Token<'_>]) -> bool {
    let reads = |token: &Token<'_>| ["select", "values", "table"].iter().any(|word| is_word(*token, word));
    let precedes = |first: &Token<'_>| first.kind == Kind::Open || is_word(*first, "with");
    tokens.first().is_some_and(|first| reads(first) || precedes(first) && tokens.iter().any(reads))
}

/// What is behind the options of an EXPLAIN: ANALYZE VERBOSE, or those in parentheses, which call nothing.
fn explained<'a, 'b>(tokens: &'a [Token<'b>]) -> Option<&'a [Token<'b>]> {
    let is_option =
        |token: &&Token<'_>| ["analyze", "analyse", "verbose"].iter().any(|word| is_word(**token, word));
    match tokens.iter().position(|token| token.kind != Kind::Open)? {
        0 => tokens.get(tokens.iter().take_while(is_option).count()..),
        first if begins_query(&tokens[first..]) => Some(tokens),
        _ => tokens.iter().position(|token| token.kind == Kind::Close).and_then(|end| tokens.get(end + 1..)),
    }
}

/// Reads only, if its words, its calls and its operators do.
fn of_query(tokens: &[Token<'_>], names: &RoutingNames) -> Routing {
    let only_reads = !names.is_unknown()
        && (0..tokens.len()).all(|at| token_reads(tokens[at], at.checked_sub(1).map(|at| tokens[at]), names))
        && access::of_query(tokens).0 == Access::Reads
        && calls_read(tokens, names);
    if only_reads { Routing::Read } else { Routing::Write }
}

fn calls_read(tokens: &[Token<'_>], names: &RoutingNames) -> bool {
    let found = calls::of(tokens);
    !found.hides_names && found.names.iter().all(|call| names.is_reader(&call.name))
}

fn token_reads(token: Token<'_>, before: Option<Token<'_>>, names: &RoutingNames) -> bool {
    match token.kind {
        Kind::Word | Kind::Quoted => {
            let is_keyword = token.kind == Kind::Word && before.is_none_or(|before| before.kind != Kind::Dot);
            let writes = is_keyword && WRITING.iter().any(|word| is_word(token, word));
            !writes && shown(token).is_some_and(|name| !names.is_primary_only(&name))
        }
        Kind::Operator => !names.has_operator(token.text),
        Kind::Value if token.text == "?" => !names.has_operator(token.text),
        // `1into` are two words before PostgreSQL 15.
        Kind::Value => {
            let word = token.text.len().checked_sub(4).and_then(|at| token.text.get(at..));
            !token.is_number || !word.is_some_and(|word| word.eq_ignore_ascii_case("into"))
        }
        Kind::Semicolon => false,
        _ => true,
    }
}

/// A name without its quotes. None if the text does not show it.
fn shown(token: Token<'_>) -> Option<String> {
    let text = token.text;
    let name = if token.kind == Kind::Word {
        text.to_owned()
    } else {
        let text = text.strip_prefix('"')?;
        text.strip_suffix('"').unwrap_or(text).replace("\"\"", "\"")
    };
    // Bytes of another encoding are lost, and to lower case the dotted capital I may be an i.
    let hides = |c: char| matches!(c, char::REPLACEMENT_CHARACTER | '\u{130}');
    (!name.contains(hides)).then_some(name)
}

/// A statement that is no query.
fn of_command(command: &Command, tokens: &[Token<'_>]) -> Routing {
    match command {
        Command::Begin { .. } if is_read_only(tokens) => Routing::ReadOnlyTransaction,
        Command::Set(SetCommand::Other) => Routing::Write,
        Command::Begin { .. }
        | Command::Commit { .. }
        | Command::Rollback { .. }
        | Command::Savepoint(_)
        | Command::Release(_)
        | Command::RollbackTo(_)
        | Command::Set(_)
        | Command::Show
        | Command::Deallocate(_)
        | Command::Close(_)
        | Command::Listen(_)
        | Command::Unlisten(_)
        | Command::Discard(_)
        | Command::Empty => Routing::Session,
        _ => Routing::Write,
    }
}

/// The modes behind BEGIN or START TRANSACTION are READ ONLY and others, but none that a standby refuses or that is not known.
fn is_read_only(tokens: &[Token<'_>]) -> bool {
    const MODES: &[&[&str]] = &[
        &["read", "only"],
        &["isolation", "level", "read", "committed"],
        &["isolation", "level", "read", "uncommitted"],
        &["isolation", "level", "repeatable", "read"],
        &["not", "deferrable"],
        &["deferrable"],
    ];
    let mut rest = tokens.get(1..).unwrap_or_default();
    if rest.first().is_some_and(|first| is_word(*first, "transaction") || is_word(*first, "work")) {
        rest = &rest[1..];
    }
    let mut declares = false;
    while !matches!(rest, [] | [Token { kind: Kind::Semicolon, .. }, ..]) {
        let begins = |mode: &&&[&str]| {
            rest.len() >= mode.len() && mode.iter().zip(rest).all(|(word, token)| is_word(*token, word))
        };
        let Some(mode) = MODES.iter().find(begins) else { return false };
        declares |= mode[0] == "read";
        rest = &rest[mode.len()..];
        if rest.first().is_some_and(|next| next.kind == Kind::Comma) {
            rest = &rest[1..];
        }
    }
    declares
}

#[cfg(test)]
mod tests;
