//! What a console statement says, once its words are apart.
//! Owns the type between the grammar (crate `console`) and the commands; never text that is still to be parsed.

use messages::Role;

/// One statement of a console client or of the panel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Nothing but blanks, comments and semicolons.
    Empty,
    /// A command word and at most one argument: `SHOW POOLS`, `PAUSE "my db"`, `RELOAD`.
    Command {
        /// The first word, as it was written.
        word: String,
        /// The second, without its quotes.
        argument: Option<String>,
    },
    /// `SET key = value`, `SET key TO value`.
    Set {
        /// The setting's name, as it was written.
        key: String,
        /// The value, without its quotes.
        value: String,
    },
}

/// A statement that the panel asks: parsed already, so that nothing in it can be taken for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Comes back in [`crate::Output::Answer`].
    pub id: u64,
    /// What the asker may.
    pub role: Role,
    /// What it asks.
    pub statement: Statement,
}

impl Question {
    /// The statement in words, for the answer to a bad one. Never parsed.
    pub(crate) fn in_words(&self) -> String {
        match &self.statement {
            Statement::Empty => String::new(),
            Statement::Command { word, argument: None } => word.clone(),
            Statement::Command { word, argument: Some(argument) } => format!("{word} {argument}"),
            Statement::Set { key, value } => format!("SET {key} = {value}"),
        }
    }
}

/// Why a statement has none of the shapes of [`Statement`]; always the client's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misread {
    /// More than a statement can sensibly have.
    TooLong,
    /// A quote or a comment that does not end.
    Unterminated,
    /// Words follow where a statement of this shape has ended, another statement perhaps.
    Trailing,
    /// SET without a name, or without a value.
    Incomplete,
    /// A parameter without a value, or whose value is NULL.
    Unbound,
    /// A sign that no statement has.
    Sign(char),
}

/// Takes a statement apart. `$1` and its like stand for the values given, or for themselves where none are.
pub type Grammar = fn(&str, Option<&[Option<String>]>) -> Result<Statement, Misread>;

impl Statement {
    /// How many parameters it has, if it was read without values: the largest number behind a `$`.
    #[must_use]
    pub fn parameters(&self) -> usize {
        let words = match self {
            Statement::Empty => [None, None],
            Statement::Command { word, argument } => [Some(word), argument.as_ref()],
            Statement::Set { key, value } => [Some(key), Some(value)],
        };
        let number = |word: &String| word.strip_prefix('$')?.parse().ok().filter(|number| *number <= 65_535);
        words.into_iter().flatten().filter_map(number).max().unwrap_or(0)
    }
}
