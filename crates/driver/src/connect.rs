//! Opening sockets to servers, for both loops: never waits.
//!
//! Owns the order in which a name's addresses are tried. Never looks a name up (that is a helper's work) and never
//! decides when to try again.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt,
};
use settings::Global;
use shard::{ConnectFault, Target};

use crate::names::{Addresses, Names};
use crate::options;

/// One connection's tries: every address once, until one answers.
#[derive(Debug)]
pub(crate) struct Attempt {
    addresses: Addresses,
    tried: usize,
    port: u16,
    fault: Errno,
}

/// What a loop does next to open a server connection.
pub(crate) enum Step {
    /// It is connected already: TCP or (true) unix.
    Connected(OwnedFd, bool),
    /// It will be writable when the outcome is known; then [`Attempt::arrived`].
    Underway(OwnedFd, Box<Attempt>),
    /// Have the name looked up; then [`Attempt::resolved`].
    Ask(Box<Attempt>),
    /// There is no way.
    Failed(ConnectFault),
}

/// The first step to a server.
pub(crate) fn dial(target: &Target, names: &Names, global: &Global) -> Step {
    match target {
        Target::Unix { path } => match unix(path) {
            Ok(socket) => Step::Connected(socket, true),
            Err(fault) => Step::Failed(fault),
        },
        Target::Near { path, host, port } => match unix(path) {
            Ok(socket) => Step::Connected(socket, true),
            Err(_) => dial_host(host, *port, names, global),
        },
        Target::Inet { host, port } => dial_host(host, *port, names, global),
    }
}

fn dial_host(host: &str, port: u16, names: &Names, global: &Global) -> Step {
    if let Some(attempt) = Attempt::literal(host, port) {
        return attempt.next(global);
    }
    match names.remembered(host) {
        Some(answer) => Attempt::new(Addresses::none(), port).resolved(answer, global),
        None => Step::Ask(Box::new(Attempt::new(Addresses::none(), port))),
    }
}

impl Attempt {
    fn new(addresses: Addresses, port: u16) -> Attempt {
        Attempt { addresses, tried: 0, port, fault: Errno::ADDRNOTAVAIL }
    }

    /// Tries for an address literal; None if it is a name.
    fn literal(host: &str, port: u16) -> Option<Attempt> {
        let address: IpAddr = host.parse().ok()?;
        Some(Attempt::new(Addresses { list: Arc::new([SocketAddr::new(address, port)]), turn: 0 }, port))
    }

    /// The name was looked up.
    pub(crate) fn resolved(self, answer: Result<Addresses, String>, global: &Global) -> Step {
        match answer {
            Ok(addresses) => Attempt { addresses, ..self }.next(global),
            Err(why) => Step::Failed(ConnectFault::Lookup(why)),
        }
    }

    /// The address at hand failed.
    pub(crate) fn failed(self, fault: Errno, global: &Global) -> Step {
        Attempt { fault, ..self }.next(global)
    }

    /// Begins with the next address that lets itself be begun with.
    fn next(mut self, global: &Global) -> Step {
        while self.tried < self.addresses.list.len() {
            let index = self.addresses.turn.wrapping_add(self.tried) % self.addresses.list.len();
            self.tried += 1;
            let mut address = self.addresses.list[index];
            address.set_port(self.port);
            match begin(address, global) {
                Ok((socket, true)) => return Step::Connected(socket, false),
                Ok((socket, false)) => return Step::Underway(socket, Box::new(self)),
                Err(fault) => self.fault = fault,
            }
        }
        Step::Failed(refused(self.fault))
    }
}

/// Begins to connect; true if that is done already.
fn begin(address: SocketAddr, global: &Global) -> Result<(OwnedFd, bool), Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    options::apply(&socket, global);
    match connect(&socket, &address) {
        Ok(()) => Ok((socket, true)),
        Err(Errno::INPROGRESS | Errno::INTR) => Ok((socket, false)),
        Err(fault) => Err(fault),
    }
}

/// Connects to a unix socket at once; a full queue of the listener (EAGAIN) is a refusal.
pub(crate) fn unix(path: &str) -> Result<OwnedFd, ConnectFault> {
    let begin = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &unix_address(path)?)?;
        Ok(socket)
    };
    begin().map_err(refused)
}

/// The address of a unix socket; a first byte `@` means the abstract name space.
pub(crate) fn unix_address(path: &str) -> Result<SocketAddrUnix, Errno> {
    match path.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        None => SocketAddrUnix::new(path),
    }
}

/// What became of a socket that was under way.
pub(crate) fn outcome(socket: impl AsFd) -> Result<(), Errno> {
    sockopt::socket_error(socket).and_then(|outcome| outcome)
}

/// Both ends of a connected TCP socket: (remote, local); None for a unix socket.
pub(crate) fn ends(socket: impl AsFd) -> (Option<SocketAddr>, Option<SocketAddr>) {
    let socket = socket.as_fd();
    let remote = rustix::net::getpeername(socket).ok().flatten();
    let local = rustix::net::getsockname(socket).ok();
    (remote.and_then(|any| any.try_into().ok()), local.and_then(|any| any.try_into().ok()))
}

/// The fault of a system's refusal, in its own words.
fn refused(fault: Errno) -> ConnectFault {
    ConnectFault::Refused(text(fault))
}

/// The system's words for an error, without its number.
pub(crate) fn text(fault: Errno) -> String {
    let full = std::io::Error::from(fault).to_string();
    full.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_address_is_tried_once_in_turn() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let dead: SocketAddr = "[ff02::1]:0".parse().unwrap();
        let live: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let addresses = Addresses { list: Arc::new([live, dead]), turn: 1 };
        let attempt = Attempt::new(addresses, listener.local_addr().unwrap().port());
        let Step::Underway(_socket, attempt) = attempt.next(&Global::default()) else { panic!("not begun") };
        assert_eq!(attempt.tried, 2, "the first could not even be begun with");
        let Step::Failed(fault) = attempt.failed(Errno::CONNREFUSED, &Global::default()) else {
            panic!("a third?")
        };
        assert_eq!(fault, ConnectFault::Refused("Connection refused".to_owned()));
    }

    #[test]
    fn a_missing_unix_socket_is_refused_in_the_systems_words() {
        let fault = unix("/nonexistent/.s.PGSQL.1").unwrap_err();
        assert_eq!(fault, ConnectFault::Refused("No such file or directory".to_owned()));
    }

    #[test]
    fn only_addresses_are_literals() {
        assert!(Attempt::literal("::1", 1).is_some());
        assert!(Attempt::literal("localhost", 1).is_none());
    }
}
