//! A directory of this user alone, used through its handle, so that whoever renames its path changes nothing.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, mkdirat, openat, stat, statat};

use crate::{directory_of, is_open_to_all, is_trusted, name_of, parent, random_name, refused, user};

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Nobody else may look in.
const PRIVATE: u32 = 0o700;

/// The directory; dropping it leaves it where it is.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    handle: OwnedFd,
}

impl Directory {
    /// Makes `PARENT/PREFIX-…` with a name that nobody can know beforehand and mode 0700.
    ///
    /// # Errors
    /// The parent can be written by others who could then replace it (no sticky bit), or the system's.
    pub fn scratch(parent: &Path, prefix: &str) -> io::Result<Directory> {
        if is_open_to_all(&stat(parent)?) {
            return Err(refused(parent, "can be written by others and has no sticky bit"));
        }
        let name = format!("{prefix}-{}", random_name()?);
        let (path, handle) =
            (parent.join(&name), openat(CWD, parent, DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty())?);
        made(&handle, &name, path)
    }

    /// A directory that stays, made with mode 0700 (and those above it with the usual mode) if it is not there. One that is there
    /// is this user's, and no other user can write to it.
    ///
    /// # Errors
    /// The system's, [`io::ErrorKind::PermissionDenied`] for a directory of another user or one that others can write to.
    pub fn private(path: &Path) -> io::Result<Directory> {
        fs::create_dir_all(directory_of(path))?;
        match fs::DirBuilder::new().mode(PRIVATE).create(path) {
            Err(fault) if fault.kind() != io::ErrorKind::AlreadyExists => return Err(fault),
            _ => {}
        }
        // systemd makes a link of the name where the user is a dynamic one: whose directory it is counts.
        let handle = openat(CWD, path, DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty())?;
        let found = fstat(&handle)?;
        if found.st_uid != user() || found.st_mode & 0o022 != 0 {
            return Err(refused(path, "belongs to another user, or others can write to it"));
        }
        Ok(Directory { path: path.to_owned(), handle })
    }

    /// Opens a directory in this one, which is this user's alone.
    ///
    /// # Errors
    /// The system's, [`io::ErrorKind::PermissionDenied`] for one of another user.
    pub fn open_directory(&self, name: &str) -> io::Result<Directory> {
        opened(&self.handle, name, self.path.join(name))
    }

    /// Makes a directory in this one.
    ///
    /// # Errors
    /// The system's; there is something of that name already.
    pub fn create_directory(&self, name: &str) -> io::Result<Directory> {
        made(&self.handle, name, self.path.join(name))
    }

    /// Where it was made.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes of a file in here: a regular one of this user, no link, and no longer than `most` bytes (None if it is).
    ///
    /// # Errors
    /// The system's, [`io::ErrorKind::PermissionDenied`] for what is not such a file.
    pub fn read(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.handle, name, flags, Mode::empty())?;
        let found = fstat(&file)?;
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if !is_file || found.st_uid != user() {
            return Err(refused(&self.path.join(name), "is not a file of this user"));
        }
        let mut bytes = Vec::new();
        File::from(file).take(most + 1).read_to_end(&mut bytes)?;
        Ok((bytes.len() as u64 <= most).then_some(bytes))
    }

    /// Creates a file in here that only this user reads.
    ///
    /// # Errors
    /// The system's; there is something of that name already.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.handle, name, flags, Mode::from_raw_mode(0o600))?;
        File::from(file).write_all(bytes)
    }

    /// The directory has been removed: nothing can be made in it any more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        fstat(&self.handle).is_ok_and(|found| found.st_nlink == 0)
    }
}

/// Makes a directory with the usual mode, and those above it; one that is there already may be used unless another user can have
/// prepared it.
///
/// # Errors
/// The system's, [`io::ErrorKind::PermissionDenied`] for what another user may have prepared.
pub fn create_directory(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    fs::create_dir_all(directory_of(path))?;
    match fs::create_dir(path) {
        Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let (directory, around) = parent(path)?;
    let found = statat(&directory, name_of(path)?, AtFlags::SYMLINK_NOFOLLOW)?;
    if !is_trusted(&around, &found, user()) {
        return Err(refused(path, "belongs to another user, in a directory that others can write to"));
    }
    if path.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// mkdir(2) follows no link and takes nothing that is there; who is quicker than the open afterwards is found out.
fn made(parent: &OwnedFd, name: &str, path: PathBuf) -> io::Result<Directory> {
    mkdirat(parent, name, Mode::from_raw_mode(PRIVATE))?;
    opened(parent, name, path)
}

fn opened(parent: &OwnedFd, name: &str, path: PathBuf) -> io::Result<Directory> {
    let handle = openat(parent, name, DIRECTORY, Mode::empty())?;
    let found = fstat(&handle)?;
    if found.st_uid != user() || found.st_mode & 0o077 != 0 {
        return Err(refused(&path, "is not this user's alone"));
    }
    Ok(Directory { path, handle })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn scratch() -> Directory {
        Directory::scratch(&std::env::temp_dir(), "weir-securefs").unwrap()
    }

    #[test]
    fn a_directory_is_this_users_alone_and_its_name_new() {
        let (one, other) = (scratch(), scratch());
        assert_ne!(one.path(), other.path());
        let inner = one.create_directory("a").unwrap();
        for path in [one.path(), inner.path()] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
        }
        assert_eq!(one.create_directory("a").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        symlink(other.path(), one.path().join("b")).unwrap();
        assert_eq!(one.create_directory("b").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::set_permissions(other.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Directory::scratch(other.path(), "x").unwrap_err().to_string().contains("sticky"));
        fs::remove_dir_all(one.path()).unwrap();
        fs::remove_dir_all(other.path()).unwrap();
        assert!(one.is_gone());
    }

    #[test]
    fn a_directory_that_stays_is_this_users_and_opened_again() {
        let place = scratch();
        let path = place.path().join("a/state");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let first = Directory::private(&path).unwrap();
        first.create_directory("run").unwrap().write("f", b"x").unwrap();
        assert_eq!(mode(&path), 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let again = Directory::private(&path).unwrap().open_directory("run").unwrap();
        assert_eq!(again.read("f", 9).unwrap().as_deref(), Some(&b"x"[..]));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o775)).unwrap();
        assert_eq!(Directory::private(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        fs::remove_dir_all(place.path()).unwrap();
    }

    #[test]
    fn a_directory_that_another_user_has_prepared_is_refused() {
        let place = scratch();
        let (path, link) = (place.path().join("a/b"), place.path().join("a/c"));
        create_directory(&path).unwrap();
        create_directory(&path).unwrap();
        symlink("b", &link).unwrap();
        create_directory(&link).unwrap();
        fs::set_permissions(place.path().join("a"), fs::Permissions::from_mode(0o1777)).unwrap();
        // Only root can play the other user.
        if std::os::unix::fs::lchown(&path, Some(65_534), None).is_ok() {
            assert_eq!(create_directory(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        fs::write(place.path().join("f"), "").unwrap();
        assert!(create_directory(place.path().join("f")).is_err());
        fs::remove_dir_all(place.path()).unwrap();
    }

    #[test]
    fn what_is_read_is_what_was_written_here_whatever_the_path_leads_to() {
        let place = scratch();
        let run = place.create_directory("run").unwrap();
        run.write("page", b"mine").unwrap();
        assert_eq!(run.write("page", b"").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::rename(run.path(), place.path().join("stolen")).unwrap();
        fs::create_dir(run.path()).unwrap();
        fs::write(run.path().join("page"), "theirs").unwrap();
        assert_eq!(run.read("page", 9).unwrap().as_deref(), Some(&b"mine"[..]));
        assert_eq!(run.read("page", 3).unwrap(), None);
        symlink("/etc/passwd", place.path().join("stolen/link")).unwrap();
        assert!(run.read("link", 9).is_err());
        assert_eq!(place.read("stolen", 9).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        fs::remove_dir_all(place.path()).unwrap();
    }
}
