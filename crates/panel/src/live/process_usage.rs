//! CPU and memory of the process, from /proc.
//! Never fails: what cannot be read is 0.

use std::time::Instant;

/// Ticks of a second in /proc; the same on every Linux that Weir runs on.
const TICKS: f64 = 100.0;

/// Looks, each since the one before.
#[derive(Default)]
pub(crate) struct ProcessUsageReader {
    before: Option<(Instant, u64)>,
}

/// CPU time since the look before, in hundredths of one processor, and memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessUsage {
    pub(crate) cpu_percent: f64,
    pub(crate) rss_bytes: u64,
}

impl ProcessUsageReader {
    pub(crate) fn read(&mut self) -> ProcessUsage {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let (now, ticks) = (Instant::now(), ticks(&stat));
        let before = self.before.replace((now, ticks));
        #[expect(clippy::cast_precision_loss)]
        let cpu_percent = before.map_or(0.0, |(since, before)| {
            let seconds = now.duration_since(since).as_secs_f64().max(0.01);
            ticks.saturating_sub(before) as f64 / TICKS / seconds * 100.0
        });
        ProcessUsage { cpu_percent, rss_bytes: rss_bytes(&status) }
    }
}

/// utime and stime, the 14th and 15th field; the second, in parentheses, may hold anything.
fn ticks(stat: &str) -> u64 {
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn rss_bytes(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1_024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        assert_eq!(ticks("7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 30 12 0 0 20"), 42);
        assert_eq!((ticks(""), ticks("7 (x) S")), (0, 0));
        assert_eq!(rss_bytes("VmPeak: 9 kB\nVmRSS:\t  2 kB\n"), 2_048);
        assert!(ProcessUsageReader::default().read().rss_bytes > 100_000);
    }
}
