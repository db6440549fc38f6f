//! The file `auth_hba_file`: PostgreSQL's `pg_hba.conf` as PgBouncer reads it, with `samehost` and `samenet` besides.
//! Owns the lines and which of them count: a bad one is told and skipped, as PgBouncer does.
//! Never decides about a login: `auth` matches.

mod address;
mod names;
pub(crate) mod token;

pub use address::{Addresses, Network};
pub use names::Names;

use crate::finding::{Finding, Origin};
use crate::ident::{IdentMap, IdentMaps};
use crate::ldap;
use crate::raw_config::{Files, reason};
use names::{Column, Reader};
use std::fmt;
use std::sync::Arc;
use token::{Token, Tokens};

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
    /// Over what the connection comes.
    pub transport: Transport,
    /// Where it comes from; no matter for unix sockets.
    pub addresses: Addresses,
    /// Which databases.
    pub databases: Names,
    /// Which users.
    pub users: Names,
    /// How the client proves itself.
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
    /// Nobody passes.
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
    Ldap(ldap::Rule),
}

/// Why a line holds no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    NotText,
    Type,
    NoName,
    Unsupported(String),
    NamesFile(String, String),
    NoAddress,
    Address(String),
    Prefix,
    NoMask,
    Mask(String),
    Method(String),
    NoMap(String),
    MapFormat(String),
    Parameters,
}

/// PgBouncer's words where it has some.
impl fmt::Display for Broken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::NotText => out.write_str("not UTF-8 text"),
            Broken::Type => out.write_str("unknown type"),
            Broken::NoName => out.write_str("expected a name"),
            Broken::Unsupported(word) => write!(out, "{word} is not supported without auth_user"),
            Broken::NamesFile(path, why) => write!(out, "could not read names from \"{path}\": {why}"),
            Broken::NoAddress => out.write_str("did not find address"),
            Broken::Address(text) => write!(out, "failed to parse address - {text}"),
            Broken::Prefix => out.write_str("invalid mask"),
            Broken::NoMask => out.write_str("did not find mask"),
            Broken::Mask(text) => write!(out, "failed to parse mask: {text}"),
            Broken::Method(text) => write!(out, "unsupported method: buf={text}"),
            Broken::NoMap(name) => write!(out, "Ident map {name} is not found in ident config file"),
            Broken::MapFormat(text) => {
                write!(out, "Ident map {text} is malformed. It is not in map=value format.")
            }
            Broken::Parameters => out.write_str("unsupported parameters"),
        }
    }
}

impl Hba {
    /// Reads the file at `path`. One that cannot be read has no rules, so that nobody is let in by rules that are
    /// not there any more. `asks`: a server can be asked whose member a user is.
    pub fn read(files: &dyn Files, path: &str, maps: &IdentMaps, asks: bool) -> (Self, Vec<Finding>) {
        let file: Arc<str> = path.into();
        match files.read(path) {
            Ok(bytes) => Self::parse(files, &file, &bytes, maps, asks),
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
        asks: bool,
    ) -> (Self, Vec<Finding>) {
        let mut reading = Reading { names: Reader::new(files, asks), file, maps, findings: Vec::new() };
        let mut rules = Vec::new();
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
            match reading.line(number, line) {
                Ok(rule) => rules.extend(rule),
                Err(broken) => reading.tell(
                    number,
                    format!("hba line {number}: {broken}; could not parse hba config line {number}"),
                ),
            }
        }
        (Self { rules }, reading.findings)
    }
}

/// A file being read.
struct Reading<'a> {
    names: Reader<'a>,
    file: &'a Arc<str>,
    maps: &'a IdentMaps,
    findings: Vec<Finding>,
}

impl Reading<'_> {
    fn tell(&mut self, line: u32, message: String) {
        self.findings.push(Finding::warning(&Origin { file: self.file.clone(), line }, message));
    }

    /// The rule of a line; None for a blank one.
    fn line(&mut self, number: u32, line: &[u8]) -> Result<Option<Rule>, Broken> {
        let text = std::str::from_utf8(line).ok().filter(|text| !text.contains('\0'));
        let mut tokens = Tokens::new(text.ok_or(Broken::NotText)?);
        let transport = match tokens.take() {
            None => return Ok(None),
            Some(Token::Word("local")) => Transport::Local,
            Some(Token::Word("host")) => Transport::Host,
            Some(Token::Word("hostssl")) => Transport::HostSsl,
            Some(Token::Word("hostnossl")) => Transport::HostNoSsl,
            Some(_) => return Err(Broken::Type),
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
                // As in PgBouncer the rule stands, and lets nobody in.
                if let Err(fault) = rule.options() {
                    self.tell(number, format!("hba line {number}: {fault}"));
                }
                None
            }
            _ => self.map(&mut tokens)?,
        };
        if tokens.current().is_some() {
            return Err(Broken::Parameters);
        }
        Ok(Some(Rule { line: number, transport, addresses, databases, users, method, map }))
    }

    fn addresses(&mut self, number: u32, tokens: &mut Tokens<'_>) -> Result<Addresses, Broken> {
        let Some(Token::Word(text)) = tokens.take() else { return Err(Broken::NoAddress) };
        match text {
            "all" => return Ok(Addresses::All),
            "samehost" => {
                let own = self.names.files.networks().into_iter();
                return Ok(Addresses::Networks(own.map(|network| Network::host(network.address)).collect()));
            }
            "samenet" => return Ok(Addresses::Networks(self.names.files.networks())),
            _ => {}
        }
        let network = Network::parse(text, || match tokens.take() {
            Some(Token::Word(mask)) => Some(mask),
            _ => None,
        })?;
        if !network.is_clean() {
            let file = self.file;
            self.tell(number, format!("address does not match mask in {file} line #{number}: {network}"));
            // PgBouncer's rule matches nobody then.
            return Ok(Addresses::Networks(Vec::new()));
        }
        Ok(Addresses::Networks(vec![network]))
    }

    /// `map=name`, where the name may be quoted.
    fn map(&self, tokens: &mut Tokens<'_>) -> Result<Option<Arc<IdentMap>>, Broken> {
        let written = match tokens.take() {
            None => return Ok(None),
            Some(Token::Word(word)) => word.to_owned(),
            Some(Token::Quoted(text)) => text,
            Some(Token::Comma | Token::Broken) => return Err(Broken::Parameters),
        };
        let name = match written.strip_prefix("map=") {
            None => return Err(Broken::MapFormat(written)),
            Some("") => tokens.take_name().unwrap_or_default(),
            Some(name) => name.to_owned(),
        };
        self.maps.get(&name).cloned().map(Some).ok_or(Broken::NoMap(name))
    }
}

fn method(tokens: &mut Tokens<'_>) -> Result<RuleMethod, Broken> {
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
            return Ok(RuleMethod::Ldap(ldap::Rule::read(&options)));
        }
        Some(Token::Word(word)) => return Err(Broken::Method((*word).to_owned())),
        Some(Token::Quoted(text)) => return Err(Broken::Method(text.clone())),
        Some(Token::Comma | Token::Broken) | None => return Err(Broken::Method(String::new())),
    };
    tokens.take();
    Ok(method)
}

#[cfg(test)]
mod tests;
