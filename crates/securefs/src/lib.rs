//! Files and directories that Weir creates, safe where other users of the machine may write too (`/tmp`).
//!
//! Owns their mode, which no umask widens, and the rule of whose file an existing name may be ([`is_trusted`]). Never
//! decides what is written, and never follows a symbolic link that another user could have made.
#![forbid(unsafe_code)]

mod directory;
mod file;
mod memory;
mod socket;

pub use directory::{Directory, create_directory};
pub use file::{append, create, overwrite, replace, replace_with_mode};
pub use memory::in_memory;
pub use socket::{close_to_others, open_socket_to, remove_socket};

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, Stat, fstat, openat};

/// Others may write to a directory.
const OTHERS_WRITE: u32 = 0o002;
/// Of a directory that all may write to, each may remove and rename only what is theirs.
const STICKY: u32 = 0o1000;
/// The user who may do everything anyway.
const ROOT: u32 = 0;

/// An existing name in a directory may be used: nobody else could have put it there, or it is this user's or root's. The kernel
/// has the same rule where fs.protected_symlinks, protected_regular and protected_fifos are on.
fn is_trusted(directory: &Stat, entry: &Stat, user: u32) -> bool {
    directory.st_mode & OTHERS_WRITE == 0 || entry.st_uid == user || entry.st_uid == ROOT
}

/// What is made in this directory could be renamed and replaced by others.
fn is_open_to_all(directory: &Stat) -> bool {
    directory.st_mode & OTHERS_WRITE != 0 && directory.st_mode & STICKY == 0
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The directory of a path, by its own handle.
fn parent(path: &Path) -> io::Result<(rustix::fd::OwnedFd, Stat)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let handle = openat(CWD, directory_of(path), flags, Mode::empty())?;
    let found = fstat(&handle)?;
    Ok((handle, found))
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn name_of(path: &Path) -> io::Result<&OsStr> {
    path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

/// 64 random bits in hexadecimal: short, for the path of a unix socket has at most 107 bytes.
///
/// # Errors
/// The system has no entropy.
fn random_name() -> io::Result<String> {
    let mut bytes = [0_u8; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {why}", path.display()))
}

/// A path beside `path` that nobody can know beforehand.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = name_of(path)?.to_string_lossy();
    Ok(directory_of(path).join(format!(".{name}.{}.new", random_name()?)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn stat(mode: u32, user: u32) -> Stat {
        let mut stat = fstat(std::fs::File::open("/").unwrap()).unwrap();
        (stat.st_mode, stat.st_uid) = (mode, user);
        stat
    }

    #[test]
    fn names_of_others_count_only_where_others_cannot_write() {
        let (tmp, own) = (stat(0o41777, 0), stat(0o40755, 7));
        for (directory, owner, expected) in
            [(&tmp, 7, true), (&tmp, 0, true), (&tmp, 8, false), (&own, 8, true)]
        {
            assert_eq!(is_trusted(directory, &stat(0o100_644, owner), 7), expected, "{owner}");
        }
        assert!(is_open_to_all(&stat(0o40777, 0)) && !is_open_to_all(&tmp) && !is_open_to_all(&own));
    }

    #[test]
    fn no_two_names_are_the_same() {
        assert_ne!(random_name().unwrap(), random_name().unwrap());
        assert_eq!(random_name().unwrap().len(), 16);
    }
}
