//! The raw files of one run: found, checked against the sizes in the record, and read. A file that is gone or cut is
//! an error with its name, never a figure from what is left. Changes nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use crate::account;
use crate::error::{LabError, Result};
use crate::record::{Connecting, Ended, Lag, Latency, Placement, RawKind, RawLog, Run, Second, Spending};

/// The raw files of a run, below the result's directory.
#[derive(Clone, Copy, Debug)]
pub struct RawFiles<'a> {
    /// The result's directory.
    pub directory: &'a Path,
    /// The files, with the sizes that they had.
    pub logs: &'a [RawLog],
}

/// What the raw files say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Seconds that count.
    pub seconds: f64,
    /// Transactions that were done in them.
    pub transactions: u64,
    /// Time of those transactions.
    pub latency_us: Option<Latency>,
    /// How late transactions of an open loop began.
    pub lag_us: Option<Lag>,
    /// Clients that got no connection.
    pub refused: u32,
    /// Transactions that failed, over the whole run.
    pub failed: u64,
    /// Transactions that were not begun because they were too late already.
    pub skipped: u64,
    /// Complaints and how often they came.
    pub errors: BTreeMap<String, u64>,
    /// Second by second.
    pub per_second: Vec<Second>,
    /// CPU time.
    pub cpu_us: Spending,
    /// What connecting took.
    pub connecting: Option<Connecting>,
    /// Where requests went.
    pub placement: Option<Placement>,
    /// The size that a pool has found.
    pub found_size: Option<u32>,
    /// How it ended.
    pub ended: Ended,
}

impl Figures {
    /// Puts the figures into `run`.
    pub fn fill(self, run: &mut Run) {
        let per_second = self.transactions as f64 / self.seconds;
        run.tps = if per_second.is_finite() { per_second } else { 0.0 };
        run.seconds = self.seconds;
        run.transactions = self.transactions;
        run.latency_us = self.latency_us;
        run.lag_us = self.lag_us;
        run.refused = self.refused;
        run.failed = self.failed;
        run.skipped = self.skipped;
        run.errors = self.errors;
        run.per_second = self.per_second;
        run.cpu_us = self.cpu_us;
        run.connecting = self.connecting;
        run.placement = self.placement;
        run.found_size = self.found_size;
        run.ended = self.ended;
    }
}

impl RawFiles<'_> {
    /// Whether every file is there in its full size.
    ///
    /// # Errors
    /// [`LabError::Record`] that names the first that is not.
    pub fn check(&self) -> Result<()> {
        for log in self.logs {
            let path = self.path(log);
            let found = path.metadata().map_err(|fault| refuse(&path, format!("is gone ({fault})")))?.len();
            if found < log.bytes {
                return Err(refuse(&path, format!("has been cut: {found} of {} bytes are left", log.bytes)));
            }
            if found > log.bytes {
                return Err(refuse(&path, format!("has changed: {found} bytes, not {}", log.bytes)));
            }
        }
        Ok(())
    }

    /// The files of a kind.
    pub fn of(&self, kind: RawKind) -> impl Iterator<Item = PathBuf> {
        self.logs.iter().filter(move |log| log.kind == kind).map(|log| self.path(log))
    }

    /// All text of the files of a kind; nothing when there is none.
    ///
    /// # Errors
    /// As the file system, with the file's name.
    pub fn text(&self, kind: RawKind) -> Result<String> {
        let mut text = String::new();
        for path in self.of(kind) {
            let bytes = std::fs::read(&path).map_err(|fault| refuse(&path, format!("is gone ({fault})")))?;
            text.push_str(&String::from_utf8_lossy(&bytes));
        }
        Ok(text)
    }

    /// CPU time between the first and the last line of the accounting.
    ///
    /// # Errors
    /// [`LabError::Record`] when a line is not what the lab wrote.
    pub fn spending(&self) -> Result<Spending> {
        let Some(path) = self.of(RawKind::Accounting).next() else { return Ok(Spending::default()) };
        let text = self.text(RawKind::Accounting)?;
        account::spent(&text).ok_or_else(|| refuse(&path, "has a line that is no accounting"))
    }

    /// Where requests went, if the pooler was asked.
    ///
    /// # Errors
    /// [`LabError::Record`] when it is not what the lab wrote.
    pub fn placement(&self) -> Result<Option<Placement>> {
        let Some(path) = self.of(RawKind::Placement).next() else { return Ok(None) };
        let found = Placement::read(&self.text(RawKind::Placement)?);
        found.map(Some).ok_or_else(|| refuse(&path, "does not say where requests went"))
    }

    /// The size that a pool which sizes itself has found, if it was asked.
    ///
    /// # Errors
    /// [`LabError::Record`] when it is not what the lab wrote.
    pub fn found_size(&self) -> Result<Option<u32>> {
        let Some(path) = self.of(RawKind::FoundSize).next() else { return Ok(None) };
        let found = self.text(RawKind::FoundSize)?.trim_end().parse();
        found.map(Some).map_err(|_| refuse(&path, "does not say a size"))
    }

    fn path(&self, log: &RawLog) -> PathBuf {
        self.directory.join(&log.path)
    }
}

/// A file that cannot be used.
pub(crate) fn refuse(path: &Path, fault: impl Into<String>) -> LabError {
    LabError::Record { path: path.to_path_buf(), fault: fault.into() }
}

/// Opens a raw file.
pub(crate) fn open(path: &Path) -> Result<BufReader<File>> {
    File::open(path).map(BufReader::new).map_err(|fault| refuse(path, format!("is gone ({fault})")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_that_is_gone_cut_or_longer_is_named() {
        let directory = std::env::temp_dir().join(format!("weir-raw-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let text = "server_us pooler_us generator_us machine_us\n- - 1 2\n- - 4 9\n";
        std::fs::write(directory.join("a"), text).unwrap();
        let bytes = text.len() as u64;
        let logs = [RawLog { path: "a".into(), kind: RawKind::Accounting, bytes }];
        let files = RawFiles { directory: &directory, logs: &logs };
        assert_eq!(files.spending().unwrap().machine, Some(7.0));
        files.check().unwrap();
        for (bytes, words) in [(bytes + 1, "cut"), (bytes - 1, "changed")] {
            let logs = [RawLog { bytes, ..logs[0].clone() }];
            let said = RawFiles { directory: &directory, logs: &logs }.check().unwrap_err().to_string();
            assert!(said.contains(words) && said.contains("/a "), "{said}");
        }
        std::fs::remove_file(directory.join("a")).unwrap();
        assert!(files.check().unwrap_err().to_string().contains("is gone"));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
