//! The process at the other end of a unix socket: its user, and how long it is waited for.
//!
//! Of two processes that take over from one another each must be the same user's, or root's: no other may receive
//! clients and servers, or send any. Never knows what the two say.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

const ROOT: u32 = 0;
/// How long to wait before a socket is tried again at which too many queue already.
const RETRY: Duration = Duration::from_millis(10);

/// The address of a path; a first `@` means the abstract name space.
pub(super) fn address(path: &str) -> io::Result<SocketAddrUnix> {
    Ok(match path.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        None => SocketAddrUnix::new(path)?,
    })
}

/// The owner of a socket's file, if that user is not trusted: the process behind it need not be asked then.
pub(super) fn foreign_owner(path: &str) -> Option<u32> {
    let owner = std::fs::symlink_metadata(path).ok()?.uid();
    (!is_trusted(owner)).then_some(owner)
}

/// Whether the process at the other end may be dealt with; else whose it is. Of a listening socket that is who listens.
pub(super) fn check(socket: impl AsFd) -> Result<(), u32> {
    match crate::sys::peer_credentials(socket.as_fd()) {
        Some((_, user_id)) if is_trusted(user_id) => Ok(()),
        Some((_, user_id)) => Err(user_id),
        None => Err(u32::MAX),
    }
}

fn is_trusted(user_id: u32) -> bool {
    user_id == ROOT || user_id == crate::process::user_id()
}

/// Connects; None if no process listens there, TimedOut if its backlog stays full.
pub(super) fn connect_by(address: &SocketAddrUnix, until: Instant) -> io::Result<Option<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    loop {
        match connect(&socket, address) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(RETRY),
            Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) => return Ok(None),
        }
    }
    ioctl_fionbio(&socket, false)?;
    Ok(Some(socket))
}

/// Waits for bytes, a connection or the end; TimedOut if there is none by then.
pub(super) fn wait_readable(socket: impl AsFd, until: Instant) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = left.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
        // After the deadline, what has come already is not looked at either.
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(fault) => return Err(fault.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

    use super::*;

    #[test]
    fn own_processes_and_those_of_root_are_trusted() {
        let (near, _far) = UnixStream::pair().unwrap();
        assert_eq!(check(&near), Ok(()));
        let own = crate::process::user_id();
        assert!(is_trusted(own) && is_trusted(ROOT) && !is_trusted(own.wrapping_add(1).max(1)));
        assert_eq!(foreign_owner("/"), None, "root's");
        assert_eq!(foreign_owner("/no such file"), None);
    }

    #[test]
    fn a_full_queue_and_a_closed_door_are_told_apart() {
        let name = format!("weir-test-peer-{}", std::process::id());
        let address = address(&format!("@{name}")).unwrap();
        assert!(connect_by(&address, Instant::now()).unwrap().is_none());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let mut queued = Vec::new();
        let full = loop {
            match connect_by(&address, Instant::now()) {
                Ok(socket) => queued.push(socket.unwrap()),
                Err(fault) => break fault,
            }
            assert!(queued.len() < 100, "nothing fills up");
        };
        assert_eq!(full.kind(), io::ErrorKind::TimedOut);
        drop(listener);
    }
}
