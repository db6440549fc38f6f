//! The file of a unix socket: made for this user alone, then opened to those it is for.

use std::io;
use std::path::Path;

use rustix::fd::{AsFd, AsRawFd as _};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, chmod, chownat, fchmod, fstat, openat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::{name_of, parent, refused, user};

/// To be called before bind(2): the file then has no more than this user's permissions, whatever the umask.
///
/// # Errors
/// The system's.
pub fn close_to_others(socket: impl AsFd) -> Result<(), Errno> {
    fchmod(socket, Mode::from_raw_mode(0o600))
}

/// Gives the file of a socket that this process has bound its group and permissions, by its handle; gives its inode.
///
/// # Errors
/// The system's, [`io::ErrorKind::PermissionDenied`] where the path leads to something else by now.
pub fn open_socket_to(path: impl AsRef<Path>, group: Option<u32>, mode: u32) -> io::Result<u64> {
    let path = path.as_ref();
    let handle = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let found = fstat(&handle)?;
    if !is_socket(&found) || found.st_uid != user() {
        return Err(refused(path, "is not the socket that was made there"));
    }
    if let Some(group) = group {
        chownat(&handle, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)?;
    }
    // chmod(2) by a handle of the path alone is not for every kernel.
    chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), Mode::from_raw_mode(mode))?;
    Ok(found.st_ino)
}

/// Removes the file of a socket that a process has left behind; nothing else.
///
/// # Errors
/// The system's, [`io::ErrorKind::PermissionDenied`] for what is no socket.
pub fn remove_socket(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    let (directory, _) = parent(path)?;
    if !is_socket(&statat(&directory, name_of(path)?, AtFlags::SYMLINK_NOFOLLOW)?) {
        return Err(refused(path, "is not a socket"));
    }
    Ok(unlinkat(&directory, name_of(path)?, AtFlags::empty())?)
}

fn is_socket(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Socket
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Directory;
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_sockets_are_opened_to_others_and_removed() {
        let scratch = Directory::scratch(&std::env::temp_dir(), "weir-socket").unwrap();
        let (socket, file, link) =
            (scratch.path().join("s"), scratch.path().join("f"), scratch.path().join("l"));
        let _listener = UnixListener::bind(&socket).unwrap();
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink("s", &link).unwrap();
        let before = fs::metadata(&file).unwrap().mode();
        assert_eq!(open_socket_to(&socket, None, 0o777).unwrap(), fs::metadata(&socket).unwrap().ino());
        assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o777);
        for other in [&file, &link] {
            assert_eq!(
                open_socket_to(other, None, 0o777).unwrap_err().kind(),
                io::ErrorKind::PermissionDenied
            );
            assert_eq!(remove_socket(other).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        assert_eq!(fs::metadata(&file).unwrap().mode(), before);
        remove_socket(&socket).unwrap();
        assert!(!socket.exists());
        fs::remove_dir_all(scratch.path()).unwrap();
    }

    #[test]
    fn a_socket_is_born_for_this_user_alone() {
        let scratch = Directory::scratch(&std::env::temp_dir(), "weir-socket").unwrap();
        let path = scratch.path().join("s");
        let socket =
            rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None)
                .unwrap();
        close_to_others(&socket).unwrap();
        rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o177, 0);
        fs::remove_dir_all(scratch.path()).unwrap();
    }
}
