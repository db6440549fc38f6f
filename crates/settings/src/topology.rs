//! Where the knowledge of an entry's servers comes from: from themselves, or from Patroni's REST API beside that.
//!
//! Owns the spelling of `topology`, and which members of Patroni's are the hosts of an entry that names none. Never sends anything.

use std::fmt;
use std::sync::Arc;

use crate::Endpoint;
use crate::percent::percent_decode;
use crate::value::{BadValue, Codec, ValueKind};

/// More members than this are taken for nonsense.
const MAX_MEMBERS: usize = 64;

/// The longest host name of a member, as the DNS has it.
const MAX_HOST_BYTES: usize = 253;

/// Where the knowledge of an entry's servers comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// What each server says of itself.
    #[default]
    Probe,
    /// Beside that, Patroni's REST API.
    Patroni(PatroniUrls),
}

/// The REST APIs of one cluster's Patronis, in the order in which they are asked.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PatroniUrls(Arc<[PatroniUrl]>);

/// One Patroni's REST API.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PatroniUrl {
    text: String,
    /// Host, port and the path in front of Patroni's own.
    pub endpoint: Endpoint,
    /// `user:password` for requests that change something.
    pub credentials: Option<String>,
}

impl PatroniUrls {
    /// The URLs.
    pub fn iter(&self) -> impl Iterator<Item = &PatroniUrl> {
        self.0.iter()
    }
}

impl PatroniUrl {
    fn parse(text: &str) -> Result<PatroniUrl, &'static str> {
        if text.contains(['?', '#']) {
            return Err("queries and fragments are not allowed in a URL");
        }
        let (scheme, rest) = text.split_once("://").ok_or("a URL does not begin with http:// or https://")?;
        let authority_end = rest.find('/').unwrap_or(rest.len());
        let (credentials, rest) = match rest[..authority_end].rsplit_once('@') {
            Some((user, _)) => (Some(user), &rest[user.len() + 1..]),
            None => (None, rest),
        };
        let credentials = credentials.map(|text| {
            let is_pair = text.split_once(':').is_some_and(|(user, _)| !user.is_empty());
            let decoded = percent_decode(text).filter(|text| !text.chars().any(char::is_control));
            decoded.filter(|_| is_pair).ok_or("what is in front of @ is not user:password, percent-encoded")
        });
        let mut endpoint = Endpoint::with_path(&format!("{scheme}://{rest}"))?;
        endpoint.path.truncate(endpoint.path.trim_end_matches('/').len());
        Ok(PatroniUrl { text: text.to_owned(), endpoint, credentials: credentials.transpose()? })
    }
}

/// Without the password.
impl fmt::Display for PatroniUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.endpoint.url().trim_end_matches('/'))
    }
}

impl fmt::Debug for PatroniUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl fmt::Display for PatroniUrls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, url) in self.0.iter().enumerate() {
            write!(out, "{}{url}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Debug for PatroniUrls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl fmt::Display for Topology {
    /// Without the passwords.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Topology::Probe => out.write_str("probe"),
            Topology::Patroni(urls) => write!(out, "patroni {urls}"),
        }
    }
}

impl Codec for Topology {
    type Value = Topology;
    const KIND: ValueKind = ValueKind::Topology;

    fn read(text: &str) -> Result<Topology, BadValue> {
        let (word, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        if word.eq_ignore_ascii_case("probe") && rest.trim().is_empty() {
            return Ok(Topology::Probe);
        }
        if !word.eq_ignore_ascii_case("patroni") {
            return Err(BadValue::NotATopology("it begins with neither word"));
        }
        let urls = rest.split(',').map(str::trim).map(PatroniUrl::parse);
        let urls: Vec<PatroniUrl> = urls.collect::<Result<_, _>>().map_err(BadValue::NotATopology)?;
        Ok(Topology::Patroni(PatroniUrls(urls.into())))
    }

    /// With the passwords: a file that has it reads it again.
    fn show(value: &Topology) -> Option<String> {
        Some(match value {
            Topology::Probe => "probe".to_owned(),
            Topology::Patroni(urls) => {
                let texts: Vec<&str> = urls.iter().map(|url| url.text.as_str()).collect();
                format!("patroni {}", texts.join(","))
            }
        })
    }
}

/// A member of a cluster as Patroni lists it, as far as an entry needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Patroni's name of it.
    pub name: String,
    /// Of its server.
    pub host: String,
    /// Of its server.
    pub port: u16,
    /// It accepts writes, or leads a standby cluster.
    pub leads: bool,
    /// Its server runs, or follows the leader's.
    pub runs: bool,
    /// It has no tag `noloadbalance`.
    pub takes_reads: bool,
}

impl Member {
    /// Host and port.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// The members of a cluster that are hosts of an entry, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members(Vec<Member>);

impl Members {
    /// What is known after Patroni has listed these. A member is a host from when its server runs until Patroni no longer lists it: a server
    /// that is restarted would otherwise change the list twice.
    ///
    /// # Errors
    /// No hosts of an entry can be made of it, and why; what was known before stays.
    pub fn listed(&self, listed: Vec<Member>) -> Result<Members, &'static str> {
        if listed.len() > MAX_MEMBERS {
            return Err("it lists more than 64 members");
        }
        if !listed.iter().all(|member| is_name(&member.name)) {
            return Err("it lists a member without a name, or whose name is none");
        }
        if !listed.iter().all(|member| is_host(&member.host) && member.port != 0) {
            return Err("it lists a member whose host is neither a name nor an address");
        }
        let known = |member: &Member| {
            self.0.iter().any(|old| old.name == member.name && old.label() == member.label())
        };
        let mut members: Vec<Member> =
            listed.into_iter().filter(|member| member.runs || known(member)).collect();
        members.sort_by(|one, other| one.name.cmp(&other.name));
        let mut seen: Vec<String> = Vec::new();
        members.retain(|member| {
            let is_new = !seen.contains(&member.label());
            seen.push(member.label());
            is_new
        });
        if members.is_empty() { Err("it lists no member that is running") } else { Ok(Members(members)) }
    }

    /// The members.
    pub fn iter(&self) -> impl Iterator<Item = &Member> + Clone {
        self.0.iter()
    }

    /// The one that leads.
    #[must_use]
    pub fn leader(&self) -> Option<&Member> {
        self.0.iter().find(|member| member.leads)
    }

    /// None was ever listed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Of a member, for log and messages.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_HOST_BYTES && !text.chars().any(char::is_control)
}

/// A name or an address: never a unix socket's directory, and nothing that changes what a list of hosts means.
fn is_host(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte);
    !text.is_empty() && text.len() <= MAX_HOST_BYTES && text.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn member(name: &str, port: u16) -> Member {
        let host = "10.0.0.1".to_owned();
        Member { name: name.to_owned(), host, port, leads: false, runs: true, takes_reads: true }
    }

    #[test]
    fn urls_are_taken_apart_and_never_show_their_password() {
        let text = "patroni http://h1:8008, https://me:p%40ss@h2/api/";
        let topology = Topology::read(text).unwrap();
        let Topology::Patroni(urls) = &topology else { panic!("{topology:?}") };
        let [one, other] = &*urls.0 else { panic!("{topology:?}") };
        assert_eq!((one.endpoint.host.as_str(), one.endpoint.port, &*one.endpoint.path), ("h1", 8008, ""));
        assert_eq!(
            (other.endpoint.port, &*other.endpoint.path, other.endpoint.is_https),
            (443, "/api", true)
        );
        assert_eq!((&one.credentials, other.credentials.as_deref()), (&None, Some("me:p@ss")));
        assert_eq!(format!("{topology:?}"), "Patroni(http://h1:8008,https://h2/api)");
        assert_eq!(Topology::read(&Topology::show(&topology).unwrap()), Ok(topology));
        assert_eq!(Topology::read("PROBE"), Ok(Topology::Probe));
    }

    #[test]
    fn what_is_no_topology_is_refused() {
        for text in [
            "",
            "patroni",
            "patroni ,",
            "patroni h1:8008",
            "patroni ftp://h1",
            "patroni http://h1:8008?x",
            "patroni http://me@h1",
            "patroni http://:p@h1",
            "patroni http://h1:0",
            "patroni http://h1 http://h2",
            "probe http://h1",
            "consul http://h1",
        ] {
            assert!(matches!(Topology::read(text), Err(BadValue::NotATopology(_))), "{text}");
        }
    }

    #[test]
    fn a_member_is_a_host_from_when_it_runs_until_it_is_gone() {
        let starting = Member { runs: false, ..member("c", 3) };
        let known =
            Members::default().listed(vec![member("b", 2), member("a", 1), starting.clone()]).unwrap();
        let names = |members: &Members| members.iter().map(|member| member.name.clone()).collect::<String>();
        assert_eq!(names(&known), "ab");
        let stopped = Member { runs: false, ..member("a", 1) };
        let known = known.listed(vec![stopped, member("b", 2), starting]).unwrap();
        assert_eq!(names(&known), "ab", "one that is restarted stays");
        assert_eq!(names(&known.listed(vec![member("b", 2)]).unwrap()), "b");
        assert_eq!(
            names(&known.listed(vec![member("b", 2), member("x", 2)]).unwrap()),
            "b",
            "one host is one"
        );
    }

    #[test]
    fn nonsense_is_no_list_of_hosts() {
        let at = |host: &str| vec![Member { host: host.to_owned(), ..member("a", 1) }];
        for host in ["", "/tmp", "@x", "a,b", "a b", "h\n", &"x".repeat(254)] {
            assert!(Members::default().listed(at(host)).is_err(), "{host:?}");
        }
        assert!(Members::default().listed(vec![member("a", 0)]).is_err());
        assert!(Members::default().listed(Vec::new()).is_err());
        let many = (1..=65).map(|port| member(&port.to_string(), port)).collect();
        assert!(Members::default().listed(many).is_err());
        assert!(Members::default().listed(at("fe80::1%eth0")).is_ok());
    }
}
