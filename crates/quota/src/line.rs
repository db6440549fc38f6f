//! One line of the file of quotas: what it says.

use std::collections::BTreeSet;

use crate::limit::{self, DEFAULT_GRACE_S, Limit};
use crate::resource::{Measure, Resource};
use crate::subject::{DEFAULT, LONGEST_NAME, Subject, SubjectKind, quoted};

/// The word of a group whose members are those of a role.
const ROLE: &str = "role";

/// The word before the database whose server is asked for them.
const IN: &str = "in";

/// What one line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Nothing, or a comment.
    Empty,
    /// The members of a group.
    Group(Box<str>, Members),
    /// A limit.
    Limit(Subject, Measure, Limit),
}

/// Who is in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Members {
    /// These users.
    List(Vec<Box<str>>),
    /// The members of a role of PostgreSQL, which is asked.
    Role(RoleQuestion),
}

/// A role whose members are asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleQuestion {
    /// The role.
    pub role: Box<str>,
    /// The entry of `[databases]` whose server is asked; none for the one that is asked where a line names none.
    pub entry: Option<Box<str>>,
}

/// Reads a line.
pub(crate) fn read_line(line: &str) -> Result<Line, String> {
    let mut tokens = Tokens(line);
    let Some(first) = tokens.next()? else { return Ok(Line::Empty) };
    let Token::Word(word) = first else { return Err(unexpected(&first)) };
    let kind = kind_of(word)?;
    let name = tokens.next()?;
    let third = tokens.next()?;
    if let (SubjectKind::Group, Some(Token::Equals)) = (kind, &third) {
        let Some(name) = subject(kind, name)?.name else {
            return Err("group default stands for all groups: it has no members of its own".to_owned());
        };
        let members = members(&name, &mut tokens)?;
        return Ok(Line::Group(name, members));
    }
    let subject = subject(kind, name)?;
    let measure = match third {
        Some(Token::Word(measure)) => Measure::read(measure)?,
        Some(other) => return Err(unexpected(&other)),
        None => return Err(format!("{subject}: a resource is expected")),
    };
    let limit = limits(&mut tokens, measure)?;
    if measure.resource().is_measured() && !matches!(subject.kind, SubjectKind::User | SubjectKind::Database)
    {
        let (what, are) = match measure.resource() {
            Resource::Storage => ("storage", "is"),
            other => (other.word(), "are"),
        };
        return Err(format!("{subject}: {what} {are} limited for a user or a database only"));
    }
    Ok(Line::Limit(subject, measure, limit))
}

/// Reads the key of a store: a subject and a resource, as they are written there. A client that gives no application_name has an empty one.
pub(crate) fn read_key(key: &str) -> Option<(Subject, Measure)> {
    let mut tokens = Tokens(key);
    let mut next = || tokens.next().ok().flatten();
    let (Token::Word(kind), name, Token::Word(measure), None) = (next()?, next()?, next()?, next()) else {
        return None;
    };
    let name = match name {
        Token::Word(name) if name != DEFAULT => name.to_owned(),
        Token::Quoted(name) => name,
        _ => return None,
    };
    Some((Subject::of_client(SubjectKind::of(kind)?, &name), Measure::read(measure).ok()?))
}

pub(crate) fn kind_of(word: &str) -> Result<SubjectKind, String> {
    SubjectKind::of(word).ok_or_else(|| {
        format!("unknown subject \"{word}\": is not one of user, group, database, application_name")
    })
}

pub(crate) fn subject(kind: SubjectKind, name: Option<Token<'_>>) -> Result<Subject, String> {
    match name {
        Some(Token::Word(DEFAULT)) => Ok(Subject::default_of(kind)),
        Some(token) => Ok(Subject::named(kind, &token.name()?)),
        None => Err(format!("{}: a name is expected", kind.word())),
    }
}

/// `= role`, `= role NAME` or `= role NAME in ENTRY`, else a list of users.
fn members(group: &str, tokens: &mut Tokens<'_>) -> Result<Members, String> {
    let mut ahead = Tokens(tokens.0);
    if ahead.next()? != Some(Token::Word(ROLE)) {
        return list(tokens).map(Members::List);
    }
    let mut question = RoleQuestion { role: group.into(), entry: None };
    let next = match ahead.next()? {
        Some(Token::Comma) => return list(tokens).map(Members::List), // A user of this name, and others.
        Some(Token::Word(IN)) => Some(Token::Word(IN)),
        Some(token) => {
            question.role = token.name()?.into();
            ahead.next()?
        }
        None => None,
    };
    match next {
        None => return Ok(Members::Role(question)),
        Some(Token::Word(IN)) => {}
        Some(other) => return Err(unexpected(&other)),
    }
    let Some(entry) = ahead.next()? else { return Err("in: a database is expected".to_owned()) };
    question.entry = Some(entry.name()?.into());
    match ahead.next()? {
        None => Ok(Members::Role(question)),
        Some(other) => Err(unexpected(&other)),
    }
}

fn list(tokens: &mut Tokens<'_>) -> Result<Vec<Box<str>>, String> {
    let (mut members, mut known): (Vec<Box<str>>, BTreeSet<Box<str>>) = Default::default();
    loop {
        let Some(token) = tokens.next()? else { return Err("a member is expected".to_owned()) };
        let member = token.name()?.into_boxed_str();
        if !known.insert(member.clone()) {
            return Err(format!("member \"{member}\" appears twice"));
        }
        members.push(member);
        match tokens.next()? {
            None => return Ok(members),
            Some(Token::Comma) => {}
            Some(other) => return Err(unexpected(&other)),
        }
    }
}

/// `soft=N`, `hard=N` and `grace=T`, each once at most, in any order, one of the first two at least.
fn limits(tokens: &mut Tokens<'_>, measure: Measure) -> Result<Limit, String> {
    let (mut soft, mut hard, mut grace, mut allow) = (None, None, None, None);
    while let Some(token) = tokens.next()? {
        let Token::Word(key) = token else { return Err(unexpected(&token)) };
        if tokens.next()? != Some(Token::Equals) {
            return Err(format!("{key}: = and a figure are expected"));
        }
        let Some(Token::Word(value)) = tokens.next()? else {
            return Err(format!("{key}: a figure is expected"));
        };
        let (place, read) = match key {
            "soft" => (&mut soft, limit::figure(value, measure.resource())),
            "hard" => (&mut hard, limit::figure(value, measure.resource())),
            "grace" => (&mut grace, limit::grace_time(value)),
            "allow" => (&mut allow, allowed(value, measure)),
            _ => return Err(format!("unknown limit \"{key}\": is not one of soft, hard, grace, allow")),
        };
        if place.replace(read.map_err(|why| format!("{key}: {why}"))?).is_some() {
            return Err(format!("{key} appears twice"));
        }
    }
    if soft.is_none() && hard.is_none() {
        return Err("a limit is expected: soft=N or hard=N (0 is none)".to_owned());
    }
    let (soft, hard) = (soft.unwrap_or(0), hard.unwrap_or(0));
    let allows_delete = allow == Some(1);
    Limit { soft, hard, grace_s: grace.unwrap_or(DEFAULT_GRACE_S), allows_delete }.validate()
}

/// What is allowed above a limit of storage: 1 for `delete`.
fn allowed(value: &str, measure: Measure) -> Result<u64, String> {
    match value {
        _ if measure.resource() != Resource::Storage => Err("is for storage only".to_owned()),
        "none" => Ok(0),
        "delete" => Ok(1),
        other => Err(format!("\"{other}\" is not one of none, delete")),
    }
}

fn unexpected(token: &Token<'_>) -> String {
    match token {
        Token::Word(word) => format!("unexpected \"{word}\""),
        Token::Quoted(name) => format!("unexpected {}", quoted(name)),
        Token::Equals => "unexpected =".to_owned(),
        Token::Comma => "unexpected ,".to_owned(),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    Word(&'a str),
    Quoted(String),
    Equals,
    Comma,
}

impl Token<'_> {
    fn name(self) -> Result<String, String> {
        let name = match self {
            Token::Word(word) => word.to_owned(),
            Token::Quoted(name) => name,
            other => return Err(format!("a name is expected: {}", unexpected(&other))),
        };
        if name.is_empty() {
            return Err("a name is empty".to_owned());
        }
        if name.len() > LONGEST_NAME {
            return Err(format!("a name is longer than {LONGEST_NAME} bytes"));
        }
        if name.chars().any(char::is_control) {
            return Err("a name has control characters".to_owned());
        }
        Ok(name)
    }
}

/// The rest of a line.
pub(crate) struct Tokens<'a>(pub(crate) &'a str);

impl<'a> Tokens<'a> {
    /// The next token; None at the end and before a comment.
    pub(crate) fn next(&mut self) -> Result<Option<Token<'a>>, String> {
        self.0 = self.0.trim_start();
        let Some(first) = self.0.chars().next() else { return Ok(None) };
        Ok(Some(match first {
            '#' => return Ok(None),
            '=' => self.sign(Token::Equals),
            ',' => self.sign(Token::Comma),
            '"' => Token::Quoted(self.quoted()?),
            _ => {
                let is_end = |sign: char| sign.is_whitespace() || "=,\"#".contains(sign);
                let (word, rest) = self.0.split_at(self.0.find(is_end).unwrap_or(self.0.len()));
                self.0 = rest;
                Token::Word(word)
            }
        }))
    }

    fn sign(&mut self, token: Token<'a>) -> Token<'a> {
        self.0 = &self.0[1..];
        token
    }

    fn quoted(&mut self) -> Result<String, String> {
        let (mut name, mut rest) = (String::new(), &self.0[1..]);
        loop {
            let end = rest.find('"').ok_or("a quote is not closed")?;
            name.push_str(&rest[..end]);
            rest = &rest[end + 1..];
            match rest.strip_prefix('"') {
                Some(more) => {
                    name.push('"');
                    rest = more;
                }
                None => {
                    self.0 = rest;
                    return Ok(name);
                }
            }
        }
    }
}
