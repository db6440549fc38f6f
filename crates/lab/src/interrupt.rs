//! Ctrl-C, SIGTERM and SIGHUP as a flag that every wait of the lab looks at, so that guards clean up on the
//! way out. Never ends the process itself.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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

    /// Whether somebody asked to stop.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// [`LabError::Interrupted`] once somebody asked to stop.
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
            std::thread::sleep(left.min(LOOK_EVERY));
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
