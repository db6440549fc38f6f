//! A store in etcd, as a URL: `etcd://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]…]/PREFIX`.
//!
//! Owns the spelling. Whether TLS is used is not the URL's to say: it is where there is a CA file (`fleet_tls_ca_file`).

use std::fmt;

use crate::percent::percent_decode;
use crate::store_endpoint::{EndpointError, StoreEndpoint};

/// etcd's port for clients.
const DEFAULT_PORT: u16 = 2379;

const SCHEME: &str = "etcd://";

/// Where the store is, and as whom it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdUrl {
    /// At least one: members of one etcd cluster, in the order in which they are tried.
    pub endpoints: Vec<StoreEndpoint>,
    /// All keys of the fleet begin with it and a `/`. It begins with `/` and does not end with one.
    pub prefix: String,
    /// None where etcd has no users, or knows them by their client certificates.
    pub user: Option<EtcdUser>,
}

/// A user of etcd's.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdUser {
    /// Not empty.
    pub name: String,
    /// May be empty.
    pub password: String,
}

/// What is wrong with a URL: the setting's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdUrlError {
    /// It does not begin with `etcd://`.
    Scheme,
    /// It begins with `etcds://` or `https://`.
    TlsScheme,
    /// There is no host, or an empty one in the list.
    NoHost,
    /// A host or a port that is none.
    Endpoint(EndpointError),
    /// A password without a user.
    NoUser,
    /// No prefix.
    NoPrefix,
    /// A prefix with an empty part or a control character.
    Prefix(String),
    /// A `?` or `#`.
    Query,
    /// A `%` without two hexadecimal digits behind it, or bytes that are not UTF-8.
    Escape(String),
}

impl EtcdUrl {
    /// Reads the setting.
    ///
    /// # Errors
    /// [`EtcdUrlError`], with the part that is wrong, never the password.
    pub fn parse(text: &str) -> Result<EtcdUrl, EtcdUrlError> {
        let rest = text.strip_prefix(SCHEME).ok_or(match text.split_once("://") {
            Some(("etcds" | "https", _)) => EtcdUrlError::TlsScheme,
            _ => EtcdUrlError::Scheme,
        })?;
        if rest.contains(['?', '#']) {
            return Err(EtcdUrlError::Query);
        }
        let (authority, path) = rest.split_once('/').ok_or(EtcdUrlError::NoPrefix)?;
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(parse_user(user)?), hosts),
            None => (None, authority),
        };
        let endpoints = hosts.split(',').map(endpoint).collect::<Result<_, _>>()?;
        Ok(EtcdUrl { endpoints, prefix: parse_prefix(path)?, user })
    }
}

fn endpoint(text: &str) -> Result<StoreEndpoint, EtcdUrlError> {
    StoreEndpoint::parse(text, DEFAULT_PORT).map_err(|why| match why {
        EndpointError::NoHost => EtcdUrlError::NoHost,
        why => EtcdUrlError::Endpoint(why),
    })
}

fn parse_user(text: &str) -> Result<EtcdUser, EtcdUrlError> {
    let (name, password) = text.split_once(':').unwrap_or((text, ""));
    if name.is_empty() {
        return Err(EtcdUrlError::NoUser);
    }
    let password = percent_decode(password).ok_or_else(|| EtcdUrlError::Escape("the password".to_owned()))?;
    Ok(EtcdUser {
        name: percent_decode(name).ok_or_else(|| EtcdUrlError::Escape(name.to_owned()))?,
        password,
    })
}

/// `/a/b` of `a/b` or `a/b/`.
fn parse_prefix(path: &str) -> Result<String, EtcdUrlError> {
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() {
        return Err(EtcdUrlError::NoPrefix);
    }
    let prefix = percent_decode(path).ok_or_else(|| EtcdUrlError::Escape(path.to_owned()))?;
    if prefix.split('/').any(str::is_empty) || prefix.contains(char::is_control) {
        return Err(EtcdUrlError::Prefix(path.to_owned()));
    }
    Ok(format!("/{prefix}"))
}

/// Without the password.
impl fmt::Display for EtcdUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(SCHEME)?;
        if let Some(user) = &self.user {
            write!(out, "{}@", user.name)?;
        }
        for (place, endpoint) in self.endpoints.iter().enumerate() {
            write!(out, "{}{endpoint}", if place == 0 { "" } else { "," })?;
        }
        out.write_str(&self.prefix)
    }
}

impl fmt::Debug for EtcdUser {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "EtcdUser({:?})", self.name)
    }
}

impl fmt::Display for EtcdUrlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EtcdUrlError::Scheme => out.write_str("it does not begin with etcd:// or kubernetes"),
            EtcdUrlError::TlsScheme => {
                out.write_str("it does not begin with etcd://; TLS is used where fleet_tls_ca_file is set")
            }
            EtcdUrlError::NoHost => {
                out.write_str("a host is missing: etcd://HOST[:PORT][,HOST[:PORT]…]/PREFIX")
            }
            EtcdUrlError::Endpoint(why) => why.fmt(out),
            EtcdUrlError::NoUser => out.write_str("there is a password, but no user"),
            EtcdUrlError::NoPrefix => out.write_str("the prefix of the keys is missing: etcd://HOST/PREFIX"),
            EtcdUrlError::Prefix(prefix) => {
                write!(
                    out,
                    "the prefix \"{}\" has an empty part or a control character",
                    prefix.escape_debug()
                )
            }
            EtcdUrlError::Query => out.write_str("? and # have no meaning; in names they are %3F and %23"),
            EtcdUrlError::Escape(part) => write!(out, "{part} is not percent-encoded UTF-8; % itself is %25"),
        }
    }
}

impl std::error::Error for EtcdUrlError {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn endpoints(url: &str) -> Vec<String> {
        EtcdUrl::parse(url).unwrap().endpoints.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_url_has_endpoints_a_prefix_and_perhaps_a_user() {
        let url = EtcdUrl::parse(
            "etcd://weir:p%40s%2Fs:%25@a.example:2380,10.0.0.1,[2001:db8::1]:7,[::1]/weir/main%20one/",
        );
        let url = url.unwrap();
        let user = url.user.unwrap();
        assert_eq!((&*user.name, &*user.password, &*url.prefix), ("weir", "p@s/s:%", "/weir/main one"));
        let shown: Vec<_> = url.endpoints.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["a.example:2380", "10.0.0.1:2379", "[2001:db8::1]:7", "[::1]:2379"]);
        assert_eq!(endpoints("etcd://h/p"), ["h:2379"]);
        assert_eq!(EtcdUrl::parse("etcd://h/p").unwrap().user, None);
        let only_name = EtcdUrl::parse("etcd://weir@h/p").unwrap().user.unwrap();
        assert_eq!((&*only_name.name, &*only_name.password), ("weir", ""));
    }

    #[test]
    fn an_at_sign_in_a_password_need_not_be_escaped() {
        assert_eq!(EtcdUrl::parse("etcd://weir:a@b@h/p").unwrap().user.unwrap().password, "a@b");
    }

    #[test]
    fn each_error_names_what_is_wrong() {
        for (url, why) in [
            ("", "does not begin with etcd://"),
            ("http://h/p", "does not begin with etcd://"),
            ("etcds://h/p", "fleet_tls_ca_file"),
            ("https://h/p", "fleet_tls_ca_file"),
            ("etcd://h", "prefix of the keys is missing"),
            ("etcd://h/", "prefix of the keys is missing"),
            ("etcd://h//p", "an empty part"),
            ("etcd://h/p%00", "control character"),
            ("etcd:///p", "a host is missing"),
            ("etcd://h,/p", "a host is missing"),
            ("etcd://:1/p", "a host is missing"),
            ("etcd://h:/p", "\"h:\" has a port"),
            ("etcd://h:0/p", "has a port"),
            ("etcd://h:+1/p", "has a port"),
            ("etcd://h:65536/p", "has a port"),
            ("etcd://::1/p", "a host is missing"),
            ("etcd://a::1/p", "has a port"),
            ("etcd://[::1/p", "\"[::1\" is no host"),
            ("etcd://[::1]1/p", "is no host"),
            ("etcd://[h]/p", "is no host"),
            ("etcd://h h/p", "is no host"),
            ("etcd://:pw@h/p", "no user"),
            ("etcd://u:%zz@h/p", "the password is not percent-encoded"),
            ("etcd://u%ff:secret@h/p", "u%ff is not percent-encoded"),
            ("etcd://h/p%4", "p%4 is not percent-encoded"),
            ("etcd://h/p?tls=1", "? and #"),
        ] {
            let text = EtcdUrl::parse(url).unwrap_err().to_string();
            assert!(text.contains(why) && !text.contains("secret"), "{url}: {text}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let shown = format!("{:?}", EtcdUrl::parse("etcd://u:secret@h/p"));
        assert!(shown.contains("EtcdUser(\"u\")") && !shown.contains("secret"), "{shown}");
    }
}
