//! One statement: which command it is, by its first words, and what follows from that.

use super::access::{self, is_temporary_schema, is_temporary_word};
use super::calls;
use super::cursor::Tokens;
use super::set_config;
use super::setting::{self, SetCommand};
use super::{Access, Changes, Command, Discarded, Statement, Target};
use crate::lexer::Kind;

/// What the statement of these tokens is. `depth`: how many statements inside of it may be followed.
pub(crate) fn analyse(mut tokens: Tokens<'_>, depth: u8) -> Statement {
    let whole = tokens;
    if tokens.takes_kind(Kind::Open) {
        return query(whole, Command::Select);
    }
    let Some(first) = tokens.next() else { return simple(Command::Empty, Access::Reads, Changes::NONE) };
    if first.kind != Kind::Word {
        return Statement::unknown();
    }
    match first.text.to_ascii_lowercase().as_str() {
        "select" => query(whole, set_config::calls(tokens).map_or(Command::Select, Command::SetConfig)),
        "values" | "table" => query(whole, Command::Select),
        "with" => with(whole),
        "insert" | "update" | "delete" | "merge" => modification(whole),
        "begin" | "start" | "commit" | "end" | "rollback" | "abort" | "savepoint" | "release" => {
            transaction(whole)
        }
        "set" => set(setting::set(&mut tokens)),
        "reset" => set(setting::reset(&mut tokens)),
        "show" => simple(Command::Show, Access::Reads, Changes::NONE),
        "prepare" => prepare(tokens, depth),
        "execute" => execute(tokens),
        "deallocate" => {
            tokens.takes("prepare");
            simple(Command::Deallocate(target(&mut tokens)), Access::Reads, Changes::PREPARED)
        }
        "declare" => declare(tokens),
        "close" => simple(Command::Close(target(&mut tokens)), Access::Reads, Changes::CURSORS),
        "fetch" | "move" => simple(Command::Fetch, Access::Reads, Changes::NONE),
        "listen" => simple(Command::Listen(tokens.name()), Access::Unknown, Changes::CHANNELS),
        "unlisten" => simple(Command::Unlisten(target(&mut tokens)), Access::Unknown, Changes::CHANNELS),
        "notify" => simple(Command::Notify, Access::Writes, Changes::NONE),
        "discard" => discard(tokens),
        "load" => simple(Command::Load, Access::Unknown, Changes::LIBRARIES),
        "explain" => explain(tokens, depth),
        "copy" => copy(whole),
        "do" | "call" => Statement { command: Command::Code, ..Statement::unknown() },
        "create" | "alter" | "drop" | "grant" | "revoke" | "comment" | "truncate" | "vacuum" | "analyze"
        | "analyse" | "reindex" | "cluster" | "refresh" | "lock" | "security" | "import" | "reassign"
        | "checkpoint" => utility(whole),
        _ => Statement::unknown(),
    }
}

fn simple(command: Command, access: Access, changes: Changes) -> Statement {
    Statement { command, access, changes, calls: Vec::new() }
}

/// A statement whose expressions may call functions.
fn query(tokens: Tokens<'_>, command: Command) -> Statement {
    let (access, changes) = access::of_query(tokens.rest());
    let calls = calls::of(tokens.rest());
    Statement {
        command,
        access: access.max(calls.access),
        changes: changes.and(calls.changes),
        calls: calls.all_names(),
    }
}

/// WITH before a query or a modification: at its own depth of parentheses stands which.
fn with(tokens: Tokens<'_>) -> Statement {
    let mut rest = tokens;
    while !rest.is_empty() {
        rest.skip_parentheses();
        if rest.takes_any(&["insert", "update", "delete", "merge"]) {
            return modification(tokens);
        }
        if rest.takes_any(&["select", "values", "table"]) {
            break;
        }
        rest.next();
    }
    query(tokens, Command::Select)
}

fn modification(tokens: Tokens<'_>) -> Statement {
    let found = query(tokens, Command::Modify);
    Statement { access: Access::Writes, changes: found.changes.and(Changes::TRIGGERS), ..found }
}

/// BEGIN, COMMIT, SAVEPOINT and the like.
fn transaction(mut tokens: Tokens<'_>) -> Statement {
    let Some(first) = tokens.next() else { return Statement::unknown() };
    let first = first.text.to_ascii_lowercase();
    let command = match first.as_str() {
        "savepoint" => Command::Savepoint(tokens.name()),
        "release" => {
            tokens.takes("savepoint");
            Command::Release(tokens.name())
        }
        "commit" | "rollback" if tokens.is("prepared") => Command::TwoPhase,
        "start" if !tokens.takes("transaction") => return Statement::unknown(),
        "begin" | "start" => {
            tokens.takes_any(&["transaction", "work"]);
            Command::Begin { is_plain: tokens.is_empty() }
        }
        _ => end_of_transaction(&first, tokens),
    };
    let is_two_phase = command == Command::TwoPhase;
    simple(command, if is_two_phase { Access::Writes } else { Access::Reads }, Changes::TRANSACTION)
}

/// COMMIT, END, ROLLBACK or ABORT, and ROLLBACK TO.
fn end_of_transaction(first: &str, mut tokens: Tokens<'_>) -> Command {
    tokens.takes_any(&["transaction", "work"]);
    let commits = matches!(first, "commit" | "end");
    if !commits && tokens.takes("to") {
        tokens.takes("savepoint");
        return Command::RollbackTo(tokens.name());
    }
    let chain = tokens.takes("and") && !tokens.takes("no") && tokens.takes("chain");
    if commits { Command::Commit { chain } } else { Command::Rollback { chain } }
}

fn set(command: SetCommand) -> Statement {
    simple(Command::Set(command), Access::Reads, Changes::SETTINGS)
}

/// `name`, `ALL` or `*`.
fn target(tokens: &mut Tokens<'_>) -> Target {
    let is_star = tokens.peek().is_some_and(|token| token.kind == Kind::Operator && token.text == "*");
    if is_star || tokens.is("all") { Target::All } else { Target::One(tokens.name()) }
}

/// PREPARE name [(types)] AS statement, or PREPARE TRANSACTION.
fn prepare(mut tokens: Tokens<'_>, depth: u8) -> Statement {
    if tokens.is("transaction") && tokens.rest().get(1).is_some_and(|token| token.kind == Kind::Value) {
        return simple(Command::TwoPhase, Access::Writes, Changes::TRANSACTION);
    }
    let name = tokens.name();
    tokens.skip_parentheses();
    let statement = if tokens.takes("as") { inside(tokens, depth) } else { Statement::unknown() };
    let access = Access::Reads; // it runs only when it is executed
    simple(Command::Prepare(name, Box::new(statement)), access, Changes::PREPARED)
}

/// What it runs stands in its PREPARE; its arguments may call functions.
fn execute(mut tokens: Tokens<'_>) -> Statement {
    let name = tokens.name();
    let calls = calls::of(tokens.rest());
    Statement {
        command: Command::Execute(name),
        access: Access::Unknown,
        changes: Changes::ANYTHING.and(calls.changes),
        calls: calls.all_names(),
    }
}

/// DECLARE name [BINARY] [INSENSITIVE] [[NO] SCROLL] CURSOR [WITH HOLD | WITHOUT HOLD] FOR query.
fn declare(mut tokens: Tokens<'_>) -> Statement {
    let name = tokens.name();
    while tokens.takes_any(&["binary", "insensitive", "asensitive", "no", "scroll"]) {}
    tokens.takes("cursor");
    let is_holdable = tokens.takes("with") && tokens.takes("hold");
    let found = query(tokens, Command::Declare { name, is_holdable });
    let changes = if is_holdable { found.changes.and(Changes::CURSORS) } else { found.changes };
    Statement { changes, ..found }
}

fn discard(mut tokens: Tokens<'_>) -> Statement {
    const OF_ALL: Changes = Changes::SETTINGS
        .and(Changes::PREPARED)
        .and(Changes::CURSORS)
        .and(Changes::TEMPORARY)
        .and(Changes::LOCKS)
        .and(Changes::CHANNELS)
        .and(Changes::SEQUENCES);
    let (what, changes) = if tokens.takes("all") {
        (Discarded::All, OF_ALL)
    } else if tokens.takes("plans") {
        (Discarded::Plans, Changes::NONE)
    } else if tokens.takes("sequences") {
        (Discarded::Sequences, Changes::SEQUENCES)
    } else if tokens.takes_any(&["temp", "temporary"]) {
        (Discarded::Temporary, Changes::TEMPORARY)
    } else {
        return Statement::unknown();
    };
    simple(Command::Discard(what), Access::Unknown, changes)
}

/// EXPLAIN [ANALYZE] [VERBOSE] or EXPLAIN (options), and the statement.
fn explain(mut tokens: Tokens<'_>, depth: u8) -> Statement {
    let options = tokens;
    let mut runs = false;
    if tokens.peek().is_some_and(|token| token.kind == Kind::Open) && !is_query_in_parentheses(tokens) {
        tokens.skip_parentheses();
        let length = options.rest().len() - tokens.rest().len();
        // `analyze off` is taken to run it, too.
        runs = options.rest()[..length].iter().any(|token| {
            token.text.eq_ignore_ascii_case("analyze") || token.text.eq_ignore_ascii_case("analyse")
        });
    } else {
        runs |= tokens.takes_any(&["analyze", "analyse"]);
        tokens.takes("verbose");
    }
    let statement = inside(tokens, depth);
    // Without ANALYZE it is planned only, but planning evaluates what is immutable, whatever that says of itself.
    let (access, changes) = if runs {
        (statement.access, statement.changes)
    } else {
        (Access::Reads, Changes(statement.changes.0 & Changes::FUNCTIONS.and(Changes::ANYTHING).0))
    };
    let calls = statement.calls.clone();
    Statement { command: Command::Explain { runs, statement: Box::new(statement) }, access, changes, calls }
}

/// EXPLAIN (SELECT ...): parentheses that hold no options.
fn is_query_in_parentheses(mut tokens: Tokens<'_>) -> bool {
    while tokens.takes_kind(Kind::Open) {}
    ["select", "with", "values", "table"].iter().any(|word| tokens.is(word))
}

fn inside(tokens: Tokens<'_>, depth: u8) -> Statement {
    if depth == 0 { Statement::unknown() } else { analyse(tokens, depth - 1) }
}

/// COPY: into a table it writes; a file or program of the server is another one on each server.
fn copy(tokens: Tokens<'_>) -> Statement {
    let mut rest = tokens;
    rest.next();
    let is_query = rest.peek().is_some_and(|token| token.kind == Kind::Open);
    let source = if is_query {
        query(rest, Command::Copy)
    } else {
        while !rest.is_empty() && !["to", "from"].iter().any(|word| rest.is(word)) {
            rest.next();
        }
        simple(Command::Copy, Access::Reads, Changes::NONE)
    };
    rest.skip_parentheses();
    if rest.takes("from") {
        // WHERE may call functions.
        let filter = query(rest, Command::Copy);
        return Statement {
            access: Access::Writes,
            changes: filter.changes.and(Changes::TRIGGERS),
            ..filter
        };
    }
    let is_to_client = rest.takes("to") && rest.takes("stdout");
    let access = if is_to_client { source.access } else { source.access.max(Access::Unknown) };
    Statement { access, ..source }
}

/// CREATE and the other commands for the database. What they run besides (event triggers, defaults, CREATE TABLE AS) may be any function.
fn utility(tokens: Tokens<'_>) -> Statement {
    let found = query(tokens, Command::Utility);
    let words = tokens.rest();
    // CREATE [OR REPLACE] [GLOBAL | LOCAL] TEMP; DROP and ALTER may mean a temporary object by its name alone.
    let creates_temporary = words.iter().take(5).any(is_temporary_word);
    let names_temporary = words.iter().any(is_temporary_schema);
    let may_drop = tokens.is("drop") || tokens.is("alter");
    let mut changes = found.changes.and(Changes::TRIGGERS).and(Changes::FUNCTIONS);
    if creates_temporary || names_temporary || may_drop {
        changes = changes.and(Changes::TEMPORARY);
    }
    // What precedes a parenthesis is mostly a table.
    Statement { access: Access::Writes, changes, calls: Vec::new(), ..found }
}
