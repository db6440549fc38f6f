//! Ctrl-C, SIGTERM, SIGHUP and the end of the process that reads the progress as a flag that every wait of the lab looks at, so that guards clean up on the
//! way out. Never ends the process itself.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::{LabError, Result};

/// How often a wait looks at the flag.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The flag. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
}

impl Interrupt {
    /// Takes over the three signals for the rest of the process.
    ///
    /// # Errors
    /// Where the kernel refuses a handler.
    pub fn install() -> io::Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.flag))?;
        }
        Ok(interrupt)
    }

    /// Sets the flag once nothing reads this output any more. The program that started the lab may be killed by a signal that leaves
    /// it no time to stop the lab; its end of the pipe closes all the same. A file or a terminal has no such end.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub fn watch_reader(&self, output: OwnedFd) -> io::Result<()> {
        let flag = Arc::clone(&self.flag);
        let watch = move || {
            loop {
                // Without any flag: the end of the reader is noticed in any case.
                match poll(&mut [PollFd::new(&output, PollFlags::empty())], None) {
                    Ok(_) => return flag.store(true, Ordering::Relaxed),
                    Err(Errno::INTR) => {}
                    Err(_) => return,
                }
            }
        };
        thread::Builder::new().name("weir-lab-reader".to_owned()).spawn(watch).map(drop)
    }

    /// Whether an interrupt was requested.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// [`LabError::Interrupted`] after an interrupt.
    pub fn check(&self) -> Result<()> {
        if self.is_set() { Err(LabError::Interrupted) } else { Ok(()) }
    }

    /// Sleeps; ends early with [`LabError::Interrupted`].
    pub fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(LOOK_EVERY));
        }
    }

    /// Tries every few milliseconds until `attempt` gives something; `None` when the time is over.
    pub fn wait_for<T>(
        &self,
        time: Duration,
        mut attempt: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let end = Instant::now() + time;
        loop {
            if let Some(found) = attempt()? {
                return Ok(Some(found));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            self.sleep(LOOK_EVERY)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_flag_ends_a_sleep_at_once() {
        let interrupt = Interrupt::default();
        interrupt.flag.store(true, Ordering::Relaxed);
        assert!(matches!(interrupt.sleep(Duration::from_secs(3600)), Err(LabError::Interrupted)));
    }

    #[test]
    fn the_end_of_the_reader_is_noticed() {
        let interrupt = Interrupt::default();
        let (reader, writer) = io::pipe().expect("a pipe");
        interrupt.watch_reader(writer.into()).expect("a thread");
        let file = std::fs::File::open("/dev/null").expect("a file");
        interrupt.watch_reader(file.into()).expect("a thread");
        assert!(interrupt.sleep(Duration::from_millis(50)).is_ok());
        drop(reader);
        assert!(matches!(interrupt.sleep(Duration::from_secs(3600)), Err(LabError::Interrupted)));
    }

    #[test]
    fn waiting_stops_at_the_first_answer_or_at_its_time() {
        let interrupt = Interrupt::default();
        let mut left = 3;
        let found = interrupt.wait_for(Duration::from_secs(60), || {
            left -= 1;
            Ok((left == 0).then_some("here"))
        });
        assert!(matches!(found, Ok(Some("here"))));
        assert!(matches!(interrupt.wait_for(Duration::ZERO, || Ok(None::<u8>)), Ok(None)));
    }
}
