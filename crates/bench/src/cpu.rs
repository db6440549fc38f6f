//! CPU time and memory from the kernel's accounting: of one process with all its threads, and of the whole
//! machine. Reads /proc only; figures are differences between two looks.

use std::fs;

/// Ticks in a second of /proc: a constant of Linux's interface, whatever the kernel's own clock.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time that a process used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessTime {
    user_ticks: u64,
    system_ticks: u64,
    /// Nanoseconds on a CPU, summed over the threads that live: finer than ticks.
    running_ns: u64,
    /// Ended, and not yet waited for by its parent.
    ended: bool,
}

/// CPU time between two looks, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// In user space.
    pub user_us: f64,
    /// In the kernel.
    pub system_us: f64,
}

impl Spent {
    /// Both together.
    #[must_use]
    pub fn total_us(self) -> f64 {
        self.user_us + self.system_us
    }
}

impl ProcessTime {
    /// Reads a process's accounting; `None` when it is gone.
    #[must_use]
    pub fn read(process_id: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?;
        let (user_ticks, system_ticks) = stat_ticks(&stat)?;
        let threads = fs::read_dir(format!("/proc/{process_id}/task")).ok()?;
        let running_ns = threads
            .flatten()
            .filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok())
            .filter_map(|text| schedstat_ns(&text))
            .sum();
        Some(Self { user_ticks, system_ticks, running_ns, ended: is_zombie(&stat) })
    }

    /// Whether the process has ended and only its accounting is left.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// What was used since `before`: the fine total where the kernel keeps one, divided as the ticks are.
    #[must_use]
    pub fn since(&self, before: &Self) -> Spent {
        let user = self.user_ticks.saturating_sub(before.user_ticks) as f64;
        let system = self.system_ticks.saturating_sub(before.system_ticks) as f64;
        let by_ticks_us = (user + system) * 1e6 / TICKS_PER_SECOND;
        let by_scheduler_us = self.running_ns.saturating_sub(before.running_ns) as f64 / 1e3;
        let total_us = if by_scheduler_us > 0.0 { by_scheduler_us } else { by_ticks_us };
        let user_share = if user + system > 0.0 { user / (user + system) } else { 0.0 };
        Spent { user_us: total_us * user_share, system_us: total_us * (1.0 - user_share) }
    }
}

/// CPU time of all processes and the kernel so far, in ticks; idle time and time taken by a hypervisor are not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineTime {
    busy_ticks: u64,
}

impl MachineTime {
    /// Reads the whole machine's accounting; zero where there is none.
    #[must_use]
    pub fn read() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self { busy_ticks: busy_ticks(&stat) }
    }

    /// Microseconds of CPU since `before`.
    #[must_use]
    pub fn since_us(&self, before: &Self) -> f64 {
        self.busy_ticks.saturating_sub(before.busy_ticks) as f64 * 1e6 / TICKS_PER_SECOND
    }
}

/// Resident memory of a process in KiB; `None` when it is gone.
#[must_use]
pub fn resident_kib(process_id: u32) -> Option<u64> {
    resident(&fs::read_to_string(format!("/proc/{process_id}/status")).ok()?)
}

fn resident(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.split_whitespace().next()?.parse().ok()
}

/// utime and stime: fields 14 and 15, counted after the program's name, which may hold spaces and brackets.
fn stat_ticks(stat: &str) -> Option<(u64, u64)> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn is_zombie(stat: &str) -> bool {
    stat.rfind(')').is_some_and(|at| stat[at + 1..].trim_start().starts_with('Z'))
}

fn schedstat_ns(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// user + nice + system + irq + softirq of the first line (guest time is in user already).
fn busy_ticks(stat: &str) -> u64 {
    const BUSY: [usize; 5] = [0, 1, 2, 5, 6];
    let line = stat.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    BUSY.iter().filter_map(|at| fields.get(*at)).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let stat = "12 (a b) c) S 1 2 3 4 5 6 7 8 9 10 111 222 0 0";
        assert_eq!(stat_ticks(stat), Some((111, 222)));
        assert_eq!(stat_ticks("12 (x"), None);
        assert!(!is_zombie(stat) && is_zombie("12 (a) S) Z 1"));
    }

    #[test]
    fn idle_waiting_and_stolen_time_is_not_busy() {
        assert_eq!(busy_ticks("cpu  1 2 4 1000 1000 8 16 1000 1 0\ncpu0 9 9 9\n"), 31);
        assert_eq!(busy_ticks(""), 0);
    }

    #[test]
    fn the_fine_total_is_divided_as_the_ticks_are() {
        let before = ProcessTime { user_ticks: 10, system_ticks: 10, running_ns: 0, ended: false };
        let after = ProcessTime { user_ticks: 11, system_ticks: 13, running_ns: 44_000_000, ended: false };
        assert_eq!(after.since(&before), Spent { user_us: 11_000.0, system_us: 33_000.0 });
        let no_scheduler = ProcessTime { running_ns: 0, ..after };
        assert_eq!(no_scheduler.since(&before).total_us(), 40_000.0);
        assert_eq!(before.since(&before), Spent::default());
    }

    #[test]
    fn this_process_has_used_time_and_memory() {
        assert!(resident_kib(std::process::id()).unwrap() > 100);
        assert!(ProcessTime::read(std::process::id()).is_some());
        assert_eq!(resident("Name:\tx\nVmRSS:\t    1234 kB\n"), Some(1234));
    }
}
