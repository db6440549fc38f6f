//! Listening sockets bound by another process, the service manager or the predecessor, and files of unix sockets.
//!
//! Owns recognising the one that the settings want. Never binds and never accepts.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::net::SocketAddrUnix;

use crate::connect::unix_address;

/// The file of a listening unix socket. It is removed when the socket is closed, unless another socket has its name by then.
pub(crate) struct SocketFile {
    pub(crate) path: PathBuf,
    pub(crate) inode: u64,
}

impl SocketFile {
    /// Whether the file of that name is still this one.
    pub(crate) fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode)
    }

    /// Removes it, if it is still this one.
    pub(crate) fn remove(&self) {
        if self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whose a listening socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// This process's, and the one's that takes over from it: nobody can come any more when it ends.
    Process,
    /// The service manager's, which passes it to the next process too: what comes meanwhile waits in it.
    ServiceManager,
}

/// A listening socket bound by another process.
pub struct Inherited {
    pub(crate) socket: OwnedFd,
    pub(crate) holder: Holder,
    /// Its file, where that is this process's to remove.
    pub(crate) file: Option<SocketFile>,
}

impl Inherited {
    /// Whether the service manager has it too.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        self.holder == Holder::ServiceManager
    }

    /// Where a TCP socket is bound.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        rustix::net::getsockname(&self.socket).ok()?.try_into().ok()
    }

    /// Whether it is a unix socket of this path.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        let wanted = unix_address(path).ok();
        let bound = rustix::net::getsockname(&self.socket).ok();
        let own: Option<SocketAddrUnix> = bound.and_then(|any| any.try_into().ok());
        own.is_some() && own == wanted
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
