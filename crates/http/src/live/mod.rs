//! What the pooler is doing, once a second, for everybody who looks: one sample, however many they are.
//!
//! Owns the sampling and the last day. Who is slow misses samples; nobody is waited for. Never asks more of the
//! control thread than five views a second.

mod history;
mod keeping;
mod point;
mod process;
mod sample;
mod store;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::MissedTickBehavior;

use crate::bridge::NoAnswer;
use crate::shared::Shared;
use crate::table::Table;
use crate::time::now_us;
use history::History;
pub(crate) use history::{DAY, Past, Span};
pub(crate) use keeping::{keep_storing, store_now};
use process::Process;
pub(crate) use sample::Sample;
use sample::{Counted, Looked};
#[cfg(test)]
pub(crate) use sample::{DatabaseSample, PoolSample};
use store::Store;

/// How often there is a sample.
const PERIOD: Duration = Duration::from_secs(1);

/// At most so many look at once; a further one is told so.
const STREAMS: usize = 200;

/// Of more pools than this no histograms are asked for: they would be too long to read every second.
const POOLS_WITH_HISTOGRAMS: usize = 500;

/// The last sample and those before.
pub(crate) struct Live {
    pub(crate) streams: Arc<Semaphore>,
    sender: watch::Sender<Arc<Sample>>,
    history: Mutex<History>,
    store: Store,
}

impl Live {
    pub(crate) fn new() -> Live {
        let (sender, _) = watch::channel(Arc::default());
        Live {
            streams: Arc::new(Semaphore::new(STREAMS)),
            sender,
            history: Mutex::default(),
            store: Store::default(),
        }
    }

    /// Samples as they come.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Sample>> {
        self.sender.subscribe()
    }

    /// The past of one database, or of all together.
    pub(crate) fn past(&self, database: Option<&str>, span: Span) -> Past {
        self.history().past(database, span)
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
pub(crate) async fn keep_sampling(shared: Arc<Shared>) {
    let (mut counted, mut process) = (Counted::default(), Process::default());
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut line = 0;
    loop {
        ticks.tick().await;
        let (lines, next) = shared.journal.since(line);
        line = next;
        lines.iter().for_each(|line| shared.trail.note_line(line));
        // A pooler that is too busy to answer is not asked again at once.
        let Ok(looked) = look(&shared, counted.pools()).await else { continue };
        #[expect(clippy::cast_precision_loss)]
        let t = now_us() as f64 / 1e6;
        let sample = Arc::new(counted.sample(t, &looked, process.look()));
        shared.live.history().add(&sample);
        shared.live.sender.send_replace(sample);
    }
}

/// Asks for all that a sample is made of. `pools` is how many there were the last time.
async fn look(shared: &Shared, pools: usize) -> Result<Looked, NoAnswer> {
    let bridge = &shared.bridge;
    let histograms = async {
        if pools > POOLS_WITH_HISTOGRAMS { Ok(Table::default()) } else { bridge.show("HISTOGRAMS").await }
    };
    // At once: whoever answers wakes once for all of them.
    let (pools, totals, histograms, errors, shards) = tokio::try_join!(
        bridge.show("POOLS"),
        bridge.show("STATS_TOTALS"),
        histograms,
        bridge.show("ERRORS"),
        bridge.show("SHARDS"),
    )?;
    Ok(Looked { pools, totals, histograms, errors, shards })
}
