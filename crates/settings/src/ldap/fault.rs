//! Errors in LDAP options.

use std::fmt;

/// An error in LDAP options; the texts are PostgreSQL's and PgBouncer's where they have one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionsError {
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
    NoBindMethod,
    /// An attribute and a filter.
    TwoFilters,
    /// No server, and no domain to find servers by.
    NoServer,
}

impl fmt::Display for OptionsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionsError::Syntax(at) => write!(out, "expected name=value at byte {at} of the LDAP options"),
            OptionsError::Unknown(name) => write!(out, "invalid LDAP key parameter: \"{name}\""),
            OptionsError::Port(text) => write!(out, "invalid LDAP port number: \"{text}\""),
            OptionsError::Scheme(text) => write!(out, "invalid ldapscheme value: \"{text}\""),
            OptionsError::Url(text, why) => write!(out, "could not parse LDAP URL \"{text}\": {why}"),
            OptionsError::UrlScheme(scheme) => write!(out, "unsupported LDAP URL scheme: {scheme}"),
            OptionsError::Mixed => out.write_str(
                "cannot use ldapbasedn, ldapbinddn, ldapbindpasswd, ldapsearchattribute, ldapsearchfilter, or \
                 ldapurl together with ldapprefix",
            ),
            OptionsError::NoBindMethod => out.write_str(
                "authentication method \"ldap\" requires argument \"ldapbasedn\", \"ldapprefix\", or \
                 \"ldapsuffix\" to be set",
            ),
            OptionsError::TwoFilters => out.write_str("cannot use ldapsearchattribute together with ldapsearchfilter"),
            OptionsError::NoServer => out.write_str("LDAP server not specified, and no ldapbasedn"),
        }
    }
}

impl std::error::Error for OptionsError {}
