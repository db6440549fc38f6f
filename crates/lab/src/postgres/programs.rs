//! Where PostgreSQL's programs are: a wish of the caller, pg_config, PATH, Debian's directories, the project's
//! own download. Debian keeps them out of PATH, one directory for each major version.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{LabError, Result};
use crate::scratch_dir::ScratchDir;

const NEEDED: [&str; 3] = ["initdb", "postgres", "pgbench"];

/// The directory of PostgreSQL's programs, and which PostgreSQL that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    bin: PathBuf,
    version: String,
}

impl Programs {
    /// Looks in `wished`, or else in the usual places, for a directory with initdb, postgres and pgbench.
    ///
    /// # Errors
    /// [`LabError::Missing`] with the line that installs them.
    pub fn find(wished: Option<&Path>) -> Result<Self> {
        let candidates = wished.map_or_else(usual_places, |wished| vec![wished.to_path_buf()]);
        let found = candidates.into_iter().find(|bin| is_complete(bin)).and_then(Self::at);
        found.ok_or_else(|| LabError::Missing {
            what: wished.map_or_else(
                || "PostgreSQL's programs (initdb, postgres, pgbench) are not on this machine".to_owned(),
                |wished| format!("{} has no initdb, postgres and pgbench that start", wished.display()),
            ),
            remedy: "Debian, Ubuntu: apt-get install postgresql; or name their directory with --pg-bin"
                .to_owned(),
        })
    }

    /// Looks in `wished`, or else in the usual places, for a directory with pgbench: enough for a server that is there.
    ///
    /// # Errors
    /// [`LabError::Missing`] with the line that installs it.
    pub fn clients(wished: Option<&Path>) -> Result<Self> {
        let candidates = wished.map_or_else(usual_places, |wished| vec![wished.to_path_buf()]);
        let found = candidates.into_iter().find(|bin| bin.join("pgbench").is_file());
        found.map(|bin| Self { bin, version: String::new() }).ok_or_else(|| LabError::Missing {
            what: wished.map_or_else(
                || "pgbench is not on this machine".to_owned(),
                |wished| format!("{} has no pgbench", wished.display()),
            ),
            remedy: "Debian, Ubuntu: apt-get install postgresql; or name its directory with --pg-bin"
                .to_owned(),
        })
    }

    /// The directory of all of them.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.bin
    }

    /// One program's path.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// The server's version, as `PostgreSQL 15.18 (Debian …)`; empty of [`Self::clients`].
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The same programs where the user of `place` can reach them: copied, if they must be.
    ///
    /// # Errors
    /// As the file system.
    pub fn reachable(self, place: &ScratchDir) -> Result<Self> {
        let bin = self
            .bin
            .canonicalize()
            .map_err(LabError::system(format!("looking at {}", self.bin.display())))?;
        let Some(tree) = bin.parent() else { return Ok(self) };
        let tree = place.reachable_tree(tree, "postgresql")?;
        Ok(Self { bin: tree.join("bin"), ..self })
    }

    fn at(bin: PathBuf) -> Option<Self> {
        let output = Command::new(bin.join("postgres")).arg("--version").output().ok()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let version = said.trim().strip_prefix("postgres (PostgreSQL) ")?;
        Some(Self { bin, version: format!("PostgreSQL {version}") })
    }
}

fn is_complete(bin: &Path) -> bool {
    NEEDED.iter().all(|name| bin.join(name).is_file())
}

fn usual_places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        places.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    places.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    places.extend(newest_first("/usr/lib/postgresql"));
    places.extend(newest_first("/usr/pgsql"));
    places.push(PathBuf::from("target/pg18/bin"));
    places
}

/// The `bin` of each version below `parent`, or beside it as in `/usr/pgsql-17`; the newest first.
fn newest_first(parent: &str) -> Vec<PathBuf> {
    let below = Path::new(parent);
    let (directory, prefix) = if below.is_dir() {
        (below, "".to_owned())
    } else {
        let name = below.file_name().and_then(OsStr::to_str).unwrap_or_default();
        (below.parent().unwrap_or(below), format!("{name}-"))
    };
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix(&prefix)?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, bin)| bin).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::identity::Identity;

    #[test]
    fn versions_are_compared_as_numbers() {
        let place = ScratchDir::create(None, "test", 0, &Identity::choose().unwrap()).unwrap();
        for version in ["9", "15", "18", "not"] {
            std::fs::create_dir_all(place.join("pg").join(version)).unwrap();
            std::fs::create_dir_all(place.join(&format!("pgsql-{version}"))).unwrap();
        }
        let ends = |found: Vec<PathBuf>| -> Vec<String> {
            found.iter().map(|bin| bin.strip_prefix(place.path()).unwrap().display().to_string()).collect()
        };
        assert_eq!(
            ends(newest_first(place.join("pg").to_str().unwrap())),
            ["pg/18/bin", "pg/15/bin", "pg/9/bin"]
        );
        let beside = ends(newest_first(place.join("pgsql").to_str().unwrap()));
        assert_eq!(beside, ["pgsql-18/bin", "pgsql-15/bin", "pgsql-9/bin"]);
    }

    #[test]
    fn a_wish_that_fails_names_what_is_missing() {
        let error = Programs::find(Some(Path::new("/nowhere"))).unwrap_err().to_string();
        assert!(error.contains("/nowhere has no initdb"), "{error}");
    }
}
