//! CPU time and memory from the kernel's accounting: of one process with all its threads, and of the whole
//! machine. Reads /proc only; figures are differences between two looks.

use std::fs;

/// Ticks in a second of /proc: a constant of Linux's interface, whatever the kernel's own clock.
const TICKS_PER_SECOND: f64 = 100.0;

/// By how much two looks at ticks may be wrong: user and system time are each rounded.
const ROUNDING_US: f64 = 40_000.0;

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

    /// The accounting of a process with all the processes that it started (those of its process group).
    #[must_use]
    pub fn of_group(leader: u32) -> Self {
        let mut sum = Self::default();
        for member in group(leader).into_iter().filter_map(Self::read) {
            sum.user_ticks += member.user_ticks;
            sum.system_ticks += member.system_ticks;
            sum.running_ns += member.running_ns;
        }
        sum
    }

    /// Whether the process has ended and only its accounting is left.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// What was used since `before`: the fine total where the kernel keeps one, divided as the ticks are. Threads that
    /// ended in between took their fine total with them: then the ticks, which stay, say more.
    #[must_use]
    pub fn since(&self, before: &Self) -> Spent {
        let user = self.user_ticks.saturating_sub(before.user_ticks) as f64;
        let system = self.system_ticks.saturating_sub(before.system_ticks) as f64;
        let by_ticks_us = (user + system) * 1e6 / TICKS_PER_SECOND;
        let by_scheduler_us = self.running_ns.saturating_sub(before.running_ns) as f64 / 1e3;
        let is_whole = by_scheduler_us + ROUNDING_US >= by_ticks_us;
        let total_us = if by_scheduler_us > 0.0 && is_whole { by_scheduler_us } else { by_ticks_us };
        let user_share = if user + system > 0.0 { user / (user + system) } else { 0.0 };
        Spent { user_us: total_us * user_share, system_us: total_us * (1.0 - user_share) }
    }
}

/// CPU time that a process, its children and those of them that it has waited for used so far, in microseconds; `None`
/// when it is gone. Good to the nanosecond for who lives, to a tick for who has ended.
#[must_use]
pub fn family_us(parent: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{parent}/stat")).ok()?;
    let waited_for: u64 = numbers(&stat)?.get(13..15)?.iter().sum();
    let is_child = |id: &u32| {
        fs::read_to_string(format!("/proc/{id}/stat"))
            .ok()
            .and_then(|stat| numbers(&stat)?.get(1).copied())
            .is_some_and(|found| found == u64::from(parent))
    };
    let start = ProcessTime::default();
    // A hundred backends of a few milliseconds each would be nothing in ticks.
    let lived_us = |id: u32| ProcessTime::read(id).map_or(0.0, |time| time.since(&start).total_us());
    let theirs_us: f64 = processes().filter(is_child).map(lived_us).sum();
    Some(lived_us(parent) + theirs_us + waited_for as f64 * 1e6 / TICKS_PER_SECOND)
}

/// Whether a process runs the program called `name`.
#[must_use]
pub fn is_named(process_id: u32, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{process_id}/comm")).is_ok_and(|found| found.trim() == name)
}

/// The parent of a process, if both are called `name`.
#[must_use]
pub fn parent_named(process_id: u32, name: &str) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?;
    let parent = u32::try_from(*numbers(&stat)?.get(1)?).ok()?;
    (is_named(process_id, name) && is_named(parent, name)).then_some(parent)
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
    line_value(&fs::read_to_string(format!("/proc/{process_id}/status")).ok()?, "VmRSS:")
}

/// The processes whose process group is `leader`'s, itself included.
#[must_use]
pub fn group(leader: u32) -> Vec<u32> {
    processes().filter(|id| stat_group(*id) == Some(leader)).collect()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The fields behind the program's name (which may hold spaces and brackets): state as 0, parent, group, …
fn numbers(stat: &str) -> Option<Vec<u64>> {
    let fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    Some(fields.map(|field| field.parse().unwrap_or_default()).collect())
}

fn stat_group(process_id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].split_whitespace().nth(2)?.parse().ok()
}

/// The number behind a name at a line's start, as /proc writes its tables.
pub fn line_value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
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
    fn what_ended_threads_used_is_not_lost() {
        let before = ProcessTime { user_ticks: 10, system_ticks: 10, running_ns: 200_000_000, ended: false };
        let after = ProcessTime { user_ticks: 60, system_ticks: 60, running_ns: 300_000_000, ended: false };
        assert_eq!(after.since(&before).total_us(), 1_000_000.0);
    }

    #[test]
    fn a_family_is_a_process_with_its_children() {
        assert_eq!(numbers("1 (a ) b) S 7 8").unwrap(), [0, 7, 8]);
        let own = std::process::id();
        let before = family_us(own).unwrap();
        let mut child = std::process::Command::new("sh");
        child.args(["-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"]).status().unwrap();
        assert!(family_us(own).unwrap() > before, "what the child used is its parent's now");
        assert_eq!(family_us(0), None);
    }

    #[test]
    fn this_process_is_in_its_own_group() {
        let own = std::process::id();
        let leader = stat_group(own).unwrap();
        assert!(group(leader).contains(&own));
        assert!(ProcessTime::of_group(leader).running_ns >= ProcessTime::read(own).unwrap().running_ns);
    }

    #[test]
    fn this_process_has_used_time_and_memory() {
        assert!(resident_kib(std::process::id()).unwrap() > 100);
        assert!(ProcessTime::read(std::process::id()).is_some());
        assert_eq!(line_value("Name:\tx\nVmRSS:\t    1234 kB\n", "VmRSS:"), Some(1234));
    }
}
