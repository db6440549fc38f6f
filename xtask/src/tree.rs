//! The working tree: its root, the files that git tracks or would track, and their text.
//! It never follows what git ignores, so build directories and results stay out.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The project's files, by their path from the root.
pub(crate) struct Tree {
    root: PathBuf,
    files: Vec<String>,
}

impl Tree {
    /// Lists the tree that this xtask belongs to. Fails where git or its repository is missing.
    pub(crate) fn open() -> io::Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().unwrap_or(manifest).to_path_buf();
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&root)
            .output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let mut files: Vec<String> = String::from_utf8_lossy(&output.stdout)
            .split('\0')
            .filter(|name| !name.is_empty() && root.join(name).is_file())
            .map(str::to_owned)
            .collect();
        files.sort();
        Ok(Self { root, files })
    }

    /// The directory that holds the workspace's Cargo.toml.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Every file, as `crates/wire/src/lib.rs`.
    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    /// The file's text; `None` when it is missing or not text (a picture, a capture).
    pub(crate) fn text(&self, file: &str) -> Option<String> {
        let bytes = std::fs::read(self.root.join(file)).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        (!text.contains('\0')).then_some(text)
    }
}
