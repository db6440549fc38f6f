//! One directory in which everything of a run lives: data, sockets, logs, copied programs. It belongs to the
//! user that the programs run as, no other user can read it, and it is removed when the value is dropped.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use securefs::Directory;

use crate::error::{LabError, Result};
use crate::identity::Identity;

/// A unix socket's path has at most 107 bytes; PostgreSQL and poolers add about 20 to the directory.
const LONGEST_DIRECTORY: usize = 80;

/// The directory; dropping it removes it with all that is in it.
#[derive(Debug)]
pub struct ScratchDir {
    path: PathBuf,
    identity: Identity,
}

impl ScratchDir {
    /// Makes `PARENT/weir-PURPOSE-…`; without a parent in the system's directory for temporary files.
    ///
    /// # Errors
    /// When it cannot be made, others could replace it, or less than `needed_bytes` are free there.
    pub fn create(
        parent: Option<&Path>,
        purpose: &str,
        needed_bytes: u64,
        identity: &Identity,
    ) -> Result<Self> {
        let parent = parent.map_or_else(|| default_parent(identity), Path::to_path_buf);
        require_space(&parent, needed_bytes)?;
        let made = Directory::scratch(&parent, &format!("weir-{purpose}"));
        let made = made.map_err(LabError::system(format!("making a directory in {}", parent.display())))?;
        let workplace = Self { path: made.path().to_path_buf(), identity: identity.clone() };
        workplace.identity.own(&workplace.path)?;
        Ok(workplace)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// As whom what is here runs.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// A path inside.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file that only the user of this place can read.
    ///
    /// # Errors
    /// As the file system.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.join(name);
        // Programs of that user may write here too, and root must not follow a link of theirs.
        let file = securefs::create(&path, 0o600);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(LabError::system(format!("writing {}", path.display())))?;
        self.identity.own(&path)?;
        Ok(path)
    }

    /// The program itself where the user can reach it, else a copy of it in here.
    ///
    /// # Errors
    /// As the file system.
    pub fn reachable_program(&self, program: &Path) -> Result<PathBuf> {
        let real = match program.canonicalize() {
            Ok(real) if self.identity.can_reach(&real) => return Ok(real),
            Ok(real) => real,
            // `/proc/self/exe` of a program that was replaced can be opened, but has no path.
            Err(_) if program.is_file() => program.to_owned(),
            Err(why) => return Err(LabError::system(format!("looking for {}", program.display()))(why)),
        };
        let programs = self.join("programs");
        fs::create_dir_all(&programs).map_err(LabError::system(format!("making {}", programs.display())))?;
        self.set_mode(&programs, 0o755)?;
        let copy = programs.join(real.file_name().unwrap_or_default());
        let copied = fs::copy(&real, &copy)
            .and_then(|_| fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)));
        copied.map_err(LabError::system(format!("copying {}", real.display())))?;
        Ok(copy)
    }

    /// The directory itself where the user can reach it, else a copy of it, with all below it, in here.
    ///
    /// # Errors
    /// As the file system.
    pub fn reachable_tree(&self, tree: &Path, name: &str) -> Result<PathBuf> {
        if self.identity.can_reach(&tree.join("x")) {
            return Ok(tree.to_path_buf());
        }
        let copy = self.join(name);
        copy_tree(tree, &copy).map_err(LabError::system(format!("copying {}", tree.display())))?;
        Ok(copy)
    }

    fn set_mode(&self, path: &Path, mode: u32) -> Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .map_err(LabError::system(format!("setting the mode of {}", path.display())))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // A server that is just ending may still write a last file between listing and removing.
        for _ in 0..20 {
            if fs::remove_dir_all(&self.path).is_ok() || !self.path.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        eprintln!("could not remove {}: please remove it", self.path.display());
    }
}

fn default_parent(identity: &Identity) -> PathBuf {
    let usual = std::env::temp_dir();
    let fits = usual.as_os_str().len() <= LONGEST_DIRECTORY - 30 && identity.can_reach(&usual.join("x"));
    if fits { usual } else { PathBuf::from("/tmp") }
}

pub(crate) fn require_space(parent: &Path, needed_bytes: u64) -> Result<()> {
    let Ok(found) = rustix::fs::statvfs(parent) else { return Ok(()) };
    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
    if free_bytes >= needed_bytes {
        return Ok(());
    }
    let megabytes = |bytes: u64| bytes / 1_000_000;
    Err(LabError::Missing {
        what: format!(
            "{} has {} MB free, this run needs {} MB",
            parent.display(),
            megabytes(free_bytes),
            megabytes(needed_bytes)
        ),
        remedy: "name a directory with more room (TMPDIR, --out), or choose a smaller scale or fewer runs"
            .to_owned(),
    })
}

/// Copies a file or a directory with all below it, readable for all users (its parent directory is not).
fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    let kind = fs::symlink_metadata(from)?;
    if kind.is_dir() {
        fs::create_dir_all(to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy_tree(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else if kind.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(from)?, to)?;
    } else {
        fs::copy(from, to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(kind.permissions().mode() | 0o444))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_was_made_is_gone_afterwards() {
        let place = ScratchDir::create(None, "test", 0, &Identity::choose().unwrap()).unwrap();
        let path = place.path().to_path_buf();
        let file = place.write("a.ini", "[x]\n").unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        drop(place);
        assert!(!path.exists());
    }

    #[test]
    fn trees_are_copied_with_links_and_modes() {
        let place = ScratchDir::create(None, "test", 0, &Identity::choose().unwrap()).unwrap();
        let from = place.join("from");
        fs::create_dir_all(from.join("bin")).unwrap();
        fs::write(from.join("bin/run"), "#!").unwrap();
        fs::set_permissions(from.join("bin/run"), fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink("run", from.join("bin/also")).unwrap();
        copy_tree(&from, &place.join("to")).unwrap();
        assert_eq!(fs::read_to_string(place.join("to/bin/also")).unwrap(), "#!");
        assert_eq!(place.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(place.join("to/bin/run").metadata().unwrap().permissions().mode() & 0o777, 0o744);
    }

    #[test]
    fn a_full_disk_is_said_beforehand() {
        let error = require_space(Path::new("/tmp"), u64::MAX).unwrap_err();
        assert!(error.to_string().contains("MB free"), "{error}");
    }
}
