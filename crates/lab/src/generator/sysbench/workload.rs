//! Workloads of sysbench: its own scripts by their names, a directory of sysbench-tpcc, or a script of the user's. As
//! arguments: the script first, then what it and its `prepare` both need.

use std::path::Path;

use crate::error::{LabError, Result};
use crate::record::WorkloadRecord;

/// sysbench's own scripts, each with what it does.
const OWN: &[(&str, &str)] = &[
    ("oltp_read_write", "sysbench's own: reads, ranges and changes in one transaction"),
    ("oltp_read_only", "sysbench's own: point reads and ranges in one transaction"),
    ("oltp_write_only", "sysbench's own: changes in one transaction"),
    ("oltp_point_select", "sysbench's own: one SELECT by key"),
    ("oltp_update_index", "sysbench's own: one UPDATE of an indexed column"),
    ("oltp_update_non_index", "sysbench's own: one UPDATE of a column without index"),
    ("select_random_points", "sysbench's own: one SELECT of ten keys"),
    ("select_random_ranges", "sysbench's own: one SELECT of ten ranges"),
];

/// The names of sysbench's own scripts.
pub fn names() -> impl Iterator<Item = &'static str> {
    OWN.iter().map(|(name, _)| *name)
}

/// How much data a script has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Tables, each of which has it all.
    pub tables: u32,
    /// Rows of each table of sysbench's own scripts.
    pub rows: u32,
    /// Warehouses of each set of sysbench-tpcc's tables.
    pub warehouses: u32,
}

impl Default for Size {
    /// A few hundred megabytes, as pgbench's tables in the lab.
    fn default() -> Self {
        Self { tables: 1, rows: 1_000_000, warehouses: 2 }
    }
}

/// The workload of a name of [`names`], of a directory with sysbench-tpcc's `tpcc.lua`, or of a script `FILE.lua`.
///
/// # Errors
/// [`LabError::Missing`] with what there is.
pub fn workload(said: &str, size: Size) -> Result<WorkloadRecord> {
    let tables = format!("--tables={}", size.tables);
    let rows = format!("--table-size={}", size.rows);
    if let Some((name, what)) = OWN.iter().find(|(name, _)| *name == said) {
        return Ok(record(name, what, vec![said.to_owned(), tables, rows]));
    }
    let missing = |what: String| LabError::Missing {
        what,
        remedy: format!(
            "one of {}; a directory with sysbench-tpcc's tpcc.lua; or a script FILE.lua",
            names().collect::<Vec<_>>().join(", ")
        ),
    };
    let path =
        Path::new(said).canonicalize().map_err(|_| missing(format!("sysbench has no workload {said:?}")))?;
    if path.is_dir() {
        let script = path.join("tpcc.lua");
        if !script.is_file() {
            return Err(missing(format!("{} has no tpcc.lua", path.display())));
        }
        let script = script.display().to_string();
        let what = "sysbench-tpcc: orders, payments, deliveries of a wholesaler, close to TPC-C";
        let scale = format!("--scale={}", size.warehouses);
        // As its authors call it for PostgreSQL.
        let rest = [tables, scale, "--use_fk=0".to_owned(), "--trx_level=RC".to_owned()];
        return Ok(record("tpcc", what, [script].into_iter().chain(rest).collect()));
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok(record(&name, &format!("your own: {said}"), vec![path.display().to_string()]))
}

fn record(name: &str, what: &str, arguments: Vec<String>) -> WorkloadRecord {
    WorkloadRecord { name: name.to_owned(), what: what.to_owned(), arguments, ..WorkloadRecord::default() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_directories_and_files_are_workloads() {
        let size = Size { tables: 2, rows: 100, warehouses: 3 };
        let own = workload("oltp_read_write", size).unwrap();
        assert_eq!(own.arguments, ["oltp_read_write", "--tables=2", "--table-size=100"]);
        assert!(names().all(|name| workload(name, size).is_ok()));
        let directory = std::env::temp_dir().join(format!("weir-tpcc-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let said = directory.to_str().unwrap();
        assert!(workload(said, size).unwrap_err().to_string().contains("has no tpcc.lua"));
        std::fs::write(directory.join("tpcc.lua"), "").unwrap();
        let tpcc = workload(said, size).unwrap();
        assert!(tpcc.arguments[0].ends_with("/tpcc.lua") && tpcc.arguments.contains(&"--scale=3".to_owned()));
        let file = workload(&format!("{said}/tpcc.lua"), size).unwrap();
        assert_eq!((file.name.as_str(), file.arguments.len()), ("tpcc", 1));
        std::fs::remove_dir_all(directory).unwrap();
        assert!(workload("oltp_nothing", size).unwrap_err().to_string().contains("oltp_read_only"));
    }
}
