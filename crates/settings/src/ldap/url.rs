//! LDAP URLs: `ldap://host:port/base?attribute?scope?filter` (RFC 4516).
//! Owns percent-decoding and which parts may be missing.

use super::{OptionsError, Scheme, SearchScope};

/// The parts of a URL that matter to a login.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) scheme: Scheme,
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) base: String,
    /// The first of its attributes.
    pub(super) attribute: Option<String>,
    pub(super) scope: SearchScope,
    pub(super) filter: Option<String>,
}

impl Url {
    /// Reads a URL; extensions behind the filter are ignored.
    ///
    /// # Errors
    /// [`OptionsError::Url`] and [`OptionsError::UrlScheme`].
    pub(super) fn parse(text: &str) -> Result<Url, OptionsError> {
        let bad = |why| OptionsError::Url(text.to_owned(), why);
        let (scheme, rest) = text.split_once("://").ok_or(bad("it does not begin with ldap://"))?;
        let scheme =
            Scheme::read(&scheme.to_ascii_lowercase()).ok_or(OptionsError::UrlScheme(scheme.to_owned()))?;
        let (place, what) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = host_and_port(place).ok_or(bad("its host or port is none"))?;
        let mut parts = what
            .split('?')
            .map(|part| decode(part).ok_or(bad("a percent sign is not followed by two hexadecimal digits")));
        let mut next = || parts.next().unwrap_or(Ok(String::new()));
        let (base, attributes, scope, filter) = (next()?, next()?, next()?, next()?);
        let attribute = attributes.split(',').next().unwrap_or_default().trim();
        Ok(Url {
            scheme,
            host,
            port,
            base,
            attribute: Some(attribute.to_owned()).filter(|name| !name.is_empty()),
            scope: scope_of(&scope).ok_or(bad("its scope is none of base, one and sub"))?,
            filter: Some(filter).filter(|filter| !filter.is_empty()),
        })
    }
}

/// `host`, `host:port`, `[v6]:port`, or nothing.
fn host_and_port(place: &str) -> Option<(Option<String>, Option<u16>)> {
    let end = place.rfind(']').map_or(0, |bracket| bracket + 1);
    let (host, port) = match place.get(end..)?.split_once(':') {
        Some((name, port)) => (&place[..end + name.len()], Some(port)),
        None => (place, None),
    };
    let port = match port {
        None | Some("") => None,
        Some(digits) => Some(digits.parse().ok().filter(|port| *port != 0)?),
    };
    let host = decode(host)?;
    if host.contains(|letter: char| letter.is_ascii_whitespace()) {
        return None;
    }
    Some((Some(host).filter(|host| !host.is_empty()), port))
}

fn scope_of(word: &str) -> Option<SearchScope> {
    Some(match word.to_ascii_lowercase().as_str() {
        "" | "base" => SearchScope::Base,
        "one" | "onelevel" => SearchScope::One,
        "sub" | "subtree" => SearchScope::Subtree,
        "children" | "subordinate" => SearchScope::Children,
        _ => return None,
    })
}

/// `%2c` is a comma; None for what is no byte, or for bytes that are no text.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(u8::try_from(digit()? * 16 + digit()?).ok().filter(|byte| *byte != 0)?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_part_may_be_missing() {
        let url = Url::parse("ldap://").unwrap();
        assert_eq!((url.host, url.port, &*url.base, url.scope), (None, None, "", SearchScope::Base));
        let url = Url::parse("LDAPS://h:7/dc=a%2Cdc=%c3%bc?cn,uid?SUB?(x=y)?!e=1").unwrap();
        let expected = Url {
            scheme: Scheme::Ldaps,
            host: Some("h".to_owned()),
            port: Some(7),
            base: "dc=a,dc=ü".to_owned(),
            attribute: Some("cn".to_owned()),
            scope: SearchScope::Subtree,
            filter: Some("(x=y)".to_owned()),
        };
        assert_eq!(url, expected);
    }

    #[test]
    fn addresses_of_the_sixth_version_stand_in_brackets() {
        let hosts = ["ldap://[::1]:7/", "ldap://[::1]/"].map(|text| Url::parse(text).unwrap());
        assert_eq!((hosts[0].host.as_deref(), hosts[0].port), (Some("[::1]"), Some(7)));
        assert_eq!((hosts[1].host.as_deref(), hosts[1].port), (Some("[::1]"), None));
    }

    #[test]
    fn what_is_no_url_is_reported() {
        for text in [
            "h",
            "ldap:/h",
            "ldap://h:x/",
            "ldap://h:0/",
            "ldap://h:65536/",
            "ldap://a b/",
            "ldap://h/%",
            "ldap://h/%4",
            "ldap://h/%xx",
            "ldap://h/%00",
            "ldap://h/%ff",
            "ldap://h/b??deep",
            "ldap://h/b%+1",
        ] {
            assert!(matches!(Url::parse(text), Err(OptionsError::Url(..))), "{text}");
        }
        assert_eq!(Url::parse("ldapi://%2frun"), Err(OptionsError::UrlScheme("ldapi".to_owned())));
    }
}
