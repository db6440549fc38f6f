//! kill -9 of what a demo has started, by its process id.

use lab::error::{LabError, Result};
use rustix::process::{Pid, Signal, kill_process};

/// # Errors
/// Where there is no such process.
pub(crate) fn kill(name: &str, process_id: u32) -> Result<()> {
    let process = i32::try_from(process_id).ok().and_then(Pid::from_raw);
    let killed =
        process.ok_or(rustix::io::Errno::SRCH).and_then(|process| kill_process(process, Signal::KILL));
    killed.map_err(|why| LabError::system(format!("killing {name}"))(why.into()))
}
