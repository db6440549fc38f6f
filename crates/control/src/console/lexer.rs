//! Words, quoted names, strings and signs of a console statement; blanks and comments are skipped.
//! Owns what ends a word. Never knows which words mean something.

use crate::statement::ParseError;
use std::borrow::Cow;

/// A piece of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// Letters as they stand, up to a blank or a sign.
    Word(&'a str),
    /// `"name"`, where `""` is a quote.
    Name(Cow<'a, str>),
    /// `'text'`, where `''` is a quote. A backslash is a backslash.
    Text(Cow<'a, str>),
    /// `=`
    Equals,
    /// `;`
    Semicolon,
}

/// A statement and how far it was read.
pub(crate) struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(sql: &'a str) -> Lexer<'a> {
        Lexer { rest: sql }
    }

    /// What is not read yet.
    pub(crate) fn rest(&self) -> &'a str {
        self.rest
    }

    /// The next token; None at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Token<'a>>, ParseError> {
        self.skip_blanks_and_comments()?;
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let token = match first {
            '"' => Token::Name(self.quoted('"')?),
            '\'' => Token::Text(self.quoted('\'')?),
            '=' => self.sign(Token::Equals),
            ';' => self.sign(Token::Semicolon),
            _ if is_of_a_word(first) => Token::Word(self.word()),
            other => return Err(ParseError::Sign(other)),
        };
        Ok(Some(token))
    }

    fn skip_blanks_and_comments(&mut self) -> Result<(), ParseError> {
        loop {
            self.rest =
                self.rest.trim_start_matches(|sign: char| sign.is_ascii_whitespace() || sign == '\u{b}');
            if let Some(comment) = self.rest.strip_prefix("--") {
                self.rest = comment.find('\n').map_or("", |end| &comment[end..]);
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                self.rest = after_comment(comment)?;
            } else {
                return Ok(());
            }
        }
    }

    fn sign(&mut self, token: Token<'a>) -> Token<'a> {
        self.rest = &self.rest[1..];
        token
    }

    /// Up to a blank, a sign or a comment. PgBouncer has only letters, digits and `_` here; a pool called `test-pool`
    /// should not need quotes, nor should `0.5`.
    fn word(&mut self) -> &'a str {
        let sign = self.rest.find(|sign| !is_of_a_word(sign)).unwrap_or(self.rest.len());
        let comment = ["--", "/*"].iter().filter_map(|begin| self.rest[..sign].find(begin)).min();
        let (word, rest) = self.rest.split_at(comment.unwrap_or(sign));
        self.rest = rest;
        word
    }

    /// What stands between quotes, a doubled one being one.
    fn quoted(&mut self, quote: char) -> Result<Cow<'a, str>, ParseError> {
        let inside = &self.rest[1..];
        let mut from = 0;
        loop {
            let end = from + inside[from..].find(quote).ok_or(ParseError::Unterminated)?;
            if !inside[end + 1..].starts_with(quote) {
                self.rest = &inside[end + 1..];
                return Ok(undoubled(&inside[..end], quote));
            }
            from = end + 2;
        }
    }
}

fn undoubled(inside: &str, quote: char) -> Cow<'_, str> {
    if inside.contains(quote) {
        Cow::Owned(inside.replace(&format!("{quote}{quote}"), &quote.to_string()))
    } else {
        Cow::Borrowed(inside)
    }
}

fn is_of_a_word(sign: char) -> bool {
    !sign.is_ascii_whitespace() && !sign.is_control() && !"\"'=;(),".contains(sign)
}

/// What follows a `/*` whose comments nest, as PostgreSQL's do.
fn after_comment(mut rest: &str) -> Result<&str, ParseError> {
    let mut depth = 1_usize;
    loop {
        let at = rest.find(['*', '/']).ok_or(ParseError::Unterminated)?;
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("*/") {
            depth -= 1;
            rest = after;
            if depth == 0 {
                return Ok(rest);
            }
        } else if let Some(after) = rest.strip_prefix("/*") {
            depth += 1;
            rest = after;
        } else {
            rest = &rest[1..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(sql: &str) -> Result<Vec<Token<'_>>, ParseError> {
        let mut lexer = Lexer::new(sql);
        std::iter::from_fn(|| lexer.next().transpose()).collect()
    }

    #[test]
    fn words_end_at_blanks_signs_and_comments() {
        let expected =
            [Token::Word("a-b"), Token::Equals, Token::Word("0.5"), Token::Semicolon, Token::Word("é")];
        assert_eq!(tokens("a-b=0.5;é--c"), Ok(expected.to_vec()));
        assert_eq!(tokens("a/*x/*y*/z*/b"), Ok(vec![Token::Word("a"), Token::Word("b")]));
    }

    #[test]
    fn quotes_double_to_one() {
        assert_eq!(
            tokens(r#""a""b" 'c''d'"#),
            Ok(vec![Token::Name("a\"b".into()), Token::Text("c'd".into())])
        );
        assert_eq!(tokens(r"'\'"), Ok(vec![Token::Text("\\".into())]));
        assert_eq!(tokens("''"), Ok(vec![Token::Text("".into())]));
    }

    #[test]
    fn what_does_not_end_is_an_error() {
        for open in ["'a", "\"a", "/* a", "/* /* */", "'a''"] {
            assert_eq!(tokens(open), Err(ParseError::Unterminated), "{open}");
        }
        assert_eq!(tokens("count(*)"), Err(ParseError::Sign('(')));
    }
}
