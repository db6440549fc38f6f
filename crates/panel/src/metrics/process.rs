//! The process itself as /proc knows it, under the names that Prometheus' own libraries use.
//! Never fails: what cannot be read is left out.

use std::fs;

use super::family::{Family, MetricKind, MetricUnit, MetricWriter};

/// Ticks of a second in /proc, which every Linux has (USER_HZ).
const TICKS: f64 = 100.0;

/// File descriptors.
const FDS: MetricUnit = MetricUnit::Number("fd");

/// A figure of the process: its name behind the prefix, and what it is.
pub(super) type ProcessMetric = (&'static str, MetricKind, MetricUnit, &'static str, Option<f64>);

/// Writes the figures twice: as `process_*`, and as pgbouncer_exporter calls them.
pub(super) fn write(page: &mut dyn MetricWriter, read: &[ProcessMetric]) {
    for (prefix, is_alias) in [("process", false), ("pgbouncer.process", true)] {
        for (name, kind, unit, help, value) in read {
            if let Some(value) = value {
                let name = format!("{prefix}.{name}");
                page.single(&Family { is_alias, ..Family::new(&name, *kind, *unit, help) }, *value);
            }
        }
    }
}

/// Reads /proc: for a thread that may wait.
pub(super) fn read() -> Vec<ProcessMetric> {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let descriptors = fs::read_dir("/proc/self/fd").ok().map(|list| list.count() as f64);
    let net = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let cpu = field(&stat, 14).zip(field(&stat, 15)).map(|(user, system)| (user + system) / TICKS);
    let started = field(&stat, 22).zip(boot_time()).map(|(ticks, boot)| boot + ticks / TICKS);
    vec![
        ("cpu", MetricKind::Counter, MetricUnit::Seconds, "CPU time of the process, user and system.", cpu),
        (
            "resident_memory",
            MetricKind::Gauge,
            MetricUnit::Bytes,
            "Resident memory.",
            kibibytes(&status, "VmRSS:"),
        ),
        (
            "virtual_memory",
            MetricKind::Gauge,
            MetricUnit::Bytes,
            "Virtual memory.",
            kibibytes(&status, "VmSize:"),
        ),
        (
            "virtual_memory_max",
            MetricKind::Gauge,
            MetricUnit::Bytes,
            "Most virtual memory there may be; -1 is no limit.",
            limit(&limits, "Max address space"),
        ),
        ("open_fds", MetricKind::Gauge, FDS, "Open file descriptors.", descriptors),
        (
            "max_fds",
            MetricKind::Gauge,
            FDS,
            "Most file descriptors there may be.",
            limit(&limits, "Max open files"),
        ),
        (
            "start_time",
            MetricKind::Gauge,
            MetricUnit::Seconds,
            "When the process started, in seconds since 1970.",
            started,
        ),
        (
            "network_receive",
            MetricKind::Counter,
            MetricUnit::Bytes,
            "Bytes received by the network of the process, all devices.",
            network(&net, 0),
        ),
        (
            "network_transmit",
            MetricKind::Counter,
            MetricUnit::Bytes,
            "Bytes sent by the network of the process, all devices.",
            network(&net, 8),
        ),
    ]
}

/// The field of /proc/PID/stat that proc(5) gives this number; the name before it may have blanks and parentheses.
fn field(stat: &str, number: usize) -> Option<f64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

fn boot_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn kibibytes(status: &str, name: &str) -> Option<f64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    let number: f64 = value.split_ascii_whitespace().next()?.parse().ok()?;
    Some(number * 1024.0)
}

fn limit(limits: &str, name: &str) -> Option<f64> {
    let value = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match value.split_ascii_whitespace().next()? {
        "unlimited" => Some(-1.0),
        number => number.parse().ok(),
    }
}

/// The sum of one column of all devices.
fn network(devices: &str, column: usize) -> Option<f64> {
    let classify_log_line =
        |line: &str| line.split_once(':')?.1.split_ascii_whitespace().nth(column)?.parse::<f64>().ok();
    devices.lines().filter_map(classify_log_line).reduce(|sum, bytes| sum + bytes)
}

#[cfg(test)]
mod tests {
    use super::super::Exposition;
    use super::*;

    #[test]
    fn a_process_knows_itself() {
        let mut page = Exposition::default();
        write(&mut page, &read());
        let text = page.finished();
        for name in ["process_cpu_seconds_total", "pgbouncer_process_open_fds", "process_start_time_seconds"]
        {
            assert!(text.contains(&format!("# TYPE {name} ")), "{name} in {text}");
        }
        assert!(read().iter().all(|(_, _, _, _, value)| value.is_some()), "{:?}", read());
    }

    #[test]
    fn names_with_parentheses_do_not_shift_fields() {
        let stat = "7 (a) b) S 1 1 1 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 900 1 1";
        assert_eq!(
            (field(stat, 14), field(stat, 15), field(stat, 22)),
            (Some(250.0), Some(50.0), Some(900.0))
        );
    }
}
