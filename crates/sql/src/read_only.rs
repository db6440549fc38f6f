//! What a text may do where its client may read only: whether it writes, and whether it could leave a transaction that PostgreSQL holds to reading.
//!
//! Owns which statements are which. Where a text could be read in two ways, what counts is the worse one. PostgreSQL itself keeps statements in a read-only transaction from
//! writing, and the transaction from being made another one once a snapshot was taken, so that no function can do it; what is left are the statements that are named here.

use crate::lexer::{Backslash, Kind, Lexer, Token};
use crate::statement::{Access, Command, SetCommand, Statement, Tokens, analyse, is_word};

/// The longest text that is looked at.
pub const READ_ONLY_TEXT_BYTES: usize = 1024 * 1024;

/// What the statements of a text do; each is said of any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOnlyText {
    /// One could end reading only: it makes the transaction another one, or begins others by itself (DO, CALL), or what is behind it would be in another transaction. Or it cannot
    /// be said.
    pub leaves: bool,
    /// One writes, as its words say.
    pub writes: bool,
    /// One frees storage: DELETE, TRUNCATE, DROP.
    pub deletes: bool,
    /// Of one the words do not say what it does.
    pub is_unknown: bool,
    /// What is executed behind it is in another transaction.
    pub ends: bool,
}

impl ReadOnlyText {
    /// A text of which nothing is known.
    pub const UNSEEN: ReadOnlyText =
        ReadOnlyText { leaves: true, writes: true, deletes: true, is_unknown: true, ends: true };

    /// The worse of both.
    #[must_use]
    pub fn and(self, other: ReadOnlyText) -> ReadOnlyText {
        ReadOnlyText {
            leaves: self.leaves || other.leaves,
            writes: self.writes || other.writes,
            deletes: self.deletes || other.deletes,
            is_unknown: self.is_unknown || other.is_unknown,
            ends: self.ends || other.ends,
        }
    }
}

/// Looks at a text, up to a NUL.
///
/// ```
/// use sql::read_only;
/// assert!(!read_only(b"select 1; select f()").leaves);
/// assert!(read_only(b"begin; set transaction read write").leaves);
/// assert!(read_only(b"commit; insert into t values (1)").leaves);
/// assert!(read_only(b"insert into t values (1)").writes);
/// ```
#[must_use]
pub fn read_only(text: &[u8]) -> ReadOnlyText {
    let text = &text[..text.iter().position(|byte| *byte == 0).unwrap_or(text.len())];
    if text.len() > READ_ONLY_TEXT_BYTES {
        return ReadOnlyText::UNSEEN;
    }
    let text = String::from_utf8_lossy(text);
    let literal = read_as(&text, Backslash::Literal);
    if text.contains('\\') { literal.and(read_as(&text, Backslash::Escape)) } else { literal }
}

fn read_as(text: &str, backslash: Backslash) -> ReadOnlyText {
    let tokens: Vec<_> = Lexer::reading(text, backslash).collect();
    let mut found = ReadOnlyText::default();
    // At each semicolon, whatever it is in: nothing is overlooked.
    for part in tokens.split(|token| token.kind == Kind::Semicolon).filter(|part| !part.is_empty()) {
        found.leaves |= found.ends;
        found = found.and(of_statement(part));
    }
    found
}

fn of_statement(tokens: &[Token<'_>]) -> ReadOnlyText {
    let statement = analyse(Tokens::new(tokens), 4);
    let has = |word: &str| tokens.iter().any(|token| is_word(*token, word));
    let is_first = |words: &[&str]| words.iter().any(|word| is_word(tokens[0], word));
    let nothing = ReadOnlyText::default();
    let writes = |is: bool| ReadOnlyText { writes: is, ..nothing };
    let leaves = |is: bool| ReadOnlyText { leaves: is, ..nothing };
    match &statement.command {
        Command::Begin { .. } => leaves(has("write")),
        // The next transaction is as this one, which may have begun to write before.
        Command::Commit { chain: true } | Command::Rollback { chain: true } => leaves(true),
        Command::Commit { .. } | Command::Rollback { .. } | Command::Discard(_) => {
            ReadOnlyText { ends: true, ..nothing }
        }
        Command::TwoPhase => ReadOnlyText { ends: true, writes: true, ..nothing },
        Command::Code => leaves(true),
        Command::Set(set) => leaves(leaves_by_setting(set, has("write"))),
        Command::Modify => ReadOnlyText {
            // A DELETE alone frees storage; other words of a WITH may write.
            deletes: is_first(&["delete"]) && !has("insert") && !has("update") && !has("merge"),
            writes: !is_first(&["delete"]) || has("insert") || has("update") || has("merge"),
            ..nothing
        },
        Command::Utility if is_first(&["truncate", "drop"]) => {
            ReadOnlyText { deletes: true, ends: true, ..nothing }
        }
        // PostgreSQL allows them in a read-only transaction; each ends its own.
        Command::Utility if is_first(&["vacuum", "analyze", "analyse", "checkpoint"]) => {
            ReadOnlyText { ends: true, ..nothing }
        }
        Command::Utility if is_first(&["lock"]) => nothing,
        Command::Utility => ReadOnlyText { ends: true, writes: true, ..nothing },
        Command::Copy => writes(has("from") && statement.access == Access::Writes),
        Command::Select | Command::SetConfig(_) | Command::Declare { .. } => {
            writes(statement.access == Access::Writes)
        }
        Command::Explain { statement: inner, .. } => {
            ReadOnlyText { is_unknown: explains_unknown(&statement, inner), ..nothing }
        }
        Command::Execute(_) => ReadOnlyText { is_unknown: true, ..nothing },
        Command::Show
        | Command::Savepoint(_)
        | Command::Release(_)
        | Command::RollbackTo(_)
        | Command::Prepare(..)
        | Command::Deallocate(_)
        | Command::Close(_)
        | Command::Fetch
        | Command::Listen(_)
        | Command::Unlisten(_)
        | Command::Notify
        | Command::Empty => nothing,
        Command::Load | Command::Other => ReadOnlyText { is_unknown: true, ends: true, ..nothing },
    }
}

/// EXPLAIN ANALYZE of what is not known to read.
fn explains_unknown(statement: &Statement, inner: &Statement) -> bool {
    let Command::Explain { runs, .. } = statement.command else { return true };
    runs && !(matches!(inner.command, Command::Select) && inner.access < Access::Writes)
}

/// A setting that makes the transaction that runs another one. Defaults of those to come are set again before each of them.
fn leaves_by_setting(set: &SetCommand, names_write: bool) -> bool {
    const NAME: &str = "transaction_read_only";
    match set {
        SetCommand::Setting { name, .. } => name == NAME,
        SetCommand::Reset(Some(name)) => name.eq_ignore_ascii_case(NAME),
        SetCommand::Transaction => names_write,
        SetCommand::Reset(None) | SetCommand::Other => true,
        SetCommand::ResetAll | SetCommand::Characteristics => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> ReadOnlyText {
        read_only(text.as_bytes())
    }

    #[test]
    fn what_could_leave_a_read_only_transaction_is_known() {
        for text in [
            "set transaction read write",
            "SET LOCAL TRANSACTION /* a */ ISOLATION LEVEL SERIALIZABLE, READ -- b\nWRITE",
            "set transaction_read_only = off",
            "set session \"Transaction_Read_Only\" to 'off'",
            "set local U&\"transaction\\005fread_only\" = off",
            "set u&\"x\" = 1",
            "reset transaction_read_only",
            "reset \"TRANSACTION_READ_ONLY\"",
            "begin read write",
            "begin work isolation level repeatable read, read write",
            "start transaction read write, deferrable",
            "commit and chain",
            "rollback work and chain",
            "commit; insert into t values (1)",
            "select 1; end; select 2",
            "abort; begin",
            "vacuum t; select 1",
            "frob; select 1",
            "do $$ begin commit; end $$",
            "call p()",
            "/* x */ call p()",
            "select 1; do 'x'",
            // Read with a backslash that escapes, the string ends earlier.
            "select '\\'; commit; select 1; --'",
            "select 'a\\', '; call p(); --'",
        ] {
            assert!(found(text).leaves, "{text}");
        }
        assert!(read_only(&vec![b'x'; READ_ONLY_TEXT_BYTES + 1]).leaves);
    }

    #[test]
    fn a_string_in_parts_hides_no_semicolon() {
        assert!(found("select E'a'\n'b\\' ', '\\'; commit; insert into t values (1, 1); --'").leaves);
    }

    #[test]
    fn what_postgresql_holds_to_reading_passes() {
        for text in [
            "",
            "select f(), 'commit; call p()' from t",
            "begin",
            "begin isolation level serializable read only",
            "begin; select 1; commit",
            "savepoint a; select 1; rollback to savepoint a; release a",
            "set default_transaction_read_only = off",
            "set session characteristics as transaction read write",
            "reset all",
            "discard all",
            "set search_path = a; select 1",
            "set transaction isolation level serializable",
            "select set_config('transaction_read_only', 'off', true)",
            "insert into t values (1)",
            "create table t (a int)",
            "explain analyze insert into t values (1)",
            "execute a(1)",
            "copy t from stdin",
            "vacuum t",
        ] {
            assert!(!found(text).leaves, "{text}");
        }
    }

    #[test]
    fn words_say_what_writes_and_what_frees() {
        for text in [
            "insert into t values (1)",
            "with a as (insert into t values (1) returning *) select * from a",
            "update t set a = 1",
            "merge into t using s on true when matched then delete",
            "select * into t from s",
            "create index on t (a)",
            "alter table t add b int",
            "copy t from stdin",
            "with a as (select 1) insert into t select * from a",
            "delete from t using (values (1)) v; insert into t values (1)",
        ] {
            assert!(found(text).writes, "{text}");
        }
        for text in ["delete from t where a = 1", "truncate t", "drop table t", "DROP INDEX i"] {
            let found = found(text);
            assert!(found.deletes && !found.writes && !found.leaves, "{text}");
        }
        let both = found("with a as (insert into t values (1) returning *) delete from t");
        assert!(both.writes);
        for text in
            ["select 1", "copy t to stdout", "show all", "table t", "values (1)", "vacuum t", "lock t"]
        {
            let found = found(text);
            assert!(!found.writes && !found.deletes && !found.is_unknown, "{text}");
        }
        for text in ["execute a", "explain analyze delete from t", "frob"] {
            assert!(found(text).is_unknown, "{text}");
        }
    }
}
