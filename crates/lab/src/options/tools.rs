//! `--driver sysbench` and `--driver jmeter`: where those programs are, what their workloads are called, how much data
//! they have. Options that mean nothing to a program are refused, never passed over.

use std::path::PathBuf;

use clap::Args;

use super::Driver;
use crate::error::{LabError, Result};
use crate::generator::jmeter::{Home, Jmeter};
use crate::generator::sysbench::{self, Size, Sysbench};
use crate::record::WorkloadRecord;
use crate::workload;

/// Options of load generators other than pgbench.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct Tools {
    /// sysbench's program
    #[arg(long, value_name = "PROGRAM", help_heading = "sysbench and JMeter")]
    pub sysbench: Option<PathBuf>,
    /// Tables of sysbench's own scripts, or sets of tables of sysbench-tpcc [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000), help_heading = "sysbench and JMeter")]
    pub tables: Option<u32>,
    /// Rows of each table of sysbench's own scripts [default: 1000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "sysbench and JMeter")]
    pub table_size: Option<u32>,
    /// Warehouses of sysbench-tpcc [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "sysbench and JMeter")]
    pub warehouses: Option<u32>,
    /// Directory of JMeter 5, with pgjdbc in its lib
    #[arg(long, value_name = "DIRECTORY", env = "JMETER_HOME", help_heading = "sysbench and JMeter")]
    pub jmeter_home: Option<PathBuf>,
    /// Your own test plan, which reads and writes what docs/lab.md describes
    #[arg(long, value_name = "FILE.jmx", help_heading = "sysbench and JMeter")]
    pub jmeter_plan: Option<PathBuf>,
}

impl Tools {
    /// Refuses options that belong to another program than `driver`.
    ///
    /// # Errors
    /// [`LabError::Usage`] with the option's name.
    pub(crate) fn check(&self, driver: Driver, others: &[(&str, bool)]) -> Result<()> {
        let of_sysbench = [
            ("--sysbench", self.sysbench.is_some()),
            ("--tables", self.tables.is_some()),
            ("--table-size", self.table_size.is_some()),
            ("--warehouses", self.warehouses.is_some()),
        ];
        let of_jmeter = [("--jmeter-plan", self.jmeter_plan.is_some())];
        let strange: Vec<&(&str, bool)> = match driver {
            Driver::Pgbench => of_sysbench.iter().chain(&of_jmeter).collect(),
            Driver::Sysbench => of_jmeter.iter().chain(others).collect(),
            Driver::Jmeter => of_sysbench.iter().chain(others).collect(),
        };
        match strange.into_iter().find(|(_, said)| *said) {
            Some((name, _)) => Err(LabError::Usage(format!("{} has no use for {name}", driver.name()))),
            None => Ok(()),
        }
    }

    /// The workloads of these names; its usual one where there is no name.
    ///
    /// # Errors
    /// [`LabError::Missing`] with the names that there are.
    pub(crate) fn workloads(&self, driver: Driver, names: &[&str]) -> Result<Vec<WorkloadRecord>> {
        let of = |name: &&str| match driver {
            Driver::Pgbench => workload::named(name),
            Driver::Sysbench => sysbench::workload(name, self.size()),
            Driver::Jmeter => crate::generator::jmeter::workload(name, self.jmeter_plan.as_deref()),
        };
        if names.is_empty() {
            let usual = match driver {
                Driver::Sysbench => "oltp_read_write",
                Driver::Pgbench | Driver::Jmeter => "tpcb-like",
            };
            return Ok(vec![of(&usual)?]);
        }
        names.iter().map(of).collect()
    }

    /// sysbench.
    ///
    /// # Errors
    /// [`LabError::Missing`] with the package that has it.
    pub(crate) fn find_sysbench(&self) -> Result<Sysbench> {
        Sysbench::find(self.sysbench.clone())
    }

    /// JMeter.
    ///
    /// # Errors
    /// [`LabError::Missing`] with what is not there.
    pub(crate) fn find_jmeter(&self) -> Result<Jmeter> {
        Jmeter::new(Home::find(self.jmeter_home.as_deref())?, self.jmeter_plan.as_deref())
    }

    fn size(&self) -> Size {
        let usual = Size::default();
        Size {
            tables: self.tables.unwrap_or(usual.tables),
            rows: self.table_size.unwrap_or(usual.rows),
            warehouses: self.warehouses.unwrap_or(usual.warehouses),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn options_of_another_program_are_refused_by_name() {
        let tools = Tools { tables: Some(2), ..Tools::default() };
        tools.check(Driver::Sysbench, &[("--script", false)]).unwrap();
        for (driver, others, name) in [
            (Driver::Pgbench, [("--script", true)], "pgbench has no use for --tables"),
            (Driver::Jmeter, [("--script", false)], "jmeter has no use for --tables"),
            (Driver::Sysbench, [("--script", true)], "sysbench has no use for --script"),
        ] {
            let said = tools.check(driver, &others).unwrap_err().to_string();
            assert!(said.contains(name), "{said}");
        }
    }

    #[test]
    fn each_program_has_a_usual_workload() {
        let tools = Tools::default();
        let names = |driver| {
            tools.workloads(driver, &[]).unwrap().into_iter().map(|found| found.name).collect::<Vec<_>>()
        };
        assert_eq!(names(Driver::Pgbench), ["tpcb-like"]);
        assert_eq!(names(Driver::Sysbench), ["oltp_read_write"]);
        assert_eq!(names(Driver::Jmeter), ["tpcb-like"]);
        assert!(tools.workloads(Driver::Sysbench, &["select-only"]).is_err());
    }
}
