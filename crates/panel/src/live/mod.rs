//! Live figures, once a second: one sample for all streams.
//!
//! Owns the sampling and the last day. Slow readers miss samples. Never asks more of the
//! control thread than five views a second.

mod history;
mod persistence;
mod point;
mod process_usage;
mod sample;
mod store;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control::{ERRORS, HISTOGRAMS, POOLS, SHARDS, STATS_TOTALS};
use tokio::sync::{Semaphore, watch};
use tokio::time::MissedTickBehavior;

use crate::control_client::ControlError;
use crate::shared::Shared;
use crate::table::ViewTable;
use crate::time::now_us;
use history::History;
pub(crate) use history::{DAY, HistorySeries, TimeSpan};
pub(crate) use persistence::{flush_and_close, run_history_writer};
use process_usage::ProcessUsageReader;
pub(crate) use sample::LiveSample;
use sample::{CounterSnapshot, ViewTables};
#[cfg(test)]
pub(crate) use sample::{DatabaseSample, PoolSample};
use store::Store;

/// How often there is a sample.
const PERIOD: Duration = Duration::from_secs(1);

/// Streams at once; a further one is rejected.
const MAX_STREAMS: usize = 200;

/// Of more pools than this no histograms are asked for: they would be too long to read every second.
const POOLS_WITH_HISTOGRAMS: usize = 500;

/// The last sample and those before.
pub(crate) struct LiveSampler {
    pub(crate) streams: Arc<Semaphore>,
    sender: watch::Sender<Arc<LiveSample>>,
    history: Mutex<History>,
    store: Store,
}

impl LiveSampler {
    pub(crate) fn new() -> LiveSampler {
        let (sender, _) = watch::channel(Arc::default());
        LiveSampler {
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            sender,
            history: Mutex::default(),
            store: Store::default(),
        }
    }

    /// Samples as they come.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<LiveSample>> {
        self.sender.subscribe()
    }

    /// The past of one database, or of all together.
    pub(crate) fn series(&self, database: Option<&str>, span: TimeSpan) -> HistorySeries {
        self.history().series(database, span)
    }

    /// The second of the last sample; 0 before the first.
    pub(crate) fn newest(&self) -> u64 {
        self.history().newest()
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a sample every second, until it is dropped.
pub(crate) async fn run_sampler(shared: Arc<Shared>) {
    let (mut snapshot, mut process_usage) = (CounterSnapshot::default(), ProcessUsageReader::default());
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut line = 0;
    loop {
        ticks.tick().await;
        let (lines, next) = shared.log_ring.since(line);
        line = next;
        lines.iter().for_each(|line| shared.audit_trail.record_log_line(line));
        // A pooler that is too busy to answer is not asked again at once.
        let Ok(tables) = query_views(&shared, snapshot.pools()).await else { continue };
        #[expect(clippy::cast_precision_loss)]
        let t = now_us() as f64 / 1e6;
        let sample = Arc::new(snapshot.sample(t, &tables, process_usage.read()));
        shared.live.history().add(&sample);
        shared.live.sender.send_replace(sample);
    }
}

/// Asks for all that a sample is made of. `pools` is how many there were the last time.
async fn query_views(shared: &Shared, pools: usize) -> Result<ViewTables, ControlError> {
    let control_client = &shared.control_client;
    let histograms = async {
        if pools > POOLS_WITH_HISTOGRAMS {
            Ok(ViewTable::default())
        } else {
            control_client.show(HISTOGRAMS).await
        }
    };
    // At once: the control thread wakes up once for all of them.
    let (pools, totals, histograms, errors, shards) = tokio::try_join!(
        control_client.show(POOLS),
        control_client.show(STATS_TOTALS),
        histograms,
        control_client.show(ERRORS),
        control_client.show(SHARDS),
    )?;
    Ok(ViewTables { pools, totals, histograms, errors, shards })
}
