//! Where the panel listens: `http_addr` and `http_port`, and why not.
//! Owns the rule that only loopback is open without a password. Never accepts anybody.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use rustix::net::sockopt::socket_acceptconn;
use settings::Global;

use crate::{access, seal};

/// A socket that listens for the panel.
#[derive(Debug)]
pub struct Doorway {
    pub(crate) address: SocketAddr,
    pub(crate) listener: TcpListener,
}

/// Why the panel does not listen.
#[derive(Debug)]
pub enum NoDoorway {
    /// The file's fault: `http_addr` is no address of this machine.
    Address(String),
    /// The file's fault: the panel would be open to others, and nobody needs a password.
    Open(IpAddr),
    /// The file's fault: `http_auth_file` is not there, or not what it should be.
    Keys(String),
    /// The file's fault: the files of `http_tls_*` make no TLS.
    Tls(String),
    /// The system's: somebody else has the port, mostly.
    Socket(SocketAddr, io::Error),
}

impl fmt::Display for NoDoorway {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoDoorway::Address(text) => write!(out, "http_addr \"{text}\" is not an IP address"),
            NoDoorway::Open(address) => write!(
                out,
                "http_addr {address} is not a loopback address: the panel is served there only when \
                 http_auth_file names a user or a token"
            ),
            NoDoorway::Keys(why) => write!(out, "http_auth_file {why}"),
            NoDoorway::Tls(why) => write!(out, "TLS setup failed: {why}"),
            NoDoorway::Socket(address, why) => write!(out, "cannot listen for the panel on {address}: {why}"),
        }
    }
}

impl NoDoorway {
    /// Another process has the port, and may leave it.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, NoDoorway::Socket(_, why) if why.kind() == io::ErrorKind::AddrInUse)
    }
}

/// Where the settings want the panel; None is nowhere. `has_keys` says that nobody gets in without a password or token of
/// `http_auth_file`.
pub(crate) fn wanted(global: &Global, has_keys: bool) -> Result<Option<SocketAddr>, NoDoorway> {
    if global.http_port == 0 {
        return Ok(None);
    }
    let text = global.http_addr.trim();
    let address: IpAddr = text.parse().map_err(|_| NoDoorway::Address(text.to_owned()))?;
    if !address.is_loopback() && !has_keys {
        return Err(NoDoorway::Open(address));
    }
    Ok(Some(SocketAddr::new(address, global.http_port)))
}

impl Doorway {
    /// Listens.
    ///
    /// # Errors
    /// [`NoDoorway::Socket`].
    pub(crate) fn at(address: SocketAddr) -> Result<Doorway, NoDoorway> {
        let listener = TcpListener::bind(address);
        let listener = listener.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        let listener = listener.map_err(|why| NoDoorway::Socket(address, why))?;
        Ok(Doorway { address, listener })
    }

    /// The listening socket of the process before this one, if it listens there: so the port is never free for others.
    fn inherited(socket: OwnedFd, address: SocketAddr) -> Option<Doorway> {
        let listens = socket_acceptconn(&socket) == Ok(true);
        let listener = TcpListener::from(socket);
        let is_there = listens && listener.local_addr().is_ok_and(|own| own == address);
        (is_there && listener.set_nonblocking(true).is_ok()).then_some(Doorway { address, listener })
    }

    /// Listens where the settings say, before anything else runs: by the socket that the process before has handed over, if it is
    /// of that address. None where the panel is off.
    ///
    /// # Errors
    /// [`NoDoorway`]: the process should not start.
    pub fn open(global: &Global, inherited: Option<OwnedFd>) -> Result<Option<Doorway>, NoDoorway> {
        if global.http_port == 0 {
            return Ok(None);
        }
        let keys = access::keys_of(global).map_err(NoDoorway::Keys)?;
        seal::of(global).map_err(NoDoorway::Tls)?;
        let Some(address) = wanted(global, !keys.is_empty())? else { return Ok(None) };
        let inherited = inherited.and_then(|socket| Doorway::inherited(socket, address));
        inherited.map_or_else(|| Doorway::at(address), Ok).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn global(address: &str, port: u16) -> Global {
        let mut global = Global::default();
        (global.http_addr, global.http_port) = (address.to_owned(), port);
        global
    }

    #[test]
    fn a_socket_of_the_process_before_is_taken_where_it_listens_at_the_same_address() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let handle = || OwnedFd::from(listener.try_clone().expect("another handle"));
        let here = global("127.0.0.1", address.port());
        // Bound anew it would be refused: the port is taken.
        assert!(matches!(Doorway::open(&here, None), Err(NoDoorway::Socket(..))));
        assert!(matches!(Doorway::open(&here, Some(handle())), Ok(Some(found)) if found.address == address));
        assert!(matches!(Doorway::open(&global("127.0.0.1", 0), Some(handle())), Ok(None)));
        let elsewhere = global("127.0.0.2", address.port());
        assert!(
            matches!(Doorway::open(&elsewhere, Some(handle())), Ok(Some(found)) if found.address != address)
        );
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).expect("it listens no more");
        assert!(Doorway::inherited(handle(), address).is_none());
    }

    #[test]
    fn the_panel_is_off_and_never_open_to_others_without_a_password() {
        assert!(matches!(wanted(&Global::default(), false), Ok(None)));
        assert!(matches!(wanted(&global("127.0.0.1", 9), false), Ok(Some(_))));
        assert!(matches!(wanted(&global("::1", 9), false), Ok(Some(_))));
        for open in ["0.0.0.0", "::", "192.0.2.1"] {
            assert!(matches!(wanted(&global(open, 9), false), Err(NoDoorway::Open(_))), "{open}");
            assert!(matches!(wanted(&global(open, 9), true), Ok(Some(_))), "{open}");
        }
        assert!(matches!(wanted(&global("localhost", 9), true), Err(NoDoorway::Address(_))));
    }
}
