//! Parsed console statements: the type between the grammar (`console`) and the commands.

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
    /// `DETACH database host`, `ATTACH database host:port`, `SWITCHOVER database TO host`.
    HostCommand {
        /// The first word, as it was written.
        word: String,
        /// The second, without its quotes.
        database: String,
        /// The third, without its quotes.
        host: String,
    },
    /// `SET key = value`, `SET key TO value`.
    Set {
        /// The setting's name, as it was written.
        key: String,
        /// The value, without its quotes.
        value: String,
    },
}

/// A statement of the panel: parsed already, so that injection is impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PanelQuery {
    /// Comes back in [`crate::Output::PanelReply`].
    pub id: u64,
    /// The role of the requester.
    pub role: Role,
    /// The statement.
    pub statement: Statement,
}

impl PanelQuery {
    /// The statement as text, for error messages. Never parsed.
    pub(crate) fn display_text(&self) -> String {
        match &self.statement {
            Statement::Empty => String::new(),
            Statement::Command { word, argument: None } => word.clone(),
            Statement::Command { word, argument: Some(argument) } => format!("{word} {argument}"),
            Statement::HostCommand { word, database, host } => format!("{word} {database} {host}"),
            Statement::Set { key, value } => format!("SET {key} = {value}"),
        }
    }
}

/// A syntax error in a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The statement is too long.
    TooLong,
    /// A quote or a comment that does not end.
    Unterminated,
    /// Trailing words, perhaps another statement.
    Trailing,
    /// SET without a name, or without a value.
    Incomplete,
    /// A parameter without a value, or whose value is NULL.
    Unbound,
    /// An unexpected character.
    Sign(char),
}

impl Statement {
    /// How many parameters it has, if it was read without values: the largest number behind a `$`.
    #[must_use]
    pub fn parameters(&self) -> usize {
        let words = match self {
            Statement::Empty => [None, None, None],
            Statement::Command { word, argument } => [Some(word), argument.as_ref(), None],
            Statement::HostCommand { word, database, host } => [Some(word), Some(database), Some(host)],
            Statement::Set { key, value } => [Some(key), Some(value), None],
        };
        let number = |word: &String| word.strip_prefix('$')?.parse().ok().filter(|number| *number <= 65_535);
        words.into_iter().flatten().filter_map(number).max().unwrap_or(0)
    }
}
