//! Listening sockets: TCP by listen_addr, the unix socket by unix_socket_dir.
//!
//! Owns their names in the file system (made, replaced when nobody listens, removed at the end). Never accepts.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, fs};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketFlags, SocketType, bind, ipproto, listen, socket_with, sockopt,
};
use settings::Global;

use crate::connect::{text, unix, unix_address};
use crate::{options, sys};

/// A thread that was woken may find that another one was quicker: it must not wait then.
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// What a listening socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp,
    Unix { port: u16 },
}

/// One listening socket, shared by all shards.
pub(crate) struct Listener {
    pub(crate) socket: OwnedFd,
    pub(crate) kind: Kind,
    name: String,
    file: Option<SocketFile>,
}

/// A socket's name in the file system; it goes when the socket goes, unless somebody else has taken the name.
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

/// All listening sockets of a process.
pub struct Listeners {
    pub(crate) all: Vec<Arc<Listener>>,
}

/// Why there is nothing to listen on.
#[derive(Debug)]
pub enum ListenFault {
    /// The settings name neither an address nor a directory.
    Nowhere,
    /// An entry of listen_addr means nothing: the entry and the system's words.
    Address(String, String),
    /// The system refused: where and its words.
    Refused(String, String),
    /// Somebody listens on the unix socket already.
    UnixInUse(String),
    /// unix_socket_group names no group.
    NoSuchGroup(String),
}

impl fmt::Display for ListenFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenFault::Nowhere => out.write_str("nowhere to listen on"),
            ListenFault::Address(entry, why) => write!(out, "listen_addr: cannot find \"{entry}\": {why}"),
            ListenFault::Refused(place, why) => write!(out, "cannot listen on {place}: {why}"),
            ListenFault::UnixInUse(path) => write!(out, "unix socket is in use, cannot continue: {path}"),
            ListenFault::NoSuchGroup(name) => write!(out, "unix_socket_group: no such group: {name}"),
        }
    }
}

impl std::error::Error for ListenFault {}

impl Listeners {
    /// Binds everything that the settings name.
    ///
    /// # Errors
    /// [`ListenFault`]; whatever was bound before is closed again. A machine without IPv6 is no fault for `*`.
    pub fn open(global: &Global) -> Result<Listeners, ListenFault> {
        let mut all = Vec::new();
        for entry in &global.listen_addr {
            for address in addresses(entry, global.listen_port)? {
                match tcp(address, global) {
                    Ok(listener) => all.push(Arc::new(listener)),
                    Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) if entry == "*" => {}
                    Err(fault) => return Err(ListenFault::Refused(address.to_string(), text(fault))),
                }
            }
        }
        if let Some(directory) = global.unix_socket_dir.as_deref().filter(|directory| !directory.is_empty()) {
            all.push(Arc::new(unix_listener(directory, global)?));
        }
        if all.is_empty() { Err(ListenFault::Nowhere) } else { Ok(Listeners { all }) }
    }

    /// Where it listens, for the log: `127.0.0.1:6432`, `unix:/tmp/.s.PGSQL.6432`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|listener| listener.name.as_str())
    }

    /// The first TCP address in use (tests bind port 0).
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        let first = self.all.iter().find(|listener| listener.kind == Kind::Tcp)?;
        rustix::net::getsockname(&first.socket).ok()?.try_into().ok()
    }

    /// Options that RELOAD and SET may change.
    pub(crate) fn configure(&self, global: &Global) {
        for listener in self.all.iter().filter(|listener| listener.kind == Kind::Tcp) {
            options::apply_to_listener(&listener.socket, global);
        }
    }

    /// Refuses new connections at once, whoever holds the sockets; `all` means the unix socket too.
    pub(crate) fn close(&self, all: bool) {
        for listener in self.all.iter().filter(|listener| all || listener.kind == Kind::Tcp) {
            let _ = rustix::net::shutdown(&listener.socket, Shutdown::Both);
            listener.remove_file();
        }
    }
}

impl Listener {
    fn remove_file(&self) {
        if let Some(file) = &self.file
            && fs::symlink_metadata(&file.path).is_ok_and(|found| found.ino() == file.inode)
        {
            let _ = fs::remove_file(&file.path);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.remove_file();
    }
}

/// What an entry of listen_addr means.
fn addresses(entry: &str, port: u16) -> Result<Vec<SocketAddr>, ListenFault> {
    if entry == "*" {
        let every = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        return Ok(every.map(|address| SocketAddr::new(address, port)).to_vec());
    }
    let found = (entry, port).to_socket_addrs();
    let mut list: Vec<_> =
        found.map_err(|fault| ListenFault::Address(entry.to_owned(), fault.to_string()))?.collect();
    list.dedup();
    Ok(list)
}

fn tcp(address: SocketAddr, global: &Global) -> Result<Listener, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, FLAGS, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if global.so_reuseport {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &address)?;
    options::apply_to_listener(&socket, global);
    listen(&socket, backlog(global))?;
    Ok(Listener { socket, kind: Kind::Tcp, name: address.to_string(), file: None })
}

fn backlog(global: &Global) -> i32 {
    i32::try_from(global.listen_backlog).unwrap_or(i32::MAX)
}

fn unix_listener(directory: &str, global: &Global) -> Result<Listener, ListenFault> {
    let port = global.listen_port;
    let path = format!("{directory}/.s.PGSQL.{port}");
    let refused = |fault| ListenFault::Refused(format!("unix:{path}"), text(fault));
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None).map_err(refused)?;
    let address = unix_address(&path).map_err(refused)?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            if unix(&path).is_ok() || directory.starts_with('@') {
                return Err(ListenFault::UnixInUse(path));
            }
            let _ = fs::remove_file(&path);
            bind(&socket, &address).map_err(refused)?;
        }
        outcome => outcome.map_err(refused)?,
    }
    let file = if directory.starts_with('@') { None } else { Some(own_file(&path, global)?) };
    listen(&socket, backlog(global)).map_err(refused)?;
    Ok(Listener { socket, kind: Kind::Unix { port }, name: format!("unix:{path}"), file })
}

/// Gives the socket's file its group and permissions. Before listen, so that nobody slips in by the wrong ones.
fn own_file(path: &str, global: &Global) -> Result<SocketFile, ListenFault> {
    let refused = |fault: io::Error| ListenFault::Refused(format!("unix:{path}"), fault.to_string());
    if let Some(group) = global.unix_socket_group.as_deref().filter(|group| !group.is_empty()) {
        let id = sys::group_id(group).ok_or_else(|| ListenFault::NoSuchGroup(group.to_owned()))?;
        chown(path, None, Some(id)).map_err(refused)?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(global.unix_socket_mode)).map_err(refused)?;
    let inode = fs::symlink_metadata(path).map_err(refused)?.ino();
    Ok(SocketFile { path: PathBuf::from(path), inode })
}
