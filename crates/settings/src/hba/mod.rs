//! The file `auth_hba_file`: PostgreSQL's `pg_hba.conf` as PgBouncer reads it, with `samehost` and `samenet` besides.
//! Owns the lines and which are valid: a bad one is reported and skipped, as in PgBouncer. `auth` matches logins.

mod address;
mod names;

pub use crate::network::Network;
pub use address::Addresses;
pub use names::Names;

use crate::files::{Files, reason};
use crate::finding::{Finding, Origin};
use crate::ident::{IdentMap, IdentMaps};
use crate::ldap;
use crate::tokens::{Token, Tokens};
use names::{Column, NamesReader};
use std::fmt;
use std::sync::Arc;

/// The rules of a file, first match first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hba {
    /// In the order of the file.
    pub rules: Vec<Rule>,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its line in the file, from 1 on.
    pub line: u32,
    /// The transport.
    pub transport: Transport,
    /// The client's address; not used for unix sockets.
    pub addresses: Addresses,
    /// Which databases.
    pub databases: Names,
    /// Which users.
    pub users: Names,
    /// How the client authenticates.
    pub method: RuleMethod,
    /// The map from system names to users (`map=`), for peer and cert.
    pub map: Option<Arc<IdentMap>>,
}

/// The first word of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// `local`: a unix socket.
    Local,
    /// `host`: TCP.
    Host,
    /// `hostssl`: TCP with TLS.
    HostSsl,
    /// `hostnossl`: TCP without.
    HostNoSsl,
}

/// The method of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleMethod {
    /// Known users pass.
    Trust,
    /// Every login is rejected.
    Reject,
    /// `password`: the password in clear.
    Plain,
    /// MD5, or SCRAM where the secret is a SCRAM one.
    Md5,
    /// SCRAM-SHA-256.
    Scram,
    /// The name in the client's certificate.
    Cert,
    /// The system user at the other end of the unix socket.
    Peer,
    /// An LDAP server decides.
    Ldap(ldap::LdapRule),
}

/// An error in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RuleError {
    NotText,
    Type,
    NoName,
    Unsupported(String),
    NamesFile(String, String),
    NoAddress,
    NoOwnAddress,
    Address(String),
    Prefix,
    NoMask,
    Mask(String),
    Method(String),
    NoMap(String),
    MapFormat(String),
    Parameters,
}

/// PgBouncer's texts where it has one.
impl fmt::Display for RuleError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleError::NotText => out.write_str("not UTF-8 text"),
            RuleError::Type => out.write_str("unknown type"),
            RuleError::NoName => out.write_str("expected a name"),
            RuleError::Unsupported(word) => write!(out, "{word} is not supported without auth_user"),
            RuleError::NamesFile(path, why) => write!(out, "could not read names from \"{path}\": {why}"),
            RuleError::NoAddress => out.write_str("did not find address"),
            RuleError::NoOwnAddress => out.write_str("no address of this machine is known"),
            RuleError::Address(text) => write!(out, "failed to parse address - {text}"),
            RuleError::Prefix => out.write_str("invalid mask"),
            RuleError::NoMask => out.write_str("did not find mask"),
            RuleError::Mask(text) => write!(out, "failed to parse mask: {text}"),
            RuleError::Method(text) => write!(out, "unsupported method: buf={text}"),
            RuleError::NoMap(name) => write!(out, "Ident map {name} is not found in ident config file"),
            RuleError::MapFormat(text) => {
                write!(out, "Ident map {text} is malformed. It is not in map=value format.")
            }
            RuleError::Parameters => out.write_str("unsupported parameters"),
        }
    }
}

impl Hba {
    /// Reads the file at `path`. An unreadable file has no rules, so every login is rejected. `can_query_roles`: servers
    /// can be queried for role membership.
    pub fn read(
        files: &dyn Files,
        path: &str,
        maps: &IdentMaps,
        can_query_roles: bool,
    ) -> (Self, Vec<Finding>) {
        let file: Arc<str> = path.into();
        match files.read(path) {
            Ok(bytes) => Self::parse(files, &file, &bytes, maps, can_query_roles),
            Err(error) => {
                let message = format!("could not open hba config file {path}: {}", reason(&error));
                (Self::default(), vec![Finding::warning(&Origin { file, line: 0 }, message)])
            }
        }
    }

    /// Reads the bytes of a file; `file` is its path, beside which files of names are looked for.
    pub fn parse(
        files: &dyn Files,
        file: &Arc<str>,
        bytes: &[u8],
        maps: &IdentMaps,
        can_query_roles: bool,
    ) -> (Self, Vec<Finding>) {
        let mut parser =
            Parser { names: NamesReader::new(files, can_query_roles), file, maps, findings: Vec::new() };
        let mut rules = Vec::new();
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
            match parser.line(number, line) {
                Ok(rule) => rules.extend(rule),
                Err(broken) => parser.warn(
                    number,
                    format!("hba line {number}: {broken}; could not parse hba config line {number}"),
                ),
            }
        }
        (Self { rules }, parser.findings)
    }
}

/// A file being read.
struct Parser<'a> {
    names: NamesReader<'a>,
    file: &'a Arc<str>,
    maps: &'a IdentMaps,
    findings: Vec<Finding>,
}

impl Parser<'_> {
    fn warn(&mut self, line: u32, message: String) {
        self.findings.push(Finding::warning(&Origin { file: self.file.clone(), line }, message));
    }

    /// The rule of a line; None for a blank one.
    fn line(&mut self, number: u32, line: &[u8]) -> Result<Option<Rule>, RuleError> {
        let text = std::str::from_utf8(line).ok().filter(|text| !text.contains('\0'));
        let mut tokens = Tokens::new(text.ok_or(RuleError::NotText)?);
        let transport = match tokens.take() {
            None => return Ok(None),
            Some(Token::Word("local")) => Transport::Local,
            Some(Token::Word("host")) => Transport::Host,
            Some(Token::Word("hostssl")) => Transport::HostSsl,
            Some(Token::Word("hostnossl")) => Transport::HostNoSsl,
            Some(_) => return Err(RuleError::Type),
        };
        let databases = self.names.column(&mut tokens, Column::Database, self.file)?;
        let users = self.names.column(&mut tokens, Column::User, self.file)?;
        let addresses = match transport {
            Transport::Local => Addresses::All,
            _ => self.addresses(number, &mut tokens)?,
        };
        let method = method(&mut tokens)?;
        let map = match &method {
            RuleMethod::Ldap(rule) => {
                // As in PgBouncer the rule is kept, and rejects every login it matches.
                if let Err(fault) = rule.options() {
                    self.warn(number, format!("hba line {number}: {fault}"));
                }
                None
            }
            _ => self.map(&mut tokens)?,
        };
        if tokens.current().is_some() {
            return Err(RuleError::Parameters);
        }
        Ok(Some(Rule { line: number, transport, addresses, databases, users, method, map }))
    }

    fn addresses(&mut self, number: u32, tokens: &mut Tokens<'_>) -> Result<Addresses, RuleError> {
        let Some(Token::Word(text)) = tokens.take() else { return Err(RuleError::NoAddress) };
        match text {
            "all" => return Ok(Addresses::All),
            "samehost" => {
                let own = self.own_networks()?.into_iter();
                return Ok(Addresses::Networks(own.map(|network| Network::host(network.address)).collect()));
            }
            "samenet" => return Ok(Addresses::Networks(self.own_networks()?)),
            _ => {}
        }
        let network = Network::parse(text, || match tokens.take() {
            Some(Token::Word(mask)) => Some(mask),
            _ => None,
        })?;
        if !network.is_canonical() {
            let file = self.file;
            self.warn(number, format!("address does not match mask in {file} line #{number}: {network}"));
            // As in PgBouncer the rule then matches no client.
            return Ok(Addresses::Networks(Vec::new()));
        }
        Ok(Addresses::Networks(vec![network]))
    }

    /// The networks of this machine. Without any, the rule would match no client, without a sign of it.
    fn own_networks(&self) -> Result<Vec<Network>, RuleError> {
        Some(self.names.files.networks()).filter(|own| !own.is_empty()).ok_or(RuleError::NoOwnAddress)
    }

    /// `map=name`, where the name may be quoted.
    fn map(&self, tokens: &mut Tokens<'_>) -> Result<Option<Arc<IdentMap>>, RuleError> {
        let written = match tokens.take() {
            None => return Ok(None),
            Some(Token::Word(word)) => word.to_owned(),
            Some(Token::Quoted(text)) => text,
            Some(Token::Comma | Token::Unterminated) => return Err(RuleError::Parameters),
        };
        let name = match written.strip_prefix("map=") {
            None => return Err(RuleError::MapFormat(written)),
            Some("") => tokens.take_name().unwrap_or_default(),
            Some(name) => name.to_owned(),
        };
        self.maps.get(&name).cloned().map(Some).ok_or(RuleError::NoMap(name))
    }
}

fn method(tokens: &mut Tokens<'_>) -> Result<RuleMethod, RuleError> {
    let method = match tokens.current() {
        Some(Token::Word("trust")) => RuleMethod::Trust,
        Some(Token::Word("reject")) => RuleMethod::Reject,
        Some(Token::Word("password")) => RuleMethod::Plain,
        Some(Token::Word("md5")) => RuleMethod::Md5,
        Some(Token::Word("scram-sha-256")) => RuleMethod::Scram,
        Some(Token::Word("cert")) => RuleMethod::Cert,
        Some(Token::Word("peer")) => RuleMethod::Peer,
        Some(Token::Word("ldap")) => {
            let options = tokens.rest().trim().to_owned();
            while tokens.take().is_some() {}
            return Ok(RuleMethod::Ldap(ldap::LdapRule::read(&options)));
        }
        Some(Token::Word(word)) => return Err(RuleError::Method((*word).to_owned())),
        Some(Token::Quoted(text)) => return Err(RuleError::Method(text.clone())),
        Some(Token::Comma | Token::Unterminated) | None => return Err(RuleError::Method(String::new())),
    };
    tokens.take();
    Ok(method)
}

#[cfg(test)]
mod tests;
