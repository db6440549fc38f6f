//! The clocks of one thread: read once per batch of events.
//!
//! Owns the meaning of [`Now`] in production and the measure of how busy a thread is. Never waits.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};
use shard::Now;

/// How often the thread's own CPU time is looked at, and the wall clock anew.
const PERIOD_US: u64 = 1_000_000;

/// One thread's view of the time.
pub(crate) struct Clock {
    /// What to add to the monotonic clock to get the wall clock: asked once per period, because it is only shown.
    wall_ahead_us: u64,
    asked_us: u64,
    cpu_us: u64,
}

impl Clock {
    /// A clock of the calling thread.
    pub(crate) fn new() -> Clock {
        let mono_us = monotonic_us();
        Clock { wall_ahead_us: wall_us().saturating_sub(mono_us), asked_us: mono_us, cpu_us: thread_cpu_us() }
    }

    /// The time, and about once a second how busy the thread was since, in hundredths.
    pub(crate) fn read(&mut self) -> (Now, Option<u32>) {
        let mono_us = monotonic_us();
        let passed_us = mono_us.saturating_sub(self.asked_us);
        let busy = (passed_us >= PERIOD_US).then(|| self.look(mono_us, passed_us));
        (Now { mono_us, wall_us: mono_us.wrapping_add(self.wall_ahead_us) }, busy)
    }

    /// When that is due again.
    pub(crate) fn next_look_us(&self) -> u64 {
        self.asked_us + PERIOD_US
    }

    fn look(&mut self, mono_us: u64, passed_us: u64) -> u32 {
        self.asked_us = mono_us;
        self.wall_ahead_us = wall_us().saturating_sub(mono_us);
        let cpu_us = thread_cpu_us();
        let used_us = cpu_us.saturating_sub(self.cpu_us);
        self.cpu_us = cpu_us;
        u32::try_from(used_us * 100 / passed_us).map_or(100, |percent| percent.min(100))
    }
}

/// Microseconds of CLOCK_MONOTONIC.
pub(crate) fn monotonic_us() -> u64 {
    microseconds(clock_gettime(ClockId::Monotonic))
}

fn thread_cpu_us() -> u64 {
    microseconds(clock_gettime(ClockId::ThreadCPUTime))
}

pub(crate) fn wall_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros().try_into().unwrap_or(u64::MAX))
}

fn microseconds(time: Timespec) -> u64 {
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_stands_beside_the_monotonic_one() {
        let (now, busy) = Clock::new().read();
        assert!(now.wall_us.abs_diff(wall_us()) < 5_000_000);
        assert!(now.mono_us <= monotonic_us());
        assert_eq!(busy, None, "the first second is not over");
    }
}
