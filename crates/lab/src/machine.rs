//! What the figures were measured on: processor, cores, kernel, memory, PostgreSQL. Reads, never judges.

use std::fs;

use serde_json::{Value, json};

/// The part of the cores that other programs may take before figures are doubtful.
const BUSY_SHARE: f64 = 0.5;

/// The machine of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// CPUs this process may use.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The distribution's name and version.
    pub system: String,
    /// `postgres --version`.
    pub postgres: String,
    /// The load average of the last minute, at the time of the look.
    pub load: f64,
}

impl Machine {
    /// Looks around; what is not to be found stays `unknown`.
    #[must_use]
    pub fn look(postgres: &str) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let named = |found: Option<String>| found.unwrap_or_else(|| "unknown".to_owned());
        let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
        Self {
            processor: named(value_after(&read("/proc/cpuinfo"), "model name", ':')),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory_mib(&read("/proc/meminfo")),
            kernel: named((!kernel.is_empty()).then_some(kernel)),
            system: named(value_after(&read("/etc/os-release"), "PRETTY_NAME", '=')),
            postgres: postgres.to_owned(),
            load: first_number(&read("/proc/loadavg")),
        }
    }

    /// One line, as a report's head has it; on a machine that was busy before, with a warning.
    #[must_use]
    pub fn sentence(&self) -> String {
        let gigabytes = (self.memory_mib + 512) / 1024;
        let busy = if self.load > self.cores as f64 * BUSY_SHARE {
            format!(
                " (busy with other things: load {:.1} before the runs, so do not trust these figures)",
                self.load
            )
        } else {
            String::new()
        };
        format!(
            "{} × {}, {gigabytes} GB, Linux {}, {}, {}{busy}",
            self.cores, self.processor, self.kernel, self.system, self.postgres
        )
    }

    /// The same as an object.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "processor": self.processor, "cores": self.cores, "memory_mib": self.memory_mib,
            "kernel": self.kernel, "system": self.system, "postgres": self.postgres, "load_before": self.load,
        })
    }
}

fn value_after(text: &str, name: &str, separator: char) -> Option<String> {
    let (_, value) =
        text.lines().filter_map(|line| line.split_once(separator)).find(|(found, _)| found.trim() == name)?;
    Some(value.trim().trim_matches('"').to_owned())
}

fn first_number(text: &str) -> f64 {
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

fn memory_mib(meminfo: &str) -> u64 {
    let total = value_after(meminfo, "MemTotal", ':').unwrap_or_default();
    total.split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or_default() / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_said_to_be_busy() {
        let quiet = Machine { cores: 2, load: 0.9, ..Machine::default() };
        assert!(!quiet.sentence().contains("busy"));
        let busy = Machine { load: first_number("21.45 11.01 7.51 1/2 3"), ..quiet };
        assert!(busy.sentence().contains("load 21.4"), "{}", busy.sentence());
    }

    #[test]
    fn names_are_found_between_their_separators() {
        let cpuinfo = "processor\t: 0\nmodel name\t: AMD EPYC: x\n";
        assert_eq!(value_after(cpuinfo, "model name", ':').as_deref(), Some("AMD EPYC: x"));
        assert_eq!(
            value_after("PRETTY_NAME=\"Debian 12\"", "PRETTY_NAME", '=').as_deref(),
            Some("Debian 12")
        );
        assert_eq!(memory_mib("MemTotal:       24682440 kB\n"), 24103);
    }
}
