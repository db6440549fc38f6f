//! Simple queries that are nothing but the plain beginning or end of a transaction (`deferred_begin`).
//!
//! Owns which texts these are: the commands without modes, AND CHAIN, comments or a second statement. What is not recognised
//! is the server's to answer.

use wire::frame::{self, HEADER_BYTES};
use wire::tag::frontend as tag;

/// A longer message is none of these.
const MESSAGE_BYTES: usize = 64;

/// What such a query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionControl {
    /// BEGIN.
    Begin,
    /// START TRANSACTION, which has a command tag of its own.
    StartTransaction,
    /// COMMIT or END.
    Commit,
    /// ROLLBACK or ABORT.
    Rollback,
}

impl TransactionControl {
    /// Whether a message that begins like this may begin a transaction: one look at two bytes, for the path of every request.
    #[inline(always)]
    #[must_use]
    pub fn may_begin(message: &[u8]) -> bool {
        match message.get(HEADER_BYTES) {
            Some(b'b' | b'B') => true,
            Some(b's' | b'S') => matches!(message.get(HEADER_BYTES + 1), Some(b't' | b'T')),
            _ => false,
        }
    }

    /// What a message asks for, if it is a whole Query of one such command and nothing is behind it.
    ///
    /// ```
    /// use weir_session::TransactionControl;
    /// use wire::encode;
    ///
    /// let of = |text: &str| {
    ///     let mut message = Vec::new();
    ///     encode::query(&mut message, text.as_bytes());
    ///     TransactionControl::of_message(&message)
    /// };
    /// assert_eq!(of("begin work;"), Some(TransactionControl::Begin));
    /// assert_eq!(of("END"), Some(TransactionControl::Commit));
    /// assert_eq!(of("begin read only"), None);
    /// assert_eq!(of("rollback and chain"), None);
    /// ```
    #[must_use]
    pub fn of_message(message: &[u8]) -> Option<TransactionControl> {
        let header = frame::header(message).ok().flatten()?;
        if header.tag != tag::QUERY
            || header.frame_bytes as usize != message.len()
            || message.len() > MESSAGE_BYTES
        {
            return None;
        }
        let text = message.get(HEADER_BYTES..)?.strip_suffix(b"\0")?.trim_ascii_end();
        let text = text.strip_suffix(b";").unwrap_or(text);
        let mut words = text.split(|byte| is_space(*byte)).filter(|word| !word.is_empty());
        let (first, second) = (words.next()?, words.next());
        if words.next().is_some() {
            return None;
        }
        let is = |word: &str| first.eq_ignore_ascii_case(word.as_bytes());
        let is_noise =
            |word: &[u8]| word.eq_ignore_ascii_case(b"work") || word.eq_ignore_ascii_case(b"transaction");
        if is("start") {
            let transaction = second.is_some_and(|word| word.eq_ignore_ascii_case(b"transaction"));
            return transaction.then_some(TransactionControl::StartTransaction);
        }
        if !second.is_none_or(is_noise) {
            return None;
        }
        match () {
            () if is("begin") => Some(TransactionControl::Begin),
            () if is("commit") || is("end") => Some(TransactionControl::Commit),
            () if is("rollback") || is("abort") => Some(TransactionControl::Rollback),
            () => None,
        }
    }

    /// It begins a transaction.
    #[must_use]
    pub fn begins(self) -> bool {
        matches!(self, TransactionControl::Begin | TransactionControl::StartTransaction)
    }

    /// The command tag that PostgreSQL answers it with.
    #[must_use]
    pub fn command_tag(self) -> &'static str {
        match self {
            TransactionControl::Begin => "BEGIN",
            TransactionControl::StartTransaction => "START TRANSACTION",
            TransactionControl::Commit => "COMMIT",
            TransactionControl::Rollback => "ROLLBACK",
        }
    }
}

/// White space in every version of PostgreSQL's lexer.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c)
}

#[cfg(test)]
mod tests {
    use sql::{Backslash, Command};
    use wire::encode;

    use super::*;

    fn of(text: &str) -> Option<TransactionControl> {
        let mut message = Vec::new();
        encode::query(&mut message, text.as_bytes());
        TransactionControl::of_message(&message)
    }

    /// What the lexer of statements says of the same text.
    fn by_lexer(text: &str) -> Option<bool> {
        let statements = sql::statements(text.as_bytes(), Backslash::Literal);
        match statements.as_slice() {
            [one] => match one.command {
                Command::Begin { is_plain: true } => Some(true),
                Command::Commit { chain: false } | Command::Rollback { chain: false } => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    #[test]
    fn plain_commands_are_recognised() {
        for (text, tag) in [
            ("BEGIN", "BEGIN"),
            (" begin ;\n", "BEGIN"),
            ("Begin\tTransaction", "BEGIN"),
            ("begin work;", "BEGIN"),
            ("start  transaction", "START TRANSACTION"),
            ("COMMIT", "COMMIT"),
            ("end transaction;", "COMMIT"),
            ("rollback work", "ROLLBACK"),
            ("ABORT;", "ROLLBACK"),
        ] {
            let found = of(text).expect(text);
            assert_eq!(found.command_tag(), tag, "{text}");
            assert_eq!(by_lexer(text), Some(found.begins()), "{text}");
        }
    }

    #[test]
    fn all_else_is_the_servers_to_answer() {
        for text in [
            "",
            ";",
            "start",
            "start work",
            "begin;;",
            "begin; select 1",
            "begin isolation level serializable",
            "begin read only",
            "start transaction read write",
            "commit and chain",
            "rollback and no chain",
            "rollback to a",
            "commit prepared 'a'",
            "prepare transaction 'a'",
            "savepoint a",
            "begin -- comment",
            "beginning",
            "select 1",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(of(&format!("begin{}", " ".repeat(MESSAGE_BYTES))), None, "it is long");
    }

    #[test]
    fn only_a_whole_message_alone_is_judged() {
        let mut message = Vec::new();
        encode::query(&mut message, b"begin");
        for end in 0..message.len() {
            assert_eq!(TransactionControl::of_message(&message[..end]), None);
        }
        message.extend_from_slice(b"H\0\0\0\x04");
        assert_eq!(TransactionControl::of_message(&message), None, "something is behind it");
        let mut parse = Vec::new();
        encode::parse(&mut parse, b"", b"begin", &[]);
        assert_eq!(TransactionControl::of_message(&parse), None, "it is no Query");
    }

    #[test]
    fn two_bytes_say_what_cannot_begin_a_transaction() {
        for (text, may) in [
            ("begin", true),
            ("Start transaction", true),
            ("select 1", false),
            ("commit", false),
            ("", false),
        ] {
            let mut message = Vec::new();
            encode::query(&mut message, text.as_bytes());
            assert_eq!(TransactionControl::may_begin(&message), may, "{text}");
        }
    }
}
