//! The names of files beside the file of quotas.

use std::path::{Path, PathBuf};

/// A name beside the file's.
pub(crate) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}
