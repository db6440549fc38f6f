//! `/etc/hosts` and `resolv.conf` (resolv.conf(5)), as far as a stub resolver needs them.
//!
//! Owns the syntax of both files. Queries no name server.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Where name servers listen unless a port is said.
const PORT: u16 = 53;

/// The number of name servers that glibc uses.
const SERVERS: usize = 3;

/// How names are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The name servers, in the order in which they are asked.
    pub(crate) servers: Vec<SocketAddr>,
    /// What is appended to short names.
    pub(crate) search: Vec<String>,
    /// A name with at least this many dots is tried as it is first.
    pub(crate) dots: usize,
    /// How long one server may take.
    pub(crate) timeout: Duration,
    /// How often each is asked.
    pub(crate) attempts: u32,
}

impl Settings {
    /// What a `resolv.conf` says; what it does not say is as in resolv.conf(5). A name server may have a port behind it
    /// (`127.0.0.1:5353`, `[::1]:5353`), as c-ares allows.
    pub(crate) fn read(text: &str) -> Settings {
        let mut settings = Settings {
            servers: Vec::new(),
            search: Vec::new(),
            dots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
        };
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") if settings.servers.len() < SERVERS => {
                    settings.servers.extend(words.next().and_then(server));
                }
                Some("domain" | "search") => settings.search = words.map(str::to_owned).collect(),
                Some("options") => words.for_each(|word| settings.option(word)),
                _ => {}
            }
        }
        if settings.servers.is_empty() {
            settings.servers.push(SocketAddr::new(IpAddr::from([127, 0, 0, 1]), PORT));
        }
        settings
    }

    fn option(&mut self, word: &str) {
        let Some((name, value)) = word.split_once(':') else { return };
        let Ok(value) = value.parse::<u32>() else { return };
        match name {
            "ndots" => self.dots = value.min(15) as usize,
            "timeout" => self.timeout = Duration::from_secs(value.clamp(1, 30).into()),
            "attempts" => self.attempts = value.clamp(1, 5),
            _ => {}
        }
    }

    /// The names to try for a host, in their order.
    pub(crate) fn candidates(&self, host: &str) -> Vec<String> {
        if host.ends_with('.') {
            return vec![host.to_owned()];
        }
        let searched = self.search.iter().map(|domain| format!("{host}.{domain}"));
        let bare = std::iter::once(host.to_owned());
        if host.matches('.').count() >= self.dots {
            bare.chain(searched).collect()
        } else {
            searched.chain(bare).collect()
        }
    }
}

fn server(text: &str) -> Option<SocketAddr> {
    let plain = text.split_once('%').map_or(text, |(address, _)| address);
    text.parse().ok().or_else(|| plain.parse().ok().map(|address| SocketAddr::new(address, PORT)))
}

/// A name's addresses in a hosts file, in their order.
pub(crate) fn in_hosts(text: &str, host: &str) -> Vec<IpAddr> {
    let host = host.trim_end_matches('.');
    let of_line = |line: &str| {
        let mut words = line.split('#').next()?.split_ascii_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        words.any(|name| name.eq_ignore_ascii_case(host)).then_some(address)
    };
    text.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_read_as_its_manual_says() {
        let text = "# a comment\nnameserver 10.0.0.1\nnameserver [::1]:5353\n nameserver fe80::1%eth0\nnameserver 10.0.0.4\n\
                    search a.test b.test\noptions ndots:2 timeout:1 attempts:99 rotate edns0\nsortlist x\n";
        let settings = Settings::read(text);
        let expected = ["10.0.0.1:53", "[::1]:5353", "[fe80::1]:53"].map(|text| text.parse().expect("one"));
        assert_eq!(settings.servers, expected);
        assert_eq!(settings.search, ["a.test", "b.test"]);
        assert_eq!((settings.dots, settings.timeout, settings.attempts), (2, Duration::from_secs(1), 5));
        let silent = Settings::read("");
        assert_eq!(silent.servers, ["127.0.0.1:53".parse().expect("one")]);
        assert_eq!((silent.dots, silent.timeout, silent.attempts), (1, Duration::from_secs(5), 2));
    }

    #[test]
    fn short_names_are_searched_for_first() {
        let settings = Settings::read("search a.test b.test");
        assert_eq!(settings.candidates("db"), ["db.a.test", "db.b.test", "db"]);
        assert_eq!(settings.candidates("db.x"), ["db.x", "db.x.a.test", "db.x.b.test"]);
        assert_eq!(settings.candidates("db."), ["db."]);
    }

    #[test]
    fn a_hosts_file_names_an_address_many_times() {
        let text = "127.0.0.1 localhost # db\n::1 localhost ip6-localhost\n\n10.0.0.1\tDB db.test\n10.0.0.2 db\nx db\n";
        let found = |host| in_hosts(text, host).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(found("localhost"), ["127.0.0.1", "::1"]);
        assert_eq!(found("db"), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(found("db.test."), ["10.0.0.1"]);
        assert!(found("nobody").is_empty());
    }
}
