//! Counts Weir's connections in PostgreSQL, by a direct connection, as often as it answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use lab::error::{LabError, Result};
use lab::laboratory::{Lab, ROLE};

use super::account::Sample;

/// Between two samples: half of the processor is for what is looked at.
const PAUSE: Duration = Duration::from_millis(1);

/// Samples until it is stopped.
pub(super) struct Sampler {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Sample>>>,
}

impl Sampler {
    pub(super) fn start(lab: &Lab) -> Result<Self> {
        let mut superuser = lab.cluster().superuser("postgres")?;
        let query = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{ROLE}' AND usename = '{ROLE}' AND backend_type = 'client backend'"
        );
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut samples = Vec::new();
            while !flag.load(Ordering::Relaxed) {
                let rows = superuser.query(&query)?;
                let count = rows.first().and_then(|row| row.first()?.as_ref()?.parse().ok());
                let connections =
                    count.ok_or_else(|| LabError::Peer("PostgreSQL has counted nothing".to_owned()))?;
                samples.push(Sample { at: now(), connections });
                thread::sleep(PAUSE);
            }
            Ok(samples)
        });
        Ok(Self { is_over, thread })
    }

    /// What it has seen, in the order of time.
    ///
    /// # Errors
    /// As PostgreSQL.
    pub(super) fn stop(self) -> Result<Vec<Sample>> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| LabError::program("the sampler", "it panicked"))?
    }
}

/// Seconds since 1970, as pgbench's log has them.
pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}
