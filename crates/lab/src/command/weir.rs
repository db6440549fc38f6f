//! Which Weir is measured: the one that is named, else the one beside this program, else the one in PATH. The program is started as
//! a user would start it; where it is not there, that is said before anything is set up.

use std::env;
use std::path::PathBuf;

use crate::error::{LabError, Result};

/// Weir's program; `named` is the option or the environment.
///
/// # Errors
/// [`LabError::Missing`] where there is none.
pub(super) fn program(named: Option<&PathBuf>) -> Result<PathBuf> {
    named.cloned().or_else(beside).or_else(in_path).ok_or_else(|| LabError::Missing {
        what: "Weir's program is neither beside weir-bench nor in PATH".to_owned(),
        remedy: "install weir, name its program (--weir PROGRAM), or measure without it (--no-weir)"
            .to_owned(),
    })
}

/// The program beside this one.
pub(super) fn beside() -> Option<PathBuf> {
    Some(env::current_exe().ok()?.with_file_name(programs::WEIR)).filter(|program| program.is_file())
}

fn in_path() -> Option<PathBuf> {
    let directories = env::var_os("PATH")?;
    let mut found = env::split_paths(&directories).map(|directory| directory.join(programs::WEIR));
    found.find(|program| program.is_file())
}
