//! The database and user columns of an HBA rule: keywords, lists, `@file`.
//! Owns which words are special and the bounds of files of names. Never decides whether a login matches.

use crate::files::{Files, reason};
use crate::hba::RuleError;
use crate::tokens::{Token, Tokens};
use std::collections::BTreeSet;

/// How deep files of names may name files, as PostgreSQL has it.
const DEPTH: usize = 10;
/// How many files of names may be read for one HBA file: a few that name each other would otherwise not end.
const COUNT: usize = 1000;

/// What one column lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// `all`: every name (but not a physical replication connection, which has no database).
    pub all: bool,
    /// `sameuser`: the database that is called like the user.
    pub same_user: bool,
    /// `replication`: physical replication connections.
    pub replication: bool,
    /// `samerole`, `samegroup`: the database that is called like a role the user is a member of.
    pub same_role: bool,
    /// Names as such.
    pub listed: BTreeSet<String>,
    /// `+name`: the members of these roles, however indirect.
    pub groups: BTreeSet<String>,
}

/// Which column is read; keywords differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Database,
    User,
}

/// Reads columns; files of names come from `files`.
pub(crate) struct NamesReader<'a> {
    pub(crate) files: &'a dyn Files,
    /// Servers can be queried for role membership.
    can_query_roles: bool,
    read: usize,
}

impl<'a> NamesReader<'a> {
    pub(crate) fn new(files: &'a dyn Files, can_query_roles: bool) -> Self {
        Self { files, can_query_roles, read: 0 }
    }

    /// Role keywords need a server that can be queried.
    fn require_role_query(&self, word: &str) -> Result<(), RuleError> {
        if self.can_query_roles { Ok(()) } else { Err(RuleError::Unsupported(word.to_owned())) }
    }

    /// One column of a line of the file at `path`.
    pub(crate) fn column(
        &mut self,
        tokens: &mut Tokens<'_>,
        column: Column,
        path: &str,
    ) -> Result<Names, RuleError> {
        let mut names = Names::default();
        loop {
            self.name(&mut names, tokens, column, path, 0)?;
            if !tokens.take_comma() {
                return Ok(names);
            }
        }
    }

    fn name(
        &mut self,
        names: &mut Names,
        tokens: &mut Tokens<'_>,
        column: Column,
        path: &str,
        depth: usize,
    ) -> Result<(), RuleError> {
        match (tokens.take(), column) {
            (Some(Token::Word("all")), _) => names.all = true,
            (Some(Token::Word("sameuser")), Column::Database) => names.same_user = true,
            (Some(Token::Word("replication")), Column::Database) => names.replication = true,
            (Some(Token::Word(word @ ("samerole" | "samegroup"))), Column::Database) => {
                self.require_role_query(word)?;
                names.same_role = true;
            }
            (Some(Token::Word(word)), Column::User) if word.starts_with('+') => {
                self.require_role_query(word)?;
                names.groups.insert(word[1..].to_owned());
            }
            (Some(Token::Word(word)), _) if word.starts_with('@') => {
                return self.file(names, column, &beside(path, &word[1..]), depth);
            }
            (Some(Token::Word(word)), _) => drop(names.listed.insert(word.to_owned())),
            (Some(Token::Quoted(name)), _) => drop(names.listed.insert(name)),
            (Some(Token::Comma | Token::Unterminated) | None, _) => return Err(RuleError::NoName),
        }
        Ok(())
    }

    /// A file of names, with blanks, commas or line ends between them.
    fn file(&mut self, names: &mut Names, column: Column, path: &str, depth: usize) -> Result<(), RuleError> {
        let broken = |why: String| RuleError::NamesFile(path.to_owned(), why);
        self.read += 1;
        if depth >= DEPTH || self.read > COUNT {
            return Err(broken("too many files name each other".to_owned()));
        }
        let bytes = self.files.read(path).map_err(|error| broken(reason(&error)))?;
        let text = std::str::from_utf8(&bytes).map_err(|_| broken("not UTF-8 text".to_owned()))?;
        for line in text.lines() {
            let mut tokens = Tokens::new(line);
            while tokens.current().is_some() {
                self.name(names, &mut tokens, column, path, depth + 1)?;
                tokens.take_comma();
            }
        }
        Ok(())
    }
}

/// The path of a file that another one names: relative to where that one is.
fn beside(parent: &str, path: &str) -> String {
    match parent.rsplit_once('/') {
        Some((directory, _)) if !path.starts_with('/') => format!("{directory}/{path}"),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::memory::Memory;

    fn column(line: &str, column: Column, files: &[(&str, &str)]) -> Result<Names, RuleError> {
        NamesReader::new(&Memory(files), true).column(&mut Tokens::new(line), column, "dir/hba")
    }

    fn listed(names: &Names) -> Vec<&str> {
        names.listed.iter().map(String::as_str).collect()
    }

    #[test]
    fn keywords_differ_by_column_and_quotes_take_them_away() -> Result<(), RuleError> {
        let names = column("sameuser,replication , b,\"all\" rest", Column::Database, &[])?;
        assert!(names.same_user && names.replication && !names.all);
        assert_eq!(listed(&names), ["all", "b"]);
        let names = column("sameuser,replication,samerole", Column::User, &[])?;
        assert_eq!(listed(&names), ["replication", "samerole", "sameuser"]);
        assert!(column("a,all", Column::User, &[])?.all);
        let names = column("samerole,b", Column::Database, &[])?;
        assert!(names.same_role && listed(&names) == ["b"]);
        Ok(())
    }

    #[test]
    fn files_of_names_are_beside_the_file_that_names_them() -> Result<(), RuleError> {
        let files = [
            ("dir/names", "a b, c # d\n\n\"e f\",\n@sub/more\n"),
            ("dir/sub/more", "all\n@less"),
            ("dir/sub/less", "g"),
            ("/abs", "h"),
        ];
        let names = column("@names,@/abs", Column::User, &files)?;
        assert_eq!(listed(&names), ["a", "b", "c", "e f", "g", "h"]);
        assert!(names.all);
        Ok(())
    }

    #[test]
    fn files_of_names_have_an_end() {
        let broken = column("@self", Column::User, &[("dir/self", "@self,@self")]);
        assert!(matches!(broken, Err(RuleError::NamesFile(..))), "{broken:?}");
        let gone = column("@gone", Column::User, &[]);
        let why = "No such file or directory".to_owned();
        assert_eq!(gone, Err(RuleError::NamesFile("dir/gone".to_owned(), why)));
    }

    #[test]
    fn a_comma_wants_a_name() {
        for line in ["", "a,", ",a", "a,,b", "\"a"] {
            assert_eq!(column(line, Column::User, &[]), Err(RuleError::NoName), "{line}");
        }
    }

    #[test]
    fn members_of_roles_are_for_servers_that_can_be_asked() -> Result<(), RuleError> {
        let names = column("a,+staff,\"+b\"", Column::User, &[])?;
        assert_eq!(names.groups.iter().collect::<Vec<_>>(), ["staff"]);
        assert_eq!(listed(&names), ["+b", "a"]);
        let mute = |line, column| {
            NamesReader::new(&Memory(&[]), false).column(&mut Tokens::new(line), column, "hba")
        };
        for (word, column) in [("+staff", Column::User), ("samegroup", Column::Database)] {
            assert_eq!(mute(word, column), Err(RuleError::Unsupported(word.to_owned())));
        }
        Ok(())
    }
}
