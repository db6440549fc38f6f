//! What the clients of a measurement do: pgbench's own scripts, the lab's, or the user's, each with its name and a
//! sentence that says what it stands for. Data only: nothing here runs anything.

mod builtin;
mod user;

pub use programs::WORKLOADS as NAMES;

use crate::error::{LabError, Result};
use crate::record::WorkloadRecord;

/// One of [`NAMES`], for pgbench.
///
/// # Errors
/// [`LabError::Missing`] with the names that there are.
pub fn named(name: &str) -> Result<WorkloadRecord> {
    builtin::find(name).ok_or_else(|| LabError::Missing {
        what: format!("there is no workload {name:?}"),
        remedy: format!("one of {}; or your own with --script FILE[@WEIGHT]", NAMES.join(", ")),
    })
}

/// The user's scripts, each as `FILE` or `FILE@WEIGHT` (pgbench's `-f`), as one workload.
///
/// # Errors
/// When a file cannot be read or has no statement, or no weight is above zero.
pub fn from_scripts(arguments: &[String]) -> Result<WorkloadRecord> {
    user::read(arguments)
}

/// Whether a workload for pgbench needs pgbench's tables: built-in scripts do, others if they name them.
#[must_use]
pub fn needs_tables(workload: &WorkloadRecord) -> bool {
    workload.scripts.is_empty() || workload.scripts.iter().any(|script| script.text.contains("pgbench_"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_name_has_a_workload_and_an_unknown_one_names_them() {
        for name in NAMES {
            let workload = named(name).unwrap();
            assert_eq!(workload.name, *name);
            assert!(!workload.what.is_empty() && !workload.what.ends_with('.'), "{}", workload.what);
            assert!(workload.scripts.is_empty() == workload.arguments.contains(&"-b".to_owned()), "{name}");
            assert!(needs_tables(&workload));
        }
        let error = named("tpcc").unwrap_err().to_string();
        assert!(error.contains("select-only, ") && error.contains("--script"), "{error}");
    }

    #[test]
    fn a_sleep_is_said_beside_its_script() {
        for workload in NAMES.iter().map(|name| named(name).unwrap()) {
            for script in &workload.scripts {
                assert_eq!(
                    user::think_us(&script.text),
                    script.think_us,
                    "{} of {}",
                    script.name,
                    workload.name
                );
            }
        }
        assert!(named("idle-heavy").unwrap().scripts.iter().all(|script| script.think_us > 0));
    }

    #[test]
    fn what_writes_says_so() {
        for name in NAMES {
            let workload = named(name).unwrap();
            let builtin =
                workload.arguments.iter().any(|word| word == "tpcb-like" || word == "simple-update");
            let writes = workload.scripts.iter().any(|script| script.text.contains("UPDATE"));
            assert_eq!(workload.writes, builtin || writes, "{name}");
        }
    }
}
