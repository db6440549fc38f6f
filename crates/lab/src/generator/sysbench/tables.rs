//! The tables of sysbench's scripts in a user's database: made when they are not there, used as they are when their
//! size suits, and dropped only by leave.

use super::Sysbench;
use crate::error::{LabError, Result};
use crate::identity::Identity;
use crate::interrupt::Interrupt;
use crate::process;
use crate::record::WorkloadRecord;
use crate::target::{Address, Psql};

/// What is there of a workload's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableState {
    /// None of them.
    Nothing,
    /// All of them, in the size that is wanted.
    Suits,
    /// Some of them, or of another size, and with rows.
    Other,
    /// Nobody knows what tables this script has.
    Unknown,
}

/// How a script's tables are recognised.
struct TableSignature {
    /// The first table's name without its number.
    table: &'static str,
    /// What gives its size.
    size: &'static str,
    tables: u32,
    wanted: u64,
}

impl Sysbench {
    /// Sees that a workload's tables are at `address`, and says what was done about them.
    ///
    /// # Errors
    /// [`LabError::Missing`] when rows would be lost; else when the server or sysbench fails.
    pub fn prepare(
        &self,
        psql: &Psql,
        address: &Address,
        workload: &WorkloadRecord,
        force: bool,
        interrupt: &Interrupt,
    ) -> Result<String> {
        let name = &workload.name;
        match look(psql, address, workload)? {
            TableState::Suits if !force => Ok(format!("the tables of {name} are there and used as they are")),
            TableState::Unknown => Ok(format!("{name} is your own script: its tables are taken for ready")),
            TableState::Other if !force => Err(LabError::Missing {
                what: format!("the database has tables of {name} with rows already, of another size"),
                remedy: "ask for their size; or let them be dropped: --force".to_owned(),
            }),
            found => {
                if found != TableState::Nothing {
                    self.order("cleanup", address, workload, interrupt)?;
                }
                self.order("prepare", address, workload, interrupt)?;
                Ok(format!("made the tables of {name}: {}", workload.arguments[1..].join(" ")))
            }
        }
    }

    fn order(
        &self,
        order: &str,
        address: &Address,
        workload: &WorkloadRecord,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let script = workload.arguments.first().map_or("", String::as_str);
        let mut command = self.command(script, workload, address);
        command.arg(order);
        // Where a script of several files looks for the others.
        if let Some((directory, _)) = script.rsplit_once('/') {
            command.current_dir(directory);
        }
        let finished = process::run(command, &Identity::caller(), interrupt, &mut |_| {})?;
        if finished.status.success() {
            return Ok(());
        }
        let mut words = finished.stdout.lines().filter(|line| line.contains("FATAL"));
        let words = words.next().map_or_else(|| finished.last_words(), str::to_owned);
        Err(LabError::program(&format!("sysbench {order}"), words))
    }
}

fn look(psql: &Psql, address: &Address, workload: &WorkloadRecord) -> Result<TableState> {
    let Some(signs) = signs(workload) else { return Ok(TableState::Unknown) };
    let tables: Vec<String> = (1..=signs.tables).map(|number| format!("{}{number}", signs.table)).collect();
    let ask = |table: &String| format!("SELECT '{table}' WHERE to_regclass('{table}') IS NOT NULL");
    let present = psql.rows(address, &tables.iter().map(ask).collect::<Vec<_>>().join(" UNION ALL "))?;
    if present.is_empty() {
        return Ok(TableState::Nothing);
    }
    let ask = |row: &Vec<String>| format!("SELECT {} FROM {}", signs.size, row[0]);
    let sizes = psql.rows(address, &present.iter().map(ask).collect::<Vec<_>>().join(" UNION ALL "))?;
    let suits = sizes.len() == tables.len()
        && sizes.iter().all(|row| row[0].parse::<u64>().is_ok_and(|size| size == signs.wanted));
    Ok(if suits { TableState::Suits } else { TableState::Other })
}

fn signs(workload: &WorkloadRecord) -> Option<TableSignature> {
    let number = |name: &str| {
        let value = workload.arguments.iter().find_map(|word| word.strip_prefix(name));
        value.and_then(|value| value.parse::<u32>().ok())
    };
    let tables = number("--tables=")?;
    if let Some(rows) = number("--table-size=") {
        return Some(TableSignature {
            table: "sbtest",
            size: "coalesce(max(id), 0)",
            tables,
            wanted: rows.into(),
        });
    }
    let warehouses = number("--scale=")?;
    Some(TableSignature { table: "warehouse", size: "count(*)", tables, wanted: warehouses.into() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Size, workload};
    use super::*;

    #[test]
    fn a_script_tells_its_tables_by_its_arguments() {
        let own = workload("oltp_read_only", Size { tables: 3, rows: 50, warehouses: 1 }).unwrap();
        let found = signs(&own).unwrap();
        assert_eq!((found.table, found.tables, found.wanted), ("sbtest", 3, 50));
        let arguments = vec!["/x/tpcc.lua".into(), "--tables=2".into(), "--scale=7".into()];
        let tpcc = WorkloadRecord { arguments, ..WorkloadRecord::default() };
        let found = signs(&tpcc).unwrap();
        assert_eq!((found.table, found.tables, found.wanted), ("warehouse", 2, 7));
        assert!(signs(&WorkloadRecord::default()).is_none());
    }
}
