//! The record as a file: `result.json` in the result's directory. Written whole beside itself and then renamed, so
//! that a cut process leaves the last whole one. Reading checks the format, never the figures.

use std::fs;
use std::path::Path;

use super::{Experiment, FORMAT};
use crate::error::{LabError, Result};

/// The record's name in the result's directory.
pub const FILE: &str = "result.json";

/// The directory of raw logs in the result's directory.
pub const RAW: &str = "raw";

impl Experiment {
    /// Writes the record into `directory`.
    ///
    /// # Errors
    /// [`LabError::System`] with the file's name: a full disk, a directory that cannot be written.
    pub fn save(&self, directory: &Path) -> Result<()> {
        let path = directory.join(FILE);
        let half = directory.join(format!("{FILE}.new"));
        let text = serde_json::to_string_pretty(self)
            .map_err(|fault| LabError::Record { path: path.clone(), fault: fault.to_string() })?;
        fs::write(&half, text + "\n").map_err(LabError::system(format!("writing {}", half.display())))?;
        fs::rename(&half, &path).map_err(LabError::system(format!("writing {}", path.display())))
    }

    /// Reads the record of `directory`.
    ///
    /// # Errors
    /// [`LabError::System`] when there is none, [`LabError::Record`] when it is not one or of another format.
    pub fn load(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let text =
            fs::read_to_string(&path).map_err(LabError::system(format!("reading {}", path.display())))?;
        let refuse = |fault: String| LabError::Record { path: path.clone(), fault };
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|fault| refuse(format!("is no record: {fault}")))?;
        match value["format"].as_u64() {
            Some(format) if format == u64::from(FORMAT) => {}
            Some(other) => return Err(refuse(format!("has format {other}, this program reads {FORMAT}"))),
            None => return Err(refuse("is no record of an experiment".to_owned())),
        }
        serde_json::from_value(value).map_err(|fault| refuse(format!("is no record: {fault}")))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::record::{Ended, Latency, Percentiles, Point, RawKind, RawLog, Run, WarningKind};

    fn directory(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("weir-record-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn sample() -> Experiment {
        let run = Run {
            tps: 1234.5,
            transactions: 12_345,
            latency_us: Some(Latency {
                count: 12_345,
                mean: 800.0,
                max: 9000.0,
                percentiles: Some(Percentiles { p50: 700.0, p99: 4000.0, ..Percentiles::default() }),
            }),
            raw: vec![RawLog { path: "raw/1".into(), kind: RawKind::Transactions, bytes: 9 }],
            ended: Ended::Refused("too many clients".into()),
            ..Run::default()
        };
        let point = Point { target: "weir".into(), pool_size: Some(4), runs: vec![run], ..Point::default() };
        let mut experiment = Experiment { format: FORMAT, points: vec![point], ..Experiment::default() };
        experiment.warn(WarningKind::FsyncOff, "fsync is off");
        experiment.warn(WarningKind::FsyncOff, "fsync is off");
        experiment
    }

    #[test]
    fn what_was_written_is_read() {
        let path = directory("round");
        let experiment = sample();
        assert_eq!(experiment.warnings.len(), 1);
        experiment.save(&path).unwrap();
        assert_eq!(Experiment::load(&path).unwrap(), experiment);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn what_is_no_record_is_refused_by_name() {
        let path = directory("refuse");
        assert!(Experiment::load(&path).unwrap_err().to_string().contains(FILE));
        for (text, words) in [
            ("{\"format\": 99}", "format 99"),
            ("{}", "no record"),
            ("{\"format\": 1", "no record"),
            ("{\"format\": 1, \"points\": 3}", "no record"),
        ] {
            fs::write(path.join(FILE), text).unwrap();
            let said = Experiment::load(&path).unwrap_err().to_string();
            assert!(said.contains(words) && said.contains(FILE), "{text}: {said}");
        }
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn only_whole_runs_count() {
        let point = &sample().points[0];
        assert_eq!((point.tps(), point.runs.len()), (None, 1));
        let whole = Run { tps: 2.0, ..Run::default() };
        let point = Point { runs: vec![whole.clone(), whole.clone(), whole], ..Point::default() };
        let figure = point.tps().unwrap();
        assert_eq!((figure.median, figure.interval.map(|found| found.low)), (2.0, Some(2.0)));
        assert_eq!(point.percentile(|found| found.p99), None);
    }
}
