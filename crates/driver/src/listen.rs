//! Listening sockets: TCP by listen_addr, the unix socket by unix_socket_dir.
//!
//! Owns their names in the file system (made, replaced when no process listens, removed at the end). When connections are accepted is the acceptor's to decide.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, bind, ipproto, listen,
    socket_with, sockopt,
};
use settings::Global;
use shard::Peer;

use crate::connect::{text, unix, unix_address};
use crate::inherited::{Holder, Inherited, SocketFile, take_inherited};
use crate::{options, sys};

/// A thread that was woken may find that another one was quicker: it must not wait then.
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// How long a place may still be another process's: the kernel frees what a killed process had in io_uring a moment after its end.
const LEAVING: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Connections that are accepted of a socket before it is closed: no queue is longer by default (net.core.somaxconn).
const MOST_PENDING: usize = 4096;

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
    /// The address of every client's own end, where it listens on one address only.
    pub(crate) address: Option<SocketAddr>,
    name: String,
    holder: Holder,
    file: Option<SocketFile>,
    /// Another process has it too and goes on with it: it is not shut down from here, and its name stays.
    is_left: AtomicBool,
}

/// All listening sockets of a process.
#[derive(Clone)]
pub struct Listeners {
    pub(crate) all: Vec<Arc<Listener>>,
    /// Places that the system refused, while there are others: for the log.
    refused: Vec<String>,
}

/// Why there is nothing to listen on.
#[derive(Debug)]
pub enum ListenFault {
    /// The settings name neither an address nor a directory, or only a directory that the system refused (why).
    Nowhere(Vec<String>),
    /// An entry of listen_addr means nothing: the entry and the system's words.
    Address(String, String),
    /// The system refused every address of the list: the list, and each place with its words.
    Refused(String, Vec<String>),
    /// The unix socket's file cannot be given its group or permissions: where and the system's words.
    File(String, String),
    /// Another process listens on the unix socket.
    UnixInUse(String),
    /// A descriptor that the service manager passed is no listening socket.
    Passed,
    /// unix_socket_group names no group.
    NoSuchGroup(String),
}

impl fmt::Display for ListenFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenFault::Nowhere(why) if why.is_empty() => out.write_str("nowhere to listen on"),
            ListenFault::Nowhere(why) => write!(out, "nowhere to listen on ({})", why.join("; ")),
            ListenFault::Address(entry, why) => write!(out, "listen_addr: cannot find \"{entry}\": {why}"),
            ListenFault::Refused(list, why) => {
                write!(
                    out,
                    "failed to listen on any address in listen_addr list: {list} ({})",
                    why.join("; ")
                )
            }
            ListenFault::File(place, why) => write!(out, "cannot listen on {place}: {why}"),
            ListenFault::UnixInUse(path) => write!(out, "unix socket is in use, cannot continue: {path}"),
            ListenFault::Passed => {
                out.write_str("the service manager has passed something that is no listening socket")
            }
            ListenFault::NoSuchGroup(name) => write!(out, "unix_socket_group: no such group: {name}"),
        }
    }
}

impl std::error::Error for ListenFault {}

/// Which call the system refused, and why.
struct Refusal(&'static str, Errno);

impl Refusal {
    /// The log line, as in PgBouncer.
    fn at(&self, place: impl fmt::Display) -> String {
        format!("cannot listen on {place}: {}(): {}", self.0, text(self.1))
    }
}

impl Listeners {
    /// Has everything that the settings name: taken from `inherited` where it is there, else bound. What is inherited
    /// and not wanted any more is closed, its name in the file system too. As in PgBouncer, a place that the system
    /// refuses is only told of ([`Listeners::refused`]) as long as there is another of its kind, or another at all.
    ///
    /// # Errors
    /// [`ListenFault`]; whatever was bound before is closed again. A machine without IPv6 is no fault for `*`.
    pub fn open(global: &Global, mut inherited: Vec<Inherited>) -> Result<Listeners, ListenFault> {
        let (mut all, mut refused) = (Vec::new(), Vec::new());
        for entry in &global.listen_addr {
            for address in addresses(entry, global.listen_port)? {
                let found = take_inherited(&mut inherited, |one| one.address() == Some(address));
                match found
                    .map_or_else(|| tcp(address, global), |one| Ok(Listener::from_tcp(one, address, global)))
                {
                    Ok(listener) => all.push(Arc::new(listener)),
                    Err(Refusal(_, Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL)) if entry == "*" => {}
                    Err(why) => refused.push(why.at(address)),
                }
            }
        }
        if all.is_empty() && !global.listen_addr.is_empty() {
            return Err(ListenFault::Refused(global.listen_addr.join(","), refused));
        }
        if let Some(path) = unix_path(global) {
            match take_inherited(&mut inherited, |one| one.is_at(&path)) {
                Some(one) => all.push(Arc::new(Listener::from_unix(one, &path, global.listen_port))),
                None => match unix_listener(&path, global)? {
                    Ok(listener) => all.push(Arc::new(listener)),
                    Err(why) => refused.push(why.at(format_args!("unix:{path}"))),
                },
            }
        }
        inherited.iter().filter_map(|one| one.file.as_ref()).for_each(SocketFile::remove);
        if all.is_empty() { Err(ListenFault::Nowhere(refused)) } else { Ok(Listeners { all, refused }) }
    }

    /// Listens on what the service manager has bound, and on nothing else.
    ///
    /// # Errors
    /// [`ListenFault::Passed`] for a descriptor that is no such socket.
    pub fn passed(global: &Global, sockets: Vec<Inherited>) -> Result<Listeners, ListenFault> {
        let all: Result<Vec<_>, _> =
            sockets.into_iter().map(|socket| Listener::from_passed(socket, global).map(Arc::new)).collect();
        Ok(Listeners { all: all?, refused: Vec::new() })
    }

    /// Where it listens, for the log: `127.0.0.1:6432`, `unix:/tmp/.s.PGSQL.6432`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|listener| listener.name.as_str())
    }

    /// Where it was to listen and cannot, with the system's words.
    pub fn refused(&self) -> impl Iterator<Item = &str> {
        self.refused.iter().map(String::as_str)
    }

    /// The first TCP address in use (tests bind port 0).
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        let first = self.all.iter().find(|listener| listener.kind == Kind::Tcp)?;
        rustix::net::getsockname(&first.socket).ok()?.try_into().ok()
    }

    /// Options that RELOAD and SET may change.
    pub(crate) fn configure(&self, global: &Global) {
        let ours = self.all.iter().filter(|listener| !listener.is_left.load(Ordering::Acquire));
        for listener in ours.filter(|listener| listener.kind == Kind::Tcp) {
            options::change_listener(&listener.socket, global);
        }
    }

    /// Rejects new connections at once, even if other processes hold the sockets; `all` includes the unix socket. The service manager's stay open.
    /// What has connected to TCP sockets before is accepted: the system would reset it.
    pub(crate) fn close(&self, all: bool, mut accepted: impl FnMut(OwnedFd, Peer)) {
        let ours = self.all.iter().filter(|listener| !listener.is_left.load(Ordering::Acquire));
        let ours = ours.filter(|listener| listener.holder == Holder::Process);
        for listener in ours.filter(|listener| all || listener.kind == Kind::Tcp) {
            if listener.kind == Kind::Tcp {
                listener.accept_pending(&mut accepted);
            }
            let _ = rustix::net::shutdown(&listener.socket, Shutdown::Both);
            listener.remove_file();
        }
    }
}

impl Listener {
    /// Accepts a connection. None: there was one, and it is gone.
    pub(crate) fn accept(&self) -> Result<Option<(OwnedFd, Peer)>, Errno> {
        match acceptfrom_with(&self.socket, SocketFlags::CLOEXEC) {
            Ok((socket, remote)) => {
                let peer = self.peer_of(&socket, remote.and_then(|any| any.try_into().ok()));
                Ok(peer.map(|peer| (socket, peer)))
            }
            Err(Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    fn accept_pending(&self, accepted: &mut impl FnMut(OwnedFd, Peer)) {
        for _ in 0..MOST_PENDING {
            match self.accept() {
                Ok(Some((socket, peer))) => accepted(socket, peer),
                Ok(None) => {}
                Err(_) => return,
            }
        }
    }

    /// The other end of an accepted socket; None if it has disconnected already.
    fn peer_of(&self, socket: impl AsFd, remote: Option<SocketAddr>) -> Option<Peer> {
        match self.kind {
            Kind::Unix { port } => {
                let (process_id, user_id) = sys::peer_credentials(socket.as_fd())?;
                Some(Peer::Unix { process_id, user_id, port })
            }
            Kind::Tcp => {
                let ask = || rustix::net::getsockname(&socket).ok()?.try_into().ok();
                Some(Peer::Inet { remote: remote?, local: self.address.or_else(ask)? })
            }
        }
    }
}

impl Listeners {
    /// Whether anybody can still come: a process that ends shuts its listening sockets down, for all who share them.
    pub(crate) fn any_listens(&self) -> bool {
        self.all.iter().any(|listener| match listener.kind {
            _ if listener.holder == Holder::ServiceManager => true,
            Kind::Tcp => sockopt::socket_acceptconn(&listener.socket) == Ok(true),
            // A unix socket still says that it listens after that; but closing it removes its file.
            Kind::Unix { .. } => listener.file.as_ref().is_some_and(SocketFile::is_there),
        })
    }

    /// Whether another process goes on with these sockets.
    pub(crate) fn leave_to_successor(&self, is_left: bool) {
        self.all.iter().for_each(|listener| listener.is_left.store(is_left, Ordering::Release));
    }
}

impl Listener {
    /// An inherited socket of a TCP address that the settings name.
    fn from_tcp(inherited: Inherited, address: SocketAddr, global: &Global) -> Listener {
        options::change_listener(&inherited.socket, global);
        let _ = listen(&inherited.socket, backlog(global));
        Listener::new(inherited.socket, Kind::Tcp, address.to_string(), inherited.holder, None)
    }

    /// The inherited unix socket of the settings.
    fn from_unix(inherited: Inherited, path: &str, port: u16) -> Listener {
        Listener::new(
            inherited.socket,
            Kind::Unix { port },
            format!("unix:{path}"),
            inherited.holder,
            inherited.file,
        )
    }

    /// A socket as the service manager has passed it.
    fn from_passed(passed: Inherited, global: &Global) -> Result<Listener, ListenFault> {
        if sockopt::socket_acceptconn(&passed.socket) != Ok(true) {
            return Err(ListenFault::Passed);
        }
        // A thread that was woken may find that another one was quicker.
        ioctl_fionbio(&passed.socket, true).map_err(|_| ListenFault::Passed)?;
        if let Some(address) = passed.address() {
            // What the manager has set stays where the settings say nothing.
            options::apply_to_listener(&passed.socket, global);
            return Ok(Listener::new(passed.socket, Kind::Tcp, address.to_string(), passed.holder, None));
        }
        let address = rustix::net::getsockname(&passed.socket).map_err(|_| ListenFault::Passed)?;
        let address = SocketAddrUnix::try_from(address).map_err(|_| ListenFault::Passed)?;
        let path = match (address.path(), address.abstract_name()) {
            (Some(path), _) => path.to_string_lossy().into_owned(),
            (None, name) => format!("@{}", String::from_utf8_lossy(name.unwrap_or_default())),
        };
        let port = path.rsplit_once(".s.PGSQL.").and_then(|(_, port)| port.parse().ok());
        Ok(Listener::from_unix(passed, &path, port.unwrap_or(global.listen_port)))
    }

    pub(crate) fn new(
        socket: OwnedFd,
        kind: Kind,
        name: String,
        holder: Holder,
        file: Option<SocketFile>,
    ) -> Listener {
        let address = rustix::net::getsockname(&socket).ok().and_then(|any| SocketAddr::try_from(any).ok());
        let address = address.filter(|address| !address.ip().is_unspecified());
        Listener { socket, kind, address, name, holder, file, is_left: AtomicBool::new(false) }
    }

    /// Whether the service manager has it too.
    pub(crate) fn is_passed(&self) -> bool {
        self.holder == Holder::ServiceManager
    }

    /// Its name in the file system with its inode.
    pub(crate) fn file(&self) -> Option<(&Path, u64)> {
        self.file.as_ref().map(|file| (&*file.path, file.inode))
    }

    fn remove_file(&self) {
        if self.is_left.load(Ordering::Acquire) {
            return;
        }
        if let Some(file) = &self.file {
            file.remove();
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

fn tcp(address: SocketAddr, global: &Global) -> Result<Listener, Refusal> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, FLAGS, Some(ipproto::TCP));
    let socket = socket.map_err(|why| Refusal("socket", why))?;
    let option = |why| Refusal("setsockopt", why);
    sockopt::set_socket_reuseaddr(&socket, true).map_err(option)?;
    if global.so_reuseport {
        sockopt::set_socket_reuseport(&socket, true).map_err(option)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true).map_err(option)?;
    }
    let bound = until_left(|| bind(&socket, &address), |bound| *bound == Err(Errno::ADDRINUSE));
    bound.map_err(|why| Refusal("bind", why))?;
    options::apply_to_listener(&socket, global);
    listen(&socket, backlog(global)).map_err(|why| Refusal("listen", why))?;
    Ok(Listener::new(socket, Kind::Tcp, address.to_string(), Holder::Process, None))
}

/// Tries until the place is not another process's any more, or that process evidently stays.
fn until_left<T>(mut attempt: impl FnMut() -> T, is_in_use: impl Fn(&T) -> bool) -> T {
    let begun = Instant::now();
    loop {
        let outcome = attempt();
        if !is_in_use(&outcome) || begun.elapsed() >= LEAVING {
            return outcome;
        }
        thread::sleep(ASK_AGAIN);
    }
}

fn backlog(global: &Global) -> i32 {
    i32::try_from(global.listen_backlog).unwrap_or(i32::MAX)
}

/// Where the unix socket is to be, if anywhere.
#[must_use]
pub fn unix_path(global: &Global) -> Option<String> {
    let directory = global.unix_socket_dir.as_deref().filter(|directory| !directory.is_empty())?;
    Some(format!("{directory}/.s.PGSQL.{}", global.listen_port))
}

/// The inner error is the system's and no reason to give up; the outer one is.
fn unix_listener(path: &str, global: &Global) -> Result<Result<Listener, Refusal>, ListenFault> {
    if until_left(|| unix(path).is_ok(), |is_in_use| *is_in_use) {
        return Err(ListenFault::UnixInUse(path.to_owned()));
    }
    let socket = match unix_bound(path) {
        Ok(socket) => socket,
        Err(why) => return Ok(Err(why)),
    };
    let file = if path.starts_with('@') { None } else { Some(own_file(path, global)?) };
    let listening = listen(&socket, backlog(global)).map_err(|why| Refusal("listen", why));
    let kind = Kind::Unix { port: global.listen_port };
    Ok(listening.map(|()| Listener::new(socket, kind, format!("unix:{path}"), Holder::Process, file)))
}

/// A socket of that name. One that is left over from a process that has ended is replaced.
fn unix_bound(path: &str) -> Result<OwnedFd, Refusal> {
    let bind_refused = |why| Refusal("bind", why);
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None);
    let socket = socket.map_err(|why| Refusal("socket", why))?;
    let address = unix_address(path).map_err(bind_refused)?;
    if path.starts_with('@') {
        return bind(&socket, &address).map_err(bind_refused).map(|()| socket);
    }
    securefs::close_to_others(&socket).map_err(bind_refused)?;
    let mut outcome = bind(&socket, &address);
    if outcome == Err(Errno::ADDRINUSE) && securefs::remove_socket(path).is_ok() {
        outcome = bind(&socket, &address);
    }
    outcome.map_err(bind_refused).map(|()| socket)
}

/// Sets group and permissions of the socket's file, before listen, so that no client connects with the wrong ones.
fn own_file(path: &str, global: &Global) -> Result<SocketFile, ListenFault> {
    let refused = |fault: io::Error| ListenFault::File(format!("unix:{path}"), fault.to_string());
    let group = global.unix_socket_group.as_deref().filter(|group| !group.is_empty());
    let group_id =
        |group: &str| sys::group_id(group).ok_or_else(|| ListenFault::NoSuchGroup(group.to_owned()));
    let group = group.map(group_id).transpose()?;
    let inode = securefs::open_socket_to(path, group, global.unix_socket_mode).map_err(refused)?;
    Ok(SocketFile { path: PathBuf::from(path), inode })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn an_address_is_taken_as_soon_as_the_process_before_has_left_it() {
        let before = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = before.local_addr().expect("an address").port();
        let mut global = Global::default();
        (global.listen_port, global.unix_socket_dir) = (port, None);
        global.listen_addr = vec!["127.0.0.1".to_owned()];
        let leaving = thread::spawn(move || {
            thread::sleep(4 * ASK_AGAIN);
            drop(before);
        });
        let opened = Listeners::open(&global, Vec::new());
        leaving.join().expect("it has left");
        assert!(opened.is_ok_and(|opened| opened.tcp_address().map(|address| address.port()) == Some(port)));
    }
}
