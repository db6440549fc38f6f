//! Reading tokens from the left, and where one statement of a text ends.

use super::Name;
use crate::lexer::{Kind, Token};

/// PostgreSQL's NAMEDATALEN less its end: longer names are cut.
const NAME_BYTES: usize = 63;

/// The tokens of a statement from here on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens<'a> {
    rest: &'a [Token<'a>],
}

impl<'a> Tokens<'a> {
    pub(crate) fn new(rest: &'a [Token<'a>]) -> Tokens<'a> {
        Tokens { rest }
    }

    pub(super) fn rest(self) -> &'a [Token<'a>] {
        self.rest
    }

    pub(super) fn is_empty(self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn peek(self) -> Option<Token<'a>> {
        self.rest.first().copied()
    }

    pub(super) fn next(&mut self) -> Option<Token<'a>> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// The next token is this keyword.
    pub(super) fn is(self, keyword: &str) -> bool {
        self.peek().is_some_and(|token| is_word(token, keyword))
    }

    /// Reads this keyword, if it is next.
    pub(super) fn takes(&mut self, keyword: &str) -> bool {
        let is = self.is(keyword);
        if is {
            self.next();
        }
        is
    }

    /// Reads one of these keywords, if one is next.
    pub(super) fn takes_any(&mut self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.takes(keyword))
    }

    /// Reads a token of this kind, if it is next.
    pub(super) fn takes_kind(&mut self, kind: Kind) -> bool {
        let is = self.peek().is_some_and(|token| token.kind == kind);
        if is {
            self.next();
        }
        is
    }

    /// Reads a name. None if none is next, or if the text does not show it.
    pub(super) fn name(&mut self) -> Name {
        name_of(self.next()?)
    }

    /// Reads what stands in parentheses, if an open one is next.
    pub(super) fn skip_parentheses(&mut self) {
        if !self.takes_kind(Kind::Open) {
            return;
        }
        let mut depth = 1_usize;
        while depth > 0
            && let Some(token) = self.next()
        {
            match token.kind {
                Kind::Open => depth += 1,
                Kind::Close => depth -= 1,
                _ => {}
            }
        }
    }
}

/// The token is this keyword, in whatever case.
pub(crate) fn is_word(token: Token<'_>, keyword: &str) -> bool {
    token.kind == Kind::Word && token.text.eq_ignore_ascii_case(keyword)
}

/// A name as PostgreSQL folds it: in lower case without quotes, as it stands with them, cut at 63 bytes.
pub(crate) fn name_of(token: Token<'_>) -> Name {
    let mut name = match token.kind {
        Kind::Word => token.text.to_ascii_lowercase(),
        Kind::Quoted => {
            // `U&"..."` may hold escapes, and UESCAPE may name another character for them.
            token.text.strip_prefix('"')?.strip_suffix('"')?.replace("\"\"", "\"")
        }
        _ => return None,
    };
    name.truncate(name.floor_char_boundary(NAME_BYTES));
    // What is not UTF-8 has lost its bytes.
    (!name.is_empty() && !name.contains(char::REPLACEMENT_CHARACTER)).then_some(name)
}

/// The statements of a text, without their semicolons. Those in parentheses (CREATE RULE) and in the body of a function in
/// SQL (BEGIN ATOMIC ... END) end nothing.
pub(crate) fn split<'a>(tokens: &'a [Token<'a>]) -> impl Iterator<Item = &'a [Token<'a>]> {
    let mut rest = Some(tokens);
    std::iter::from_fn(move || {
        let tokens = rest?;
        let end = end_of_statement(tokens);
        rest = tokens.get(end + 1..);
        Some(&tokens[..end])
    })
    .filter(|statement| !statement.is_empty())
}

fn end_of_statement(tokens: &[Token<'_>]) -> usize {
    let is_routine = creates_routine(tokens);
    let (mut parentheses, mut blocks) = (0_usize, 0_usize);
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Open => parentheses += 1,
            Kind::Close => parentheses = parentheses.saturating_sub(1),
            Kind::Semicolon if parentheses == 0 && blocks == 0 => return at,
            Kind::Word if is_routine && parentheses == 0 => {
                let begins = is_word(*token, "begin") || blocks > 0 && is_word(*token, "case");
                if begins {
                    blocks += 1;
                } else if blocks > 0 && is_word(*token, "end") {
                    blocks -= 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// CREATE [OR REPLACE] FUNCTION or PROCEDURE.
fn creates_routine(tokens: &[Token<'_>]) -> bool {
    let mut tokens = Tokens::new(tokens);
    tokens.takes("create")
        && (!tokens.takes("or") || tokens.takes("replace"))
        && tokens.takes_any(&["function", "procedure"])
}
