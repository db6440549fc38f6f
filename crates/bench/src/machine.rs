//! What the figures were measured on: processor, cores, kernel, memory, PostgreSQL. Reads, never judges.

use std::fs;

use serde_json::{Value, json};

/// The machine of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
        }
    }

    /// One line, as a report's head has it.
    #[must_use]
    pub fn sentence(&self) -> String {
        let gigabytes = (self.memory_mib + 512) / 1024;
        format!(
            "{} × {}, {gigabytes} GB, Linux {}, {}, {}",
            self.cores, self.processor, self.kernel, self.system, self.postgres
        )
    }

    /// The same as an object.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "processor": self.processor, "cores": self.cores, "memory_mib": self.memory_mib,
            "kernel": self.kernel, "system": self.system, "postgres": self.postgres,
        })
    }
}

fn value_after(text: &str, name: &str, separator: char) -> Option<String> {
    let (_, value) =
        text.lines().filter_map(|line| line.split_once(separator)).find(|(found, _)| found.trim() == name)?;
    Some(value.trim().trim_matches('"').to_owned())
}

fn memory_mib(meminfo: &str) -> u64 {
    let total = value_after(meminfo, "MemTotal", ':').unwrap_or_default();
    total.split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or_default() / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

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
