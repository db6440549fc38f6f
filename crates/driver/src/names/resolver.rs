//! From a host name to its addresses: the hosts file, then the name servers, then whatever else the system knows.
//!
//! Owns that order, which servers are queried, and how replies are interpreted. Blocks; only for helper threads.

use std::net::{IpAddr, ToSocketAddrs};
use std::{fs, io};

use domain::base::iana::Rcode;
use domain::base::{Name, Rtype};
use domain::rdata::{A, Aaaa, Soa};

use crate::names::exchange::{self, Answer};
use crate::names::files::{Settings, in_hosts};

const HOSTS: &str = "/etc/hosts";
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// At least one.
    pub(crate) addresses: Vec<IpAddr>,
    /// Its TTL; None if unknown.
    pub(crate) ttl_s: Option<u32>,
}

/// Why a lookup failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LookupError {
    /// There is no such name, or it has no address.
    NoSuchName,
    /// No server could resolve it.
    NoAnswer(String),
    /// No server replied in time.
    Silence(String),
}

impl LookupError {
    /// For the log.
    pub(crate) fn text(&self) -> String {
        match self {
            LookupError::NoSuchName => "no such name".to_owned(),
            LookupError::NoAnswer(why) | LookupError::Silence(why) => format!("no answer: {why}"),
        }
    }
}

/// Looks names up.
pub(crate) struct Resolver {
    /// `resolv_conf`, where it was given: then the name servers alone are asked, as PgBouncer does.
    own_file: Option<String>,
}

impl Resolver {
    pub(crate) fn new(own_file: Option<&str>) -> Resolver {
        Resolver { own_file: own_file.filter(|path| !path.is_empty()).map(str::to_owned) }
    }

    /// A name's addresses.
    pub(crate) fn addresses(&self, host: &str) -> Result<Found, LookupError> {
        let addresses = in_hosts(&fs::read_to_string(HOSTS).unwrap_or_default(), host);
        if !addresses.is_empty() {
            return Ok(Found { addresses, ttl_s: None });
        }
        let asked = self.ask_servers(host);
        match (asked, &self.own_file) {
            (Err(LookupError::Silence(why)), _) => Err(LookupError::Silence(why)),
            (Err(unfound), None) => ask_system(host).ok_or(unfound),
            (answer, _) => answer,
        }
    }

    /// The serial number of a zone's SOA record.
    pub(crate) fn serial(&self, zone: &str) -> Option<u32> {
        let answer = self.ask(&self.settings(), zone, Rtype::SOA).ok()?;
        let own = answer.answer().ok()?.limit_to::<Soa<_>>().flatten().next();
        let serial = own.map(|record| record.data().serial().into_int());
        serial.or_else(|| {
            // A name inside a zone: its authority is told.
            let above = answer.authority().ok()?.limit_to::<Soa<_>>().flatten().next();
            above.map(|record| record.data().serial().into_int())
        })
    }

    /// Read each time: a file that changes counts at the next look-up.
    fn settings(&self) -> Settings {
        let path = self.own_file.as_deref().unwrap_or(RESOLV_CONF);
        Settings::read(&fs::read_to_string(path).unwrap_or_default())
    }

    fn ask_servers(&self, host: &str) -> Result<Found, LookupError> {
        let settings = self.settings();
        let mut unfound = LookupError::NoSuchName;
        for name in settings.candidates(host) {
            match self.of_name(&settings, &name) {
                Err(LookupError::NoSuchName) => {}
                Err(LookupError::NoAnswer(why)) => unfound = LookupError::NoAnswer(why),
                found_or_silence => return found_or_silence,
            }
        }
        Err(unfound)
    }

    fn of_name(&self, settings: &Settings, name: &str) -> Result<Found, LookupError> {
        let mut found = Found { addresses: Vec::new(), ttl_s: None };
        found.take(&self.ask(settings, name, Rtype::A)?);
        // A server that has answered once and not twice is no reason to do without what it said.
        match self.ask(settings, name, Rtype::AAAA) {
            Ok(answer) => found.take(&answer),
            Err(fault) if found.addresses.is_empty() => return Err(fault),
            Err(_) => {}
        }
        if found.addresses.is_empty() { Err(LookupError::NoSuchName) } else { Ok(found) }
    }

    /// Queries the servers in turn until one replies.
    fn ask(&self, settings: &Settings, name: &str, kind: Rtype) -> Result<Answer, LookupError> {
        let name: Name<Vec<u8>> = name.parse().map_err(|_| LookupError::NoSuchName)?;
        let (mut why, mut silence) = ("no name server".to_owned(), true);
        for _ in 0..settings.attempts {
            for server in &settings.servers {
                match exchange::ask(*server, &name, kind, settings.timeout) {
                    Ok(answer) if matches!(answer.header().rcode(), Rcode::NOERROR | Rcode::NXDOMAIN) => {
                        return Ok(answer);
                    }
                    Ok(answer) => (why, silence) = (format!("{server}: {}", answer.header().rcode()), false),
                    Err(fault) => {
                        silence &= is_timeout(&fault);
                        why = format!("{server}: {}", reason(&fault));
                    }
                }
            }
        }
        Err(if silence { LookupError::Silence(why) } else { LookupError::NoAnswer(why) })
    }
}

impl Found {
    /// Adds the addresses of an answer; the shortest time counts, that of an alias too.
    fn take(&mut self, answer: &Answer) {
        let Some(owner) = answer.canonical_name() else { return };
        let Ok(records) = answer.answer() else { return };
        let before = self.addresses.len();
        for record in records.limit_to::<A>().flatten().filter(|record| record.owner() == &owner) {
            self.addresses.push(record.data().addr().into());
        }
        for record in records.limit_to::<Aaaa>().flatten().filter(|record| record.owner() == &owner) {
            self.addresses.push(record.data().addr().into());
        }
        if self.addresses.len() > before {
            let ttls = records.flatten().map(|record| record.ttl().as_secs());
            self.ttl_s = ttls.chain(self.ttl_s).min();
        }
    }
}

/// getaddrinfo, for names that the system knows otherwise (mDNS, its own name, containers).
fn ask_system(host: &str) -> Option<Found> {
    let addresses: Vec<IpAddr> = (host, 0).to_socket_addrs().ok()?.map(|address| address.ip()).collect();
    (!addresses.is_empty()).then_some(Found { addresses, ttl_s: None })
}

fn reason(fault: &io::Error) -> String {
    if is_timeout(fault) { "timeout".to_owned() } else { fault.to_string() }
}

fn is_timeout(fault: &io::Error) -> bool {
    matches!(fault.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use domain::base::iana::Class;
    use domain::base::{Message, MessageBuilder, Ttl};
    use domain::rdata::Cname;
    use std::net::UdpSocket;

    type Question = Message<Vec<u8>>;

    /// A name server of one test; it answers until its socket is closed by the end of the process.
    fn server(answer: impl Fn(&Question) -> Vec<u8> + Send + 'static) -> Resolver {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 2048];
            while let Ok((count, from)) = socket.recv_from(&mut bytes) {
                let question = Message::from_octets(bytes[..count].to_vec()).unwrap();
                let _ = socket.send_to(&answer(&question), from);
            }
        });
        let path = std::env::temp_dir().join(format!("weir-resolv-{}", address.port()));
        fs::write(&path, format!("nameserver {address}\noptions timeout:1 attempts:1\n")).unwrap();
        Resolver::new(path.to_str())
    }

    fn name(text: &str) -> Name<Vec<u8>> {
        text.parse().unwrap()
    }

    #[test]
    fn aliases_are_followed_and_the_shortest_time_counts() {
        let resolver = server(|question| {
            let mut answer = MessageBuilder::new_vec().start_answer(question, Rcode::NOERROR).unwrap();
            let alias = (name("db.test"), Class::IN, Ttl::from_secs(7), Cname::new(name("real.test")));
            answer.push(alias).unwrap();
            if question.qtype() == Some(Rtype::A) {
                for last in [1, 2] {
                    let data = A::from_octets(10, 0, 0, last);
                    answer.push((name("real.test"), Class::IN, Ttl::from_secs(60), data)).unwrap();
                }
            }
            let stranger = (name("x.test"), Class::IN, Ttl::from_secs(60), A::from_octets(10, 0, 0, 9));
            answer.push(stranger).unwrap();
            answer.finish()
        });
        let found = resolver.addresses("db.test").unwrap();
        assert_eq!(found.addresses, ["10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap()));
        assert_eq!(found.ttl_s, Some(7));
    }

    #[test]
    fn no_name_is_not_no_answer() {
        let nobody = server(|question| {
            MessageBuilder::new_vec().start_answer(question, Rcode::NXDOMAIN).unwrap().finish()
        });
        assert_eq!(nobody.addresses("db.test"), Err(LookupError::NoSuchName));
        assert_eq!(nobody.addresses("a..b"), Err(LookupError::NoSuchName));
        let broken = server(|question| {
            MessageBuilder::new_vec().start_answer(question, Rcode::SERVFAIL).unwrap().finish()
        });
        assert!(matches!(broken.addresses("db.test"), Err(LookupError::NoAnswer(_))));
        let garbage = server(|_| vec![1, 2, 3]);
        assert!(
            matches!(garbage.addresses("db.test"), Err(LookupError::Silence(why)) if why.contains("timeout"))
        );
    }
}
