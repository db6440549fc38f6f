//! libpq's connection URIs, `postgresql://user:password@host:port/database?parameter=value` (PostgreSQL's manual,
//! 34.1.1.2). Pure text: the caller reads the environment and files.

use std::collections::BTreeMap;

/// Of a host without one among others that have one.
const DEFAULT_PORT: &str = "5432";

/// The parts of a URI, as far as they were said. Percent-encoding is undone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// By libpq's names: `host`, `port`, `user`, `password`, `dbname`, `sslmode`, …
    pub(super) parameters: BTreeMap<String, String>,
}

/// Reads a URI. The error says what is wrong and never repeats the URI, in which a password may stand.
pub(super) fn parse(uri: &str) -> Result<Parts, String> {
    let rest = ["postgresql://", "postgres://"].iter().find_map(|scheme| uri.strip_prefix(scheme));
    let rest = rest.ok_or("it does not begin with postgresql:// or postgres://")?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    let mut parts = Parts::default();
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    parts.say("user", user)?;
    parts.say("password", password)?;
    parts.say("dbname", database)?;
    parts.place(place)?;
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').ok_or("a parameter behind the ? has no value")?;
        let name = decoded(name)?;
        // As libpq: JDBC's word for sslmode=require.
        let (name, value) =
            if name == "ssl" && value == "true" { ("sslmode".into(), "require") } else { (name, value) };
        parts.say(&name, value)?;
    }
    Ok(parts)
}

impl Parts {
    fn say(&mut self, name: &str, value: &str) -> Result<(), String> {
        let value = decoded(value)?;
        if !value.is_empty() {
            self.parameters.insert(name.to_owned(), value);
        }
        Ok(())
    }

    fn place(&mut self, place: &str) -> Result<(), String> {
        let places: Vec<(&str, &str)> = place.split(',').map(host_and_port).collect::<Result<_, _>>()?;
        let hosts: Vec<&str> = places.iter().map(|(host, _)| *host).collect();
        if places.len() > 1 && hosts.contains(&"") {
            return Err("it names several hosts, and one of them has no name".to_owned());
        }
        self.say("host", &hosts.join(","))?;
        if places.iter().all(|(_, port)| port.is_empty()) {
            return Ok(());
        }
        let port =
            |(_, port): &(&'_ str, &'_ str)| if port.is_empty() { DEFAULT_PORT } else { *port }.to_owned();
        self.say("port", &places.iter().map(port).collect::<Vec<_>>().join(","))
    }
}

/// One host of a URI, and its port where there is one.
fn host_and_port(place: &str) -> Result<(&str, &str), String> {
    Ok(match place.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed.split_once(']').ok_or("a [ is not closed")?;
            (host, rest.strip_prefix(':').unwrap_or(""))
        }
        None => place.split_once(':').unwrap_or((place, "")),
    })
}

/// Undoes percent-encoding.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|byte| *byte != 0);
        bytes.push(byte.ok_or("a % is not followed by two hexadecimal digits")?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn said(uri: &str) -> Vec<(String, String)> {
        parse(uri).unwrap().parameters.into_iter().collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn all_parts_are_read() {
        assert_eq!(
            said(
                "postgresql://al%40ice:p%3A%2fw@db.example:5433/shop?sslmode=verify-full&sslrootcert=%2Fca.pem"
            ),
            pairs(&[
                ("dbname", "shop"),
                ("host", "db.example"),
                ("password", "p:/w"),
                ("port", "5433"),
                ("sslmode", "verify-full"),
                ("sslrootcert", "/ca.pem"),
                ("user", "al@ice"),
            ])
        );
    }

    #[test]
    fn every_part_may_be_absent() {
        assert_eq!(said("postgres://"), pairs(&[]));
        assert_eq!(
            said("postgres:///shop?host=/run/pg&port=6432"),
            pairs(&[("dbname", "shop"), ("host", "/run/pg"), ("port", "6432")])
        );
        assert_eq!(said("postgres://%2Frun%2Fpg/shop"), pairs(&[("dbname", "shop"), ("host", "/run/pg")]));
        assert_eq!(said("postgres://[::1]:7/a"), pairs(&[("dbname", "a"), ("host", "::1"), ("port", "7")]));
        assert_eq!(said("postgres://h?ssl=true"), pairs(&[("host", "h"), ("sslmode", "require")]));
    }

    #[test]
    fn hosts_may_be_several_with_a_port_each() {
        let places = |uri: &str| {
            let found = parse(uri).unwrap().parameters;
            (found["host"].clone(), found.get("port").cloned().unwrap_or_default())
        };
        assert_eq!(places("postgres://u@a,b/d"), ("a,b".to_owned(), String::new()));
        assert_eq!(places("postgres://u@a:1,b,[::1]:3/d"), ("a,b,::1".to_owned(), "1,5432,3".to_owned()));
        assert_eq!(places("postgres:///d?host=a,b&port=1,2"), ("a,b".to_owned(), "1,2".to_owned()));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (uri, words) in [
            ("mysql://u:secret@h/d", "does not begin"),
            ("host=h password=secret", "does not begin"),
            ("postgres://u:secret%zz@h/d", "hexadecimal"),
            ("postgres://u:secret%00@h/d", "hexadecimal"),
            ("postgres://u:secret@h,/d", "several hosts"),
            ("postgres://u:secret@[::1/d", "not closed"),
            ("postgres://u:secret@h/d?x", "no value"),
            ("postgres://u:secret@h/%ff", "UTF-8"),
            ("postgres://u:secret%€@h/d", "hexadecimal"),
        ] {
            let error = parse(uri).unwrap_err();
            assert!(error.contains(words) && !error.contains("secret"), "{uri}: {error}");
        }
    }
}
