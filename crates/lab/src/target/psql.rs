//! Questions to a server or pooler through PostgreSQL's own psql: whatever TLS, sockets and authentication a load's
//! libpq manages, the questions manage too. A child for each; never asks for a password at the terminal.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Address;
use crate::error::{LabError, Result};
use crate::identity::Identity;
use crate::interrupt::Interrupt;
use crate::postgres::Programs;
use crate::process;

/// Between the columns and the rows of an answer: in no text that is asked for.
const COLUMN: char = '\u{1f}';
const ROW: char = '\u{1e}';

/// How long a login may take, in seconds, where the address does not say.
const PATIENCE_S: &str = "10";

/// psql, ready to run.
#[derive(Clone, Debug)]
pub struct Psql {
    program: PathBuf,
    identity: Identity,
    interrupt: Interrupt,
}

impl Psql {
    /// The psql beside these programs, run as the caller.
    ///
    /// # Errors
    /// [`LabError::Missing`] with the package that has it.
    pub fn of(programs: &Programs, interrupt: &Interrupt) -> Result<Self> {
        let beside = programs.program("psql");
        let program = if beside.is_file() { beside } else { in_path("psql")? };
        Ok(Self { program, identity: Identity::caller(), interrupt: interrupt.clone() })
    }

    /// Runs `statement` and gives its rows; NULL is empty.
    ///
    /// # Errors
    /// [`LabError::Peer`] with the server's or libpq's own words.
    pub fn rows(&self, address: &Address, statement: &str) -> Result<Vec<Vec<String>>> {
        let mut command = Command::new(&self.program);
        address.equip(&mut command);
        if address.parameter("connect_timeout").is_none() {
            command.env("PGCONNECT_TIMEOUT", PATIENCE_S);
        }
        let (column, row) = (format!("-F{COLUMN}"), format!("-R{ROW}"));
        command.env("LC_ALL", "C").args([
            "-X",
            "-A",
            "-t",
            "-q",
            "-w",
            &column,
            &row,
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
        ]);
        command.arg(statement);
        let finished = process::run(command, &self.identity, &self.interrupt, &mut |_| {})?;
        if !finished.status.success() {
            let words: Vec<&str> =
                finished.stderr.iter().map(|line| line.trim_start_matches("psql: ").trim()).collect();
            return Err(LabError::Peer(format!("{address}: {}", words.join(" "))));
        }
        let text = finished.stdout.trim_end_matches('\n');
        let rows = text.split(ROW).filter(|row| !row.is_empty());
        Ok(rows.map(|row| row.split(COLUMN).map(str::to_owned).collect()).collect())
    }
}

/// A program of PATH.
fn in_path(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| is_program(file));
    found.ok_or_else(|| LabError::Missing {
        what: format!("{name} is not on this machine"),
        remedy: "Debian, Ubuntu: apt-get install postgresql-client".to_owned(),
    })
}

fn is_program(file: &Path) -> bool {
    file.is_file()
}
