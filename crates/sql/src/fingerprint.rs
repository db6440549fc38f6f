//! What statements have in common that differ in values, comments, blanks and the case of keywords only.
//!
//! The text is itself SQL-like and its own fingerprint. Values become `?`, and several of them in a row become one, so that
//! lists of any length are the same. Equal texts have equal numbers and only they do, but for chance.

use crate::lexer::{Kind, Lexer, Token};

/// A text is cut at this many bytes; statements that differ only behind them are the same.
pub const TEXT_BYTES: usize = 2048;

/// What is looked at of a statement, in bytes.
const LOOKED_AT: usize = 8 * 1024;

/// A statement without its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// A number made of the text.
    pub number: u64,
    /// At most [`TEXT_BYTES`] bytes, without control characters.
    pub text: String,
}

impl Fingerprint {
    /// The fingerprint of a statement, or of several in one text; of any bytes.
    ///
    /// ```
    /// use sql::Fingerprint;
    ///
    /// let one = Fingerprint::of(b"SELECT * FROM t WHERE id IN (1, 2, 3)");
    /// let other = Fingerprint::of(b"select *  from t where id in (4) -- of the cart");
    /// assert_eq!(one, other);
    /// assert_eq!(one.text, "select * from t where id in (?)");
    /// ```
    #[must_use]
    pub fn of(sql: &[u8]) -> Fingerprint {
        let sql = String::from_utf8_lossy(&sql[..sql.len().min(LOOKED_AT)]);
        let mut writer = Writer::default();
        for token in Lexer::new(&sql) {
            writer.push(token);
            if writer.text.len() > TEXT_BYTES {
                break;
            }
        }
        let text = writer.finished();
        Fingerprint { number: fnv(text.as_bytes()), text }
    }
}

/// FNV-1a of 64 bits. Whoever makes two texts collide spoils their own statistics, and nothing else.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Words that are not names of functions: what they stand before keeps its blank.
const BEFORE_PARENTHESIS: &[&str] = &[
    "and", "as", "by", "exists", "from", "in", "join", "not", "on", "or", "over", "select", "then", "union",
    "using", "values", "when", "where",
];

#[derive(Default)]
struct Writer {
    text: String,
    /// The tokens of the text and where each begins, its blank included.
    written: Vec<(Kind, usize)>,
    /// The last word may have its parenthesis behind a blank.
    spaced: bool,
}

impl Writer {
    fn push(&mut self, token: Token<'_>) {
        if token.is_number {
            self.drop_sign();
        }
        if token.kind == Kind::Value && self.repeats_a_value() {
            return;
        }
        let start = self.text.len();
        if self.needs_blank(token.kind) {
            self.text.push(' ');
        }
        self.written.push((token.kind, start));
        match token.kind {
            Kind::Value => self.text.push('?'),
            Kind::Word => {
                let word = token.text.to_ascii_lowercase();
                self.spaced = BEFORE_PARENTHESIS.contains(&word.as_str());
                self.text.push_str(&word);
            }
            Kind::Quoted => {
                self.text.extend(token.text.chars().map(|c| if c.is_control() { ' ' } else { c }));
            }
            _ => self.text.push_str(token.text),
        }
        if token.kind == Kind::Close {
            self.fold_row();
        }
    }

    /// `?, ` stands there already: one more value says nothing. Takes the comma back.
    fn repeats_a_value(&mut self) -> bool {
        let repeats = matches!(self.written[..], [.., (Kind::Value, _), (Kind::Comma, _)]);
        if repeats {
            self.take_back(1);
        }
        repeats
    }

    /// `(?), (?)` is `(?)`: rows of VALUES.
    fn fold_row(&mut self) {
        use Kind::{Close, Comma, Open, Value};
        let kinds: Vec<Kind> = self.written.iter().rev().take(7).map(|(kind, _)| *kind).collect();
        if kinds == [Close, Value, Open, Comma, Close, Value, Open] {
            self.take_back(4);
        }
    }

    /// A sign before a number belongs to it, unless something is there to be added to.
    fn drop_sign(&mut self) {
        let [before @ .., (Kind::Operator, at)] = &self.written[..] else { return };
        let is_sign = matches!(self.text[*at..].trim_start(), "-" | "+");
        let is_alone = !matches!(
            before.last().map(|(kind, _)| kind),
            Some(Kind::Word | Kind::Quoted | Kind::Value | Kind::Close | Kind::CloseBracket)
        );
        if is_sign && is_alone {
            self.take_back(1);
        }
    }

    fn take_back(&mut self, tokens: usize) {
        let keep = self.written.len().saturating_sub(tokens);
        if let Some((_, start)) = self.written.get(keep) {
            self.text.truncate(*start);
        }
        self.written.truncate(keep);
    }

    fn needs_blank(&self, next: Kind) -> bool {
        use Kind::{Cast, Close, CloseBracket, Comma, Dot, Open, OpenBracket, Operator, Semicolon, Word};
        let Some((last, _)) = self.written.last() else { return false };
        match (*last, next) {
            (Cast | Operator, Cast) | (Cast, Operator) => true,
            (Open | OpenBracket | Dot | Cast, _) => false,
            (_, Close | CloseBracket | Comma | Semicolon | Dot | Cast | OpenBracket) => false,
            (Word, Open) => self.spaced,
            _ => true,
        }
    }

    fn finished(mut self) -> String {
        while matches!(self.written.last(), Some((Kind::Semicolon, _))) {
            self.take_back(1);
        }
        self.text.truncate(self.text.floor_char_boundary(TEXT_BYTES));
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(sql: &str) -> String {
        Fingerprint::of(sql.as_bytes()).text
    }

    #[test]
    fn values_blanks_comments_and_case_make_no_difference() {
        let one = "select abalance from pgbench_accounts where aid = ?";
        for sql in [
            "SELECT abalance FROM pgbench_accounts WHERE aid = 17;",
            "select abalance\n  from pgbench_accounts -- by key\n where aid=$1",
            "/* traceparent='00-1' */ SELECT abalance FROM pgbench_accounts WHERE aid = -3.5e7 ;;",
            "select abalance from pgbench_accounts where aid = '17'",
        ] {
            assert_eq!(text(sql), one, "{sql}");
        }
    }

    #[test]
    fn lists_and_rows_of_values_are_as_one_value() {
        assert_eq!(text("select f(1, 'b', $3) where x in (1,2,3)"), "select f(?) where x in (?)");
        assert_eq!(text("INSERT INTO t (a,b) VALUES (1,2),(3,4), (5,-6)"), "insert into t(a, b) values (?)");
        assert_eq!(text("values (1, now()), (2, now())"), "values (?, now()), (?, now())");
        assert_eq!(text("select array[1,2], '{}'::int[]"), "select array[?], ?::int[]");
    }

    #[test]
    fn what_is_no_value_makes_a_difference() {
        assert_ne!(text("select a - 1"), text("select a + 1"));
        assert_ne!(text("select \"A\""), text("select a"));
        assert_ne!(text("select a.b"), text("select a, b"));
        assert_eq!(text("SELECT \"A\nb\".c FROM é"), "select \"A b\".c from é");
        assert_eq!(
            text("update t set a = a - 1, b=+2 where c->>'k' <> E'\\''"),
            "update t set a = a - ?, b = ? where c ->> ? <> ?"
        );
        assert_eq!(text("select count(*), (select 1)"), "select count(*), (select ?)");
    }

    #[test]
    fn texts_are_cut_at_their_limit() {
        let long = format!("select {}", "é".repeat(3_000));
        let found = Fingerprint::of(long.as_bytes());
        assert!(found.text.len() <= TEXT_BYTES && found.text.len() > TEXT_BYTES - 2);
        assert_eq!(
            text(&format!("select '{}', a", "x".repeat(1 << 20))),
            "select ?",
            "the rest is not looked at"
        );
        assert_eq!(text(""), "");
        assert_eq!(Fingerprint::of(b"select 1").number, Fingerprint::of(b"SELECT 22").number);
        assert_ne!(Fingerprint::of(b"select 1").number, Fingerprint::of(b"select 1 from t").number);
    }
}
