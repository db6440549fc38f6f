//! System calls of a pooler while a load runs, in a run apart from the timed ones: by perf's tracepoints where the
//! kernel lets us (the pooler hardly slows down), else by strace (it does, and then batches more in each turn).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use lab::cpu::group;
use lab::error::Result;

/// How long a counter may take to attach, and to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Calls of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Calls {
    /// Who counted.
    pub(super) counter: &'static str,
    /// Its raw log, by its name in the result's directory.
    pub(super) log: PathBuf,
    /// For each transaction, by name.
    pub(super) each: BTreeMap<String, f64>,
}

/// The calls that perf counts by name (each tracepoint takes the kernel a while to attach); what they leave of the
/// whole is `other`.
const NAMES: &str = "recvfrom recvmsg read readv sendto sendmsg write writev epoll_wait epoll_pwait epoll_pwait2 \
                     epoll_ctl poll ppoll select io_uring_enter accept accept4 socket connect bind close shutdown \
                     setsockopt getsockopt fcntl futex splice";
const ALL: &str = "raw_syscalls:sys_enter";

/// A counter: how it is called, and how its file is read.
struct Counter {
    name: &'static str,
    arguments: &'static [&'static str],
    read: fn(&str) -> BTreeMap<String, u64>,
}

const COUNTERS: [Counter; 2] = [
    Counter {
        name: "perf",
        arguments: &["stat", "-x", ",", "-e", "@EVENTS@", "-o", "@FILE@", "-p", "@PIDS@"],
        read: perf_counts,
    },
    Counter {
        name: "strace",
        arguments: &["-f", "-c", "-U", "calls,name", "-o", "@FILE@", "@P_PIDS@"],
        read: strace_counts,
    },
];

/// Runs `load` while system calls are counted into the file `name` of `directory`, and divides by the units that it gives;
/// `None` where they cannot be counted.
pub(super) fn counted(
    leader: u32,
    directory: &Path,
    name: &Path,
    mut load: impl FnMut() -> Result<f64>,
) -> Result<Option<Calls>> {
    let log = directory.join(name);
    for counter in &COUNTERS {
        let Some(guard) = Guard::start(counter, leader, &log) else { continue };
        let units = load()?;
        if !guard.stop() {
            continue;
        }
        let counts = (counter.read)(&std::fs::read_to_string(&log).unwrap_or_default());
        if units > 0.0 && !counts.is_empty() {
            let each = counts.into_iter().map(|(name, count)| (name, count as f64 / units)).collect();
            return Ok(Some(Calls { counter: counter.name, log: name.to_path_buf(), each }));
        }
    }
    Ok(None)
}

/// A counter that runs; it is ended whatever happens.
struct Guard(Child);

impl Guard {
    fn start(counter: &Counter, leader: u32, log: &Path) -> Option<Self> {
        let _ = std::fs::remove_file(log);
        let ids: Vec<String> = group(leader).iter().map(u32::to_string).collect();
        let mut command = Command::new(counter.name);
        for &word in counter.arguments {
            match word {
                "@FILE@" => command.arg(log),
                "@EVENTS@" => command.arg(events()),
                "@PIDS@" => command.arg(ids.join(",")),
                "@P_PIDS@" => command.args(ids.iter().flat_map(|id| ["-p", id])),
                _ => command.arg(word),
            };
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut guard = Self(command.spawn().ok()?);
        // It attaches within this time, or has ended because it may not.
        std::thread::sleep(Duration::from_millis(500));
        matches!(guard.0.try_wait(), Ok(None)).then_some(guard)
    }

    /// Ends it as Ctrl-C does, so that it writes its counts; false when it had to be killed.
    fn stop(mut self) -> bool {
        if let Some(id) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(id, Signal::INT);
        }
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// perf's names of what it counts.
fn events() -> String {
    let named = NAMES.split_whitespace().map(|name| format!("syscalls:sys_enter_{name}"));
    named.chain([ALL.to_owned()]).collect::<Vec<_>>().join(",")
}

/// `109,,syscalls:sys_enter_sendto,…`: one line for each event.
fn perf_counts(text: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let mut all = 0;
    for line in text.lines() {
        let mut fields = line.split(',');
        let Some(count) = fields.next().and_then(|count| count.parse::<u64>().ok()) else { continue };
        match fields.nth(1) {
            Some(ALL) => all = count,
            Some(event) if count > 0 => {
                let name = event.strip_prefix("syscalls:sys_enter_").unwrap_or(event);
                counts.insert(name.to_owned(), count);
            }
            _ => {}
        }
    }
    let named: u64 = counts.values().sum();
    if all > named {
        counts.insert("other".to_owned(), all - named);
    }
    counts
}

/// `   109 sendto`: one line for each call, a head and a sum around them.
fn strace_counts(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let count: u64 = fields.next()?.parse().ok()?;
        let name = fields.next()?;
        (name != "total").then(|| (name.to_owned(), count))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_both_are_read() {
        let perf = "# started on Sat\n\n15,,raw_syscalls:sys_enter,900,100.00,,\n\
                    12,,syscalls:sys_enter_sendto,900,100.00,,\n0,,syscalls:sys_enter_read,9,1.00,,\n\
                    <not counted>,,syscalls:sys_enter_x,0,0.00,,\n";
        assert_eq!(perf_counts(perf), BTreeMap::from([("other".to_owned(), 3), ("sendto".to_owned(), 12)]));
        let strace = "    calls syscall\n--------- ----------------\n       37 epoll_wait\n        4 close\n\
                      --------- ----------------\n       41 total\n";
        let found = strace_counts(strace);
        assert_eq!(found, BTreeMap::from([("close".to_owned(), 4), ("epoll_wait".to_owned(), 37)]));
    }
}
