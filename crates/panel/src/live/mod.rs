//! Live figures, once a second: one sample for all streams.
//!
//! Owns the sampling and the last day. Slow readers miss samples. Never asks more of the
//! control thread than six views a second.

mod history;
mod host_history;
mod hosts;
mod persistence;
mod point;
mod process_usage;
mod sample;
mod store;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control::{ERRORS, HISTOGRAMS, HOSTS, POOLS, SHARDS, STATS_TOTALS};
use settings::Config;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::MissedTickBehavior;

use crate::context::PanelContext;
use crate::control_client::{ControlClient, ControlError};
use crate::table::ViewTable;
use crate::time::now_us;
use history::History;
pub(crate) use history::{DAY, HistorySeries, TimeSpan};
pub(crate) use host_history::HostSeries;
pub(crate) use hosts::is_lagging;
pub(crate) use persistence::HistoryWriter;
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
    streams: Arc<Semaphore>,
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

    /// A place for one more stream, until it is dropped; None where all are taken.
    pub(crate) fn admit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.streams).try_acquire_owned().ok()
    }

    /// Samples as they come.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<LiveSample>> {
        self.sender.subscribe()
    }

    /// The past of one database, or of all together.
    pub(crate) fn series(&self, database: Option<&str>, span: TimeSpan) -> HistorySeries {
        self.history().series(database, span)
    }

    /// The past of the hosts of an entry.
    pub(crate) fn host_series(&self, database: &str, span: TimeSpan) -> HostSeries {
        self.history().host_series(database, span)
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
pub(crate) async fn run_sampler(
    context: PanelContext,
    live: Arc<LiveSampler>,
    control_client: Arc<ControlClient>,
) {
    let (mut snapshot, mut process_usage) = (CounterSnapshot::default(), ProcessUsageReader::default());
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // A pooler that is too busy to answer is not asked again at once.
        let config = context.config();
        let Ok(tables) = query_views(&control_client, &config, snapshot.pools()).await else { continue };
        #[expect(clippy::cast_precision_loss)]
        let t = now_us() as f64 / 1e6;
        let sample = Arc::new(snapshot.sample(t, &tables, &config, process_usage.read()));
        live.history().add(&sample);
        live.sender.send_replace(sample);
    }
}

/// Asks for all that a sample is made of. `pools` is how many there were the last time.
async fn query_views(
    control_client: &ControlClient,
    config: &Config,
    pools: usize,
) -> Result<ViewTables, ControlError> {
    let histograms = async {
        if pools > POOLS_WITH_HISTOGRAMS {
            Ok(ViewTable::default())
        } else {
            control_client.show(HISTOGRAMS).await
        }
    };
    let hosts = async {
        let mut entries = config.databases.values().chain(&config.fallback);
        if entries.any(|entry| entry.has_roles()) {
            control_client.show(HOSTS).await
        } else {
            Ok(ViewTable::default())
        }
    };
    // At once: the control thread wakes up once for all of them.
    let (pools, totals, histograms, errors, shards, hosts) = tokio::try_join!(
        control_client.show(POOLS),
        control_client.show(STATS_TOTALS),
        histograms,
        control_client.show(ERRORS),
        control_client.show(SHARDS),
        hosts,
    )?;
    Ok(ViewTables { pools, totals, histograms, errors, shards, hosts })
}
