//! Where the panel listens: `http_addr` and `http_port`, and why not.
//! Owns the rule that only loopback is open without a password. Never accepts a connection.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::sockopt::socket_acceptconn;
use settings::{Global, Pem};
use tokio_rustls::TlsAcceptor;

use crate::access;

/// A socket that listens for the panel.
#[derive(Debug)]
pub struct ListenSocket {
    pub(crate) address: SocketAddr,
    pub(crate) listener: TcpListener,
}

/// Why the panel does not listen.
#[derive(Debug)]
pub enum ListenError {
    /// The file's fault: `http_addr` is no address of this machine.
    Address(String),
    /// The file's fault: the panel would be reachable from other machines without a password.
    Open(IpAddr),
    /// The file's fault: `http_auth_file` is not there, or not what it should be.
    PanelCredentials(String),
    /// The file's fault: the files of `http_tls_*` make no TLS.
    Tls(String),
    /// The system's: usually another process has the port.
    Socket(SocketAddr, io::Error),
}

impl fmt::Display for ListenError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenError::Address(text) => write!(out, "http_addr \"{text}\" is not an IP address"),
            ListenError::Open(address) => write!(
                out,
                "http_addr {address} is not a loopback address: the panel is served there only when \
                 http_auth_file names a user or a token"
            ),
            ListenError::PanelCredentials(why) => write!(out, "http_auth_file {why}"),
            ListenError::Tls(why) => write!(out, "TLS setup failed: {why}"),
            ListenError::Socket(address, why) => {
                write!(out, "cannot listen for the panel on {address}: {why}")
            }
        }
    }
}

impl ListenError {
    /// Another process has the port, and may leave it.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, ListenError::Socket(_, why) if why.kind() == io::ErrorKind::AddrInUse)
    }
}

/// Where the settings want the panel; None is nowhere. `has_keys` says that nobody gets in without a password or token of
/// `http_auth_file`.
pub(crate) fn address(global: &Global, has_credentials: bool) -> Result<Option<SocketAddr>, ListenError> {
    if global.http_port == 0 {
        return Ok(None);
    }
    let text = global.http_addr.trim();
    let address: IpAddr = text.parse().map_err(|_| ListenError::Address(text.to_owned()))?;
    if !address.is_loopback() && !has_credentials {
        return Err(ListenError::Open(address));
    }
    Ok(Some(SocketAddr::new(address, global.http_port)))
}

impl ListenSocket {
    /// Listens.
    ///
    /// # Errors
    /// [`ListenError::Socket`].
    pub(crate) fn at(address: SocketAddr) -> Result<ListenSocket, ListenError> {
        let listener = TcpListener::bind(address);
        let listener = listener.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        let listener = listener.map_err(|why| ListenError::Socket(address, why))?;
        Ok(ListenSocket { address, listener })
    }

    /// The listening socket of the process before this one, if it listens there: so the port is never free for others.
    fn inherited(socket: OwnedFd, address: SocketAddr) -> Option<ListenSocket> {
        let listens = socket_acceptconn(&socket) == Ok(true);
        let listener = TcpListener::from(socket);
        let is_there = listens && listener.local_addr().is_ok_and(|own| own == address);
        (is_there && listener.set_nonblocking(true).is_ok()).then_some(ListenSocket { address, listener })
    }

    /// Listens where the settings say, before anything else runs: by the socket that the process before has handed over, if it is
    /// of that address. None where the panel is off.
    ///
    /// # Errors
    /// [`ListenError`]: the process should not start.
    pub fn open(global: &Global, inherited: Option<OwnedFd>) -> Result<Option<ListenSocket>, ListenError> {
        if global.http_port == 0 {
            return Ok(None);
        }
        let keys = access::load_credentials(global).map_err(ListenError::PanelCredentials)?;
        tls_acceptor(global).map_err(ListenError::Tls)?;
        let Some(address) = address(global, !keys.is_empty())? else { return Ok(None) };
        let inherited = inherited.and_then(|socket| ListenSocket::inherited(socket, address));
        inherited.map_or_else(|| ListenSocket::at(address), Ok).map(Some)
    }
}

/// What takes connections under TLS; None where the panel is served in the clear.
///
/// # Errors
/// Which file, and what is wrong with it.
pub(crate) fn tls_acceptor(global: &Global) -> Result<Option<TlsAcceptor>, String> {
    let terms = tls::panel_tls_config(pem(&global.http_tls_cert_file), pem(&global.http_tls_key_file));
    Ok(terms.map_err(|fault| fault.to_string())?.map(TlsAcceptor::from))
}

fn pem(path: &Option<String>) -> Pem {
    let path = path.as_deref().filter(|path| !path.is_empty())?;
    Some(std::fs::read(path).map(Arc::from).map_err(|why| format!("failed to open {path}: {why}")))
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
        assert!(matches!(ListenSocket::open(&here, None), Err(ListenError::Socket(..))));
        assert!(
            matches!(ListenSocket::open(&here, Some(handle())), Ok(Some(found)) if found.address == address)
        );
        assert!(matches!(ListenSocket::open(&global("127.0.0.1", 0), Some(handle())), Ok(None)));
        let elsewhere = global("127.0.0.2", address.port());
        assert!(
            matches!(ListenSocket::open(&elsewhere, Some(handle())), Ok(Some(found)) if found.address != address)
        );
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).expect("it listens no more");
        assert!(ListenSocket::inherited(handle(), address).is_none());
    }

    #[test]
    fn the_panel_is_off_and_never_open_to_others_without_a_password() {
        assert!(matches!(address(&Global::default(), false), Ok(None)));
        assert!(matches!(address(&global("127.0.0.1", 9), false), Ok(Some(_))));
        assert!(matches!(address(&global("::1", 9), false), Ok(Some(_))));
        for open in ["0.0.0.0", "::", "192.0.2.1"] {
            assert!(matches!(address(&global(open, 9), false), Err(ListenError::Open(_))), "{open}");
            assert!(matches!(address(&global(open, 9), true), Ok(Some(_))), "{open}");
        }
        assert!(matches!(address(&global("localhost", 9), true), Err(ListenError::Address(_))));
    }
}
