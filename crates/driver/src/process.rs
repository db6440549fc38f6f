//! The process itself: limits, users, pidfile, going into the background.
//!
//! What needs the system's own calls, so that the binary needs none. Never reads a setting.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{fmt, thread};

use rustix::process::{Pid, Resource, getrlimit, setrlimit, test_kill_process};
use settings::hba::Network;

use crate::inherited::{Holder, Inherited};
use crate::sys;

/// Descriptors that are neither a client's nor a server's: log, listeners, rings, timers, standard ones.
const OWN_FILES: u64 = 50;

/// How many processors this process may use: affinity and cgroup quota included, at most 64.
#[must_use]
pub fn processors() -> u16 {
    thread::available_parallelism().map_or(1, |count| u16::try_from(count.get()).unwrap_or(u16::MAX).min(64))
}

/// Raises the limit of open files as far as it goes; the limit then in force.
pub fn raise_file_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let before = limit.current;
        limit.current = limit.maximum;
        if setrlimit(Resource::Nofile, limit).is_err() {
            return before.unwrap_or(u64::MAX);
        }
    }
    limit.current.unwrap_or(u64::MAX)
}

/// The limit of open files in force.
pub(crate) fn file_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Descriptors that these clients and servers may need, the process's own included.
#[must_use]
pub fn files_needed(max_client_conn: u64, servers: u64) -> u64 {
    max_client_conn.saturating_add(servers).saturating_add(OWN_FILES)
}

/// The warning if these clients and servers cannot have a descriptor each.
#[must_use]
pub fn file_limit_warning(limit: u64, max_client_conn: u64, servers: u64) -> Option<String> {
    let needed = files_needed(max_client_conn, servers);
    (needed > limit).then(|| {
        format!(
            "the limit of open files is {limit}, and max_client_conn {max_client_conn} with {servers} server \
             connections may need {needed}: raise it, or clients will wait to be accepted"
        )
    })
}

/// Microseconds of the clock that never goes back, as systemd counts them.
#[must_use]
pub fn monotonic_us() -> u64 {
    crate::clock::monotonic_us()
}

/// Seconds since 1970, by the clock that can be set.
#[must_use]
pub fn wall_s() -> u64 {
    crate::clock::wall_us() / 1_000_000
}

/// The name of this host, as `uname -n` has it.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Fills a buffer with the kernel's random bytes; ends the process where there are none.
pub fn fill_random(bytes: &mut [u8]) {
    auth::Entropy::fill(&mut crate::entropy::KernelEntropy, bytes);
}

/// Listening sockets that a service manager has passed, `count` of them from descriptor 3 on. To be called once, at the very
/// beginning. Their names in the file system stay the manager's.
#[must_use]
pub fn passed_sockets(count: u32) -> Vec<Inherited> {
    let passed = sys::passed_descriptors(count).into_iter();
    passed.map(|socket| Inherited { socket, holder: Holder::ServiceManager, file: None }).collect()
}

/// The process runs as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user that the process runs as, by number.
#[must_use]
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The networks that this machine has addresses in, as they are now.
#[must_use]
pub fn networks() -> Vec<Network> {
    sys::interfaces().into_iter().map(|(address, mask)| Network { address, mask }).collect()
}

/// A user's name, if it has one.
#[must_use]
pub fn user_name(user_id: u32) -> Option<String> {
    sys::account_name(user_id)
}

/// Switches to another user permanently.
///
/// # Errors
/// NotFound if there is no such user; else the system's.
pub fn become_user(name: &str) -> io::Result<()> {
    let account = sys::account(name)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no such user: {name}")))?;
    if account.user_id == user_id() {
        return Ok(());
    }
    sys::become_account(&account)
}

/// Continues in the background, without a parent or a terminal. Only before any thread was started. Standard
/// streams stay until [`leave_terminal`], so that a failing start can still be told.
///
/// # Errors
/// The system's.
pub fn daemonize() -> io::Result<()> {
    sys::leave_parent()
}

/// Points the standard streams to /dev/null.
///
/// # Errors
/// The system's.
pub fn leave_terminal() -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Programs of other users read it.
const PIDFILE_MODE: u32 = 0o644;

/// Why the pidfile cannot be had.
#[derive(Debug)]
pub enum PidFault {
    /// The process that it names lives.
    Alive {
        /// The file.
        path: PathBuf,
        /// Its process.
        process_id: i32,
    },
    /// It could not be read or written.
    System(PathBuf, io::Error),
}

impl fmt::Display for PidFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PidFault::Alive { path, process_id } => {
                write!(
                    out,
                    "pidfile exists, another instance running? {} names process {process_id}",
                    path.display()
                )
            }
            PidFault::System(path, why) => write!(out, "could not use pidfile \"{}\": {why}", path.display()),
        }
    }
}

impl std::error::Error for PidFault {}

/// The pidfile of this process; it is removed when dropped, if it is still this process's.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes this process's id. A file that names a dead process is replaced.
    ///
    /// # Errors
    /// [`PidFault`].
    pub fn create(path: impl Into<PathBuf>) -> Result<PidFile, PidFault> {
        let path = path.into();
        if let Some(process_id) = PidFile::living(&path)? {
            return Err(PidFault::Alive { path, process_id });
        }
        PidFile::take_over(path)
    }

    /// Writes this process's id over the one that is there: this process takes over from that one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn take_over(path: impl Into<PathBuf>) -> Result<PidFile, PidFault> {
        let path = path.into();
        let write = || {
            let mut file = securefs::overwrite(&path, PIDFILE_MODE)?;
            file.write_all(format!("{}\n", std::process::id()).as_bytes())
        };
        match write() {
            Ok(()) => Ok(PidFile { path }),
            Err(why) => Err(PidFault::System(path, why)),
        }
    }

    /// The living process that a pidfile names; what is no number names none.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn living(path: &Path) -> Result<Option<i32>, PidFault> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(PidFault::System(path.to_owned(), why)),
        };
        let process_id = text.trim().parse().ok().filter(|id| *id > 0);
        let own = i32::try_from(std::process::id()).ok();
        Ok(process_id.filter(|id| Some(*id) != own && is_alive(*id)))
    }
}

impl Drop for PidFile {
    /// A successor may have written its own id by now: that stays.
    fn drop(&mut self) {
        let own = std::process::id().to_string();
        if fs::read_to_string(&self.path).is_ok_and(|text| text.trim() == own) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_alive(process_id: i32) -> bool {
    let Some(pid) = Pid::from_raw(process_id) else { return false };
    test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_pidfile_of_the_living_is_respected() {
        let path = std::env::temp_dir().join(format!("weir-pid-{}", std::process::id()));
        fs::write(&path, "1\n").unwrap();
        assert!(matches!(PidFile::create(&path), Err(PidFault::Alive { process_id: 1, .. })));
        fs::write(&path, "999999999\n").unwrap();
        let own = PidFile::create(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap().trim(), std::process::id().to_string());
        drop(own);
        assert!(!path.exists());
        let own = PidFile::create(&path).unwrap();
        fs::write(&path, "1\n").unwrap();
        drop(own);
        assert!(path.exists(), "a successor has it now");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn too_few_files_are_told() {
        assert_eq!(file_limit_warning(1_000, 100, 20), None);
        assert!(file_limit_warning(1_000, 990, 20).unwrap().contains("max_client_conn 990"));
    }

    #[test]
    fn the_limit_is_raised_to_what_is_allowed() {
        assert!(raise_file_limit() > 0);
        assert!(processors() >= 1);
    }
}
