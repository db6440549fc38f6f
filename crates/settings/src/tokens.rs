//! The words of a line of an HBA or ident file: blanks and commas part them, `#` ends the line, quotes keep all that
//! together. Owns quoting and comments. Never knows what a word means, except that a quoted one is no keyword.

use crate::identifier::unquote;

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A bare word: it may be a keyword.
    Word(&'a str),
    /// What stood between quotes, where a doubled quote is one: always a name.
    Quoted(String),
    /// `,`
    Comma,
    /// A quote that does not end: the line is of no use.
    Unterminated,
}

/// The pieces of one line, one after the other.
pub(crate) struct Tokens<'a> {
    current: Option<Token<'a>>,
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    /// Stands before the first piece of the line.
    pub(crate) fn new(line: &'a str) -> Self {
        let mut tokens = Self { current: None, rest: line };
        tokens.advance();
        tokens
    }

    /// The current token; None at the end of the line.
    pub(crate) fn current(&self) -> Option<&Token<'a>> {
        self.current.as_ref()
    }

    /// All that follows the current piece, as it was written, comment included.
    pub(crate) fn rest(&self) -> &'a str {
        self.rest
    }

    /// Advances and returns the previous token.
    pub(crate) fn take(&mut self) -> Option<Token<'a>> {
        let taken = self.current.take();
        if taken.is_some() {
            self.advance();
        }
        taken
    }

    /// Takes a bare word if it is this one.
    pub(crate) fn take_keyword(&mut self, keyword: &str) -> bool {
        let is_it = self.current == Some(Token::Word(keyword));
        if is_it {
            self.take();
        }
        is_it
    }

    /// Takes a comma if there is one.
    pub(crate) fn take_comma(&mut self) -> bool {
        let is_it = self.current == Some(Token::Comma);
        if is_it {
            self.take();
        }
        is_it
    }

    /// Takes a name, bare or quoted.
    pub(crate) fn take_name(&mut self) -> Option<String> {
        match &self.current {
            Some(Token::Word(word)) => {
                let name = (*word).to_owned();
                self.take();
                Some(name)
            }
            Some(Token::Quoted(_)) => match self.take() {
                Some(Token::Quoted(name)) => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    fn advance(&mut self) {
        let text = self.rest.trim_start_matches(is_blank);
        (self.current, self.rest) = match text.chars().next() {
            None | Some('#') => (None, ""),
            Some(',') => (Some(Token::Comma), &text[1..]),
            Some('"') => match unquote(&text[1..], '"') {
                Some((name, rest)) => (Some(Token::Quoted(name)), rest),
                None => (Some(Token::Unterminated), ""),
            },
            Some(_) => {
                let end = text.find(|letter| is_blank(letter) || ",#\"".contains(letter));
                let (word, rest) = text.split_at(end.unwrap_or(text.len()));
                (Some(Token::Word(word)), rest)
            }
        };
    }
}

/// C's isspace.
fn is_blank(letter: char) -> bool {
    letter.is_ascii_whitespace() || letter == '\x0b'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(line: &str) -> Vec<Token<'_>> {
        let mut tokens = Tokens::new(line);
        std::iter::from_fn(|| tokens.take()).collect()
    }

    #[test]
    fn blanks_commas_and_comments_part_words() {
        use Token::{Comma, Word};
        assert_eq!(all(" \t a\x0bb,c , d#e\r"), [Word("a"), Word("b"), Comma, Word("c"), Comma, Word("d")]);
        assert_eq!(all("# a"), []);
        assert_eq!(all(""), []);
    }

    #[test]
    fn quotes_keep_everything_together_and_may_touch_a_word() {
        let quoted = |text: &str| Token::Quoted(text.to_owned());
        assert_eq!(
            all(r#""a b, #c" d"e""f"g"#),
            [quoted("a b, #c"), Token::Word("d"), quoted("e\"f"), Token::Word("g")]
        );
        assert_eq!(all(r#""""#), [quoted("")]);
        assert_eq!(all(r#"a "b"#), [Token::Word("a"), Token::Unterminated]);
    }

    #[test]
    fn a_quoted_word_is_no_keyword() {
        let mut tokens = Tokens::new("\"all\" all # rest");
        assert!(!tokens.take_keyword("all"));
        assert_eq!(tokens.take_name().as_deref(), Some("all"));
        assert_eq!(tokens.rest(), " # rest");
        assert!(tokens.take_keyword("all"));
        assert!(tokens.current().is_none() && tokens.take().is_none());
    }
}
