//! `weir bench`: the words go to the program `weir-bench`, which takes this process's place. Owns where that program is looked for, and
//! what is said where it is not installed.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::IntoRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use programs::{BENCH, MEASURED, Status};
use rustix::fs::{Access, access};
use rustix::io::{FdFlags, fcntl_setfd};

/// The file of this process, whatever has become of its path.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Where it is: beside this program's file, or in PATH.
///
/// # Errors
/// What to install.
pub(crate) fn find() -> Result<PathBuf, String> {
    let own = env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = env::var_os("PATH").unwrap_or_default();
    // Not by a relative directory: what stands in the current one may be anyone's.
    let directories = beside.clone().into_iter().chain(env::split_paths(&path));
    let mut programs = directories.filter(|directory| directory.is_absolute()).map(|place| place.join(BENCH));
    programs.find(|program| program.is_file() && access(program, Access::EXEC_OK).is_ok()).ok_or_else(|| {
        let beside = beside.map_or(String::new(), |place| format!("neither in {} ", place.display()));
        let nor = if beside.is_empty() { "not" } else { "nor" };
        format!("{BENCH} is not installed ({beside}{nor} in PATH). Install the program {BENCH} of the same version as Weir: it measures pools")
    })
}

/// Becomes `weir-bench` with these words; comes back only where that fails.
pub(crate) fn run(words: &[OsString]) -> Status {
    let why = match find() {
        Ok(program) => become_bench(&program, words),
        Err(why) => why,
    };
    let _ = writeln!(std::io::stderr(), "weir bench: {why}");
    Status::Failed
}

fn become_bench(program: &Path, words: &[OsString]) -> String {
    let mut command = Command::new(program);
    command.args(words);
    // It measures this very Weir, unless another one is named.
    if let Some(own) = own_program().filter(|_| env::var_os(MEASURED).is_none()) {
        command.env(MEASURED, own);
    }
    driver::signals::unblock(); // The panel starts it too, from a process that waits for its signals.
    let why = command.exec();
    format!("cannot start {}: {why}", program.display())
}

/// A path of this program for those who come later. After an upgrade the usual one is gone, or another program's; the file is open then.
fn own_program() -> Option<PathBuf> {
    if let Some(own) = env::current_exe().ok().filter(|own| own.exists()) {
        return Some(own);
    }
    let file = File::open(OWN_PROGRAM).ok()?;
    fcntl_setfd(&file, FdFlags::empty()).ok()?; // It stays open over exec.
    Some(PathBuf::from(format!("/proc/self/fd/{}", file.into_raw_fd())))
}
