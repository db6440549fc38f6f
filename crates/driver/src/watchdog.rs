//! Watchdogs: sockets inside a system library are shut down when a step takes too long, so that the thread which waits for
//! them there goes on.
//!
//! Owns a thread that sleeps until the next is due, started with the first. A watchdog holds the socket by a descriptor of its
//! own, so that it never cuts another that has got the number since.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::net::{Shutdown, shutdown};

/// All socket watchdogs of a process.
#[derive(Default)]
pub(crate) struct SocketWatchdogs {
    shared: Arc<Shared>,
}

/// An armed watchdog, ordered by deadline.
pub(crate) type SocketWatchdog = (Instant, u64);

#[derive(Default)]
struct Shared {
    armed: Mutex<Armed>,
    wakeup: Condvar,
}

#[derive(Default)]
struct Armed {
    sockets: BTreeMap<SocketWatchdog, OwnedFd>,
    count: u64,
    watched: bool,
    over: bool,
}

impl SocketWatchdogs {
    /// Shuts the socket down after this time, unless the watchdog is disarmed before.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(crate) fn arm(&self, socket: OwnedFd, time: Duration) -> io::Result<SocketWatchdog> {
        let mut armed = self.shared.armed();
        if !armed.watched {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name("weir-fuses".to_owned()).stack_size(64 * 1024);
            builder.spawn(move || shared.watch())?;
            armed.watched = true;
        }
        armed.count += 1;
        let watchdog = (Instant::now() + time, armed.count);
        armed.sockets.insert(watchdog, socket);
        drop(armed);
        self.shared.wakeup.notify_all();
        Ok(watchdog)
    }

    /// The step was done in time, or is not waited for any more.
    pub(crate) fn disarm(&self, watchdog: SocketWatchdog) {
        self.shared.armed().sockets.remove(&watchdog);
    }
}

impl Drop for SocketWatchdogs {
    fn drop(&mut self) {
        self.shared.armed().over = true;
        self.shared.wakeup.notify_all();
    }
}

impl Shared {
    fn armed(&self) -> MutexGuard<'_, Armed> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        let mut armed = self.armed();
        while !armed.over {
            let Some(next) = armed.sockets.first_entry() else {
                armed = self.wakeup.wait(armed).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = next.key().0.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // A socket that is closed already needs no cutting.
                let _ = shutdown(next.remove(), Shutdown::Both);
                continue;
            }
            let waited = self.wakeup.wait_timeout(armed, left);
            armed = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_fuse_cuts_its_socket_and_no_other() {
        let watchdogs = SocketWatchdogs::default();
        let (mut late, _peer) = UnixStream::pair().unwrap();
        let (quick, mut quick_peer) = UnixStream::pair().unwrap();
        let watchdog = watchdogs.arm(quick.try_clone().unwrap().into(), Duration::from_secs(3600)).unwrap();
        watchdogs.disarm(watchdog);
        assert_eq!(watchdogs.shared.armed().sockets.len(), 0);
        let (kept, mut kept_peer) = UnixStream::pair().unwrap();
        watchdogs.arm(kept.try_clone().unwrap().into(), Duration::from_secs(3600)).unwrap();
        watchdogs.arm(late.try_clone().unwrap().into(), Duration::from_millis(20)).unwrap();
        assert_eq!(late.read(&mut [0]).unwrap(), 0, "cut while it was waited for");
        (&kept).write_all(b"x").unwrap();
        kept_peer.read_exact(&mut [0]).unwrap();
        (&quick).write_all(b"x").unwrap();
        quick_peer.read_exact(&mut [0]).unwrap();
    }
}
