//! As whom servers and pgbench run: as the caller, or, when that is root, as `postgres` or else `nobody`
//! (PostgreSQL and poolers refuse root). Reads /etc/passwd; changes nothing.

use std::os::unix::fs::{MetadataExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::error::{LabError, Result};

/// The user that the lab's programs run as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user's name, for what is printed.
    pub name: String,
    uid: u32,
    gid: u32,
    /// Whether the lab is root and runs its programs as another user.
    dropped: bool,
}

impl Identity {
    /// The caller, or the user that root's programs are handed to.
    ///
    /// # Errors
    /// For root, when neither `postgres` nor `nobody` is in /etc/passwd.
    pub fn choose() -> Result<Self> {
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        if rustix::process::geteuid().as_raw() != 0 {
            return Ok(Self::caller());
        }
        for name in ["postgres", "nobody"] {
            if let Some((_, uid, gid)) = entries(&passwd).find(|entry| entry.0 == name) {
                return Ok(Self { name: name.to_owned(), uid, gid, dropped: true });
            }
        }
        Err(LabError::Missing {
            what: "PostgreSQL does not run as root, and there is no user `postgres` or `nobody`".to_owned(),
            remedy: "run this as an ordinary user".to_owned(),
        })
    }

    /// The caller, root or not: for programs that root may run too, and that need the caller's own keys.
    #[must_use]
    pub fn caller() -> Self {
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let name = entries(&passwd).find(|entry| entry.1 == uid).map_or("this user", |entry| entry.0);
        Self { name: name.to_owned(), uid, gid, dropped: false }
    }

    /// Whether programs run as another user than the lab.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.dropped
    }

    /// Makes `command` run as this user (its supplementary groups go as well).
    pub fn apply(&self, command: &mut Command) {
        if self.dropped {
            command.uid(self.uid).gid(self.gid);
        }
    }

    /// Gives a file or directory to this user.
    ///
    /// # Errors
    /// As the kernel's lchown.
    pub fn own(&self, path: &Path) -> Result<()> {
        if !self.dropped {
            return Ok(());
        }
        lchown(path, Some(self.uid), Some(self.gid)).map_err(LabError::system(format!(
            "giving {} to {}",
            path.display(),
            self.name
        )))
    }

    /// Whether this user can walk to `path`: every directory above it lets others through.
    #[must_use]
    pub fn can_reach(&self, path: &Path) -> bool {
        const OTHERS_PASS: u32 = 0o001;
        !self.dropped
            || path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).all(|above| {
                above.metadata().is_ok_and(|found| found.mode() & OTHERS_PASS != 0 || found.uid() == self.uid)
            })
    }
}

/// Name, uid and gid of each entry of a passwd file.
fn entries(passwd: &str) -> impl Iterator<Item = (&str, u32, u32)> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some((name, uid, gid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwd_lines_are_read_and_odd_ones_skipped() {
        let passwd = "root:x:0:0:root:/r:/bin/sh\n\nbroken:x\nnobody:x:65534:65533:n:/:/x\n";
        assert_eq!(entries(passwd).collect::<Vec<_>>(), [("root", 0, 0), ("nobody", 65534, 65533)]);
    }

    #[test]
    fn a_caller_that_is_not_root_reaches_what_it_reaches() {
        let me = Identity { name: "me".into(), uid: 1, gid: 1, dropped: false };
        assert!(me.can_reach(Path::new("/nowhere/at/all")));
        let other = Identity { name: "nobody".into(), uid: 65534, gid: 65534, dropped: true };
        assert!(!other.can_reach(Path::new("/nowhere/at/all")));
        assert!(other.can_reach(Path::new("/etc/passwd")));
    }
}
