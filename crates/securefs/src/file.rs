//! One file by its path: appended to, made anew, exchanged.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fcntl_getfl, fcntl_setfl, fstat, openat, statat};

use crate::{beside, is_trusted, name_of, parent, refused, user};

/// Before what is already there is known, nothing waits for it: a FIFO without a reader would.
const CAREFUL: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Opens a file to append to, which is made with this mode if it is not there. A link is followed if it is this user's, root's, or in
/// a directory that others cannot write to: `/dev/stdout` is one.
///
/// # Errors
/// The system's, [`io::ErrorKind::PermissionDenied`] for what another user may have prepared.
pub fn append(path: impl AsRef<Path>, mode: u32) -> io::Result<File> {
    open(path.as_ref(), OFlags::WRONLY | OFlags::APPEND, mode, true)
}

/// Opens a file to be written anew in its place (its name and inode stay), made with this mode if it is not there. Follows no link.
///
/// # Errors
/// As [`append`].
pub fn overwrite(path: impl AsRef<Path>, mode: u32) -> io::Result<File> {
    let path = path.as_ref();
    let file = open(path, OFlags::WRONLY, mode, false)?;
    let found = fstat(&file)?;
    // A second name could be that of another file of this user.
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || found.st_nlink > 1 {
        return Err(refused(path, "is not a file of its own"));
    }
    file.set_len(0)?;
    Ok(file)
}

/// Creates a file, in the place of one that is there already.
///
/// # Errors
/// The system's.
pub fn create(path: impl AsRef<Path>, mode: u32) -> io::Result<File> {
    let path = path.as_ref();
    let (directory, _) = parent(path)?;
    match create_new(&directory, path, OFlags::WRONLY, mode) {
        Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            create_new(&directory, path, OFlags::WRONLY, mode)
        }
        created => created,
    }
}

/// Puts a file in the place of another in one step: written beside it under a name that nobody can know beforehand, and on the
/// disk before it has its name. What is there keeps its mode, and a link stays one.
///
/// # Errors
/// As [`append`]; what was there is as it was.
pub fn replace(path: impl AsRef<Path>, bytes: &[u8], mode: u32) -> io::Result<()> {
    let path = resolved(path.as_ref())?;
    let mode = fs::metadata(&path).map_or(mode, |found| found.permissions().mode() & 0o777);
    exchange(&path, bytes, mode)
}

/// As [`replace`], whatever mode the file before has, and in the place of a link.
///
/// # Errors
/// As [`replace`].
pub fn replace_with_mode(path: impl AsRef<Path>, bytes: &[u8], mode: u32) -> io::Result<()> {
    exchange(path.as_ref(), bytes, mode)
}

fn exchange(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let beside = beside(path)?;
    let (directory, _) = parent(path)?;
    let written = fill(&directory, &beside, bytes, mode).and_then(|()| fs::rename(&beside, path));
    if let Err(fault) = written {
        // Where it was never made there is nothing to remove.
        let _ = fs::remove_file(&beside);
        return Err(fault);
    }
    // Without this the new name could be lost with the power; the file is exchanged whether or not it can be done.
    let _ = File::open(crate::directory_of(path)).and_then(|directory| directory.sync_all());
    Ok(())
}

fn fill(directory: &OwnedFd, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = create_new(directory, path, OFlags::WRONLY, 0o600)?;
    file.write_all(bytes)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.sync_all()
}

/// The file that is meant by a path, which may be a link to it. One that is not there yet is itself.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    let (directory, around) = parent(path)?;
    match statat(&directory, name_of(path)?, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if !is_trusted(&around, &found, user()) => Err(of_another(path)),
        Ok(_) => Ok(fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())),
        Err(rustix::io::Errno::NOENT) => Ok(path.to_owned()),
        Err(fault) => Err(fault.into()),
    }
}

fn open(path: &Path, flags: OFlags, mode: u32, follows: bool) -> io::Result<File> {
    let (directory, around) = parent(path)?;
    match create_new(&directory, path, flags, mode) {
        Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created,
    }
    let name = name_of(path)?;
    let file = match openat(&directory, name, flags | CAREFUL, Mode::empty()) {
        Err(rustix::io::Errno::LOOP) if follows => return open_link(&directory, &around, path, flags, mode),
        // Nobody reads this FIFO yet.
        Err(rustix::io::Errno::NXIO) if follows => return open_waiting(&directory, &around, path, flags),
        Err(rustix::io::Errno::LOOP) => return Err(refused(path, "is a symbolic link")),
        opened => File::from(opened?),
    };
    if !is_trusted(&around, &fstat(&file)?, user()) {
        return Err(of_another(path));
    }
    waiting(&file)?;
    Ok(file)
}

fn open_link(directory: &OwnedFd, around: &Stat, path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
    let link = statat(directory, name_of(path)?, AtFlags::SYMLINK_NOFOLLOW)?;
    if !is_trusted(around, &link, user()) {
        return Err(of_another(path));
    }
    let flags = flags | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(File::from(openat(directory, name_of(path)?, flags, Mode::from_raw_mode(mode))?))
}

fn open_waiting(directory: &OwnedFd, around: &Stat, path: &Path, flags: OFlags) -> io::Result<File> {
    let found = statat(directory, name_of(path)?, AtFlags::SYMLINK_NOFOLLOW)?;
    if !is_trusted(around, &found, user()) {
        return Err(of_another(path));
    }
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(File::from(openat(directory, name_of(path)?, flags, Mode::empty())?))
}

/// Writes wait again, as they do for a file that was just made.
fn waiting(file: &File) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    Ok(fcntl_setfl(file, flags.difference(OFlags::NONBLOCK))?)
}

fn create_new(directory: &OwnedFd, path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
    let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(openat(directory, name_of(path)?, flags, Mode::from_raw_mode(mode))?))
}

fn of_another(path: &Path) -> io::Error {
    refused(path, "belongs to another user, in a directory that others can write to")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Directory;
    use std::os::unix::fs::{MetadataExt as _, chown, symlink};

    struct Scratch(Directory);

    impl Scratch {
        fn new() -> Scratch {
            Scratch(Directory::scratch(&std::env::temp_dir(), "weir-securefs").unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// As /tmp is.
        fn opened_to_all(self) -> Scratch {
            fs::set_permissions(self.0.path(), fs::Permissions::from_mode(0o1777)).unwrap();
            self
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0.path());
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_new_file_has_its_mode_and_an_old_one_keeps_its_own() {
        let scratch = Scratch::new();
        let path = scratch.path("log");
        append(&path, 0o640).unwrap().write_all(b"one\n").unwrap();
        assert_eq!(mode(&path) & !0o640, 0);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
        append(&path, 0o640).unwrap().write_all(b"two\n").unwrap();
        assert_eq!((mode(&path), fs::read(&path).unwrap()), (0o604, b"one\ntwo\n".to_vec()));
        replace(&path, b"three", 0o600).unwrap();
        assert_eq!((mode(&path), fs::read(&path).unwrap()), (0o604, b"three".to_vec()));
        overwrite(&path, 0o644).unwrap().write_all(b"4").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"4");
        create(&path, 0o600).unwrap();
        assert_eq!((mode(&path), fs::read(&path).unwrap()), (0o600, Vec::new()));
        replace_with_mode(&path, b"", 0o644).unwrap();
        assert_eq!(mode(&path), 0o644);
        let left: Vec<_> = fs::read_dir(scratch.0.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn links_of_this_user_are_followed_where_a_file_is_appended_to_and_nowhere_else() {
        let scratch = Scratch::new().opened_to_all();
        let (target, link) = (scratch.path("target"), scratch.path("link"));
        fs::write(&target, "old").unwrap();
        symlink("target", &link).unwrap();
        append(&link, 0o640).unwrap().write_all(b"er").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"older");
        replace(&link, b"new", 0o600).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert!(overwrite(&link, 0o644).unwrap_err().to_string().contains("symbolic link"));
        create(&link, 0o644).unwrap();
        assert!(!fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"new");
        fs::hard_link(&target, scratch.path("second")).unwrap();
        assert!(overwrite(scratch.path("second"), 0o644).is_err());
        assert_eq!(fs::read(&target).unwrap(), b"new");
    }

    #[test]
    fn what_another_user_has_prepared_is_refused() {
        let scratch = Scratch::new().opened_to_all();
        let (target, link, file) = (scratch.path("target"), scratch.path("link"), scratch.path("file"));
        fs::write(&target, "old").unwrap();
        symlink("target", &link).unwrap();
        fs::write(&file, "").unwrap();
        // Only root can play the other user.
        for path in [&link, &file] {
            if std::os::unix::fs::lchown(path, Some(65_534), None).is_err() {
                return;
            }
        }
        for path in [&link, &file] {
            for outcome in [append(path, 0o640).map(drop), replace(path, b"x", 0o600)] {
                assert_eq!(
                    outcome.unwrap_err().kind(),
                    io::ErrorKind::PermissionDenied,
                    "{}",
                    path.display()
                );
            }
            assert!(overwrite(path, 0o644).is_err(), "{}", path.display());
        }
        assert_eq!(fs::read(&target).unwrap(), b"old");
        fs::set_permissions(scratch.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        append(&file, 0o640).unwrap();
        chown(&file, Some(0), None).unwrap();
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing_behind() {
        let scratch = Scratch::new();
        let fault = replace(scratch.path("gone/p.ini"), b"x", 0o600).unwrap_err();
        assert_eq!(fault.kind(), io::ErrorKind::NotFound);
        // A directory stands where the file should be: the rename fails, after all has been written.
        fs::create_dir(scratch.path("dir.ini")).unwrap();
        replace(scratch.path("dir.ini"), b"x", 0o600).unwrap_err();
        assert_eq!(fs::read_dir(scratch.0.path()).unwrap().count(), 1);
    }

    #[test]
    fn devices_and_descriptors_can_be_appended_to() {
        append("/dev/null", 0o640).unwrap().write_all(b"x").unwrap();
        let scratch = Scratch::new();
        let file = create(scratch.path("a"), 0o600).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        append(format!("/proc/self/fd/{fd}"), 0o640).unwrap().write_all(b"x").unwrap();
        assert_eq!(fs::read(scratch.path("a")).unwrap(), b"x");
    }
}
