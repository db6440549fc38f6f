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
use shard::ConnectFault;

use crate::options;

/// What a name stands for, and with which address to begin this time.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// At least one; ports are meaningless.
    pub(crate) list: Arc<[SocketAddr]>,
    /// Counts up with every use, so that connections spread over the addresses.
    pub(crate) turn: usize,
}

/// One connection's tries: every address once, until one answers.
#[derive(Debug)]
pub(crate) struct Attempt {
    addresses: Addresses,
    tried: usize,
    port: u16,
    fault: Errno,
}

/// A socket on its way.
pub(crate) enum Begun {
    /// It is connected already.
    Connected(OwnedFd),
    /// It will be writable when the outcome is known.
    Underway(OwnedFd),
}

impl Attempt {
    /// Tries for the addresses of a name.
    pub(crate) fn new(addresses: Addresses, port: u16) -> Attempt {
        Attempt { addresses, tried: 0, port, fault: Errno::ADDRNOTAVAIL }
    }

    /// Tries for an address literal; None if it is a name.
    pub(crate) fn literal(host: &str, port: u16) -> Option<Attempt> {
        let address: IpAddr = host.parse().ok()?;
        Some(Attempt::new(Addresses { list: Arc::new([SocketAddr::new(address, port)]), turn: 0 }, port))
    }

    /// The same tries, now that the name is known.
    pub(crate) fn with(self, addresses: Addresses) -> Attempt {
        Attempt { addresses, ..self }
    }

    /// Begins with the next address that lets itself be begun with; the last fault if none is left.
    pub(crate) fn next(&mut self, global: &Global) -> Result<Begun, ConnectFault> {
        while self.tried < self.addresses.list.len() {
            let index = (self.addresses.turn + self.tried) % self.addresses.list.len();
            self.tried += 1;
            let mut address = self.addresses.list[index];
            address.set_port(self.port);
            match begin(address, global) {
                Ok(begun) => return Ok(begun),
                Err(fault) => self.fault = fault,
            }
        }
        Err(refused(self.fault))
    }

    /// Remembers why the address at hand failed.
    pub(crate) fn failed(&mut self, fault: Errno) {
        self.fault = fault;
    }
}

fn begin(address: SocketAddr, global: &Global) -> Result<Begun, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    options::apply(&socket, global);
    match connect(&socket, &address) {
        Ok(()) => Ok(Begun::Connected(socket)),
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(Begun::Underway(socket)),
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
pub(crate) fn refused(fault: Errno) -> ConnectFault {
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
        let (dead, live): (SocketAddr, SocketAddr) =
            ("[::ffff:0.0.0.1]:0".parse().unwrap(), "127.0.0.1:0".parse().unwrap());
        let addresses = Addresses { list: Arc::new([live, dead]), turn: 1 };
        let mut attempt = Attempt::new(addresses, listener.local_addr().unwrap().port());
        assert!(attempt.next(&Global::default()).is_ok());
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
