//! The shapes of console statements: a command word with at most one argument, or with a database and its host, and SET.
//! Never takes two statements in one query: PgBouncer does not, and a half-done pair would be worse than none.

use super::lexer::{Lexer, Token};
use crate::statement::{ParseError, Statement};

/// The longest statement that is looked at, in bytes.
pub const LONGEST: usize = 1 << 20;

/// What SET QUOTA sets is no setting.
const QUOTA: &str = "quota";

/// The values of `$1`, `$2`, ...; without them, these stand for themselves.
type Values<'a> = Option<&'a [Option<String>]>;

/// Takes the text of one query apart. Keywords are not case sensitive; names and values are kept as written.
///
/// # Errors
/// [`ParseError`], always the client's fault.
pub fn parse(sql: &str, values: Values<'_>) -> Result<Statement, ParseError> {
    if sql.len() > LONGEST {
        return Err(ParseError::TooLong);
    }
    let mut lexer = Lexer::new(sql);
    let Some(word) = first(&mut lexer, values)? else { return Ok(Statement::Empty) };
    if word.eq_ignore_ascii_case("set") {
        return set(&mut lexer, values);
    }
    let argument = match lexer.next()? {
        None => None,
        Some(Token::Semicolon) => return finished(&mut lexer, Statement::Command { word, argument: None }),
        Some(token) => Some(name(token, values)?),
    };
    if let Some(database) = argument.clone().filter(|_| takes_two(&word)) {
        return host(&mut lexer, word, database, values);
    }
    if let Some(database) = argument.clone().filter(|_| word.eq_ignore_ascii_case("switchover")) {
        return switchover(&mut lexer, word, database, values);
    }
    finished(&mut lexer, Statement::Command { word, argument })
}

/// What follows the database of SWITCHOVER: nothing, or TO and a host.
fn switchover(
    lexer: &mut Lexer<'_>,
    word: String,
    database: String,
    values: Values<'_>,
) -> Result<Statement, ParseError> {
    match lexer.next()? {
        Some(Token::Word(to)) if to.eq_ignore_ascii_case("to") => {
            let host = name(lexer.next()?.ok_or(ParseError::Incomplete)?, values)?;
            finished(lexer, Statement::HostCommand { word, database, host })
        }
        Some(Token::Semicolon) => finished(lexer, Statement::Command { word, argument: Some(database) }),
        Some(_) => Err(ParseError::Trailing),
        None => Ok(Statement::Command { word, argument: Some(database) }),
    }
}

fn takes_two(word: &str) -> bool {
    let words = ["attach", "detach", "drain", "pause", "resume", "disable", "enable"];
    words.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// What follows the database of a command that may name one of its hosts, or all nodes of the fleet, too.
fn host(
    lexer: &mut Lexer<'_>,
    word: String,
    database: String,
    values: Values<'_>,
) -> Result<Statement, ParseError> {
    match lexer.next()? {
        None => Ok(Statement::Command { word, argument: Some(database) }),
        Some(Token::Semicolon) => finished(lexer, Statement::Command { word, argument: Some(database) }),
        Some(token) => {
            let host = name(token, values)?;
            finished(lexer, Statement::HostCommand { word, database, host })
        }
    }
}

/// The command's word; None where there is nothing but semicolons.
fn first(lexer: &mut Lexer<'_>, values: Values<'_>) -> Result<Option<String>, ParseError> {
    loop {
        match lexer.next()? {
            None => return Ok(None),
            Some(Token::Semicolon) => {}
            Some(token) => return name(token, values).map(Some),
        }
    }
}

/// What follows SET: `key = value` or `key TO value`.
fn set(lexer: &mut Lexer<'_>, values: Values<'_>) -> Result<Statement, ParseError> {
    let key = name(lexer.next()?.ok_or(ParseError::Incomplete)?, values)?;
    let rest = lexer.rest();
    match lexer.next()? {
        Some(Token::Word(kind)) if key.eq_ignore_ascii_case(QUOTA) && !kind.eq_ignore_ascii_case("to") => {
            // A line of the file of quotas, whose words are not the console's.
            let line = rest.trim().trim_end_matches(';').trim_end();
            return Ok(Statement::Set { key: QUOTA.to_owned(), value: line.to_owned() });
        }
        Some(Token::Equals) => {}
        Some(Token::Word(to)) if to.eq_ignore_ascii_case("to") => {}
        _ => return Err(ParseError::Incomplete),
    }
    let value = match lexer.next()? {
        Some(Token::Word(value)) => word(value, values)?,
        Some(Token::Name(value) | Token::Text(value)) => value.into_owned(),
        _ => return Err(ParseError::Incomplete),
    };
    finished(lexer, Statement::Set { key, value })
}

/// A word or a quoted name, which must not be empty.
fn name(token: Token<'_>, values: Values<'_>) -> Result<String, ParseError> {
    match token {
        Token::Word(text) => word(text, values).and_then(|name| match name.is_empty() {
            true => Err(ParseError::Incomplete),
            false => Ok(name),
        }),
        Token::Name(name) if !name.is_empty() => Ok(name.into_owned()),
        Token::Name(_) => Err(ParseError::Incomplete),
        Token::Text(_) => Err(ParseError::Sign('\'')),
        Token::Equals => Err(ParseError::Sign('=')),
        Token::Semicolon => Err(ParseError::Incomplete),
    }
}

/// A word, or the value of the parameter that it names.
fn word(text: &str, values: Values<'_>) -> Result<String, ParseError> {
    let number = text.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
    match (number, values) {
        (Some(number), Some(values)) => {
            let value = number.checked_sub(1).and_then(|index| values.get(index));
            value.and_then(Clone::clone).ok_or(ParseError::Unbound)
        }
        _ => Ok(text.to_owned()),
    }
}

/// Nothing but semicolons may follow.
fn finished(lexer: &mut Lexer<'_>, statement: Statement) -> Result<Statement, ParseError> {
    loop {
        match lexer.next()? {
            None => return Ok(statement),
            Some(Token::Semicolon) => {}
            Some(_) => return Err(ParseError::Trailing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(sql: &str) -> Result<Statement, ParseError> {
        super::parse(sql, None)
    }

    fn command(word: &str, argument: Option<&str>) -> Result<Statement, ParseError> {
        Ok(Statement::Command { word: word.into(), argument: argument.map(Into::into) })
    }

    fn set_to(key: &str, value: &str) -> Result<Statement, ParseError> {
        Ok(Statement::Set { key: key.into(), value: value.into() })
    }

    #[test]
    fn commands_have_one_argument_at_most() {
        assert_eq!(parse("RELOAD"), command("RELOAD", None));
        assert_eq!(parse(" show\tpools ;\n"), command("show", Some("pools")));
        assert_eq!(parse("PAUSE \"My \"\"db\"\"\";"), command("PAUSE", Some("My \"db\"")));
        assert_eq!(parse("pause test-pool"), command("pause", Some("test-pool")));
        assert_eq!(parse("/* a tool */ RELOAD -- now"), command("RELOAD", None));
        assert_eq!(parse("KILL a b"), Err(ParseError::Trailing));
        assert_eq!(parse("SHOW 'pools'"), Err(ParseError::Sign('\'')));
        assert_eq!(parse("PAUSE \"\""), Err(ParseError::Incomplete));
    }

    #[test]
    fn a_host_follows_the_database_of_commands_that_take_one() {
        let on_host = |word: &str, database: &str, host: &str| {
            Ok(Statement::HostCommand { word: word.into(), database: database.into(), host: host.into() })
        };
        assert_eq!(parse("DETACH app db2"), on_host("DETACH", "app", "db2"));
        assert_eq!(
            parse("attach app db2.example.org:5433;"),
            on_host("attach", "app", "db2.example.org:5433")
        );
        assert_eq!(parse("DETACH \"my db\" \"::1\""), on_host("DETACH", "my db", "::1"));
        assert_eq!(
            parse("DETACH app /run/postgresql:5432"),
            on_host("DETACH", "app", "/run/postgresql:5432")
        );
        assert_eq!(parse("DETACH app"), command("DETACH", Some("app")));
        assert_eq!(parse("DETACH app;"), command("DETACH", Some("app")));
        assert_eq!(parse("DETACH"), command("DETACH", None));
        assert_eq!(parse("DETACH app h1 h2"), Err(ParseError::Trailing));
        assert_eq!(parse("DETACH app ''"), Err(ParseError::Sign('\'')));
        let values = [Some("app".to_owned()), Some("h1:1".to_owned())];
        assert_eq!(super::parse("DETACH $1 $2", Some(&values)), on_host("DETACH", "app", "h1:1"));
        assert_eq!(parse("DETACH $1 $2").map(|statement| statement.parameters()), Ok(2));
    }

    #[test]
    fn nothing_is_empty() {
        for sql in ["", " ", ";", " ; ; ", "-- SHOW POOLS", "/**/"] {
            assert_eq!(parse(sql), Ok(Statement::Empty), "{sql}");
        }
    }

    #[test]
    fn set_has_three_spellings_and_three_quotings() {
        for sql in ["SET a = b", "set a=b;", "SET a TO b", "SET a to 'b'", "SET \"a\" = \"b\"", "SET a='b'"] {
            assert_eq!(parse(sql), set_to("a", "b"), "{sql}");
        }
        assert_eq!(parse("SET a = ''"), set_to("a", ""));
        assert_eq!(parse("SET a = 'it''s; x'"), set_to("a", "it's; x"));
        assert_eq!(parse("SET query_timeout = 0.5"), set_to("query_timeout", "0.5"));
        for sql in ["SET", "SET a", "SET a =", "SET a = ;", "SET a b", "SET = b", "SET a TO"] {
            assert!(parse(sql).is_err(), "{sql}");
        }
        assert_eq!(parse("SET a = b c"), Err(ParseError::Trailing));
    }

    #[test]
    fn two_statements_are_none() {
        assert_eq!(parse("SHOW POOLS; SHOW STATS"), Err(ParseError::Trailing));
        assert_eq!(parse("RELOAD; RELOAD;"), Err(ParseError::Trailing));
    }

    #[test]
    fn what_is_immense_is_not_looked_at() {
        assert_eq!(parse(&" ".repeat(LONGEST + 1)), Err(ParseError::TooLong));
        assert_eq!(parse(&" ".repeat(LONGEST)), Ok(Statement::Empty));
    }

    #[test]
    fn parameters_are_words_with_values() {
        let values = [Some("app".to_owned()), None, Some(String::new())];
        let bound = |sql| super::parse(sql, Some(&values));
        assert_eq!(bound("PAUSE $1"), command("PAUSE", Some("app")));
        assert_eq!(bound("SET verbose = $1"), set_to("verbose", "app"));
        assert_eq!(bound("SET verbose = $3"), set_to("verbose", ""));
        assert_eq!(bound("SHOW \"$1\""), command("SHOW", Some("$1")));
        for sql in ["PAUSE $2", "PAUSE $4", "PAUSE $0"] {
            assert_eq!(bound(sql), Err(ParseError::Unbound), "{sql}");
        }
        assert_eq!(bound("PAUSE $3"), Err(ParseError::Incomplete));
        assert_eq!(parse("PAUSE $1").map(|statement| statement.parameters()), Ok(1));
        assert_eq!(parse("SET $2 = $1").map(|statement| statement.parameters()), Ok(2));
        assert_eq!(parse("SHOW POOLS").map(|statement| statement.parameters()), Ok(0));
    }
}
