//! What a client speaks over: TCP from an address of choice, TLS on top of it, or a unix socket. Owns the opening
//! of connections; knows of PostgreSQL only how TLS is asked for.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::error::{LabError, Result};

/// SSLRequest: its length and its code (PostgreSQL's protocol, "Message Formats").
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// The name in the lab's certificate.
pub const SERVER_NAME: &str = "localhost";

/// A connection, whatever it is made of.
pub(super) trait Stream: Read + Write + Send {
    /// How long a read may take.
    fn set_patience(&self, time: Duration) -> std::io::Result<()>;
}

impl Stream for TcpStream {
    fn set_patience(&self, time: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(time))
    }
}

impl Stream for UnixStream {
    fn set_patience(&self, time: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(time))
    }
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn set_patience(&self, time: Duration) -> std::io::Result<()> {
        self.sock.set_read_timeout(Some(time))
    }
}

/// Connects to `port` of 127.0.0.1 from `source`: an address has a limited number of ports towards one listener.
///
/// # Errors
/// [`LabError::System`] if the connection fails, or no local port is left.
pub fn connect(source: Ipv4Addr, port: u16) -> Result<TcpStream> {
    let doing = || LabError::system(format!("connecting from {source} to 127.0.0.1 port {port}"));
    let errno = |error: rustix::io::Errno| doing()(error.into());
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(errno)?;
    if source != Ipv4Addr::LOCALHOST {
        rustix::net::bind(&socket, &SocketAddrV4::new(source, 0)).map_err(errno)?;
    }
    rustix::net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).map_err(errno)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true).map_err(doing())?;
    Ok(stream)
}

/// What a client of TLS must know: it trusts the one certificate `pem`, and checks it.
///
/// # Errors
/// When the text is no certificate.
pub fn trusting(pem: &[u8]) -> Result<Arc<ClientConfig>> {
    let wrong =
        |what: &dyn std::fmt::Display| LabError::Peer(format!("the lab's certificate is of no use: {what}"));
    let certificate = CertificateDer::from_pem_slice(pem).map_err(|error| wrong(&error))?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(|error| wrong(&error))?;
    Ok(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}

/// Asks for TLS on a new connection and shakes hands.
///
/// # Errors
/// [`LabError::Peer`] when the server has none, [`LabError::System`] when the handshake fails.
pub(super) fn secure(
    mut socket: TcpStream,
    config: &Arc<ClientConfig>,
) -> Result<StreamOwned<ClientConnection, TcpStream>> {
    let doing = || LabError::system("asking for TLS");
    socket.write_all(&TLS_REQUEST).map_err(doing())?;
    let mut answer = [0];
    socket.read_exact(&mut answer).map_err(doing())?;
    if answer != *b"S" {
        return Err(LabError::Peer("the server has no TLS".to_owned()));
    }
    let impossible = |error: &dyn std::fmt::Display| LabError::Peer(format!("TLS: {error}"));
    let name = ServerName::try_from(SERVER_NAME).map_err(|error| impossible(&error))?;
    let connection = ClientConnection::new(Arc::clone(config), name).map_err(|error| impossible(&error))?;
    let mut stream = StreamOwned::new(connection, socket);
    stream.flush().map_err(doing())?;
    Ok(stream)
}
