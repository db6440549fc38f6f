//! The past of figures that only some settings have: sizes of pools that size themselves, every second, and usage of quotas, every ten seconds.
//!
//! Owns when they are asked for: never where no pool has `auto`, or there are no quotas. Kept in memory, since the panel was started.

mod history;
mod pool_sizes;
mod quota_usage;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use control::{POOL_SIZES, QUOTAS};
use settings::{Config, PoolSize};
use tokio::time::MissedTickBehavior;

use crate::audit_trail::Mark;
use crate::context::PanelContext;
use crate::control_client::ControlClient;
use crate::live::{HistorySeries, TimeSpan};
use crate::time::now_us;
use pool_sizes::PoolSizes;
use quota_usage::QuotaUsage;
pub(crate) use quota_usage::UsageKey;

/// How often sizes are looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// Usage is read once in this many samples.
const USAGE_EVERY: u64 = 10;

/// The past of both.
#[derive(Default)]
pub(crate) struct Gauges {
    sizes: Mutex<PoolSizes>,
    usage: Mutex<QuotaUsage>,
}

impl Gauges {
    /// The past of the size of a pool: `size` and `found`.
    pub(crate) fn sizes(
        &self,
        database: &str,
        user: &str,
        host: Option<&str>,
        span: impl FnOnce(u64) -> TimeSpan,
    ) -> HistorySeries {
        let sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (database.to_owned(), user.to_owned(), host.map(str::to_owned));
        sizes.series(&key, span(sizes.newest()))
    }

    /// Changes of sizes between two seconds: of all pools, or of those of one entry.
    pub(crate) fn size_marks(&self, database: Option<&str>, from: u64, to: u64) -> Vec<Mark> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).marks(database, from, to)
    }

    /// The past of what a subject has used of a resource: `used`.
    pub(crate) fn usage(&self, key: &UsageKey, span: impl FnOnce(u64) -> TimeSpan) -> HistorySeries {
        let usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        usage.series(key, span(usage.newest()))
    }
}

/// Looks at both, until it is dropped.
pub(crate) async fn run_gauges(
    context: PanelContext,
    control_client: Arc<ControlClient>,
    gauges: Arc<Gauges>,
) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for tick in 0_u64.. {
        ticks.tick().await;
        let config = context.config();
        // A pooler that is too busy to answer is not asked again at once.
        if has_auto_sizes(&config)
            && let Ok(table) = control_client.show(POOL_SIZES).await
        {
            gauges.sizes.lock().unwrap_or_else(PoisonError::into_inner).add(now_us(), &table);
        }
        if tick % USAGE_EVERY == 0
            && !config.quotas.is_empty()
            && let Ok(table) = control_client.show(QUOTAS).await
        {
            gauges.usage.lock().unwrap_or_else(PoisonError::into_inner).add(now_us() / 1_000_000, &table);
        }
    }
}

fn has_auto_sizes(config: &Config) -> bool {
    let is_auto = |size: Option<PoolSize>| size == Some(PoolSize::Auto);
    config.global.default_pool_size == PoolSize::Auto
        || config.databases.values().chain(&config.fallback).any(|database| is_auto(database.pool_size))
        || config.users.values().any(|user| is_auto(user.pool_size))
}
