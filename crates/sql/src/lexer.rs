//! Tokens of any bytes, as PostgreSQL's scanner divides them. What is not closed reaches to the end.
//!
//! Owns where tokens begin and end; what becomes of them is the fingerprint's. Linear in the length of the text.

use memchr::memchr2;

/// What a backslash in `'...'` means to the server that reads it (`standard_conforming_strings`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backslash {
    /// Itself: the setting is on.
    Literal,
    /// It escapes what follows: the setting is off.
    Escape,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or a keyword.
    Word,
    /// A name in double quotes.
    Quoted,
    /// A string, a number or a parameter: a value.
    Value,
    /// A run of operator characters.
    Operator,
    /// `::`
    Cast,
    Open,
    Close,
    OpenBracket,
    CloseBracket,
    Comma,
    Dot,
    Semicolon,
}

/// A token and its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    /// A value that is a number.
    pub(crate) is_number: bool,
    /// A string of several parts, with line breaks between them.
    pub(crate) is_parted: bool,
    /// How the text was read.
    pub(crate) backslash: Backslash,
}

/// Takes a text apart.
pub(crate) struct Lexer<'a> {
    rest: &'a str,
    backslash: Backslash,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Lexer<'a> {
        Lexer::reading(text, Backslash::Literal)
    }

    /// With backslashes in strings as a server reads them.
    pub(crate) fn reading(text: &'a str, backslash: Backslash) -> Lexer<'a> {
        Lexer { rest: text, backslash }
    }

    /// What the next comment in `/*` and `*/` holds, or None where a token is next, which is skipped.
    pub(crate) fn comment(&mut self) -> Option<&'a str> {
        self.rest = self.rest.trim_start_matches(is_blank);
        if !self.rest.starts_with("/*") {
            if self.rest.starts_with("--") {
                self.skip_line();
            } else {
                self.next();
            }
            return None;
        }
        let (comment, rest) = self.rest.split_at(comment_bytes(self.rest.as_bytes()));
        self.rest = rest;
        comment[2..].strip_suffix("*/")
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Backslashes escape in strings without a prefix.
    fn escapes(&self) -> bool {
        self.backslash == Backslash::Escape
    }

    fn token(&mut self, kind: Kind, bytes: usize) -> Token<'a> {
        let (text, rest) = self.rest.split_at(self.rest.floor_char_boundary(bytes));
        self.rest = rest;
        Token {
            kind,
            text,
            backslash: self.backslash,
            is_parted: false,
            is_number: kind == Kind::Value && text.starts_with(|c: char| c.is_ascii_digit() || c == '.'),
        }
    }

    fn skip_blanks_and_comments(&mut self) {
        loop {
            self.rest = self.rest.trim_start_matches(is_blank);
            if self.rest.starts_with("--") {
                self.skip_line();
            } else if self.rest.starts_with("/*") {
                self.rest = &self.rest[comment_bytes(self.rest.as_bytes())..];
            } else {
                return;
            }
        }
    }

    fn skip_line(&mut self) {
        self.rest = self.rest.find(['\n', '\r']).map_or("", |end| &self.rest[end..]);
    }

    /// A word, or the value that it is the prefix of: `E'...'`, `B'...'`, `X'...'`, `N'...'`, `U&'...'`; or `U&"..."`.
    fn word(&mut self) -> Token<'a> {
        let bytes = self.rest.as_bytes();
        let length = bytes.iter().position(|c| !is_word(*c)).unwrap_or(bytes.len());
        let escapes = matches!(bytes[0], b'e' | b'E') || self.escapes() && matches!(bytes[0], b'n' | b'N');
        match (&bytes[..length], &bytes[length..]) {
            ([b'e' | b'E' | b'b' | b'B' | b'x' | b'X' | b'n' | b'N'], [b'\'', ..]) => self.string(1, escapes),
            ([b'u' | b'U'], [b'&', b'\'', ..]) => self.string(2, false),
            ([b'u' | b'U'], [b'&', b'"', ..]) => {
                self.token(Kind::Quoted, 2 + quoted_bytes(&bytes[2..], b'"', false))
            }
            _ => self.token(Kind::Word, length),
        }
    }

    /// A string behind a prefix. It goes on behind a gap with a line break and another quote, where backslashes mean the same.
    fn string(&mut self, prefix: usize, escapes: bool) -> Token<'a> {
        let bytes = self.rest.as_bytes();
        let mut length = prefix + quoted_bytes(&bytes[prefix..], b'\'', escapes);
        let mut is_parted = false;
        while let Some(gap) = gap_in_string(&bytes[length..]) {
            length += gap + quoted_bytes(&bytes[length + gap..], b'\'', escapes);
            is_parted = true;
        }
        Token { is_parted, ..self.token(Kind::Value, length) }
    }

    /// `$1`, `$$...$$`, `$tag$...$tag$`, or a dollar sign.
    fn dollar(&mut self) -> Token<'a> {
        let after = &self.rest[1..];
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            return self.token(Kind::Value, 1 + digits);
        }
        let tag = after.bytes().take_while(|c| is_word(*c) && *c != b'$').count();
        if after.as_bytes().get(tag) != Some(&b'$') {
            return self.token(Kind::Operator, 1);
        }
        let (quote, text) = self.rest.split_at(tag + 2);
        let closed = text.find(quote).map_or(self.rest.len(), |at| quote.len() + at + quote.len());
        self.token(Kind::Value, closed)
    }

    fn number(&mut self) -> Token<'a> {
        let bytes = self.rest.as_bytes();
        let mut length = 0;
        while let Some(c) = bytes.get(length) {
            let signs = matches!(c, b'+' | b'-')
                && matches!(bytes[length - 1], b'e' | b'E')
                && bytes.get(length + 1).is_some_and(u8::is_ascii_digit);
            if !(c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_') || signs) {
                break;
            }
            length += 1;
        }
        self.token(Kind::Value, length)
    }

    /// A run of operator characters. It ends before a comment, and in `+` or `-` only if it has a sign that no
    /// operator of the SQL standard has.
    fn operator(&mut self) -> Token<'a> {
        let bytes = self.rest.as_bytes();
        let most = bytes.len().min(MAX_OPERATOR_BYTES);
        let run = bytes[..most].iter().position(|c| !is_operator(*c)).unwrap_or(most);
        let comment = |at: &usize| matches!(bytes[*at..], [b'-', b'-', ..] | [b'/', b'*', ..]);
        let mut length = (1..run).find(comment).unwrap_or(run);
        let is_own = bytes[..length].iter().any(|c| b"~!@#%^&|`?".contains(c));
        while !is_own && length > 1 && matches!(bytes[length - 1], b'+' | b'-') {
            length -= 1;
        }
        // Alone it stands for a value, as in the texts that are made here.
        let kind = if &bytes[..length] == b"?" { Kind::Value } else { Kind::Operator };
        self.token(kind, length)
    }

    fn colons(&mut self) -> Token<'a> {
        let length = self.rest.bytes().take_while(|c| *c == b':').count();
        self.token(if length == 2 { Kind::Cast } else { Kind::Operator }, length)
    }
}

impl<'a> Iterator for Lexer<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.skip_blanks_and_comments();
        let bytes = self.rest.as_bytes();
        let token = match *bytes.first()? {
            b'\'' => self.string(0, self.escapes()),
            b'"' => self.token(Kind::Quoted, quoted_bytes(bytes, b'"', false)),
            b'$' => self.dollar(),
            b'.' if bytes.get(1).is_some_and(u8::is_ascii_digit) => self.number(),
            b'0'..=b'9' => self.number(),
            b'(' => self.token(Kind::Open, 1),
            b')' => self.token(Kind::Close, 1),
            b'[' => self.token(Kind::OpenBracket, 1),
            b']' => self.token(Kind::CloseBracket, 1),
            b',' => self.token(Kind::Comma, 1),
            b'.' => self.token(Kind::Dot, 1),
            b';' => self.token(Kind::Semicolon, 1),
            b':' => self.colons(),
            c if is_operator(c) => self.operator(),
            c if is_word(c) => self.word(),
            _ => self.token(Kind::Operator, 1),
        };
        Some(token)
    }
}

/// PostgreSQL has no longer operators (NAMEDATALEN); of a run of signs each may be a token, and is looked at so often at most.
const MAX_OPERATOR_BYTES: usize = 64;

/// What PostgreSQL's scanner skips, and other control characters, which it does not know.
fn is_blank(c: char) -> bool {
    c == ' ' || c.is_ascii_control()
}

fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$') || !c.is_ascii()
}

fn is_operator(c: u8) -> bool {
    b"+-*/<>=~!@#%^&|`?".contains(&c)
}

/// The length of a gap in a string, of blanks, line breaks and comments in `--` (`quotecontinue` of PostgreSQL's scan.l). None where the string ends.
fn gap_in_string(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut breaks) = (0, false);
    loop {
        match bytes[at..] {
            [b'\n' | b'\r', ..] => (at, breaks) = (at + 1, true),
            [b' ' | b'\t' | 0x0b | 0x0c, ..] => at += 1,
            [b'-', b'-', ..] => at += memchr2(b'\n', b'\r', &bytes[at..])?,
            [b'\'', ..] => return breaks.then_some(at),
            _ => return None,
        }
    }
}

/// The length of what begins with this quote. A doubled quote does not end it, nor does one behind a backslash where
/// that escapes.
fn quoted_bytes(bytes: &[u8], quote: u8, escapes: bool) -> usize {
    let mut at = 1;
    while let Some(c) = bytes.get(at) {
        match *c {
            b'\\' if escapes => at += 2,
            c if c == quote && bytes.get(at + 1) == Some(&quote) => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The length of a comment, which may hold others.
fn comment_bytes(bytes: &[u8]) -> usize {
    let (mut at, mut depth) = (2, 1);
    while depth > 0 {
        match bytes[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            [_, ..] => at += 1,
            [] => break,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(Kind, &str)> {
        Lexer::new(text).map(|token| (token.kind, token.text)).collect()
    }

    #[test]
    fn strings_of_every_kind_are_values() {
        for text in [
            "'it''s'",
            "E'a\\'b'",
            "e'\\\\'",
            "b'01'",
            "X'1F'",
            "n'x'",
            "U&'d\\0061t'",
            "'a'\n'b'",
            "E'a' -- b\r\n \t--'\n'\\' c'",
            "U&'a'\n'b'",
            "x'1'\n'F'",
            "$$a 'b' $x$ $$",
            "$t$ $$ $t$",
            "'never closed",
            "$t$never closed",
            "E'\\",
            "1",
            "1.5e-10",
            ".5",
            "0x1F",
            "1_000",
            "$12",
        ] {
            assert_eq!(kinds(text), [(Kind::Value, text)], "{text}");
        }
    }

    #[test]
    fn strings_end_where_no_line_break_parts_them_from_the_next() {
        for text in ["'a' 'b'", "'a' /* \n */ 'b'", "'a' --\n 1", "'a'\n\"b\"", "$$a$$\n'b'", "'a' -- 'b'"] {
            let first = Lexer::new(text).next().expect("a string").text;
            assert_eq!(first, if text.starts_with('$') { "$$a$$" } else { "'a'" }, "{text}");
        }
        let text = "'a'\n".repeat(200_000);
        assert_eq!(kinds(&text), [(Kind::Value, text.trim_end())]);
        let text = "'a' -- ".repeat(200_000);
        assert_eq!(kinds(&text), [(Kind::Value, "'a'")]);
    }

    #[test]
    fn a_long_run_of_signs_is_read_in_linear_time() {
        let text = "+".repeat(1_000_000);
        assert_eq!(Lexer::new(&text).count(), 1_000_000);
    }

    #[test]
    fn comments_are_nothing_and_may_be_nested() {
        assert_eq!(kinds("-- a\n/* b /* c */ d */"), []);
        assert_eq!(kinds("/* never closed"), []);
        assert_eq!(kinds("a--b\rc"), [(Kind::Word, "a"), (Kind::Word, "c")]);
        assert_eq!(kinds("1/*x*/+2").len(), 3);
    }

    #[test]
    fn operators_end_as_postgresqls_do() {
        assert_eq!(kinds("=-"), [(Kind::Operator, "="), (Kind::Operator, "-")]);
        assert_eq!(kinds("@-"), [(Kind::Operator, "@-")]);
        assert_eq!(kinds("*--x"), [(Kind::Operator, "*")]);
        assert_eq!(
            kinds("a::b:=c"),
            [
                (Kind::Word, "a"),
                (Kind::Cast, "::"),
                (Kind::Word, "b"),
                (Kind::Operator, ":"),
                (Kind::Operator, "="),
                (Kind::Word, "c")
            ]
        );
    }

    #[test]
    fn names_keep_their_quotes() {
        assert_eq!(
            kinds("\"a \"\" b\".é$1"),
            [(Kind::Quoted, "\"a \"\" b\""), (Kind::Dot, "."), (Kind::Word, "é$1")]
        );
    }
}
