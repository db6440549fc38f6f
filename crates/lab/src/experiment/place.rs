//! The directory of a result: new, never one that holds something; raw logs below `raw`, one directory for each run.
//! Says beforehand when the disk is too full. Deletes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{LabError, Result};
use crate::load::Left;
use crate::pgbench::file_name;
use crate::record::{Point, RAW, RawLog};
use crate::scratch_dir::require_space;

/// The approximate limit of lines in a run's log of transactions: enough for the 99.9th percentile.
pub(super) const MOST_LINES: f64 = 100_000.0;

/// Bytes of such a log and of what goes with it.
const BYTES_PER_RUN: u64 = 6_000_000;

/// The result's directory.
#[derive(Debug)]
pub(super) struct ResultPlace {
    path: PathBuf,
}

impl ResultPlace {
    /// Makes `wished`, or one named by the time, with room for `runs`.
    ///
    /// # Errors
    /// When there is something already, the disk is too full, or it cannot be written.
    pub(super) fn create(wished: Option<&Path>, runs: u32) -> Result<Self> {
        let path = match wished {
            Some(path) => path.to_path_buf(),
            None => {
                PathBuf::from(format!("weir-bench-{}", utc_now().replace([':', 'Z'], "").replace('T', "-")))
            }
        };
        require_free(&path)?;
        securefs::create_directory(&path)
            .and_then(|()| fs::create_dir_all(path.join(RAW)))
            .map_err(LabError::system(format!("making {}", path.display())))?;
        let path = path.canonicalize().map_err(LabError::system(format!("looking at {}", path.display())))?;
        let place = Self { path };
        if let Err(error) = require_space(&place.path, u64::from(runs) * BYTES_PER_RUN) {
            // Nothing is in it yet.
            let _ = fs::remove_dir(place.path.join(RAW)).and_then(|()| fs::remove_dir(&place.path));
            return Err(error);
        }
        fs::create_dir_all(place.shared())
            .map_err(LabError::system(format!("making {}", place.shared().display())))?;
        Ok(place)
    }

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where what is the same for all runs goes.
    pub(super) fn shared(&self) -> PathBuf {
        self.path.join(RAW).join("scripts")
    }

    /// The directory of one run, made anew.
    ///
    /// # Errors
    /// When the disk has no room for its logs any more; else as the file system.
    pub(super) fn run(&self, order: u32, point: &Point, round: u32) -> Result<PathBuf> {
        require_space(&self.path, BYTES_PER_RUN)?;
        let size = point.pool_size.map(|size| format!("-p{size}")).unwrap_or_default();
        let open = point.offered.map(|load| format!("-at{:.0}", load.percent_of_peak)).unwrap_or_default();
        let (target, workload) = (file_name(&point.target), file_name(&point.workload));
        let name = format!("{order:04}-{target}-{workload}{size}-c{}{open}-r{round}", point.clients);
        let path = self.path.join(RAW).join(name);
        fs::create_dir_all(&path).map_err(LabError::system(format!("making {}", path.display())))?;
        Ok(path)
    }

    /// The files of a run as the record names them.
    ///
    /// # Errors
    /// As the file system.
    pub(super) fn logs(&self, run: &Path, left: Vec<Left>) -> Result<Vec<RawLog>> {
        let below = run.strip_prefix(&self.path).unwrap_or(run);
        left.into_iter()
            .map(|(name, kind)| {
                let file = run.join(&name);
                let found =
                    file.metadata().map_err(LabError::system(format!("looking at {}", file.display())))?;
                let path = below.join(&name).to_string_lossy().into_owned();
                Ok(RawLog { path, kind, bytes: found.len() })
            })
            .collect()
    }
}

/// Refuses a directory that holds something; looked at before anything is started, too.
///
/// # Errors
/// [`LabError::Missing`] with the directory's name.
pub(super) fn require_free(path: &Path) -> Result<()> {
    let is_taken = match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => path.exists(),
    };
    if !is_taken {
        return Ok(());
    }
    Err(LabError::Missing {
        what: format!("{} is there already, and a result is never overwritten", path.display()),
        remedy: "name a new directory with --out".to_owned(),
    })
}

/// Now, as `2026-11-21T21:30:00Z`.
pub(super) fn utc_now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    utc(seconds)
}

/// Civil date from days since 1970 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn utc(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn seconds_become_a_date() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_795_296_600), "2026-11-21T21:30:00Z");
    }

    #[test]
    fn a_result_is_never_overwritten() {
        let parent = std::env::temp_dir().join(format!("weir-place-{}", std::process::id()));
        let wished = parent.join("a");
        let place = ResultPlace::create(Some(&wished), 1).unwrap();
        let run = place.run(3, &Point { target: "a/b".into(), clients: 5, ..Point::default() }, 1).unwrap();
        assert!(run.ends_with("0003-a_b--c5-r1"), "{}", run.display());
        fs::write(run.join("x"), "12").unwrap();
        let logs = place.logs(&run, vec![("x".into(), crate::record::RawKind::Summary)]).unwrap();
        assert_eq!((logs[0].path.as_str(), logs[0].bytes), ("raw/0003-a_b--c5-r1/x", 2));
        let said = ResultPlace::create(Some(&wished), 1).unwrap_err().to_string();
        assert!(said.contains("never overwritten"), "{said}");
        let full = parent.join("full");
        let said = ResultPlace::create(Some(&full), u32::MAX).unwrap_err().to_string();
        assert!(said.contains("MB free") && !full.exists(), "{said}");
        fs::remove_dir_all(parent).unwrap();
    }
}
