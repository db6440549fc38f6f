//! The faults of a directory's options, and the words for them. Never decides what is one.

use std::fmt;

/// Why a text means nothing; the words are PostgreSQL's and PgBouncer's where they have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// What begins at this byte, counted from 1, is not `name=value`. It is not shown: it may be half a password.
    Syntax(usize),
    /// No such option.
    Unknown(String),
    /// Not a port.
    Port(String),
    /// Neither ldap nor ldaps.
    Scheme(String),
    /// Not an LDAP URL: itself, and why.
    Url(String, &'static str),
    /// A URL of another scheme.
    UrlScheme(String),
    /// Options of a search together with those of a plain bind.
    Mixed,
    /// Neither those of a search nor those of a plain bind.
    NoWay,
    /// An attribute and a filter.
    TwoFilters,
    /// Nowhere to go, and no domain to find servers by.
    NoServer,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Syntax(at) => write!(out, "expected name=value at byte {at} of the LDAP options"),
            Fault::Unknown(name) => write!(out, "invalid LDAP key parameter: \"{name}\""),
            Fault::Port(text) => write!(out, "invalid LDAP port number: \"{text}\""),
            Fault::Scheme(text) => write!(out, "invalid ldapscheme value: \"{text}\""),
            Fault::Url(text, why) => write!(out, "could not parse LDAP URL \"{text}\": {why}"),
            Fault::UrlScheme(scheme) => write!(out, "unsupported LDAP URL scheme: {scheme}"),
            Fault::Mixed => out.write_str(
                "cannot use ldapbasedn, ldapbinddn, ldapbindpasswd, ldapsearchattribute, ldapsearchfilter, or \
                 ldapurl together with ldapprefix",
            ),
            Fault::NoWay => out.write_str(
                "authentication method \"ldap\" requires argument \"ldapbasedn\", \"ldapprefix\", or \
                 \"ldapsuffix\" to be set",
            ),
            Fault::TwoFilters => out.write_str("cannot use ldapsearchattribute together with ldapsearchfilter"),
            Fault::NoServer => out.write_str("LDAP server not specified, and no ldapbasedn"),
        }
    }
}

impl std::error::Error for Fault {}
