//! Listening sockets bound by another process: the service manager or the predecessor.
//!
//! Owns finding the one that the settings want. Never binds and never accepts.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::io::ioctl_fionbio;
use rustix::net::{SocketAddrUnix, listen, sockopt};
use settings::Global;

use crate::connect::unix_address;
use crate::listen::{Kind, ListenFault, Listener, SocketFile, backlog, remove_if_same};
use crate::options;

/// A listening socket bound by another process.
pub struct Inherited {
    pub(crate) socket: OwnedFd,
    /// Its name in the file system with its inode, where it is ours to remove.
    pub(crate) file: Option<(PathBuf, u64)>,
}

impl Inherited {
    /// Where a TCP socket is bound.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        rustix::net::getsockname(&self.socket).ok()?.try_into().ok()
    }

    /// A unix socket of this path.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        let wanted = unix_address(path).ok();
        let own: Option<SocketAddrUnix> =
            rustix::net::getsockname(&self.socket).ok().and_then(|any| any.try_into().ok());
        own.is_some() && own == wanted
    }

    /// It becomes the listener of an address that the settings name.
    pub(crate) fn into_tcp(self, address: SocketAddr, global: &Global) -> Listener {
        options::change_listener(&self.socket, global);
        let _ = listen(&self.socket, backlog(global));
        Listener::new(self.socket, Kind::Tcp, address.to_string(), None)
    }

    /// It becomes the listener of the settings' unix socket.
    pub(crate) fn into_unix(self, path: &str, port: u16) -> Listener {
        let file = self.file.map(|(path, inode)| SocketFile { path, inode });
        Listener::new(self.socket, Kind::Unix { port }, format!("unix:{path}"), file)
    }

    /// It becomes a listener as it is: a service manager has passed it.
    pub(crate) fn into_passed(self, global: &Global) -> Result<Listener, ListenFault> {
        if sockopt::socket_acceptconn(&self.socket) != Ok(true) {
            return Err(ListenFault::Passed);
        }
        // A thread that was woken may find that another one was quicker.
        ioctl_fionbio(&self.socket, true).map_err(|_| ListenFault::Passed)?;
        if let Some(address) = self.address() {
            // What the manager has set stays where the settings say nothing.
            options::apply_to_listener(&self.socket, global);
            return Ok(Listener::new(self.socket, Kind::Tcp, address.to_string(), None));
        }
        let address = rustix::net::getsockname(&self.socket).map_err(|_| ListenFault::Passed)?;
        let address = SocketAddrUnix::try_from(address).map_err(|_| ListenFault::Passed)?;
        let path = match (address.path(), address.abstract_name()) {
            (Some(path), _) => path.to_string_lossy().into_owned(),
            (None, name) => format!("@{}", String::from_utf8_lossy(name.unwrap_or_default())),
        };
        let port = path.rsplit_once(".s.PGSQL.").and_then(|(_, port)| port.parse().ok());
        Ok(self.into_unix(&path, port.unwrap_or(global.listen_port)))
    }

    /// It is not used: closed.
    pub(crate) fn remove_file(&self) {
        if let Some((path, inode)) = &self.file {
            remove_if_same(path, *inode);
        }
    }
}

/// Takes out the first that is wanted.
pub(crate) fn take_inherited(
    from: &mut Vec<Inherited>,
    wanted: impl Fn(&Inherited) -> bool,
) -> Option<Inherited> {
    let place = from.iter().position(wanted)?;
    Some(from.remove(place))
}
